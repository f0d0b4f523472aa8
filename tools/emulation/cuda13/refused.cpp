// Calls of the runtime that programs bind to, and that are not emulated. By their names for the linker: the real
// declarations may be seen, too.
#include "blas.h"

#define REFUSED(name) STANDIN_REFUSED(name, 801) /* cudaErrorNotSupported */
#include "refused_runtime.h"
#undef REFUSED
