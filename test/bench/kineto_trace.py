"""A trace such as PyTorch's profiler writes, as large as asked for: what a reader is timed with.

In a step of a millisecond, and in these shares as the traces of real jobs have them: operations of the host, calls of CUDA's
runtime, the arrows from these to kernels, kernels, copies, and one NCCL kernel in thirty.
"""
import pathlib

HEAD = """{{
  "schemaVersion": 1,
  "deviceProperties": [{{"id": 0, "name": "GPU", "numSms": 108}}],
  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world}, "pg_count": 1, "pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "pg_size": {world}, "ranks": {ranks}}}]}},
  "traceEvents": [
"""
EVENT = '  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
ARROW = '  {{\n    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f}, "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
HOST_ARGS = '"External id": {id}, "Record function id": {id}, "Sequence number": {id}, "Fwd thread id": 1, "Input Dims": [[16, 4096, 4096], [4096, 4096]], "Ev Idx": {id}'
KERNEL_ARGS = ('"External id": {id}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {id}, "registers per thread": 96, '
               '"shared memory": 41744, "blocks per SM": 0.222222, "warps per SM": 4.444444, "grid": [24, 1, 1], "block": [640, 1, 1], "est. achieved occupancy %": 7')
NCCL_ARGS = (KERNEL_ARGS + ', "Collective name": "allreduce", "In msg nelems": 2049000, "Out msg nelems": 2049000, "In split size": "[]", "Out split size": "[]", '
             '"Group size": {world}, "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "{ranks}"')
KERNELS_A_STEP = 30


def step(number: int, world: int) -> list[str]:
    events, begin = [], 4458676524670.502 + 1000.0 * number
    host = {"pid": 2910249, "tid": 2919752}
    for k in range(KERNELS_A_STEP):
        i, ts = number * KERNELS_A_STEP + k + 1, begin + 30 * k
        for depth in range(4):
            events.append(EVENT.format(cat="cpu_op", name=f"aten::operation_{depth}", ts=ts + depth, dur=20 - 2 * depth, args=HOST_ARGS.format(id=i), **host))
        events.append(EVENT.format(cat="cuda_runtime", name="cudaLaunchKernel", ts=ts + 5, dur=4.0, args=f'"External id": {i}, "cbid": 211, "correlation": {i}', **host))
        events.append(ARROW.format(ph="s", id=i, ts=ts + 5, **host))
        nccl = k == KERNELS_A_STEP - 1
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)" if nccl else \
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int, at::native::AddFunctor<float>)"
        args = (NCCL_ARGS if nccl else KERNEL_ARGS).format(id=i, stream=20 if nccl else 7, world=world, ranks=list(range(world)))
        events.append(EVENT.format(cat="kernel", name=name, pid=0, tid=20 if nccl else 7, ts=ts + 15, dur=28.0, args=args))
        events.append(ARROW.format(ph="f", id=i, pid=0, tid=7, ts=ts + 15))
    return events


def write(path: pathlib.Path, megabytes: float, rank: int = 0, world: int = 2) -> tuple[int, int]:
    """(bytes, NCCL kernels)"""
    steps = 0
    with open(path, "w") as out:
        written = out.write(HEAD.format(rank=rank, world=world, ranks=list(range(world))))
        while written < megabytes * 1e6:
            written += out.write((",\n" if steps else "") + ",\n".join(step(steps, world)))
            steps += 1
        written += out.write("\n  ]\n}\n")
    return written, steps
