#!/usr/bin/env bash
# Makes a virtual environment of frameworks that train on PyTorch, once, in the user's cache folder, and prints where it is:
#   tools/frameworks.sh [--where]        --where: only prints; ends with 1 where it is not there
# About 1 GB, beside PyTorch (tools/pytorch.sh), which it uses.
set -euo pipefail
folder=${XDG_CACHE_HOME:-$HOME/.cache}/opus/frameworks-1
if [ -e "$folder/.complete" ]; then echo "$folder"; exit 0; fi
if [ "${1:-}" = --where ]; then echo "$folder"; exit 1; fi
pytorch=$("$(dirname "$0")/pytorch.sh")
echo "opus: installing accelerate, transformers, Lightning, DeepSpeed, Megatron-core and torchtitan into $folder (1 GB, once)" >&2
/usr/bin/python3 -m venv --clear "$folder"
echo "$pytorch"/lib/python3*/site-packages >"$(echo "$folder"/lib/python3*/site-packages)/pytorch.pth"
"$folder/bin/pip" install -q --disable-pip-version-check --no-cache-dir wheel >&2
"$folder/bin/pip" install -q --disable-pip-version-check --no-cache-dir \
  accelerate==1.15.0 transformers==5.23.0 lightning==2.6.6 deepspeed==0.19.8 megatron-core==0.16.1 torchtitan==0.3.0 >&2
touch "$folder/.complete"
echo "$folder"
