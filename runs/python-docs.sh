# Sourced by scripts that train on the documentation of Python 3.11, with `revision` set and in the folder of the work: leaves the text
# unpacked there and its place in `sources`. From Debian bookworm's archive (PSF licence, 497 pages, 12 MB), which keeps the newest
# revision only; a later one differs in a few lines, and DOC_VERSION takes it.
version=${DOC_VERSION:-$revision}
package=python3.11-doc_${version}_all.deb
if [ ! -f "$package" ] && ! apt-get download "python3.11-doc=$version"; then
    echo "error: $package is not in this machine's archive; put the file into $PWD (snapshot.debian.org, package python3.11, keeps it)," >&2
    echo "or set DOC_VERSION to a version that is there: $(apt-cache madison python3.11-doc | awk '{print $3}' | tr '\n' ' ')" >&2
    exit 2
fi
[ -d text ] || dpkg -x "$package" text
sources=text/usr/share/doc/python3.11/html/_sources
