// libcublasLt.so.13, a stand-in: products take the time that the model says and compute nothing. Descriptors hold their
// first words in what their users allocate or get, as the real ones do.
#include <cstring>

#include "blas.h"

using namespace opus::standin;

namespace {

constexpr int kTransposedA = 3, kBatchCount = 5;  // attributes of a product, of a layout

struct Layout {
    int type = 0;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t batch = 1;
};
struct Description {
    bool transposed_a = false;
};
struct Preference {
    int nothing = 0;
};
struct Algorithm {
    std::uint64_t data[8];
};
struct Choice {
    Algorithm algorithm;
    std::size_t workspace_bytes;
    BlasStatus state;
    float waves;
    int reserved[4];
};

void choose(Choice& choice) {
    std::memset(&choice, 0, sizeof choice);
    choice.waves = 1;
}

}  // namespace

extern "C" {

STANDIN_API BlasStatus cublasLtCreate(void** handle) {
    *handle = new Preference;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtDestroy(void* handle) {
    delete static_cast<Preference*>(handle);
    return kBlasSuccess;
}
STANDIN_API std::size_t cublasLtGetVersion() { return kBlasVersion; }

// --- descriptors ----------------------------------------------------------------------------------------------

STANDIN_API BlasStatus cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                                  std::int64_t) {
    *layout = new Layout{type, rows, columns, 1};
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, std::size_t bytes) {
    if (attribute == kBatchCount && bytes == sizeof(std::int32_t)) {
        std::int32_t count;
        std::memcpy(&count, value, sizeof count);
        layout->batch = count;
    }
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulDescCreate(Description** description, int, int) {
    *description = new Description;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulDescDestroy(Description* description) {
    delete description;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* value,
                                                      std::size_t bytes) {
    if (attribute == kTransposedA && bytes == sizeof(std::int32_t)) {
        std::int32_t operation;
        std::memcpy(&operation, value, sizeof operation);
        description->transposed_a = operation != 0;
    }
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulPreferenceSetAttribute(Preference*, int, const void*, std::size_t) {
    return kBlasSuccess;
}

// --- products -------------------------------------------------------------------------------------------------

STANDIN_API BlasStatus cublasLtMatmulAlgoGetHeuristic(void*, Description*, Layout*, Layout*, Layout*, Layout*,
                                                      Preference*, int wanted, Choice* choices, int* found) {
    if (!choices || !found || wanted < 1) return kBlasInvalidValue;
    choose(choices[0]);
    *found = 1;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmulAlgoCheck(void*, Description*, Layout*, Layout*, Layout*, Layout*,
                                               const Algorithm*, Choice* choice) {
    choose(*choice);
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasLtMatmul(void*, Description* description, const void*, const void*, Layout* a, const void*,
                                      Layout*, const void*, const void*, Layout*, void*, Layout* d, const Algorithm*,
                                      void*, std::size_t, void* stream) {
    const std::uint64_t k = description->transposed_a ? a->rows : a->columns;
    return multiply(stream, {static_cast<std::int64_t>(d->rows), static_cast<std::int64_t>(d->columns),
                             static_cast<std::int64_t>(k), d->batch, element_bytes(a->type)});
}

}  // extern "C"

#define REFUSED(name) STANDIN_REFUSED(name, kBlasNotSupported)
#include "refused_cublaslt.h"
#undef REFUSED
