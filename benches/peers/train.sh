#!/usr/bin/env bash
# Training steps of this project and of PyTorch, alternately, in one go; a Markdown table out.
#     benches/peers/train.sh [WORK_FOLDER] [ROUNDS]
# Makes a Python environment with torch (CPU wheel) and safetensors in WORK_FOLDER, unless PYTHON names one that has them. PyTorch runs
# with the allocator settings that make it fastest, in three ways: eager; eager with an MKL that takes every processor for one of
# Intel's, because on others it leaves AVX-512 unused (needs a C compiler); torch.compile (needs a C++ compiler). What does not run is
# left out of the table and said. Two checks come with it: the losses of twelve steps from the same weights and batch, and the cost
# of each remedy.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=${1:-peers-work}
rounds=${2:-3}
mkdir -p "$work/dump"
work=$(realpath "$work")
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$work/venv/bin/python
    if [ ! -x "$PYTHON" ]; then
        python3 -m venv "$work/venv"
        "$work/venv/bin/pip" install --quiet torch safetensors numpy packaging --extra-index-url https://download.pytorch.org/whl/cpu
    fi
fi
if [ -z "${TRAIN_STEP:-}" ]; then
    cargo build --release -p snellen-train --benches
    TRAIN_STEP=$(ls -t target/release/deps/train_step-* | grep -v '\.d$' | head -1)
fi
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184
torch() { "$PYTHON" benches/peers/train_torch.py "$@"; }
mkl=$work/mkl.so
echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -x c -o "$mkl" - || rm -f "$mkl"

log="$work/train.log"
: >"$log"
for threads in 1 2; do
    for configuration in A B; do
        for _ in $(seq "$rounds"); do
            "$TRAIN_STEP" "$configuration" "$threads" 3 --dump "$work/dump" | tee -a "$log" >&2
            torch "$configuration" --threads "$threads" --steps 3 --from "$work/dump" | tee -a "$log" >&2
            if [ -f "$mkl" ]; then
                LD_PRELOAD="$mkl" torch "$configuration" --threads "$threads" --steps 3 --from "$work/dump" --name torch-mkl | tee -a "$log" >&2
            fi
            torch "$configuration" --threads "$threads" --steps 3 --from "$work/dump" --compile | tee -a "$log" >&2 ||
                echo "torch.compile does not run $configuration with $threads threads" >&2
        done
    done
done
for remedy in none log clamp=-12 robust=even cap=30 none; do
    "$TRAIN_STEP" A 1 5 --remedy "$remedy" | sed 's/RESULT/REMEDY/' | tee -a "$log" >&2
done
"$TRAIN_STEP" A 1 10 --dump "$work/dump" | sed 's/RESULT/LOSSES/' | tee -a "$log" >&2
torch A --threads 1 --steps 10 --from "$work/dump" | sed 's/RESULT/LOSSES/' | tee -a "$log" >&2

"$PYTHON" - "$log" <<'PYTHON'
import re, statistics, sys

runs, losses, remedies = {}, [], {}
for line in open(sys.argv[1]):
    kind = line.split()[1]
    field = dict(part.split("=", 1) for part in line.split() if "=" in part)
    if line.startswith("LOSSES"):
        losses.append([float(x) for x in field["losses"].split(",")])
        continue
    if line.startswith("REMEDY"):
        # The value of `remedy=clamp=-12` holds an equals sign itself.
        remedy = re.search(r"remedy=(\S+)", line).group(1)
        remedies.setdefault(remedy, []).append(float(field["cpu_med"].rstrip("s")))
        continue
    runs.setdefault((field["cfg"], field["threads"]), {}).setdefault(kind, []).append(
        (float(field["step_med"].rstrip("s")), float(field["cpu_med"].rstrip("s")), float(field["peakMiB"]))
    )
print("| configuration, threads | side | s/step | CPU s/step | times ours, wall | times ours, CPU | peak MiB |")
print("|---|---|---|---|---|---|---|")
for (configuration, threads), sides in sorted(runs.items()):
    for side, theirs in sides.items():
        median = lambda i: statistics.median(run[i] for run in theirs)
        ratio = lambda i: statistics.median(t[i] / o[i] for o, t in zip(sides["snellen"], theirs))
        print(
            f"| {configuration}, {threads} | {side} | {median(0):.2f} | {median(1):.2f} | {ratio(0):.2f} | {ratio(1):.2f} | {median(2):.0f} |"
        )
base = min(remedies.get("none", [float("nan")]))
for remedy, seconds in remedies.items():
    print(f"remedy {remedy}: {min(seconds) / base:.3f} of linear's CPU time")
ours, theirs = losses
worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
print(f"losses of {len(ours)} steps: largest relative difference {worst:.2e}")
PYTHON
