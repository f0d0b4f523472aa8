#include "controller/recording/op_name.h"

namespace opus::controller {

const char* op_name(OpKind op) {
    switch (op) {
        case OpKind::none: return "none";
        case OpKind::all_reduce: return "AllReduce";
        case OpKind::all_gather: return "AllGather";
        case OpKind::reduce_scatter: return "ReduceScatter";
        case OpKind::reduce: return "Reduce";
        case OpKind::broadcast: return "Broadcast";
        case OpKind::all_to_all: return "AlltoAll";
        case OpKind::gather: return "Gather";
        case OpKind::scatter: return "Scatter";
        case OpKind::send: return "Send";
        case OpKind::recv: return "Recv";
        case OpKind::put_signal: return "PutSignal";
        case OpKind::signal: return "Signal";
        case OpKind::wait_signal: return "WaitSignal";
    }
    return "unknown";
}

OpKind op_of_name(std::string_view name) {
    for (unsigned op = 0; op < kOpKinds; ++op)
        if (name == op_name(static_cast<OpKind>(op))) return static_cast<OpKind>(op);
    return OpKind::none;
}

}  // namespace opus::controller
