#!/usr/bin/env bash
# Makes the embedded model again: the text from Debian's archive, tokenizer, token files, training, bf16 weights.
#     runs/nano/make.sh SNELLEN WORK_FOLDER
# SNELLEN is the program; WORK_FOLDER keeps everything, and an interrupted training goes on.
set -euo pipefail
snellen=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2" && cd "$2"

# The weights here were made from this revision; another gives a model of other bytes.
revision=3.11.2-6+deb12u7
. "$here/../python-docs.sh"

[ -f tokenizer.json ] || "$snellen" tokens train "$sources" --vocab 2048 --to tokenizer.json
[ -f train.tok ] || "$snellen" tokens encode "$sources" --tokenizer tokenizer.json --to .
cp "$here/run.toml" run.toml
if [ -f run/run.toml ]; then
    "$snellen" train --resume run
else
    "$snellen" train run.toml --to run
fi
