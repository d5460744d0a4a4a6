#!/usr/bin/env python3
"""Compares Snellen with what its users have now, both sides alternately in one run, and prints one Markdown table.

    python3 benches/peers/run.py [--threads 1 2] [--lengths 2048 8192] [--rounds 7] [--work DIR]

Needs Linux, cargo and a network on the first run: makes a virtual environment in DIR (default target/peers), installs torch and
transformers, builds our side in release mode, makes a BLOOM-560m-shaped checkpoint with random weights, then times. One thread is compared by CPU time, so that other work on the machine does not count; several threads by the
wall clock, which wants an idle machine. Medians; every round runs each side once, in turn.

What cannot run (no compiler for FlexAttention, no memory for a bias mask) is said in the table, not left out.
"""

import argparse
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["torch", "transformers", "safetensors", "numpy", "setuptools", "gguf", "xllamacpp"]
HEADS, WIDTH = 16, 64
PLANS = "ieee,ftz,hf-eager:f16,llama-cpp-cpu"
LAYERS, HIDDEN, VOCABULARY = 24, 1024, 8192
DOCUMENTED = "transformers, output_attentions"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lengths", type=int, nargs="*", default=[2048, 8192])
    parser.add_argument("--backward", type=int, nargs="*", default=[1024, 2048])
    parser.add_argument("--measure", type=int, nargs="*", default=[2048])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure-rounds", type=int, default=7)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "peers")
    parser.add_argument("--python", help="an interpreter that has the packages: no environment is made")
    parser.add_argument("--ours", type=pathlib.Path, help="a folder with our programs: nothing is built")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---------------------------------------------------------------- preparation


def environment(work):
    python = work / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def build():
    cargo = ["cargo", "build", "--release", "--locked", "--workspace", "--bins"]
    subprocess.run([*cargo, "--example", "attention_peer"], cwd=ROOT, check=True)
    return ROOT / "target" / "release"


# ---------------------------------------------------------------- attention: the torch side, in this process


class Torch:
    def __init__(self, threads):
        import torch

        self.torch = torch
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.flex = None

    def inputs(self, n, gradients=False):
        shape = (1, HEADS, n, WIDTH)
        make = lambda: (1.22 * self.torch.randn(shape)).requires_grad_(gradients)
        return make(), make(), make()

    def slopes(self):
        return self.torch.tensor([2.0 ** (-(h + 1) / 2) for h in range(HEADS)])

    def mask(self, n):
        """[1, heads, n, n]: bias, minus infinity after the query."""
        at = self.torch.arange(n)
        distance = (at[:, None] - at[None, :]).float()
        mask = -self.slopes()[:, None, None] * distance
        return mask.masked_fill_(distance < 0, -math.inf)[None]

    def way(self, name, n):
        """A function of q, k, v."""
        attention = self.torch.nn.functional.scaled_dot_product_attention
        if name == "SDPA, ALiBi mask":
            mask = self.mask(n)
            return lambda q, k, v: attention(q, k, v, attn_mask=mask)
        if name == "SDPA, causal, no bias":
            return lambda q, k, v: attention(q, k, v, is_causal=True)
        if name == "eager, ALiBi mask":
            mask = self.mask(n)

            def eager(q, k, v):
                scores = q @ k.transpose(-1, -2) * WIDTH**-0.5 + mask
                return self.torch.softmax(scores, -1) @ v

            return eager
        if name == "FlexAttention, ALiBi":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            slopes = self.slopes()
            causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
            alibi = lambda score, b, h, i, j: score + slopes[h] * (j - i)
            if self.flex is None:
                self.flex = self.torch.compile(flex_attention)
            return lambda q, k, v: self.flex(q, k, v, score_mod=alibi, block_mask=causal)
        raise ValueError(name)

    def time(self, way, n, backward):
        q, k, v = self.inputs(n, backward)
        gradient = self.torch.randn(1, HEADS, n, WIDTH)
        wall, cpu = time.perf_counter(), time.process_time()
        out = way(q, k, v)
        if backward:
            out.backward(gradient)
        return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


