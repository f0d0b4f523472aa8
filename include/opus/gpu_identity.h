// What a GPU is known by on every host program alike: its PCI address and its UUID. Ordinals of CUDA count what a
// process happens to see (CUDA_VISIBLE_DEVICES, containers, launchers), and say nothing across processes.
//
// Plain values and pure functions, header only, for the shim too: no allocation, no exception.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opus {

// domain << 24 | bus << 16 | device << 8 | function; 0: not known (a host bridge has that address).
using PciAddress = std::uint64_t;

struct GpuUuid {
    std::uint8_t bytes[16] = {};  // zeros: not known
    bool operator==(const GpuUuid&) const = default;
    bool known() const { return *this != GpuUuid{}; }
};

struct GpuIdentity {
    PciAddress pci = 0;
    GpuUuid uuid;
    bool known() const { return pci != 0 || uuid.known(); }
};

namespace identity {

// The value of a hexadecimal digit, or -1.
constexpr int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace identity

// "0000:17:00.0", as the driver and sysfs write it; nvidia-smi's "00000000:17:00.0" too. 0: not a PCI address.
constexpr PciAddress parse_pci(const char* text, std::size_t size) {
    const std::size_t colon = size == 12 ? 4 : 8;
    if ((size != 12 && size != 16) || text[colon] != ':' || text[colon + 3] != ':' || text[colon + 6] != '.') return 0;
    PciAddress address = 0;
    for (std::size_t i = 0; i < size; ++i) {
        if (i == colon || i == colon + 3 || i == colon + 6) continue;
        const int digit = identity::digit_of(text[i]);
        if (digit < 0) return 0;
        if (i == colon + 7) return digit > 7 ? 0 : (address << 8) | PciAddress(digit);
        address = (address << 4) | PciAddress(digit);
    }
    return 0;
}

// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as nvidia-smi -L prints it. Unknown where it is not like that.
constexpr GpuUuid parse_uuid(const char* text, std::size_t size) {
    GpuUuid uuid;
    if (size != 40 || text[0] != 'G' || text[1] != 'P' || text[2] != 'U' || text[3] != '-') return {};
    std::size_t digits = 0;
    for (std::size_t i = 4; i < size; ++i) {
        if (i == 12 || i == 17 || i == 22 || i == 27) {
            if (text[i] != '-') return {};
            continue;
        }
        const int digit = identity::digit_of(text[i]);
        if (digit < 0) return {};
        uuid.bytes[digits / 2] = std::uint8_t(uuid.bytes[digits / 2] << 4 | digit);
        ++digits;
    }
    return uuid;
}

}  // namespace opus
