#include "tools/replay/operation.h"

#include <sstream>

// Younger than the oldest NCCL the player is used with: absent, they are an error only when called.
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter

namespace opus::replay {
namespace {

ncclDataType_t nccl_type(DType type) {
    constexpr ncclDataType_t types[] = {ncclInt8,   ncclUint8,   ncclInt32,   ncclUint32,  ncclInt64,
                                        ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};
    return types[static_cast<std::size_t>(type)];
}
ncclRedOp_t nccl_op(Reduction reduction) {
    constexpr ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin};
    return ops[static_cast<std::size_t>(reduction)];
}

struct Extent {
    std::size_t send = 0, recv = 0;  // blocks of `count` elements
};

Extent extent(StepKind kind, bool root, std::size_t ranks) {
    switch (kind) {
        case StepKind::all_gather: return {1, ranks};
        case StepKind::reduce_scatter: return {ranks, 1};
        case StepKind::all_to_all: return {ranks, ranks};
        case StepKind::gather: return {1, root ? ranks : 0};
        case StepKind::scatter: return {root ? ranks : 0, 1};
        case StepKind::reduce: return {1, root ? 1u : 0u};
        case StepKind::broadcast: return {root ? 1u : 0u, 1};
        case StepKind::send: return {1, 0};
        case StepKind::recv: return {0, 1};
        default: return {1, 1};
    }
}

std::uint64_t block_seed(const Operation& op, std::uint32_t source, std::uint32_t part) {
    return mix(mix(op.seed, source), part);
}

Block expected_block(const Operation& op, std::uint32_t index) {
    const Step& s = *op.step;
    if (is_reduction(s.kind)) {
        std::vector<std::uint64_t> seeds;
        const std::uint32_t part = s.kind == StepKind::reduce_scatter ? op.rank : 0;
        for (std::uint32_t r = 0; r < op.size; ++r) seeds.push_back(block_seed(op, r, part));
        return Block::reduced(seeds, s.dtype, s.reduction, op.count);
    }
    std::uint32_t source = index, part = 0;
    if (s.kind == StepKind::broadcast || s.kind == StepKind::scatter) source = s.peer;
    if (s.kind == StepKind::recv) source = 0;  // a transfer's own seed already says who and to whom
    if (s.kind == StepKind::all_to_all || s.kind == StepKind::scatter) part = op.rank;
    return Block::copied(block_seed(op, source, part), s.dtype, op.count);
}

void newer(bool present, const char* name) {
    if (!present) throw PlayError(kExitNccl, std::string("this NCCL has no ") + name + "; it needs 2.28");
}

}  // namespace

Operation next_operation(const Step& step, const std::string& comm_name, CommHandle& comm, std::uint32_t iteration,
                         double scale_bytes) {
    Operation op;
    op.step = &step, op.comm_name = &comm_name, op.comm = comm.comm;
    op.rank = comm.rank, op.size = comm.size, op.iteration = iteration;
    if (step.kind == StepKind::send) {
        op.number = comm.sent[step.peer]++;
        op.seed = mix(mix(comm.seed, (std::uint64_t(comm.rank) << 32) | step.peer), ~op.number);
    } else if (step.kind == StepKind::recv) {
        op.number = comm.received[step.peer]++;
        op.seed = mix(mix(comm.seed, (std::uint64_t(step.peer) << 32) | comm.rank), ~op.number);
    } else {
        op.number = comm.collectives++;
        op.seed = mix(comm.seed, op.number);
    }
    op.count = element_count(step, comm.size, scale_bytes);
    const Extent e = extent(step.kind, op.root(), comm.size);
    op.send_bytes = e.send * op.count * size_of(step.dtype);
    op.recv_bytes = e.recv * op.count * size_of(step.dtype);
    return op;
}

