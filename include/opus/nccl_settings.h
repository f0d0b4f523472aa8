// What NCCL may be told that decides over which ports its bytes go, or whether a gate keeps the calling thread, once:
//
//   OPUS_NCCL_SETTING(variable, fits, wanted, otherwise, run_sets, why)
//
// fits: the rule by which a value is judged (shim/nccl_settings.cpp). wanted: the same in words. otherwise: what
// becomes of a value that does not fit: warned (one line) or refused (one line, and with OPUS_REQUIRE=enforce no
// communicator is made). run_sets: what opus-run sets where nobody has; empty: nothing. why: why others do not fit.
//
// Read by the shim when a rank attaches in enforce mode, by opus-run, and for opus(7). It undefines OPUS_NCCL_SETTING.
// What NCCL takes from where: param.cc; what each does: NCCL's env.html.
//
// Deliberately without an include guard.
#ifndef OPUS_NCCL_SETTING
#error "define OPUS_NCCL_SETTING(variable, fits, wanted, otherwise, run_sets, why) before including opus/nccl_settings.h"
#endif

OPUS_NCCL_SETTING(NCCL_ALGO, rings, "Ring", warned, "Ring", "trees may need more neighbours than a GPU has ports")
OPUS_NCCL_SETTING(NCCL_PROTO, anything, "any value", warned, "", "a protocol changes messages, not who meets whom")
OPUS_NCCL_SETTING(NCCL_CROSS_NIC, zero, "0", refused, "0", "rings that change NICs leave their rail")
OPUS_NCCL_SETTING(NCCL_IB_MERGE_NICS, zero, "0", refused, "0", "of a merged NIC nobody knows which port a connection takes")
OPUS_NCCL_SETTING(NCCL_COLLNET_ENABLE, zero, "0", refused, "", "there are no packet switches to compute in")
OPUS_NCCL_SETTING(NCCL_PXN_DISABLE, zero_or_rails, "0, or NCCL_CROSS_NIC to 0", warned, "",
                  "transfers between local indices then leave by the sender's rail, which does not lead to the receiver")
OPUS_NCCL_SETTING(NCCL_P2P_PXN_LEVEL, not_zero_or_rails, "1 or 2, or NCCL_CROSS_NIC to 0", warned, "",
                  "transfers between local indices then leave by the sender's rail, which does not lead to the receiver")
OPUS_NCCL_SETTING(NCCL_MNNVL_ENABLE, anything, "any value", warned, "",
                  "0 makes each host a node of its own, whatever NVLink joins, and circuits go by that")
OPUS_NCCL_SETTING(NCCL_MNNVL_RAIL_PER_HOST, zero, "0", warned, "",
                  "rings then come into an NVLink domain by one host and leave it by another, nobody knows by which")
OPUS_NCCL_SETTING(NCCL_NVLS_ENABLE, zero_or_rings, "0, or NCCL_ALGO=Ring", warned, "", "NVLS joins nodes by trees")
OPUS_NCCL_SETTING(NCCL_PAT_ENABLE, zero_or_rings, "0, or NCCL_ALGO=Ring", warned, "",
                  "PAT joins each node with many others")
OPUS_NCCL_SETTING(
    NCCL_RUNTIME_CONNECT, not_zero, "1", refused, "",
    "rings, trees and PAT are then connected while the communicator is made, to more neighbours than there are ports")
OPUS_NCCL_SETTING(
    NCCL_CUMEM_ENABLE, not_zero, "1", refused, "",
    "rings, trees and PAT are then connected while the communicator is made, to more neighbours than there are ports")
OPUS_NCCL_SETTING(NCCL_SOCKET_IFNAME, not_infiniband, "an interface of the management network", warned, "",
                  "NCCL's own messages must not take an optical port, which may be dark")
OPUS_NCCL_SETTING(NCCL_SET_STACK_SIZE, not_zero, "1", warned, "1",
                  "the first kernels of a process then keep their calling thread until all that runs on the GPU has "
                  "ended, closed gates as well")
OPUS_NCCL_SETTING(
    NCCL_IB_TIMEOUT, resends_long, "20, 21 or 22", warned, "22",
    "what is under way when circuits move is sent again only for so long (eight times 4 us * 2^value), and then the "
    "job fails")
OPUS_NCCL_SETTING(NCCL_GRAPH_FILE, nothing, "not set", warned, "", "rings of one's own may join different rails")

#undef OPUS_NCCL_SETTING
