#!/usr/bin/env python3
"""Scores the finished models of a study on multiple-choice tasks, one line a trial and task.

    studies/downstream.py SNELLEN OUT TASK.jsonl... > studies/NAME/downstream.tsv
    studies/downstream.py --table studies/NAME/downstream.tsv

OUT is the folder that `snellen study run` was given. Accuracy is that of `snellen eval`, by log-likelihood and by log-likelihood per character; `answer_nats` is what the right
answer costs. The table has
the mean over seeds and its 95 % interval by Student's t.
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def score(snellen, trial, task):
    run = trial / "run"
    command = [snellen, "eval", run / "final" / "model.toml", "--tokenizer", run / "tokenizer.json", "--task", task, "--format", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["task"]
    return found["items"], found["acc"]["value"], found["acc_norm"]["value"], found["gold_nats"]


def run(snellen, out, tasks):
    print("trial", "task", "items", "accuracy", "by_character", "answer_nats", sep="\t", flush=True)
    for trial in sorted(pathlib.Path(out, "trials").iterdir()):
        if not (trial / "run" / "final").exists():
            continue
        for task in tasks:
            items, *scores = score(snellen, trial, task)
            # A task of the shape of WinoGrande has no answer of its own length.
            scores = ["" if x is None else f"{x:.4f}" for x in scores]
            print(trial.name, pathlib.Path(task).stem, items, *scores, sep="\t", flush=True)


def table(path):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()[1:]]
    tasks = list(dict.fromkeys(row[1] for row in rows))
    variants = {}
    for trial, task, _, accuracy, *_ in rows:
        variants.setdefault(trial.rsplit("-s", 1)[0], {}).setdefault(task, []).append(float(accuracy))
    print("| | n | " + " | ".join(tasks) + " |")
    print("|---|---:|" + "---|" * len(tasks))
    for variant, scores in variants.items():
        cells = []
        for task in tasks:
            x = scores[task]
            half = T[len(x) - 1] * statistics.stdev(x) / math.sqrt(len(x))
            cells.append(f"{100 * statistics.mean(x):.1f} ±{100 * half:.1f}")
        print(f"| {variant} | {len(scores[tasks[0]])} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2])
    elif len(sys.argv) > 3:
        run(sys.argv[1], sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)
