#!/usr/bin/env python3
"""Times a passkey grid of 16 cells with `snellen probe` and the same prompts with `transformers` generate, one after the other.

    python3 benches/peers/probe_throughput.py --tokenizer tokenizer.json [--snellen target/release/snellen] [--threads 2] [--samples 1]

The model has the shape of the preset `medium` (12.4 million parameters, 8 layers of 320 channels, 8 heads) and random weights, as an
MPT checkpoint; the tokenizer has at most 8192 ids. Snellen is timed as a whole process, reading the model and building the prompts
included, and with the heads' sight of the fact computed, as it is by default; transformers from the first prompt to the last, model
loaded and prompts given as ids. Both decode greedily. Processor time stands beside the wall clock, because other work on the machine
lengthens the latter. Prints one Markdown row.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import time

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import mpt


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--snellen", type=pathlib.Path, default=mpt.ROOT / "target/release/snellen")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--lengths", default="1024,2048,3072,4096")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=pathlib.Path, default=mpt.ROOT / "target/peers/probe")
    return parser.parse_args()


def processor(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main():
    args = arguments()
    model = args.work / "medium-mpt"
    longest = max(int(length) for length in args.lengths.split(","))
    parameters = mpt.random(model, 8, 320, 8, 1280, 8192, longest, args.tokenizer)
    prompts = args.work / "prompts.jsonl"
    grid = ["--lengths", args.lengths, "--depths", "4", "--samples", str(args.samples), "--threads", str(args.threads)]
    probe = [str(args.snellen), "probe", str(model), *grid]
    subprocess.run([*probe, "--build-only", "--prompts", str(prompts), "--out", str(args.work / "built.txt")], check=True)
    records = [json.loads(line) for line in prompts.read_text().splitlines()]

    begun, used = time.perf_counter(), processor(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*probe, "--json"], check=True, capture_output=True, text=True)
    ours = time.perf_counter() - begun
    our_processor = processor(resource.RUSAGE_CHILDREN) - used
    answers = [sample["answer"] for cell in json.loads(done.stdout)["cells"] for sample in cell["results"]]

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(args.tokenizer))
    warm = torch.tensor([records[0]["ids"][:64]])
    network.generate(warm, attention_mask=torch.ones_like(warm), max_new_tokens=2, do_sample=False, pad_token_id=0)
    begun, used = time.perf_counter(), processor(resource.RUSAGE_SELF)
    said = []
    for record in records:
        ids = torch.tensor([record["ids"]])
        with torch.inference_mode():
            out = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=record["answer_room"], do_sample=False, pad_token_id=0)
        said.append(out[0, ids.shape[1] :].tolist())
    theirs = time.perf_counter() - begun
    their_processor = processor(resource.RUSAGE_SELF) - used
    # ours stops where the number ends
    same = sum(tokenizer.decode(new).startswith(answer.rstrip("\ufffd")) for new, answer in zip(said, answers))
    tokens = sum(len(record["ids"]) for record in records)
    print(f"{parameters} parameters, {len(records)} prompts of {tokens} tokens, {args.threads} threads, {same} of {len(records)} answers the same\n")
    print("| | wall, s | processor, s |\n|---|---|---|")
    print(f"| transformers {transformers.__version__} | {theirs:.1f} | {their_processor:.1f} |")
    print(f"| snellen probe | {ours:.1f} | {our_processor:.1f} |")
    print(f"| times faster | {theirs / ours:.2f} | {their_processor / our_processor:.2f} |")


if __name__ == "__main__":
    main()
