#!/usr/bin/env bash
# Runs a real NCCL job with and without Opus on the GPU of this machine, and prints one table (docs/gpu.md).
#   gpu-check.sh [--libs FOLDER]... [--nodes N] [--iterations N] [--seconds N] [--logs FOLDER]
# --libs: where libnccl.so.2 and libcudart.so.* lie, before all other places. --seconds: the limit of a row.
# --stand-ins FOLDER: the test doubles of a build folder in place of GPU and NCCL: tries this script, proves nothing of
# a GPU. Exit code 0: every row as it should be; 1: some row is not; 77: something is missing, and it says what.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
libs=() nodes=4 iterations=5 seconds=120 logs= standins=
while [ $# -gt 0 ]; do
  case $1 in
    --libs) libs+=("$2"); shift 2 ;;
    --nodes) nodes=$2; shift 2 ;;
    --iterations) iterations=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --logs) logs=$2; shift 2 ;;
    --stand-ins) standins=$2; libs+=("$2"); shift 2 ;;
    --help) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    *) echo "gpu-check: $1 is not known; see --help" >&2; exit 2 ;;
  esac
done
[ -e "$here/MANIFEST" ] || { echo "gpu-check: run it from a bundle (make gpu-bundle)" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/opus-gpu-check.XXXXXX")
logs=${logs:-$work/logs}
mkdir -p "$logs" "$work/libs"
children=()
stop() { [ ${#children[@]} = 0 ] || kill "$@" "${children[@]}" 2>/dev/null; }
clean() { stop; sleep 0.3; stop -KILL; wait 2>/dev/null; rm -rf "$work"; }
trap clean EXIT
trap 'exit 130' INT TERM HUP

# --- what is here -------------------------------------------------------------------------------------------------

absent() { echo "gpu-check: $*"; lacking=1; }
lacking=0
value() { awk -v name="$1" '$1 == name {print $2; exit}' "$here/MANIFEST"; }

[ "$(uname -m)" = "$(value machine)" ] || absent "this machine is $(uname -m), the bundle is for $(value machine)"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}')
[ -n "$glibc" ] && [ "$(printf '%s\n' "$(value glibc)" "$glibc" | sort -V | head -1)" = "$(value glibc)" ] ||
  absent "glibc is ${glibc:-not to be found}, the bundle needs $(value glibc): make the bundle on an older system"

places() {
  printf '%s\n' "${libs[@]}" "${LD_LIBRARY_PATH:-}" | tr ':' '\n'
  ldconfig -p 2>/dev/null | awk '/libnccl|libcudart/ {print $NF}' | xargs -r -n1 dirname
  printf '%s\n' /usr/local/cuda*/lib64 /usr/lib/x86_64-linux-gnu
  # The wheels of a Python that is here.
  for p in $(command -v python3) /opt/*/.venv/bin/python3 /opt/*/bin/python3; do
    [ -x "$p" ] && "$p" -c 'import glob, sys
for p in sys.path:
    print(*glob.glob(p + "/nvidia/*/lib"), sep="\n")' 2>/dev/null
  done
}
# The first that is there, under the name that programs ask for.
provide() {
  local name=$1 found; shift
  while IFS= read -r place; do
    [ -n "$place" ] || continue
    for pattern in "$@"; do
      for found in "$place"/$pattern; do
        [ -e "$found" ] && ln -sfn "$(readlink -f "$found")" "$work/libs/$name" && echo "  $name: $found" && return 0
      done
    done
  done < <(places)
  absent "no $1 in any usual place; name its folder with --libs"
}
echo "gpu-check: libraries"
provide libnccl.so.2 'libnccl.so.2'
# One name for all majors: what the job calls of the runtime is the same in 12 and 13.
provide libcudart.so.12 'libcudart.so.12' 'libcudart.so.1[3-9]'
export LD_LIBRARY_PATH=${standins:+$standins:}$work/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "$standins" ] || export STANDIN_ANNOUNCED=1

[ -n "$standins" ] || ls /dev/nvidia[0-9]* >/dev/null 2>&1 || ls /dev/dxg >/dev/null 2>&1 ||
  echo "gpu-check: no /dev/nvidia0: no GPU is given to this machine"
echo "gpu-check: what a program finds"
"$here/bin/gpu_probe" > "$work/probe" 2>&1 || lacking=1
sed 's/^/  /' "$work/probe"
if [ $lacking != 0 ]; then
  echo "gpu-check: not run: something is missing (above)"
  exit 77
fi

# --- what holds other streams of this GPU ---------------------------------------------------------------------------------

queues="1 2 8 32"
[ -z "$standins" ] || { queues="8"; echo "gpu-check: STAND-INS, not a GPU: this tries the script"; }
failed=0
echo "gpu-check: which operations of ours hold other streams (queue_probe)"
for n in $queues; do
  CUDA_DEVICE_MAX_CONNECTIONS=$n timeout -k 2 60 "$here/bin/queue_probe" > "$logs/queues-$n.log" 2>&1
  code=$?
  sed 's/^/  /' "$logs/queues-$n.log"
  [ $code = 0 ] || { echo "  queue_probe ended with $code"; failed=1; }
done

# --- a fabric of one rail, its controller, a manager a node ---------------------------------------------------------

# Waits for a daemon's line 'NAME: ready what=address ...' and gives the address of `what`.
ready() {
  local log=$1 what=$2 i
  for i in $(seq 200); do
    sed -n "s/^[^ ]*: ready.* \{0,1\}$what=\([^ ]*\).*/\1/p" "$log" 2>/dev/null | grep . && return 0
    sleep 0.05
  done
  echo "gpu-check: not ready: $log" >&2
  return 1
}
begin() {
  local log=$1; shift
  "$@" > "$log" 2>&1 < /dev/null &
  children+=($!)
}
ports=2
begin "$logs/emulator.log" "$here/bin/opus-ocs-emu" --size $((nodes * ports)) --scpi 127.0.0.1:0 --data 127.0.0.1:0 --dark-ms 5
scpi=$(ready "$logs/emulator.log" scpi) && data=$(ready "$logs/emulator.log" data) || exit 1
"$here/bin/opus-ctl" fabric make --nodes "$nodes" --gpus 1 --ports $ports --dark-ms 5 --address "$scpi" \
  -o "$work/fabric.toml" > "$logs/fabric.log" 2>&1 || { cat "$logs/fabric.log"; exit 1; }
begin "$logs/controller.log" "$here/bin/opus-controller" --fabric "$work/fabric.toml" --bind tcp://127.0.0.1:0 --first
controller=$(ready "$logs/controller.log" '[a-z]*' | grep -o 'tcp://.*') || exit 1
for n in $(seq 0 $((nodes - 1))); do
  mkdir -m 700 "$work/n$n"
  begin "$logs/manager$n.log" "$here/bin/opus-manager" --node "n$n" --controller "$controller" --runtime-dir "$work/n$n"
  for p in $(seq 0 $((ports - 1))); do echo "$n 0 $p $data $((n * ports + p + 1))"; done >> "$work/ports"
done
for n in $(seq 0 $((nodes - 1))); do ready "$logs/manager$n.log" '[a-z]*' > /dev/null || exit 1; done

counter() { "$here/bin/opus-ctl" -c "$controller" --json status 2>/dev/null | grep -oE "\"$1\": *[0-9]+" | grep -oE '[0-9]+$' || echo 0; }

# --- rows -----------------------------------------------------------------------------------------------------------

"$here/bin/opus-replay" generate cp --nodes "$nodes" --gpus 1 --layers 4 --iterations "$iterations" --out "$work/job" || exit 1

# Several ranks on one GPU: each says that it is a host of its own, so all goes through the network (loopback).
rank() {
  local r=$1 folder=$2; shift 2
  env NCCL_HOSTID="node$r" NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_ALGO=Ring \
    NCCL_MAX_CTAS=1 NCCL_CROSS_NIC=0 NCCL_PXN_DISABLE=1 NCCL_DEBUG=WARN OPUS_RUNTIME_DIR="$work/n$r" OPUS_GPU=0 \
    OPUS_JOB=gpu-check OPUS_REQUIRE=1 ${standins:+STANDIN_NODE=$r STANDIN_GPU=0 STANDIN_PORTS=$work/ports} "$@" \
    timeout -k 2 "$seconds" "$here/bin/opus-replay" play "$work/job" --rank "$r" --rendezvous "file:$folder/ids" "${options[@]}" \
    --scale-bytes 1/64 --scale-time 1/20 --timeout $((seconds / 2)) --out "$folder/rank$r.json"
}

base=
# row NAME SHIM WHAT-MUST-BE-SEEN [VARIABLE=VALUE]...
row() {
  local name=$1 shim=$2 wanted=$3 r code=0 pids=() folder
  shift 3
  folder=$logs/$(tr -c 'a-z0-9\n' '-' <<< "$name")
  mkdir -p "$folder"
  rm -f "$folder"/*
  local demands grants moves suspensions
  demands=$(counter demands) grants=$(counter grants) moves=$(counter circuits_moved) suspensions=$(counter suspensions)
  for r in $(seq 0 $((nodes - 1))); do
    local more=("$@")
    [ "$shim" = no ] || more+=("LD_PRELOAD=$here/lib/libopus_shim.so")
    # Always lit only where there is no steering to wait for: the doubles send where light is.
    if [ -n "$standins" ] && [[ $wanted == asks ]]; then more+=("STANDIN_STEERING=$work/n$r/steering"); fi
    rank "$r" "$folder" "${more[@]}" > "$folder/rank$r.log" 2>&1 < /dev/null &
    pids+=($!)
    children+=($!)
  done
  local ended=() one
  for r in "${!pids[@]}"; do wait "${pids[$r]}"; one=$?; ended+=("$one"); [ $one = 0 ] || code=$one; done
  demands=$(($(counter demands) - demands)) grants=$(($(counter grants) - grants))
  moves=$(($(counter circuits_moved) - moves)) suspensions=$(($(counter suspensions) - suspensions))
  # The mean of the iterations after the first, of rank 0.
  local took verdict=ok
  took=$(grep -oE '"seconds": *[0-9.e-]+' "$folder/rank0.json" 2>/dev/null | awk -F: 'NR > 1 {s += $2; n++} END {if (n) printf "%.4f", s / n}')
  case $code in
    0) ;;
    1) verdict="WRONG RESULTS" ;;
    4) verdict="NO PROGRESS" ;;
    124|137) verdict="NOT ENDED in $seconds s" ;;
    *) verdict="FAILED ($code)" ;;
  esac
  if [ "$verdict" = ok ]; then
    grep -qs 'no manager answers' "$folder"/*.log && verdict="NO MANAGER"
    [ "$wanted" = asks ] && [ "$demands" = 0 ] && verdict="NEVER ASKED"
    [ "$wanted" = silent ] && [ "$demands" != 0 ] && verdict="ASKED"
    [[ $name == *stream* ]] && grep -qs 'held on the host' "$folder"/*.log && verdict="NOT BY STREAM GATES"
  fi
  [ "$verdict" = ok ] || failed=1
  [ -n "$base" ] || base=$took
  local over=
  [ -n "$took" ] && [ -n "$base" ] && over=$(awk -v a="$took" -v b="$base" 'BEGIN {printf "%+.1f %%", 100 * (a / b - 1)}')
  printf '%-34s %9s %9s %8s %8s %8s %6s  %s\n' "$name" "${took:--}" "${over:--}" "$demands" "$grants" "$moves" "$suspensions" "$verdict"
  if [ "$verdict" != ok ]; then
    for r in "${!ended[@]}"; do
      [ "${ended[$r]}" = 0 ] && continue
      echo "    rank $r ended with ${ended[$r]}:"
      tail -n 4 "$folder/rank$r.log" | sed 's/^/      /'
      break
    done
  fi
}

options=()
echo "gpu-check: $nodes ranks on one GPU, each a node of its own; ring attention and FSDP, results checked bit for bit"
printf '%-34s %9s %9s %8s %8s %8s %6s  %s\n' row s/iter over asked granted moved susp. result
[ -n "$standins" ] || row "no shim" no silent
if [ -z "$standins" ]; then
  row "mode off" yes silent OPUS_MODE=off
  row "observe" yes silent OPUS_MODE=observe
fi
row "enforce, host gate" yes asks OPUS_GATE=host
row "enforce, stream gate, 32 queues" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=32
row "enforce, stream gate, 8 queues" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=8
row "enforce, as Opus chooses" yes asks OPUS_GATE=auto
options=(--graph)
row "graph, stream gate" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=32
options=()

# --- what a call costs its thread -----------------------------------------------------------------------------------------

# The same all-reduces of a few bytes, without gaps: their mean time in the stream is that of an iteration over their number.
calls=2000
[ -z "$standins" ] || calls=50
{
  echo "{\"workload\":1,\"name\":\"calls\",\"iterations\":$((iterations + 1)),\"places\":[$(seq -s, 0 $((nodes - 1)) | sed 's/[0-9][0-9]*/[&,0]/g')]}"
  echo "{\"comm\":\"world\",\"groups\":[[$(seq -s, 0 $((nodes - 1)))]]}"
  echo "{\"role\":\"all\",\"ranks\":[$(seq -s, 0 $((nodes - 1)))]}"
  echo "{\"role\":\"all\",\"do\":\"repeat\",\"times\":$calls}"
  echo '{"role":"all","do":"all_reduce","comm":"world","stream":"s","bytes":256,"dtype":"float32"}'
  echo '{"role":"all","do":"end"}'
} > "$work/calls"
mv "$work/calls" "$work/job"
options=(--no-check)
base=
if [ -z "$standins" ]; then
  row "cost a call, no shim" no silent
  row "cost a call, observe" yes silent OPUS_MODE=observe
fi
row "cost a call, host gate" yes asks OPUS_GATE=host
row "cost a call, stream gate" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=32
options=()

# --- PyTorch, where a Python has it ----------------------------------------------------------------------------------------

torch_python() {
  local p
  for p in "${OPUS_TORCH_PYTHON:-}" $(command -v python3) /opt/*/.venv/bin/python3 /opt/*/bin/python3; do
    [ -n "$p" ] && [ -x "$p" ] && "$p" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && echo "$p" && return 0
  done
  return 1
}
# The last loss that each step printed, without and with Opus: they must be the same to the digit.
torch_row() {
  local script=$1 python=$2 way folder r pids code losses=() before=0 asked=0 port=0
  for way in without with; do
    folder=$logs/torch-$script-$way
    mkdir -p "$folder"
    before=$(counter demands) pids=() code=0
    for r in 0 1; do
      [ $r != 0 ] || port=$((29500 + RANDOM % 2000))
      local more=("RANK=$r" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port")
      [ $way = without ] || more+=("LD_PRELOAD=$here/lib/libopus_shim.so" OPUS_GATE=auto)
      env NCCL_HOSTID="node$r" NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_ALGO=Ring NCCL_MAX_CTAS=1 \
        NCCL_CROSS_NIC=0 NCCL_PXN_DISABLE=1 OPUS_RUNTIME_DIR="$work/n$r" OPUS_GPU=0 OPUS_JOB="torch-$script" OPUS_REQUIRE=1 "${more[@]}" \
        timeout -k 2 "$((3 * seconds))" "$python" -u "$here/share/pytorch/$script.py" --steps 20 > "$folder/rank$r.log" 2>&1 < /dev/null &
      pids+=($!)
      children+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || code=$?; done
    [ $way = with ] && asked=$(($(counter demands) - before))
    losses+=("$(grep -hE '^(step|loss)' "$folder"/rank*.log | grep loss | sort)")
    [ $code = 0 ] || { printf '%-34s %s\n' "PyTorch, $script" "FAILED ($code) $way Opus"; tail -n 4 "$folder/rank0.log" | sed 's/^/      /'; failed=1; return; }
  done
  local verdict=ok
  [ -n "${losses[0]}" ] || verdict="NO LOSSES"
  [ "${losses[0]}" = "${losses[1]}" ] || verdict="OTHER LOSSES"
  [ "$asked" != 0 ] || verdict="NEVER ASKED"
  [ "$verdict" = ok ] || failed=1
  printf '%-34s %9s %9s %8s %8s %8s %6s  %s\n' "PyTorch, $script" - - "$asked" - - - "$verdict"
}
if python=$(torch_python); then
  for script in fsdp2 pipeline; do torch_row "$script" "$python"; done
else
  echo "PyTorch: SKIP, no Python here has torch with CUDA (OPUS_TORCH_PYTHON names one)"
fi
[ $failed = 0 ] && echo "gpu-check: every row is as it should be" || { echo "gpu-check: some row is not; logs: $logs"; [ "$logs" = "$work/logs" ] && cp -r "$logs" "./gpu-check-logs.$$" && echo "gpu-check: kept as ./gpu-check-logs.$$"; }
exit $failed
