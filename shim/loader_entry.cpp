// dlsym and dlopen, as this library exports them. Both end in a jump to the C library's, with arguments and return
// address as they came: RTLD_NEXT, RTLD_DEFAULT and a library's own search path go by who calls. Without a version,
// they stand for every version of both (2.2.5, 2.17, 2.34).
//
// In a file of its own: in a program that is linked to the shim's sources (tests) nothing may pull it in.
#include <dlfcn.h>

#include "shim/deep_bound.h"
#include "shim/road_notes.h"
#include "shim/roads.h"

extern "C" {

__attribute__((visibility("hidden"), used)) opus::shim::Lookup opus_shim_dlsym(void* handle, const char* name,
                                                                               const void* caller) {
    return opus::shim::look_up(handle, name, caller);
}

__attribute__((visibility("hidden"), used)) opus::shim::Lookup opus_shim_dlopen(const char*, std::intptr_t flags,
                                                                                const void*) {
    if ((flags & RTLD_DEEPBIND) != 0) [[unlikely]]
        opus::shim::expect_deep_bound();
    return {nullptr, reinterpret_cast<void*>(opus::shim::loader().open)};
}

}  // extern "C"

namespace {

__attribute__((constructor)) void at_start() {
    opus::shim::note_road("start");
    opus::shim::expect_preloaded();
}
__attribute__((destructor)) void at_end() { opus::shim::tell_of_passers_by(); }

}  // namespace

// The two arguments are kept, the return address is the third; opus_shim_* gives {answer, go}.
#if defined(__x86_64__)
__asm__(R"(
.text
.macro opus_entry name
.globl \name
.type \name, @function
\name:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), %rdx
    call opus_shim_\name
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jz 1f
    jmp *%rdx
1:  ret
    .cfi_endproc
.size \name, . - \name
.endm
opus_entry dlsym
opus_entry dlopen
)");
#elif defined(__aarch64__)
__asm__(R"(
.text
.macro opus_entry name
.globl \name
.type \name, %function
\name:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp x0, x1, [sp, #16]
    mov x2, x30
    bl opus_shim_\name
    mov x9, x0
    mov x16, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    cbz x16, 1f
    br x16
1:  mov x0, x9
    ret
    .cfi_endproc
.size \name, . - \name
.endm
opus_entry dlsym
opus_entry dlopen
)");
#endif
