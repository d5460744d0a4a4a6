#!/usr/bin/env bash
# Runs a study of this folder from nothing but Debian's archive: the text, tokenizer, token files, all trials. What is done is kept; the
# same command goes on.
#     studies/make.sh SNELLEN WORK_FOLDER small|underflow|far|needle|medium [more options of `snellen study run`, such as --jobs 2]
set -euo pipefail
snellen=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
study=$3
mkdir -p "$2" && cd "$2"
shift 3

# The records here were made from this revision; another differs in the last digits of every number.
revision=3.11.2-6+deb12u9
. "$here/../runs/python-docs.sh"

# studies of one vocabulary share token files
case $study in
medium) vocabulary=2048 ;;
*) vocabulary=1024 ;;
esac
sources=$PWD/$sources
mkdir -p "vocabulary-$vocabulary" && cd "vocabulary-$vocabulary"
[ -f tokenizer.json ] || "$snellen" tokens train "$sources" --vocab "$vocabulary" --to tokenizer.json
[ -f train.tok ] || "$snellen" tokens encode "$sources" --tokenizer tokenizer.json --to .
cp "$here/$study/study.toml" "$study.toml"
"$snellen" study run "$study.toml" --to "$study" "$@"
"$snellen" study report "$study"
