#!/usr/bin/env bash
# Makes a virtual environment with PyTorch's public wheel, once, in the user's cache folder, and prints where it is:
#   tools/pytorch.sh [--where]        --where: only prints; ends with 1 where it is not there
# About 5 GB. PYTORCH_WHEEL: another wheel, or a file; its environment is named by PYTORCH_VERSION.
set -euo pipefail
version=${PYTORCH_VERSION:-2.15.0}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/opus/pytorch-$version
if [ -e "$folder/.complete" ]; then echo "$folder"; exit 0; fi
if [ "${1:-}" = --where ]; then echo "$folder"; exit 1; fi
echo "opus: installing PyTorch $version into $folder (5 GB, once)" >&2
mkdir -p "$(dirname "$folder")"
/usr/bin/python3 -m venv --clear "$folder"
"$folder/bin/pip" install -q --disable-pip-version-check --no-cache-dir "${PYTORCH_WHEEL:-torch==$version}" numpy >&2
touch "$folder/.complete"
echo "$folder"
