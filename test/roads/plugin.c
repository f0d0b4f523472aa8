/* What a library that is linked to NCCL does with it. -DPROFILING: by the names pncclX. -DAT_ONCE: when it is loaded. */
#include "test/roads/use.h"

#ifdef PROFILING
#define NCCL(name) pnccl##name
#else
#define NCCL(name) nccl##name
#endif

__attribute__((visibility("default"))) int road_run(void);
int road_run(void) {
    const struct nccl_functions nccl = {NCCL(GetUniqueId), NCCL(CommInitRank), NCCL(AllReduce), NCCL(CommDestroy)};
    return use_nccl(&nccl);
}

#ifdef AT_ONCE
__attribute__((constructor)) static void run_at_once(void) { road_run(); }
#endif
