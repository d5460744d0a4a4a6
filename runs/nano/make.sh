#!/usr/bin/env bash
# Makes the embedded model again: the text from Debian's archive, tokenizer, token files, training, bf16 weights.
#     runs/nano/make.sh SNELLEN WORK_FOLDER
# SNELLEN is the program; WORK_FOLDER keeps everything, and an interrupted training goes on.
set -euo pipefail
snellen=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2" && cd "$2"

# The documentation of Python 3.11 as Debian bookworm ships it (PSF licence), sources of 497 pages, 12 MB. The archive keeps the newest
# revision only, and a later one differs in a few lines: DOC_VERSION takes it, and gives a model of other bytes.
version=${DOC_VERSION:-3.11.2-6+deb12u7}
package=python3.11-doc_${version}_all.deb
if [ ! -f "$package" ] && ! apt-get download "python3.11-doc=$version"; then
    echo "error: $package is not in this machine's archive; put the file into $PWD (snapshot.debian.org, package python3.11, keeps it)," >&2
    echo "or set DOC_VERSION to a version that is there: $(apt-cache madison python3.11-doc | awk '{print $3}' | tr '\n' ' ')" >&2
    exit 2
fi
[ -d text ] || dpkg -x "$package" text
sources=text/usr/share/doc/python3.11/html/_sources

[ -f tokenizer.json ] || "$snellen" tokens train "$sources" --vocab 2048 --to tokenizer.json
[ -f train.tok ] || "$snellen" tokens encode "$sources" --tokenizer tokenizer.json --to .
cp "$here/run.toml" run.toml
if [ -f run/run.toml ]; then
    "$snellen" train --resume run
else
    "$snellen" train run.toml --to run
fi
