#!/usr/bin/env bash
# Installs what building and running Opus needs on Debian 12, and nothing that is there already.
#   tools/bootstrap.sh [build|lint|fuzz|bench|model|plot|pytorch]...     default: build
# Debian packages by apt-get (sudo where not root); NCCL and CUDA headers from the system, else from their
# public wheels by pip into .deps/ (headers and ptxas only). Prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

NCCL_WHEEL=nvidia-nccl-cu12==2.32.3
CUDART_WHEEL=nvidia-cuda-runtime-cu12==12.9.79
NVCC_WHEEL=nvidia-cuda-nvcc-cu12==12.9.86
CCCL_WHEEL=nvidia-cuda-cccl-cu12==12.9.27  # nv/target, which cuda_fp16.h includes

packages_build="g++ meson ninja-build pkg-config python3 python3-pip libzmq3-dev cppzmq-dev libmsgpack-cxx-dev
  libspdlog-dev doctest-dev help2man libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libboost-dev zlib1g-dev libarchive-dev"
packages_lint="clang-format clang-tidy git"
packages_fuzz="clang libclang-rt-14-dev llvm"
packages_bench="valgrind"
packages_model="spin gcc"
packages_plot="python3-matplotlib"
packages_pytorch="python3-venv python3-dev gcc"  # Triton compiles against Python

wanted=""
for set in "${@:-build}"; do
  name=packages_$set
  wanted="$wanted ${!name}"
done
missing=""
for p in $wanted; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
if [ -n "$missing" ]; then
  echo "opus: installing Debian packages:$missing"
  run=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "opus: not root and no sudo; as root run: apt-get install$missing" >&2; exit 1; }
    run=sudo
  fi
  $run apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

have_system_headers() { [ -e /usr/include/nccl.h ] && { [ -e /usr/local/cuda/include/cuda_runtime.h ] || [ -e /usr/include/cuda_runtime.h ]; }; }
if ! have_system_headers && [ ! -e .deps/.complete-2 ]; then
  echo "opus: fetching NCCL and CUDA headers ($NCCL_WHEEL, $CUDART_WHEEL, $NVCC_WHEEL, $CCCL_WHEEL)"
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64 \
    -d "$tmp" "$NCCL_WHEEL" "$CUDART_WHEEL" "$NVCC_WHEEL" "$CCCL_WHEEL"
  mkdir -p .deps
  python3 - "$tmp" <<'PY'
import pathlib, sys, zipfile
for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            parts = name.split("/")
            if len(parts) > 3 and parts[0] == "nvidia" and (parts[2] == "include" and (parts[1] != "cuda_cccl" or parts[3] == "nv") or parts[2:] == ["bin", "ptxas"]):
                z.extract(name, ".deps")
PY
  chmod +x .deps/nvidia/cuda_nvcc/bin/ptxas 2>/dev/null || true
  touch .deps/.complete-2
fi