std::size_t buffer_bytes(const Step& step, const CommHandle& comm, double scale_bytes) {
    const Extent e = extent(step.kind, comm.rank == step.peer, comm.size);
    return (e.send + e.recv) * element_count(step, comm.size, scale_bytes) * size_of(step.dtype);
}

void call(const Operation& op, cudaStream_t stream) {
    const Step& s = *op.step;
    const ncclDataType_t type = nccl_type(s.dtype);
    const ncclRedOp_t reduction = nccl_op(s.reduction);
    const int peer = static_cast<int>(s.peer);
    ncclResult_t result = ncclSuccess;
    switch (s.kind) {
        case StepKind::all_reduce:
            result = ncclAllReduce(op.send_device, op.recv_device, op.count, type, reduction, op.comm, stream);
            break;
        case StepKind::all_gather:
            result = ncclAllGather(op.send_device, op.recv_device, op.count, type, op.comm, stream);
            break;
        case StepKind::reduce_scatter:
            result = ncclReduceScatter(op.send_device, op.recv_device, op.count, type, reduction, op.comm, stream);
            break;
        case StepKind::reduce:
            result = ncclReduce(op.send_device, op.recv_device, op.count, type, reduction, peer, op.comm, stream);
            break;
        case StepKind::broadcast:
            result = ncclBroadcast(op.send_device, op.recv_device, op.count, type, peer, op.comm, stream);
            break;
        case StepKind::all_to_all:
            newer(ncclAlltoAll, "ncclAlltoAll");
            result = ncclAlltoAll(op.send_device, op.recv_device, op.count, type, op.comm, stream);
            break;
        case StepKind::gather:
            newer(ncclGather, "ncclGather");
            result = ncclGather(op.send_device, op.recv_device, op.count, type, peer, op.comm, stream);
            break;
        case StepKind::scatter:
            newer(ncclScatter, "ncclScatter");
            result = ncclScatter(op.send_device, op.recv_device, op.count, type, peer, op.comm, stream);
            break;
        case StepKind::send: result = ncclSend(op.send_device, op.count, type, peer, op.comm, stream); break;
        case StepKind::recv: result = ncclRecv(op.recv_device, op.count, type, peer, op.comm, stream); break;
        default: break;
    }
    nccl(result, std::string(name_of(s.kind)) + " on " + *op.comm_name);
}

void fill(const Operation& op) {
    const Step& s = *op.step;
    const std::size_t block = op.count * size_of(s.dtype);
    for (std::uint32_t part = 0; part * block < op.send_bytes; ++part) {
        const std::uint64_t seed = block_seed(op, s.kind == StepKind::send ? 0 : op.rank, part);
        const Block data = is_reduction(s.kind) ? Block::given(seed, s.dtype, s.reduction, op.rank, op.size, op.count)
                                                : Block::copied(seed, s.dtype, op.count);
        data.fill(op.send_host + part * block);
    }
}

std::string verify(const Operation& op, std::uint32_t world_rank) {
    const Step& s = *op.step;
    const std::size_t block = op.count * size_of(s.dtype);
    for (std::uint32_t i = 0; i * block < op.recv_bytes; ++i) {
        const Block must = expected_block(op, i);
        const auto wrong = must.mismatch(op.recv_host + i * block);
        if (!wrong) continue;
        std::ostringstream text;
        text << "rank " << world_rank << ", iteration " << op.iteration + 1 << ": " << name_of(s.kind) << " "
             << op.number << " on " << *op.comm_name << (s.name.empty() ? "" : " (" + s.name + ")") << ", element "
             << i * op.count + *wrong << " of " << op.recv_bytes / size_of(s.dtype) << ": bits 0x" << std::hex
             << bits_at(op.recv_host + i * block, *wrong, s.dtype) << ", must be 0x" << must.bits(*wrong) << std::dec
             << " (" << name_of(s.dtype) << ", line " << s.line << ")";
        return text.str();
    }
    return {};
}

}  // namespace opus::replay
