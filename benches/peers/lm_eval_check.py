#!/usr/bin/env python3
"""Scores the same items with lm-evaluation-harness and with `snellen eval`, item by item, and says where and why they differ.

    python3 benches/peers/lm_eval_check.py --data FOLDER [--snellen target/release/snellen] [--items 200] [--work DIR]

FOLDER holds lambada_openai.jsonl and piqa.jsonl (llm-foundry's local data: context and continuation; query, choices and gold) and,
if it is there, hellaswag_val_full.txt(.bz2), six lines an item. The model is that of runs/nano as an MPT checkpoint. Needs torch,
transformers and lm_eval (checked with 0.4.13); nothing is downloaded. Prints one Markdown table; ends with 1 when a decision
differs by more than the arithmetic explains.
"""

import argparse
import bz2
import json
import os
import pathlib
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import mpt

# f32 log-likelihoods of up to some hundred tokens, summed in another order: a decision may differ where its margin is below this, nats.
MARGIN = 1e-3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--snellen", type=pathlib.Path, default=mpt.ROOT / "target/release/snellen")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--work", type=pathlib.Path, default=mpt.ROOT / "target/peers/lm_eval")
    return parser.parse_args()


def harness(model, files):
    """Runs lm_eval on local files; gives for each task its results and its samples in order."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), pad_token="<|endoftext|>", eos_token="<|endoftext|>")
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    runner = HFLM(pretrained=network, tokenizer=tokenizer, batch_size=1, max_length=2048, device="cpu")
    results = {}
    for task, file in files.items():
        config = {
            "task": task,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(file)}},
            "test_split": "test",
            "num_fewshot": 0,
        }
        if task == "lambada":
            config |= {
                "output_type": "loglikelihood",
                "doc_to_text": "{{context}}",
                "doc_to_target": "{{' '+continuation}}",
                "metric_list": [
                    {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
                    {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
                ],
            }
        else:
            config |= {
                "output_type": "multiple_choice",
                "doc_to_text": "{{query}}",
                "doc_to_target": "gold",
                "doc_to_choice": "choices",
                "metric_list": [
                    {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
                    {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
                ],
            }
        done = lm_eval.simple_evaluate(model=runner, tasks=[config], bootstrap_iters=0, log_samples=True, verbosity="ERROR")
        samples = sorted(done["samples"][task], key=lambda sample: sample["doc_id"])
        results[task] = (done["results"][task], samples)
    return results


def ours(snellen, model, file, n, work):
    items = work / f"{file.stem}.items.jsonl"
    command = [snellen, "eval", model, "--task", file, "--limit", str(n), "--items", items, "--json"]
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    records = [json.loads(line) for line in items.read_text().splitlines()]
    return json.loads(done.stdout)["task"], records


def cut(source, target, n):
    target.write_text("".join(source.read_text().splitlines(keepends=True)[:n]))
    return target


def hellaswag(folder, work, n):
    """The six-line text for Snellen, and for the harness the same items by its own preparation."""
    from lm_eval.tasks.hellaswag.utils import preprocess

    packed, plain = folder / "hellaswag_val_full.txt.bz2", folder / "hellaswag_val_full.txt"
    if not packed.exists() and not plain.exists():
        return None
    text = bz2.decompress(packed.read_bytes()).decode() if packed.exists() else plain.read_text()
    lines = text.split("\n")[: 6 * n]
    own, theirs = work / "hellaswag.txt", work / "hellaswag.jsonl"
    own.write_text("\n".join(lines) + "\n")
    with theirs.open("w") as out:
        for at in range(0, len(lines), 6):
            query, gold, *endings = lines[at : at + 6]
            item = {"query": preprocess(query), "choices": [preprocess(e) for e in endings], "gold": int(gold)}
            out.write(json.dumps(item) + "\n")
    return own, theirs


def compare(task, theirs, ours):
    """A row of the table, and how many decisions differ without the arithmetic to explain it."""
    (their_result, samples), (our_result, records) = theirs, ours
    assert len(samples) == len(records), f"{task}: {len(samples)} and {len(records)} items"
    largest, differ, close = 0.0, 0, 0
    for sample, record in zip(samples, records):
        values = [float(response[0]) for response in [r[0] if isinstance(r[0], (list, tuple)) else r for r in sample["resps"]]]
        found = [alternative["log_likelihood"] for alternative in record["alternatives"]]
        largest = max([largest] + [abs(a - b) for a, b in zip(values, found)])
        if task == "lambada":
            same, margin = bool(sample["acc"]) == record["correct"], None
        else:
            lengths = [alternative["characters"] for alternative in record["alternatives"]]
            normed = [value / length for value, length in zip(found, lengths)]
            same = values.index(max(values)) == record["predicted"]
            same &= bool(sample["acc"]) == (record["predicted"] == record["gold"])
            same &= bool(sample["acc_norm"]) == (record["predicted_by_character"] == record["gold"])
            two = sorted(found)[-2:]
            margin = min(two[1] - two[0], (sorted(normed)[-1] - sorted(normed)[-2]) * min(lengths))
        if not same:
            differ += 1
            close += margin is not None and margin < MARGIN
    acc, norm = their_result["acc,none"], their_result.get("acc_norm,none")
    row = [
        task,
        str(len(records)),
        f"{acc:.4f}",
        f"{our_result['acc']['value']:.4f}",
        "-" if norm is None else f"{norm:.4f}",
        "-" if norm is None else f"{our_result['acc_norm']['value']:.4f}",
        f"{largest:.1e}",
        f"{differ}",
        f"{close}",
    ]
    return row, differ - close


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    model = args.work / "nano-mpt"
    mpt.nano(model, 2048)
    files = {
        "lambada": cut(args.data / "lambada_openai.jsonl", args.work / "lambada.jsonl", args.items),
        "piqa": cut(args.data / "piqa.jsonl", args.work / "piqa.jsonl", args.items),
    }
    own = dict(files)
    if pair := hellaswag(args.data, args.work, args.items):
        own["hellaswag"], files["hellaswag"] = pair
    theirs = harness(model, files)
    head = ["task", "items", "acc, lm_eval", "acc, snellen", "acc_norm, lm_eval", "acc_norm, snellen", "largest difference, nats", "decisions that differ", "of them with a margin below 1e-3"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    unexplained = 0
    for task in files:
        row, odd = compare(task, theirs[task], ours(args.snellen, model, own[task], args.items, args.work))
        unexplained += odd
        print("| " + " | ".join(row) + " |")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
