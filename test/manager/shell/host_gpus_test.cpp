#include "manager/shell/host_gpus.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "manager/core/gpu_places.h"

using namespace opus;
using namespace opus::manager;

TEST_CASE("the host's GPUs are NVIDIA's display and 3D controllers, by address") {
    char folder[] = "/tmp/opus-host-gpus.XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    const auto device = [&](const std::string& address, const char* vendor, const char* kind) {
        const auto path = std::filesystem::path(folder) / address;
        std::filesystem::create_directory(path);
        std::ofstream(path / "vendor") << vendor << '\n';
        std::ofstream(path / "class") << kind << '\n';
    };
    device("0000:9d:00.0", "0x10de", "0x030200");
    device("0000:17:00.0", "0x10de", "0x030200");
    device("0000:03:00.0", "0x1a03", "0x030000");  // the board's own display
    device("0000:18:00.0", "0x10de", "0x068000");  // an NVSwitch
    device("0000:2a:00.0", "0x10de", "0x030000");
    device("pci0000:00", "0x10de", "0x030200");
    CHECK(host_gpus(folder) == std::vector<PciAddress>{0x170000, 0x2a0000, 0x9d0000});
    CHECK(host_gpus(std::string(folder) + "/none").empty());
    std::filesystem::remove_all(folder);
}

TEST_CASE("PCI addresses and UUIDs are read as drivers, the kernel and nvidia-smi write them") {
    const auto pci = [](const std::string& text) { return parse_pci(text.data(), text.size()); };
    CHECK(pci("0000:17:00.0") == 0x170000);
    CHECK(pci("00000000:17:00.0") == pci("0000:17:00.0"));
    CHECK(pci("000C:0A:1F.7") == 0xc0a1f07);
    for (const char* text :
         {"", "17:00.0", "0000:17:00.8", "0000:17:0g.0", "0000-17:00.0", "0000:17:00:0", "0000:00:00.0"})
        CHECK_MESSAGE(pci(text) == 0, text);
    const auto uuid = [](const std::string& text) { return parse_uuid(text.data(), text.size()); };
    const GpuUuid expected{{0x89, 0x32, 0xf9, 0x37, 0xd7, 0x2c, 0x41, 0x06, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6}};
    CHECK(uuid("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6") == expected);
    for (const char* text :
         {"", "GPU-1", "8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6",
          "GPU-8932f937-d72c-4106-c12f-20bd9faed9fx", "GPU-8932f937d-72c-4106-c12f-20bd9faed9f6"})
        CHECK_MESSAGE(!uuid(text).known(), text);
}

// As the driver says it: an instance has its GPU's PCI address, and a UUID of its own, which no fabric file names.
TEST_CASE("an instance of a GPU (MIG) is where its GPU is, and so is the next one: by the fabric file, or by the host's order") {
    const auto pci = [](const char* text) { return parse_pci(text, std::strlen(text)); };
    const GpuUuid one{{1, 2, 3}}, other{{4, 5, 6}};
    const PciAddress first = pci("0000:17:00.0"), second = pci("0000:65:00.0");
    GpuPlaces places({first, second});
    for (const bool named : {false, true}) {
        if (named) places.assign({{3, 2, "0000:65:00.0", "r3", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}});
        const std::uint32_t where = named ? 3 : 1;
        CHECK(places.local_of({second, one}, 0) == where);
        CHECK(places.local_of({second, other}, 1) == where);
    }
    // Of an instance that the driver tells no address of, nothing but its ordinal is known.
    CHECK(places.local_of({0, one}, 0) == 0);
}
