// A mini manager as a process: prints its socket and serves until its input ends.
// usage: mini_manager VERDICT [open]      VERDICT: a number of opus::Verdict; open: every gate is, from the start
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/shim/mini_manager.h"

int main(int argc, char** argv) {
    opus::test::Behaviour behaviour;
    behaviour.verdict = static_cast<opus::Verdict>(argc > 1 ? atoi(argv[1]) : 1);
    behaviour.retire = false;
    behaviour.open_gates = argc > 2 && strcmp(argv[2], "open") == 0;
    opus::test::MiniManager manager(behaviour);
    printf("%s\n", manager.socket().c_str());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
