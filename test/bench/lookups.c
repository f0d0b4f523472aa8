/* How long dlsym takes, in ns: the least of some rounds, as others on the machine only add.   bench_lookups [ROUNDS] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double least(void* handle, const char* name, int rounds) {
    enum { calls = 2000 };
    double best = 1e18;
    for (int round = 0; round < rounds; ++round) {
        const double start = now_ns();
        for (int i = 0; i < calls; ++i)
            if (dlsym(handle, name) == NULL) abort();
        const double took = (now_ns() - start) / calls;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 200;
    void* libc = dlopen("libc.so.6", RTLD_NOW);
    printf("%.2f %.2f\n", least(libc, "malloc", rounds), least(RTLD_DEFAULT, "malloc", rounds));
    return 0;
}