class Ours:
    def __init__(self, programs, threads):
        command = [programs / "examples" / "attention_peer", str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def time(self, what, n):
        self.process.stdin.write(f"{what} {n}\n")
        self.process.stdin.flush()
        wall, cpu = map(float, self.process.stdout.readline().split())
        return wall, cpu

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def pin(process, threads, work, first_works):
    """Gives each of the threads that do `work` a processor of its own: systems have been seen to run both on one for a while.

    `first_works`: whether the first thread of the process is one of them.
    """

    def used():
        times = {}
        for task in pathlib.Path(f"/proc/{process}/task").iterdir():
            times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        return times

    before = used()
    work()
    # The clock of a thread that still runs is a tick late.
    time.sleep(0.02)
    after = used()
    if not first_works:
        after.pop(process)
    busy = lambda task: after[task] - before.get(task, 0)
    busiest = sorted(after, key=busy, reverse=True)[:threads]
    processors = sorted(os.sched_getaffinity(0))
    for place, task in enumerate(sorted(busiest)):
        os.sched_setaffinity(task, {processors[place % len(processors)]})


def free_gib():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return 0.0


def attention(threads, what, n, rounds, programs):
    """Rows (name, milliseconds or reason)."""
    ours, torch = Ours(programs, threads), Torch(threads)
    backward = what == "backward"
    names = ["SDPA, ALiBi mask", "SDPA, causal, no bias", "eager, ALiBi mask"]
    if not backward:
        names.append("FlexAttention, ALiBi")
    ways, times, reasons = {}, {"Snellen": []}, {}
    mask_gib = HEADS * n * n * 4 / 2**30
    for name in names:
        # The mask, and its parts while it is made; eager holds three of its size more.
        needed = mask_gib * {"SDPA, ALiBi mask": 3, "eager, ALiBi mask": 6}.get(name, 0.5)
        if needed > free_gib() - 2:
            reasons[name] = f"needs {needed:.0f} GiB, {free_gib():.0f} free"
            continue
        try:
            ways[name] = torch.way(name, n)
            torch.time(ways[name], n, backward)
            times[name] = []
        except Exception as error:  # whatever the other side raises is its answer
            ways.pop(name, None)
            reasons[name] = "does not run: " + str(error).strip().split("\n")[0][:60]
    clock = 1 if threads == 1 else 0
    ours.time(what, n)
    everywhere = os.sched_getaffinity(0)
    if threads > 1:
        pin(ours.process.pid, threads, lambda: ours.time(what, n), False)
        if ways:
            name, way = next(iter(ways.items()))
            pin(os.getpid(), threads, lambda: torch.time(way, n, backward), True)
    for _ in range(rounds):
        times["Snellen"].append(ours.time(what, n)[clock])
        for name, way in ways.items():
            times[name].append(torch.time(way, n, backward)[clock])
    ours.close()
    # Programs that are started from here inherit it.
    os.sched_setaffinity(0, everywhere)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return medians, reasons


def scaling(threads, n, rounds, programs):
    """Milliseconds by the wall clock of our forward pass on one thread and on several, in turn."""
    sides = {count: Ours(programs, count) for count in (1, threads)}
    for count, ours in sides.items():
        ours.time("forward", n)
        pin(ours.process.pid, count, lambda: ours.time("forward", n), False)
    times = {count: [] for count in sides}
    for _ in range(rounds):
        for count, ours in sides.items():
            times[count].append(ours.time("forward", n)[0])
    for ours in sides.values():
        ours.close()
    return {count: statistics.median(values) for count, values in times.items()}


# ---------------------------------------------------------------- measure: child processes


def checkpoint(work, python):
    folder = work / "bloom560"
    if not (folder / "model.safetensors").exists():
        child([python, __file__, "--child", f"make {folder}"])
    return folder


def make(folder):
    import numpy
    import torch
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    config = BloomConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, seq_length=2048
    )
    BloomForCausalLM(config).save_pretrained(folder)
    ids = numpy.random.default_rng(0).integers(4, VOCABULARY, 65536, dtype=numpy.int32)
    ids.tofile(pathlib.Path(folder) / "ids.i32")


