#include "shim/deep_bound.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/road_notes.h"
#include "shim/roads.h"

namespace opus::shim {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kSlotKinds[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr std::uint32_t kSlotKinds[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#endif

enum class Past { no, deep_bound, preloaded };
std::atomic<Past> expected{Past::no};
std::atomic<unsigned long long> libraries_seen{0};

// What one library has bound, or will bind at the first call, of other libraries' functions.
class Bindings {
public:
    explicit Bindings(const dl_phdr_info& info) : base_(info.dlpi_addr) {
        for (int i = 0; i < info.dlpi_phnum; ++i) {
            const auto& segment = info.dlpi_phdr[i];
            const std::uintptr_t from = base_ + segment.p_vaddr, to = from + segment.p_memsz;
            if (segment.p_type == PT_LOAD) {
                low_ = low_ == 0 || from < low_ ? from : low_;
                high_ = to > high_ ? to : high_;
            } else if (segment.p_type == PT_GNU_RELRO) {
                sealed_low_ = from;
                sealed_high_ = to;
            } else if (segment.p_type == PT_DYNAMIC) {
                read(reinterpret_cast<const ElfW(Dyn)*>(from));
            }
        }
    }

    bool holds(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return at >= low_ && at < high_;
    }

    // visit(hook, slot) of each slot that is to hold a hooked function's address, until it says false.
    template <class Visit>
    void each(Visit visit) const {
        if (symbols_ == nullptr || names_ == nullptr) return;
        each_of(data_, data_bytes_, visit);
        each_of(calls_, call_bytes_, visit);
    }

    // Of a slot that the loader may have made read-only.
    void set(void** slot, void* value) const {
        const auto at = reinterpret_cast<std::uintptr_t>(slot);
        const std::uintptr_t size = std::uintptr_t(sysconf(_SC_PAGESIZE));
        void* page = reinterpret_cast<void*>(at & ~(size - 1));
        const bool sealed = at >= (sealed_low_ & ~(size - 1)) && at < (sealed_high_ & ~(size - 1));
        if (sealed && mprotect(page, size, PROT_READ | PROT_WRITE) != 0) return;
        __atomic_store_n(slot, value, __ATOMIC_RELEASE);
        if (sealed) mprotect(page, size, PROT_READ);
    }

private:
    // glibc has added the base already, except where the section is read-only.
    template <class T>
    void point(T*& into, std::uintptr_t value) const {
        into = reinterpret_cast<T*>(value < base_ ? base_ + value : value);
    }

    void read(const ElfW(Dyn) * entry) {
        std::size_t relative = 0;
        for (; entry->d_tag != DT_NULL; ++entry) {
            switch (entry->d_tag) {
                case DT_SYMTAB: point(symbols_, entry->d_un.d_ptr); break;
                case DT_STRTAB: point(names_, entry->d_un.d_ptr); break;
                case DT_RELA: point(data_, entry->d_un.d_ptr); break;
                case DT_RELASZ: data_bytes_ = entry->d_un.d_val; break;
                case DT_RELACOUNT: relative = entry->d_un.d_val; break;
                case DT_JMPREL: point(calls_, entry->d_un.d_ptr); break;
                case DT_PLTRELSZ: call_bytes_ = entry->d_un.d_val; break;
                default: break;
            }
        }
        if (data_ == nullptr || relative * sizeof *data_ > data_bytes_) return;
        data_ += relative;  // they come first, and have no symbol
        data_bytes_ -= relative * sizeof *data_;
    }

    template <class Visit>
    void each_of(const ElfW(Rela) * from, std::size_t bytes, Visit visit) const {
        if (from == nullptr) return;
        for (const ElfW(Rela)* end = from + bytes / sizeof *from; from != end; ++from) {
            const auto& symbol = symbols_[ELF64_R_SYM(from->r_info)];
            if (symbol.st_shndx != SHN_UNDEF || symbol.st_name == 0) continue;
            const char* name = names_ + symbol.st_name;
            if ((name[0] != 'n' && name[0] != 'p') || !is_slot(ELF64_R_TYPE(from->r_info))) continue;
            const Hook* hook = hook_named(name);
            if (hook != nullptr && !visit(*hook, reinterpret_cast<void**>(base_ + from->r_offset))) return;
        }
    }

    static bool is_slot(std::uint64_t kind) {
        for (const std::uint32_t k : kSlotKinds)
            if (kind == k) return true;
        return false;
    }

    std::uintptr_t base_;
    std::uintptr_t low_ = 0, high_ = 0, sealed_low_ = 0, sealed_high_ = 0;
    const ElfW(Sym) * symbols_ = nullptr;
    const char* names_ = nullptr;
    const ElfW(Rela) * data_ = nullptr;
    const ElfW(Rela) * calls_ = nullptr;
    std::size_t data_bytes_ = 0, call_bytes_ = 0;
};

struct Walk {
    enum What { find, mend, tell } what;
    const void* found = nullptr;  // find: a function that somebody has bound past us
    bool unbound = false;         // find: somebody will bind one at the first call
};

// One slot of a library; false: no more of that library.
bool look_at_slot(Walk& walk, const Bindings& bindings, const char* library, const Hook& hook, void** slot) {
    const Object& nccl = served_nccl();
    void* const bound = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    const bool own = bindings.holds(bound);  // its way to the loader: not called yet
    switch (walk.what) {
        case Walk::find:
            if (own)
                walk.unbound = true;
            else if (bound != nullptr && !is_ours(bound))
                walk.found = bound;
            return walk.found == nullptr;
        case Walk::mend:
            if (own || nccl.holds(bound)) bindings.set(slot, hook.ours);
            return true;
        case Walk::tell:
            if (!nccl.holds(bound)) return true;
            say_once(Level::warn, "%.200s calls %s past Opus: %s it used NCCL before anything was looked up in it",
                     library[0] != '\0' ? library : program_invocation_name, hook.name(),
                     expected.load(std::memory_order_relaxed) == Past::preloaded
                         ? "an NCCL is preloaded before the shim, and"
                         : "opened with RTLD_DEEPBIND,");
            note_road("past\t%.300s\t%.300s", library, nccl.path);
            return false;
    }
    return true;
}

// Called with the loader's lock held: nothing in here may call the loader.
int look_at(dl_phdr_info* info, std::size_t, void* data) {
    Walk& walk = *static_cast<Walk*>(data);
    const Bindings bindings(*info);
    const auto nccl = reinterpret_cast<const void*>(served_nccl().low);
    if (bindings.holds(reinterpret_cast<const void*>(&look_at)) || bindings.holds(nccl)) return 0;
    bindings.each(
        [&](const Hook& hook, void** slot) { return look_at_slot(walk, bindings, info->dlpi_name, hook, slot); });
    return 0;
}

// False: nobody calls NCCL past us, as far as can be seen.
bool find_nccl_past_us() {
    Walk walk{Walk::find};
    dl_iterate_phdr(look_at, &walk);
    if (walk.found == nullptr && !walk.unbound) return false;
    if (nccl_in_use()) return true;
    return walk.found != nullptr && adopt_nccl_of(walk.found);
}

int count_libraries(dl_phdr_info* info, std::size_t, void* count) {
    *static_cast<unsigned long long*>(count) = info->dlpi_adds;
    return 1;
}

// libnccl.so.2, libnccl.so.2.27.7; not NCCL's plugins (libnccl-net.so).
int is_nccl(dl_phdr_info* info, std::size_t, void* path) {
    const char* name = info->dlpi_name != nullptr ? strrchr(info->dlpi_name, '/') : nullptr;
    if (name == nullptr || strncmp(name, "/libnccl.so", 11) != 0) return 0;
    *static_cast<const char**>(path) = info->dlpi_name;
    return 1;
}

}  // namespace

void expect_deep_bound() {
    Past none = Past::no;
    expected.compare_exchange_strong(none, Past::deep_bound, std::memory_order_relaxed);
}

void expect_preloaded() {
    const auto find = loader().symbol;
    void* volatile at = find != nullptr ? find(RTLD_DEFAULT, "ncclGroupEnd") : nullptr;
    if (at == nullptr || is_ours(at) || !nccl_in_use() || !served_nccl().holds(at)) return;
    expected.store(Past::preloaded, std::memory_order_relaxed);
    mend_deep_bound();
}

void mend_deep_bound() {
    if (expected.load(std::memory_order_relaxed) == Past::no) [[likely]]
        return;
    unsigned long long libraries = 0;
    dl_iterate_phdr(count_libraries, &libraries);
    if (libraries_seen.exchange(libraries) == libraries) return;
    if (!find_nccl_past_us()) return;
    Walk walk{Walk::mend};
    dl_iterate_phdr(look_at, &walk);
    note_road("road\t%s\t\t%.300s",
              expected.load(std::memory_order_relaxed) == Past::preloaded ? "preload" : "deepbind", served_nccl().path);
}

void tell_of_passers_by() {
    const char* nccl = nullptr;
    if (dl_iterate_phdr(is_nccl, &nccl) == 0) return;
    if (find_nccl_past_us()) {
        Walk walk{Walk::tell};
        dl_iterate_phdr(look_at, &walk);
    }
    if (!is_bound()) note_road("unused\t%.300s", nccl);
}

}  // namespace opus::shim
