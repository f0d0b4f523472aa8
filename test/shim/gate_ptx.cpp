// Prints the stream gate's PTX, for ptxas.
#include "shim/gate_ptx.h"

#include <cstdio>

int main() { return fputs(OPUS_GATE_PTX, stdout) < 0 ? 1 : 0; }
