#!/usr/bin/env bash
# Runs a real NCCL job with and without Opus on the GPU of this machine, and prints one table (docs/gpu.md).
#   gpu-check.sh [--libs FOLDER]... [--only PARTS] [--nodes N] [--iterations N] [--drawn N] [--calls N] [--torch NAMES] [--seconds N] [--mps] [--logs FOLDER]
# --libs: where libnccl.so.2 and libcudart.so.* lie, before all other places. --drawn: of 24 random jobs, with each kind of gate.
# --only: of queues, replay, drawn, cost, waits, torch, faults. --calls: rounds of 100 calls. --torch: which of docs/examples/pytorch
# ('none': none). --seconds: the limit of a job.
# --mps: a CUDA multi-process server of its own, so that kernels of different ranks run at one time.
# --stand-ins FOLDER: the test doubles of a build folder in place of GPU and NCCL: tries this script, proves nothing of
# a GPU. Exit code 0: every row as it should be; 1: some row is not; 77: something is missing, and it says what.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
libs=() nodes=4 iterations=5 drawn=24 calls=20 seconds=120 logs= standins= mps= control=
parts="queues replay drawn cost waits torch faults"
only=$parts
torch="fsdp2 ddp hsdp pipeline tensor_parallel context_parallel expert_parallel graph groups accumulate_evaluate mix_3d"
while [ $# -gt 0 ]; do
  case $1 in
    --libs) libs+=("$2"); shift 2 ;;
    --only) only=$2; shift 2 ;;
    --nodes) nodes=$2; shift 2 ;;
    --iterations) iterations=$2; shift 2 ;;
    --drawn) drawn=$2; shift 2 ;;
    --calls) calls=$2; shift 2 ;;
    --torch) torch=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --mps) mps=1; shift ;;
    --logs) logs=$2; shift 2 ;;
    --stand-ins) standins=$2; libs+=("$2"); shift 2 ;;
    --help) sed -n '2,10s/^# //p' "$0"; exit 0 ;;
    *) echo "gpu-check: $1 is not known; see --help" >&2; exit 2 ;;
  esac
done
[ -n "$only" ] || { echo "gpu-check: --only: no part is named" >&2; exit 2; }
for part in $only; do
  [[ " $parts " == *" $part "* ]] || { echo "gpu-check: --only $part: one or more of $parts" >&2; exit 2; }