def child(command, **environment):
    """Wall and CPU seconds and peak GiB of a process; the seconds are those that it prints itself, if it does."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=out, stderr=err, env={**os.environ, **environment}
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace").strip())
    if status:
        raise RuntimeError(texts[1].split("\n")[-1][:80] or f"status {status}")
    try:
        own_wall, own_cpu = map(float, texts[0].split("\n")[-1].split())
    except ValueError:
        own_wall, own_cpu = wall, usage.ru_utime + usage.ru_stime
    return own_wall, own_cpu, usage.ru_maxrss / 2**20


def measure(threads, n, rounds, programs, python, work):
    folder = checkpoint(work, python)
    ours = [programs / "snellen", "measure", folder, "--tokens", folder / "ids.i32"]
    ours += ["--length", n, "--plan", PLANS, "--format", "json", "--exit-zero", "--threads", threads]
    script = pathlib.Path(__file__).with_name("measure_sides.py")
    other = lambda side: [python, script, side, folder, n, threads]
    sides = {
        "Snellen": ours,
        DOCUMENTED: other("documented"),
        "transformers, attention in blocks": other("expert"),
        "llama.cpp, forward alone": other("llama.cpp"),
    }
    # Half of torch's time goes into returning memory to the system: this is the honest opponent.
    tuned = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "68719476736"}
    tuned["OMP_NUM_THREADS"] = str(threads)
    clock = 1 if threads == 1 else 0
    times, peaks, reasons = {}, {}, {}
    # Maps of all layers, and what eager holds beside them.
    needed = LAYERS * HEADS * n * n * 4 / 2**30 * 1.4 + 3
    if needed > free_gib():
        reasons[DOCUMENTED] = f"needs {needed:.0f} GiB, {free_gib():.0f} free"
        sides.pop(DOCUMENTED)
    # llama.cpp's checkpoint is written before anything is timed.
    try:
        child([*other("llama.cpp")[:4], 8, threads])
    except RuntimeError:
        pass  # it is asked again, and says why
    for _ in range(rounds):
        for name, command in list(sides.items()):
            try:
                result = child(command, **(tuned if name != "Snellen" else {}))
            except RuntimeError as error:
                reasons[name] = f"does not run: {error}"
                sides.pop(name)
                continue
            times.setdefault(name, []).append(result[clock])
            peaks[name] = max(peaks.get(name, 0), result[2])
    medians = {name: statistics.median(values) for name, values in times.items()}
    return medians, peaks, reasons


# ---------------------------------------------------------------- the table


def table_rows(label, threads, medians, reasons, unit, peaks=None):
    ours = medians["Snellen"]
    rows = []
    for name in [*medians, *reasons]:
        if name in reasons:
            value, ratio = reasons[name], ""
        else:
            value = f"{medians[name]:.1f} {unit}"
            if peaks:
                value += f", {peaks[name]:.1f} GiB"
            ratio = f"{medians[name] / ours:.2f}"
        rows.append(f"| {label} | {threads} | {name} | {value} | {ratio} |")
    return rows


def main():
    options = arguments()
    if options.child:
        return make(options.child.split()[1])
    options.work.mkdir(parents=True, exist_ok=True)
    python = options.python or environment(options.work)
    if "SNELLEN_PEERS" not in os.environ:
        os.environ["SNELLEN_PEERS"] = "running in the environment"
        os.execv(python, [str(python), *sys.argv])
    programs = options.ours or build()
    print("| work | threads | side | median | times ours |", flush=True)
    print("|---|---|---|---|---|", flush=True)
    for threads in options.threads:
        unit = "CPU ms" if threads == 1 else "ms"
        for n in options.lengths if threads > 1 else []:
            medians = scaling(threads, n, 4 * options.rounds, programs)
            for count, value in medians.items():
                times = f"{medians[1] / value:.2f} times one thread"
                print(f"| attention forward, {n}, alone | {count} | Snellen | {value:.1f} ms | {times} |", flush=True)
        for what, lengths in [("forward", options.lengths), ("backward", options.backward)]:
            label = "attention forward" if what == "forward" else "attention forward + backward"
            for n in lengths:
                medians, reasons = attention(threads, what, n, options.rounds, programs)
                rows = table_rows(f"{label}, {n}", threads, medians, reasons, unit)
                print("\n".join(rows), flush=True)
        for n in options.measure:
            medians, peaks, reasons = measure(
                threads, n, options.measure_rounds, programs, python, options.work
            )
            unit = "CPU s" if threads == 1 else "s"
            rows = table_rows(f"measure, {n}", threads, medians, reasons, unit, peaks)
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
