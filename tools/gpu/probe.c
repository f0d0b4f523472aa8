/* Says what a process started like this one would get: 'gpu', 'driver', 'cudart' and 'nccl', one 'name value' a line,
 * or 'missing what: why'. Exit code 0: all is there; 77: something is missing. Libraries are opened by name as a
 * program's own would be, so LD_LIBRARY_PATH decides. Needs libc alone. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

static int missing = 0;

static void lacks(const char* what, const char* why) {
    printf("missing %s: %s\n", what, why);
    missing = 1;
}

/* The library, and the function in it; NULL, and said, where there is none. */
static void* find(const char* library, const char* function, void** handle) {
    *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (*handle == NULL) {
        lacks(library, dlerror());
        return NULL;
    }
    void* at = dlsym(*handle, function);
    if (at == NULL) lacks(function, dlerror());
    return at;
}

static void driver(void) {
    void* cuda = NULL;
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))find("libcuda.so.1", "cuInit", &cuda);
    if (init == NULL) return;
    const CUresult started = init(0);
    CUresult (*count)(int*) = (CUresult(*)(int*))dlsym(cuda, "cuDeviceGetCount");
    CUresult (*name)(char*, int, CUdevice) = (CUresult(*)(char*, int, CUdevice))dlsym(cuda, "cuDeviceGetName");
    CUresult (*version)(int*) = (CUresult(*)(int*))dlsym(cuda, "cuDriverGetVersion");
    int devices = 0, number = 0;
    char text[256] = "";
    if (started != CUDA_SUCCESS || count == NULL || count(&devices) != CUDA_SUCCESS || devices == 0) {
        snprintf(text, sizeof text, "the driver is there, and cuInit says %d, %d devices", (int)started, devices);
        lacks("a GPU", text);
        return;
    }
    if (name != NULL && name(text, sizeof text, 0) == CUDA_SUCCESS) printf("gpu %d x %s\n", devices, text);
    if (version != NULL && version(&number) == CUDA_SUCCESS)
        printf("driver CUDA %d.%d\n", number / 1000, number % 1000 / 10);
}

static void runtime(void) {
    void* cudart = NULL;
    cudaError_t (*version)(int*) = (cudaError_t(*)(int*))find("libcudart.so.12", "cudaRuntimeGetVersion", &cudart);
    int number = 0;
    if (version != NULL && version(&number) == cudaSuccess)
        printf("cudart CUDA %d.%d\n", number / 1000, number % 1000 / 10);
}

static void nccl(void) {
    void* library = NULL;
    ncclResult_t (*version)(int*) = (ncclResult_t(*)(int*))find("libnccl.so.2", "ncclGetVersion", &library);
    int number = 0;
    if (version == NULL || version(&number) != ncclSuccess) return;
    printf("nccl %d.%d.%d\n", number / 10000, number % 10000 / 100, number % 100);
    /* Since 2.28; the player of workloads binds all it knows at once. */
    if (dlsym(library, "ncclAlltoAll") == NULL) lacks("ncclAlltoAll", "this NCCL is older than 2.28");
}

int main(int argc, char** argv) {
    if (argc > 1) {
        const int help = strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: gpu_probe: says which GPU, driver, CUDA runtime and NCCL a program finds\n");
        return help ? 0 : 2;
    }
    driver();
    runtime();
    nccl();
    return missing ? 77 : 0;
}
