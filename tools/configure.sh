#!/usr/bin/env bash
# Configures a build folder once:  tools/configure.sh FOLDER [meson options...]
# Finds the NCCL and CUDA headers that tools/bootstrap.sh provides.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1; shift
[ -e "$folder/build.ninja" ] && exit 0
if [ -e /usr/include/nccl.h ]; then nccl=/usr/include; else nccl=$PWD/.deps/nvidia/nccl/include; fi
if [ -e /usr/local/cuda/include/cuda_runtime.h ]; then cuda=/usr/local/cuda/include
elif [ -e /usr/include/cuda_runtime.h ]; then cuda=/usr/include
else cuda=$PWD/.deps/nvidia/cuda_runtime/include,$PWD/.deps/nvidia/cuda_nvcc/include,$PWD/.deps/nvidia/cuda_cccl/include; fi
ptxas=$(command -v ptxas || true)
[ -n "$ptxas" ] || { [ -x .deps/nvidia/cuda_nvcc/bin/ptxas ] && ptxas=$PWD/.deps/nvidia/cuda_nvcc/bin/ptxas; } || true
meson setup "$folder" "-Dheaders_nccl=$nccl" "-Dheaders_cuda=$cuda" "-Dptxas=$ptxas" "$@"
