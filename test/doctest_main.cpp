// main() of each test program, compiled once: three seconds of the compiler.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
