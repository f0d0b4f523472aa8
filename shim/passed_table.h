// The host functions of NCCL that are not hooked, once, and why. A name may end in *, which stands for anything.
//
//   OPUS_PASSED(name, why)    nothing is lost by it
//   OPUS_UNHELD(name, why)    bytes may move that Opus does not hold for circuits: a gap that is known
//
// Read by test/abi (`make abi`, against the public wheels of NCCL) and test/shim/library_test.py: a function that is
// neither hooked (hook_table.h) nor here is reported.
//
// Deliberately without an include guard.

// clang-format off
OPUS_PASSED(ncclGetVersion, "asks")
OPUS_PASSED(ncclGetErrorString, "asks")
OPUS_PASSED(ncclGetLastError, "asks")
OPUS_PASSED(ncclCommCount, "asks")
OPUS_PASSED(ncclCommCuDevice, "asks")
OPUS_PASSED(ncclCommUserRank, "asks")
OPUS_PASSED(ncclCommQueryProperties, "asks")
OPUS_PASSED(ncclCommMemStats, "asks")
OPUS_PASSED(ncclParam*, "asks for NCCL's settings")
OPUS_PASSED(ncclResetDebugInit*, "what NCCL logs")
OPUS_PASSED(ncclSetEncryption, "how NCCL's own sockets speak")
OPUS_PASSED(ncclMemAlloc, "memory of this GPU")
OPUS_PASSED(ncclMemFree, "memory of this GPU")
OPUS_PASSED(ncclCommRegister, "memory that launches use; who meets whom stays as it is")
OPUS_PASSED(ncclCommDeregister, "memory that launches use; who meets whom stays as it is")
OPUS_PASSED(ncclWinGetUserPtr, "asks")
OPUS_PASSED(ncclRedOpCreatePreMulSum, "what a reduction computes")
OPUS_PASSED(ncclRedOpDestroy, "what a reduction computes")
OPUS_PASSED(ncclTeam*, "numbers ranks for kernels")
OPUS_PASSED(nccl*CreateRequirement, "says what a device communicator is to have; ncclDevCommCreate makes it")
OPUS_PASSED(ncclLLA2ACalcSlots, "computes a size")
OPUS_PASSED(ncclGet*DevicePointer, "an address, for kernels")
OPUS_PASSED(ncclGet*DeviceLeInfo, "an address, for kernels")
OPUS_PASSED(ncclCommWindowDeregister, "the end of a window; what it may have changed stays so")
// clang-format on