done
wanted() { [[ " $only " == *" $1 "* ]]; }
[ -e "$here/MANIFEST" ] || { echo "gpu-check: run it from a bundle (make gpu-bundle)" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/opus-gpu-check.XXXXXX")
rings=$work
logs=${logs:-$work/logs}
mkdir -p "$logs" "$work/libs"
daemons=() pids=()  # the ranks of the job that runs
stop() { kill "$@" "${daemons[@]}" "${pids[@]}" 2>/dev/null; }
clean() {
  stop
  sleep 0.3
  stop -KILL
  [ -z "$control" ] || echo quit | timeout 10 "$control" > /dev/null 2>&1
  wait 2>/dev/null
  rm -rf "$work" "$rings"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP
# A GPU maps files of a tmpfs only.
if [ -z "$standins" ]; then
  rings=$(mktemp -d /dev/shm/opus-gpu-check.XXXXXX) || { echo "gpu-check: not run: nothing can be made in /dev/shm"; rings=$work; exit 77; }
fi

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
  ldconfig -p 2>/dev/null | awk '/libnccl|libcudart/ {print $NF}' | xargs -r -n1 dirname 2>/dev/null
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
wanted queues && echo "gpu-check: which operations of ours hold other streams (queue_probe)" || queues=
for n in $queues; do
  CUDA_DEVICE_MAX_CONNECTIONS=$n timeout -k 2 60 "$here/bin/queue_probe" > "$logs/queues-$n.log" 2>&1
  code=$?
  sed 's/^/  /' "$logs/queues-$n.log"
  [ $code = 0 ] || { echo "  queue_probe ended with $code"; failed=1; }
done

if [ -n "$mps" ]; then
  export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps-log
  mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  control=$(command -v nvidia-cuda-mps-control /usr/local/nvidia/bin/nvidia-cuda-mps-control | head -1)
  [ -n "$control" ] && "$control" -d || { echo "gpu-check: no nvidia-cuda-mps-control that starts: leave out --mps"; exit 77; }
  echo "gpu-check: ranks share the GPU through a multi-process server: their kernels run at one time"
fi

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
  : > "$log"  # of another one before it, perhaps
  "$@" >> "$log" 2>&1 < /dev/null &
  daemons+=($!)
  began=$!
  disown  # nobody is told when it is killed
}
ports=2
begin "$logs/emulator.log" "$here/bin/opus-ocs-emu" --size $((nodes * ports)) --scpi 127.0.0.1:0 --data 127.0.0.1:0 --dark-ms 5
scpi=$(ready "$logs/emulator.log" scpi) && data=$(ready "$logs/emulator.log" data) || exit 1
"$here/bin/opus-ctl" fabric make --nodes "$nodes" --gpus 1 --ports $ports --dark-ms 5 --address "$scpi" \
  -o "$work/fabric.toml" > "$logs/fabric.log" 2>&1 || { cat "$logs/fabric.log"; exit 1; }
begin "$logs/controller.log" "$here/bin/opus-controller" --fabric "$work/fabric.toml" --bind tcp://127.0.0.1:0 --first
controller_pid=$began
managers=()
controller=$(ready "$logs/controller.log" '[a-z]*' | grep -o 'tcp://.*') || exit 1
start_manager() {
  begin "$logs/manager$1${2:-}.log" "$here/bin/opus-manager" --node "n$1" --controller "$controller" --runtime-dir "$rings/n$1"
  managers[$1]=$began
}
for n in $(seq 0 $((nodes - 1))); do
  mkdir -m 700 "$rings/n$n"
  start_manager "$n"
  for p in $(seq 0 $((ports - 1))); do echo "$n 0 $p $data $((n * ports + p + 1))"; done >> "$work/ports"
done
for n in $(seq 0 $((nodes - 1))); do ready "$logs/manager$n.log" '[a-z]*' > /dev/null || exit 1; done

counter() { "$here/bin/opus-ctl" -c "$controller" --json status 2>/dev/null | grep -oE "\"$1\": *[0-9]+" | grep -oE '[0-9]+$' || echo 0; }

# --- rows -----------------------------------------------------------------------------------------------------------

"$here/bin/opus-replay" generate cp --nodes "$nodes" --gpus 1 --layers 4 --iterations "$iterations" --out "$work/job" || exit 1

# Several ranks on one GPU: each says that it is a host of its own, so all goes through the network (loopback).
as_host() {
  export NCCL_HOSTID="node$1" NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_ALGO=Ring \
    NCCL_MAX_CTAS=1 NCCL_CROSS_NIC=0 NCCL_PXN_DISABLE=1 NCCL_DEBUG=WARN OPUS_RUNTIME_DIR="$rings/n$1" OPUS_GPU=0 OPUS_REQUIRE=1
  [ -z "$standins" ] || export STANDIN_NODE="$1" STANDIN_GPU=0 STANDIN_PORTS="$work/ports"
}
# What rank $1 runs; its logs go into folder $2.
replay() {
  exec timeout -k 2 "$seconds" "$here/bin/opus-replay" play "$job" --rank "$1" --rendezvous "file:$2/ids" "${options[@]}" \
    --timeout $((seconds / 2)) --out "$2/rank$1.json"
}
gated_calls() { exec timeout -k 2 "$seconds" "$here/bin/call_waits" "$1" "$nodes" "$2/ids" ${APART:-}; }
small_calls() { exec timeout -k 2 "$seconds" "$here/bin/call_cost" "$1" "$nodes" "$2/ids" "$calls"; }

# run WHAT SHIM FOLDER [VARIABLE=VALUE]...: all ranks of WHAT, to their ends: `ended` has each one's exit code, `code` one that
# is not 0. Where `fault` names a function, it is called as soon as circuits were asked for, and `fault_at` says if ranks ran then.
ended=() code=0 fault= fault_at=
run() {
  local what=$1 shim=$2 folder=$3 r one more before
  shift 3
  rm -rf "$folder"
  mkdir -p "$folder"
  before=$(counter demands)
  for r in $(seq 0 $((nodes - 1))); do
    more=("$@")
    [ "$shim" = no ] || more+=("LD_PRELOAD=$here/lib/libopus_shim.so")
    # Always lit only where there is no steering to wait for: the doubles send where light is.
    if [ -n "$standins" ] && [ "$shim" != no ]; then more+=("STANDIN_STEERING=$rings/n$r/steering"); fi
    (
      as_host "$r"
      export "${more[@]}" "RANK=$r"
      "$what" "$r" "$folder"
    ) > "$folder/rank$r.log" 2>&1 < /dev/null &
    pids+=($!)
  done
  if [ -n "$fault" ]; then
    for r in $(seq 200); do [ $(($(counter demands) - before)) -lt 12 ] || break; sleep 0.05; done
    fault_at="when nothing was asked for"
    [ $(($(counter demands) - before)) -lt 12 ] || fault_at=running
    kill -0 "${pids[0]}" 2>/dev/null || fault_at="after the end"
    "$fault"
  fi
  ended=() code=0
  for r in "${!pids[@]}"; do wait "${pids[$r]}"; one=$?; ended+=("$one"); [ $one = 0 ] || code=$one; done
  pids=()
}
ways() {
  case $1 in
    0) echo ok ;;
    1) echo "WRONG RESULTS" ;;
    4) echo "NO PROGRESS" ;;
    124|137) echo "NOT ENDED in its time" ;;
    host) echo "NOT BY STREAM GATES" ;;
    *) echo "FAILED ($1)" ;;
  esac
}
# Of programs that compare no results: they were refused something.
ways_of_probe() { [ "$1" = 1 ] && echo "FAILED (1)" || ways "$1"; }
complain() {
  local r
  for r in "${!ended[@]}"; do
    [ "${ended[$r]}" = 0 ] && continue
    echo "    rank $r ended with ${ended[$r]}:"
    tail -n 4 "$1/rank$r.log" | sed 's/^/      /'
    break
  done
}
named() { tr 'A-Z' 'a-z' <<< "$1" | tr -c 'a-z0-9_\n' '-'; }

