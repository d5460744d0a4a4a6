#!/usr/bin/env python3
"""The tables of docs/STUDY.md from the records in this folder: one row a variant, one column a quantity.

    snellen study report studies/small --format json | studies/tables.py

A cell is the mean over seeds with half the width of its 95 % interval; a star marks a difference to the baseline whose p value, corrected
for all comparisons of the report's table (Holm), is below 0.05.
"""

import json
import sys

report = json.load(sys.stdin)
tables = {table["name"]: table["rows"] for table in report["tables"]}


def number(row, digits):
    text = f"{row['mean']:.{digits}f}"
    if row["low"] is not None:
        text += f" ±{(row['high'] - row['low']) / 2:.{digits}f}"
    difference = row["difference"]
    p = difference and difference["p_corrected"]
    return text + ("\\*" if p is not None and p < 0.05 else "")


def pivot(rows, columns, digits, key=lambda row: row["variant"]):
    order, cells, counts = [], {}, {}
    for row in rows:
        if row["quantity"] not in columns:
            continue
        name = key(row)
        if name not in cells:
            order.append(name)
            cells[name] = {}
        cells[name][row["quantity"]] = number(row, digits)
        counts[name] = max(counts.get(name, 0), row["n"])
    print("| | n | " + " | ".join(columns) + " |")
    print("|---|---:|" + "---|" * len(columns))
    for name in order:
        print(f"| {name} | {counts[name]} | " + " | ".join(cells[name].get(c, "") for c in columns) + " |")
    print()


def overview():
    """One row a variant: what most readers look for, at the shortest and the longest length."""
    lengths = sorted({int(row["quantity"].rsplit(" ", 1)[1]) for row in tables.get("loss", [])})
    ends = list(dict.fromkeys((lengths[0], lengths[-1])))
    asked = {row["quantity"].split(",")[0] for row in tables.get("recall", [])}
    tasks = [task for task in ("passkey", "pair", "needle") if task in asked]
    near = min((int(row["quantity"].rsplit(" ", 1)[1]) for row in tables.get("blind", [])), default=lengths[0])
    wanted = {
        "recall": ([f"{task}, length {length}" for task in tasks for length in ends], 2),
        "loss": ([f"loss, length {length}" for length in ends], 2),
        "blind": ([f"ieee, length {near}", f"hf-eager:f16, length {near}"], 2),
        "cost": (["CPU time per step over the baseline's"], 2),
    }
    cells = {}
    for name, (columns, digits) in wanted.items():
        for row in tables.get(name, []):
            if row["quantity"] in columns:
                own = cells.setdefault(row["variant"], {"n": row["n"]})
                own[row["quantity"]] = number(row, digits)
    columns = [column for names, _ in wanted.values() for column in names]
    heads = [f"{what}, {length}" for what in [*tasks, "loss"] for length in ends] + ["zeros ieee", "zeros f16", "time"]
    print("### overview\n\n| | n | " + " | ".join(heads) + " |\n|---|---:|" + "---|" * len(heads))
    for variant, own in cells.items():
        print(f"| {variant} | {own['n']} | " + " | ".join(own.get(column, "") for column in columns) + " |")
    print()


def quantities(rows):
    return list(dict.fromkeys(row["quantity"] for row in rows))


overview()
for name, digits in (("recall", 3), ("loss", 3), ("blind", 3), ("cost", 2)):
    rows = tables.get(name, [])
    print(f"### {name}\n")
    pivot(rows, quantities(rows), digits)

rows = tables.get("what-if", [])
for variant in dict.fromkeys(row["variant"] for row in rows):
    own = [row for row in rows if row["variant"] == variant]
    print(f"### {variant}, changed at inference\n")
    pivot(own, quantities(own), 3, key=lambda row: row["change"] or "as trained")

print("### horizons: measured over predicted, pairs\n")
print("| trial | predicted | measured | length |\n|---|---:|---:|---:|")
for line in report["horizons"]:
    if line["task"] == "pair" and line["predicted"] is not None and line["measured"] is not None:
        more = [">" if line[f"{side}_unbounded"] else "" for side in ("predicted", "measured")]
        print(f"| {line['trial']} | {more[0]}{line['predicted']} | {more[1]}{line['measured']} | {line['length']} |")
