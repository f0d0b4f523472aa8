/* What opus_replay_player.so is linked against in place of NCCL: names and the soname, nothing else.
 * Never installed, never loaded. */
#define NAME(f) \
    void f(void) {}
// clang-format off
NAME(ncclGetUniqueId)
NAME(ncclCommInitRank) NAME(ncclCommInitRankConfig) NAME(ncclCommSplit) NAME(ncclCommShrink) NAME(ncclCommGetAsyncError) NAME(ncclCommAbort) NAME(ncclCommDestroy)
    NAME(ncclGetErrorString) NAME(ncclGroupStart) NAME(ncclGroupEnd) NAME(ncclAllReduce) NAME(ncclAllGather)
        NAME(ncclReduceScatter) NAME(ncclReduce) NAME(ncclBroadcast) NAME(ncclSend) NAME(ncclRecv) NAME(ncclAlltoAll)
            NAME(ncclGather) NAME(ncclScatter)
    // clang-format on
