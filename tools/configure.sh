#!/usr/bin/env bash
# Configures a build folder, again when what is asked for has changed:
#   tools/configure.sh FOLDER [--new OPTION]... [meson options...]
# --new: an option of a folder that is made by this; one that is there keeps what it has. What `meson configure` changed
# by hand stays until what is asked for here changes. Finds the NCCL and CUDA headers that tools/bootstrap.sh provides.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1; shift
new=()
while [ "${1:-}" = --new ]; do new+=("$2"); shift 2; done
if [ -e /usr/include/nccl.h ]; then nccl=/usr/include; else nccl=$PWD/.deps/nvidia/nccl/include; fi
if [ -e /usr/local/cuda/include/cuda_runtime.h ]; then cuda=/usr/local/cuda/include
elif [ -e /usr/include/cuda_runtime.h ]; then cuda=/usr/include
else cuda=$PWD/.deps/nvidia/cuda_runtime/include,$PWD/.deps/nvidia/cuda_nvcc/include,$PWD/.deps/nvidia/cuda_cccl/include; fi
ptxas=$(command -v ptxas || true)
[ -n "$ptxas" ] || { [ -x .deps/nvidia/cuda_nvcc/bin/ptxas ] && ptxas=$PWD/.deps/nvidia/cuda_nvcc/bin/ptxas; } || true
options=("-Dheaders_nccl=$nccl" "-Dheaders_cuda=$cuda" "-Dptxas=$ptxas" "$@")
asked=$(printf '%s\n' "${options[@]}")
if [ ! -e "$folder/build.ninja" ]; then
  meson setup "$folder" ${new[@]+"${new[@]}"} "${options[@]}"
elif [ "$asked" != "$(cat "$folder/asked-options" 2>/dev/null)" ]; then
  echo "opus: $folder: configured again, for other options than last time"
  meson setup --reconfigure "$folder" "${options[@]}"
else
  exit 0
fi
printf '%s\n' "$asked" >"$folder/asked-options"
