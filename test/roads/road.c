/* A program that reaches NCCL as it is told, uses it, and prints how many launches Opus recorded.
 *
 *   road linked                          (where it is linked to NCCL: -DLINKED)
 *   road plugin LIBRARY [deepbind] [lazy]  dlopen of a library that is linked to NCCL
 *   road handle LIBRARY [PREFIX]         dlopen of NCCL itself, dlsym on the handle
 *   road default LIBRARY                 the same with RTLD_GLOBAL, dlsym on RTLD_DEFAULT
 *   road lookup LIBRARY NAME             where dlsym finds NAME: "handle=yes|no default=yes|no"
 *   road absent NAME                     the same where no NCCL is loaded
 *   road weak                            calls ncclCommShrink if it is there (-DLINKED)
 *   road load LIBRARY [deepbind]         maps it, and no more
 *   road self LIBRARY                    the functions of dlopen(NULL), beside a library with RTLD_GLOBAL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "opus/opus.h"
#include "test/roads/use.h"

static int report(int code) {
    opus_stats_t stats;
    int (*ask)(opus_stats_t*) = (int (*)(opus_stats_t*))dlsym(RTLD_DEFAULT, "opus_stats");
    memset(&stats, 0, sizeof stats);
    stats.struct_bytes = sizeof stats;
    if (ask != NULL) ask(&stats);
    printf("recorded=%llu\n", (unsigned long long)stats.recorded);
    return code;
}

static int failed(const char* what) {
    const char* why = dlerror();
    fprintf(stderr, "road: %s: %s\n", what, why != NULL ? why : "dlerror() says nothing");
    return 2;
}

static void* find(void* at, const char* prefix, const char* name) {
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return dlsym(at, full);
}

static int run_found(void* at, const char* prefix) {
    struct nccl_functions nccl;
    *(void**)&nccl.get_unique_id = find(at, prefix, "ncclGetUniqueId");
    *(void**)&nccl.comm_init_rank = find(at, prefix, "ncclCommInitRank");
    *(void**)&nccl.all_reduce = find(at, prefix, "ncclAllReduce");
    *(void**)&nccl.comm_destroy = find(at, prefix, "ncclCommDestroy");
    if (nccl.get_unique_id == NULL || nccl.comm_init_rank == NULL || nccl.all_reduce == NULL || nccl.comm_destroy == NULL)
        return failed("dlsym");
    return report(use_nccl(&nccl));
}

static int run_plugin(const char* library, int flags) {
    void* handle = dlopen(library, RTLD_LOCAL | flags);
    int (*run)(void) = handle == NULL ? NULL : (int (*)(void))dlsym(handle, "road_run");
    return run == NULL ? failed(library) : report(run());
}

static int look_up(void* handle, const char* name) {
    dlerror();
    const int by_handle = handle != NULL && dlsym(handle, name) != NULL;
    if (handle != NULL && !by_handle && dlerror() == NULL) return failed("no error for a handle");
    const int by_scope = dlsym(RTLD_DEFAULT, name) != NULL;
    if (!by_scope && dlerror() == NULL) return failed("no error for RTLD_DEFAULT");
    printf("handle=%s default=%s\n", by_handle ? "yes" : "no", by_scope ? "yes" : "no");
    return 0;
}

#ifdef LINKED
int road_run(void);
#pragma weak ncclCommShrink
#endif

int main(int argc, char** argv) {
    const char* road = argc > 1 ? argv[1] : "";
    const char* library = argc > 2 ? argv[2] : "";
    const char* more = argc > 3 ? argv[3] : "";
#ifdef LINKED
    if (strcmp(road, "linked") == 0) return report(road_run());
    if (strcmp(road, "weak") == 0) {
        ncclComm_t child = NULL;
        int excluded = 0;
        const int code = road_run();
        const int there = ncclCommShrink != NULL;
        printf("shrink=%s result=%d\n", there ? "yes" : "no",
               there ? (int)ncclCommShrink(NULL, &excluded, 1, &child, NULL, 0) : -1);
        return report(code);
    }
#endif
    if (strcmp(road, "plugin") == 0) {
        const int lazy = strcmp(more, "lazy") == 0 || (argc > 4 && strcmp(argv[4], "lazy") == 0);
        return run_plugin(library, (strcmp(more, "deepbind") == 0 ? RTLD_DEEPBIND : 0) | (lazy ? RTLD_LAZY : RTLD_NOW));
    }
    if (strcmp(road, "absent") == 0) return look_up(NULL, library);
    const int is_global = strcmp(road, "default") == 0 || strcmp(road, "self") == 0;
    const int deep = strcmp(road, "load") == 0 && strcmp(more, "deepbind") == 0;
    void* handle = dlopen(library, RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL) | (deep ? RTLD_DEEPBIND : 0));
    if (handle == NULL) return failed(library);
    if (strcmp(road, "handle") == 0) return run_found(handle, more);
    if (strcmp(road, "default") == 0) return run_found(RTLD_DEFAULT, "");
    if (strcmp(road, "self") == 0) return run_found(dlopen(NULL, RTLD_NOW), "");
    if (strcmp(road, "lookup") == 0) return look_up(handle, more);
    return strcmp(road, "load") == 0 ? 0 : 1;
}
