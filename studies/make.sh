#!/usr/bin/env bash
# Runs a study of this folder from nothing but Debian's archive: the text, tokenizer, token files, all trials. What is done is kept; the
# same command goes on.
#     studies/make.sh SNELLEN WORK_FOLDER small|underflow [more options of `snellen study run`, such as --jobs 2]
set -euo pipefail
snellen=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
study=$3
mkdir -p "$2" && cd "$2"
shift 3

# The documentation of Python 3.11 as Debian bookworm ships it (PSF licence). The records here were made from revision deb12u9; the archive
# keeps the newest revision only, and a later one differs in a few lines, hence in the last digits of every number.
version=${DOC_VERSION:-3.11.2-6+deb12u9}
package=python3.11-doc_${version}_all.deb
if [ ! -f "$package" ] && ! apt-get download "python3.11-doc=$version"; then
    echo "error: $package is not in this machine's archive; put the file into $PWD (snapshot.debian.org, package python3.11, keeps it)," >&2
    echo "or set DOC_VERSION to a version that is there: $(apt-cache madison python3.11-doc | awk '{print $3}' | tr '\n' ' ')" >&2
    exit 2
fi
[ -d text ] || dpkg -x "$package" text
sources=text/usr/share/doc/python3.11/html/_sources

[ -f tokenizer.json ] || "$snellen" tokens train "$sources" --vocab 1024 --to tokenizer.json
[ -f train.tok ] || "$snellen" tokens encode "$sources" --tokenizer tokenizer.json --to .
cp "$here/$study/study.toml" "$study.toml"
"$snellen" study run "$study.toml" --to "$study" "$@"
"$snellen" study report "$study"
