/* A Python extension module that is linked to NCCL: `import road_extension; road_extension.run()`. Of Python's stable
 * ABI it declares what it uses: Python's own headers are a package that nothing else here needs. */
#include <stddef.h>

#include "test/roads/use.h"

typedef struct object object;
typedef struct {
    const char* name;
    object* (*function)(object*, object*);
    int flags;
    const char* doc;
} method;
typedef struct {
    struct {
        ptrdiff_t references;
        void* type;
        object* (*init)(void);
        ptrdiff_t index;
        object* copy;
    } base;
    const char* name;
    const char* doc;
    ptrdiff_t size;
    method* methods;
    void* rest[4];
} module;

extern object* PyModule_Create2(module*, int);
extern object* PyLong_FromLong(long);

static object* run(object* self, object* arguments) {
    const struct nccl_functions nccl = {ncclGetUniqueId, ncclCommInitRank, ncclAllReduce, ncclCommDestroy};
    (void)self, (void)arguments;
    return PyLong_FromLong(use_nccl(&nccl));
}

static method methods[] = {{"run", run, 4 /* METH_NOARGS */, ""}, {NULL, NULL, 0, NULL}};
static module definition = {{1, NULL, NULL, 0, NULL}, "road_extension", "", -1, methods, {NULL, NULL, NULL, NULL}};

__attribute__((visibility("default"))) object* PyInit_road_extension(void);
object* PyInit_road_extension(void) { return PyModule_Create2(&definition, 3 /* PYTHON_ABI_VERSION */); }
