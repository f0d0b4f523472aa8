// How NCCL exports: pncclX is strong, ncclX a weak alias of it. In the API files only.
#pragma once

#include "comm.h"

// Starts the definition of pncclX and makes ncclX its alias.
#define STANDIN_NCCL(ret, name, ...)                                          \
    extern "C" ret name(__VA_ARGS__) __attribute__((weak, alias("p" #name))); \
    extern "C" ret p##name(__VA_ARGS__)