base=
print_row() { printf '%-40s %9s %9s %8s %8s %8s %6s  %s\n' "$@"; }
# row NAME SHIM WHAT-MUST-BE-SEEN [VARIABLE=VALUE]...
row() {
  local name=$1 shim=$2 expected=$3 folder verdict took over=
  shift 3
  folder=$logs/$(named "$name")
  local demands grants moves suspensions
  demands=$(counter demands) grants=$(counter grants) moves=$(counter circuits_moved) suspensions=$(counter suspensions)
  run replay "$shim" "$folder" OPUS_JOB=gpu-check "$@"
  demands=$(($(counter demands) - demands)) grants=$(($(counter grants) - grants))
  moves=$(($(counter circuits_moved) - moves)) suspensions=$(($(counter suspensions) - suspensions))
  # The mean of the iterations after the first, of rank 0.
  took=$(grep -oE '"seconds": *[0-9.e-]+' "$folder/rank0.json" 2>/dev/null | awk -F: 'NR > 1 {s += $2; n++} END {if (n) printf "%.4f", s / n}')
  verdict=$(ways $code)
  if [ "$verdict" = ok ]; then
    grep -qs 'no manager answers' "$folder"/*.log && verdict="NO MANAGER"
    [ "$expected" = asks ] && [ "$demands" = 0 ] && verdict="NEVER ASKED"
    [ "$expected" = silent ] && [ "$demands" != 0 ] && verdict="ASKED"
    [[ $name == *stream* ]] && grep -qs 'held on the host' "$folder"/*.log && verdict="NOT BY STREAM GATES"
    [ "$expected" = fault ] && [ "$fault_at" != running ] && verdict="THE FAULT CAME $fault_at"
  fi
  [ "$verdict" = ok ] || failed=1
  [ -n "$base" ] || base=$took
  [ -n "$took" ] && [ -n "$base" ] && over=$(awk -v a="$took" -v b="$base" 'BEGIN {printf "%+.1f %%", 100 * (a / b - 1)}')
  [ "$expected" != fault ] || demands=- grants=- moves=- suspensions=- over=
  print_row "$name" "${took:--}" "${over:--}" "$demands" "$grants" "$moves" "$suspensions" "$verdict"
  [ "$verdict" = ok ] || complain "$folder"
}

job=$work/job
wide=32  # hardware queues. A multi-process server has not so many for each of four processes: cudaSetDevice fails
[ -z "$mps" ] || wide=8
scales=(--scale-bytes 1/64 --scale-time 1/20)
options=("${scales[@]}")
echo "gpu-check: $nodes ranks on one GPU, each a node of its own; ring attention and FSDP, results checked bit for bit"
print_row row s/iter over asked granted moved susp. result
if wanted replay; then
  [ -n "$standins" ] || row "no shim" no silent
  if [ -z "$standins" ]; then
    row "mode off" yes silent OPUS_MODE=off
    row "observe" yes silent OPUS_MODE=observe
  fi
  row "enforce, host gate" yes asks OPUS_GATE=host
  [ $wide = 8 ] || row "enforce, stream gate, $wide queues" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide
  row "enforce, stream gate, 8 queues" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=8
  row "enforce, as Opus chooses" yes asks OPUS_GATE=auto
  options+=(--graph)
  row "graph, stream gate" yes asks OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide
fi

# --- random jobs --------------------------------------------------------------------------------------------------------

# drawn_row NAME ORDER GATE: the first jobs of share/drawn/ORDER. What fails is played again without Opus.
drawn_row() {
  local name=$1 order=$2 gate=$3 seed folder right=0 played=0 bad=() demands grants moves suspensions file
  demands=$(counter demands) grants=$(counter grants) moves=$(counter circuits_moved) suspensions=$(counter suspensions)
  for seed in $(seq "$drawn"); do
    file=$(ls "$here/share/drawn/$order/$seed".jsonl "$here/share/drawn/$order/$seed".graph.jsonl 2>/dev/null)
    [ -n "$file" ] || break
    job=$file options=(--seed "$seed")
    [[ $file != *.graph.jsonl ]] || options+=(--graph)
    folder=$logs/drawn-$order-$seed
    run replay yes "$folder" OPUS_JOB="drawn-$order-$seed" OPUS_GATE="$gate" CUDA_DEVICE_MAX_CONNECTIONS=$wide
    played=$((played + 1))
    [ "$gate" != stream ] || ! grep -qs 'held on the host' "$folder"/*.log || code=host
    [ $code = 0 ] && right=$((right + 1)) && continue
    bad+=("  job $order/$seed: $(ways $code); its logs: $folder" "$(complain "$folder")")
    run replay no "$folder-bare" CUDA_DEVICE_MAX_CONNECTIONS=$wide
    bad+=("    without Opus: $(ways $code)")
  done
  [ $right = $played ] && [ $played != 0 ] || failed=1
  print_row "$name" - - $(($(counter demands) - demands)) $(($(counter grants) - grants)) $(($(counter circuits_moved) - moves)) \
    $(($(counter suspensions) - suspensions)) "$right of $played right"
  [ ${#bad[@]} = 0 ] || printf '%s\n' "${bad[@]}"
}
wanted drawn || drawn=0
if [ "$drawn" != 0 ] && [ "$nodes" != 4 ]; then  # what they were drawn for
  echo "random jobs: SKIP, they are of 4 nodes"
  drawn=0
fi
[ "$drawn" = 0 ] || drawn_row "random jobs, stream gate" any stream
[ "$drawn" = 0 ] || drawn_row "random jobs, host gate" one host
job=$work/job

# --- what a call costs its thread and its stream ----------------------------------------------------------------------------

[ -z "$standins" ] || calls=1
# cost_row NAME SHIM [VARIABLE=VALUE]...
cost_row() {
  local name=$1 shim=$2 folder verdict
  shift 2
  folder=$logs/$(named "$name")
  run small_calls "$shim" "$folder" OPUS_JOB=cost "$@"
  verdict=$(ways_of_probe $code)
  [[ $name == *stream* ]] && grep -qs 'held on the host' "$folder"/*.log && verdict="NOT BY STREAM GATES"
  [ "$verdict" = ok ] || failed=1
  printf '%-40s %s  %s\n' "$name" "$(grep -h '^host ' "$folder/rank0.log" || echo -)" "$verdict"
  [ "$verdict" = ok ] || complain "$folder"
}
if wanted cost; then
  echo "gpu-check: small all-reduces one behind the other, 100 at a time: median of $calls times"
  [ -n "$standins" ] || cost_row "cost a call, no shim" no
  [ -n "$standins" ] || cost_row "cost a call, observe" yes OPUS_MODE=observe
  cost_row "cost a call, host gate" yes OPUS_GATE=host
  cost_row "cost a call, stream gate" yes OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide
fi

# --- which calls wait for what runs on the GPU --------------------------------------------------------------------------------

# waits_row NAME [VARIABLE=VALUE]...: without Opus. The stand-ins wait for nothing.
waits_row() {
  local name=$1 folder verdict
  shift
  folder=$logs/$(named "waits $name")
  run gated_calls no "$folder" "$@"
  verdict=$(ways_of_probe $code)
  echo "calls behind closed gates, $name: $verdict"
  sed 's/^/  /' "$folder/rank0.log"
  [ $code = 0 ] || { failed=1; complain "$folder"; }
}
if wanted waits && [ -z "$standins" ]; then
  waits_row "as it is"
  waits_row "NCCL_SET_STACK_SIZE=1" NCCL_SET_STACK_SIZE=1
  waits_row "CUDA_MODULE_LOADING=EAGER" CUDA_MODULE_LOADING=EAGER
  waits_row "both" CUDA_MODULE_LOADING=EAGER NCCL_SET_STACK_SIZE=1
  waits_row "all gates on another stream" APART=apart
fi

# --- PyTorch, where a Python has it ----------------------------------------------------------------------------------------

torch_python() {
  local p
  for p in "${OPUS_TORCH_PYTHON:-}" $(command -v python3) /opt/*/.venv/bin/python3 /opt/*/bin/python3; do
    [ -n "$p" ] && [ -x "$p" ] && "$p" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && echo "$p" && return 0
  done
  return 1
}
script() { exec timeout -k 2 $((3 * seconds)) "$python" -u "$here/share/pytorch/$1.py" --steps 20 "${arguments[@]}"; }
# What each step printed of its loss, without and with Opus: they must be the same to the digit.
torch_row() {
  local script=$1 way folder more losses=() before=0 asked=0 verdict=ok took=()
  arguments=()
  [ "$script" != mix_3d ] || arguments=(--tensor 1)
  torch_rank() { LOCAL_RANK=0 script "$script"; }
  for way in without with; do
    folder=$logs/torch-$script-$way
    before=$(counter demands) more=(WORLD_SIZE="$nodes" MASTER_ADDR=127.0.0.1 "MASTER_PORT=$((29500 + RANDOM % 2000))" "OPUS_JOB=torch-$script")
    local at=$SECONDS
    if [ $way = without ]; then run torch_rank no "$folder" "${more[@]}"; else run torch_rank yes "$folder" "${more[@]}" OPUS_GATE=auto; fi
    took+=($((SECONDS - at)))
    [ $way = with ] && asked=$(($(counter demands) - before))
    losses+=("$(grep -hE '^(step|loss)' "$folder"/rank*.log | sort)")
    [ $code = 0 ] || verdict="FAILED ($code) $way Opus"
    [ $code = 0 ] || break
  done
  if [ "$verdict" = ok ]; then
    [ -n "${losses[0]}" ] || verdict="NO STEPS"
    [ "${losses[0]}" = "${losses[1]}" ] || verdict="OTHER LOSSES"
    [ "$asked" != 0 ] || verdict="NEVER ASKED"
  fi
  [ "$verdict" = ok ] || failed=1
  print_row "PyTorch, $script" - - "$asked" - - - "$verdict (${took[*]} s in all)"
  [ $code = 0 ] || complain "$folder"
}
if ! wanted torch; then
  :
elif python=$(torch_python); then
  [ "$torch" = none ] || for name in $torch; do torch_row "$name"; done
else
  echo "PyTorch: SKIP, no Python here has torch with CUDA (OPUS_TORCH_PYTHON names one)"
fi

# --- faults: what runs goes on, and nothing starts them again ----------------------------------------------------------------

if wanted faults; then
  echo "gpu-check: ranks run, and then daemons are killed (SIGKILL); the last job waits 2 s for a controller that never comes"
  options=("${scales[@]}" --iterations $((4 * iterations))) base=
  one_manager() { kill -KILL "${managers[0]}"; }
  the_controller() { kill -KILL "$controller_pid"; }
  another_controller() {
    the_controller
    sleep 1
    begin "$logs/controller2.log" "$here/bin/opus-controller" --fabric "$work/fabric.toml" --bind "$controller"
    controller_pid=$began
    ready "$logs/controller2.log" '[a-z]*' > /dev/null
  }
  fault=one_manager
  row "a manager dies, stream gate" yes fault OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide OPUS_HOLD_MS=3000
  start_manager 0 -again
  ready "$logs/manager0-again.log" '[a-z]*' > /dev/null || exit 1
  fault=another_controller
  row "another controller, stream gate" yes fault OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide
  fault=the_controller
  row "no controller any more, stream gate" yes fault OPUS_GATE=stream CUDA_DEVICE_MAX_CONNECTIONS=$wide OPUS_HOLD_MS=2000
fi
[ $failed = 0 ] && echo "gpu-check: every row is as it should be" || { echo "gpu-check: some row is not; logs: $logs"; [ "$logs" = "$work/logs" ] && cp -r "$logs" "./gpu-check-logs.$$" && echo "gpu-check: kept as ./gpu-check-logs.$$"; }
exit $failed
