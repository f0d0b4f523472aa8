#include "manager/shell/host_gpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace opus::manager {
namespace {

std::string line_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

}  // namespace

std::vector<PciAddress> host_gpus(const std::string& devices) {
    std::vector<PciAddress> found;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(devices, failed)) {
        const std::string name = entry.path().filename().string(), kind = line_of(entry.path() / "class");
        const PciAddress address = parse_pci(name.data(), name.size());
        const bool gpu = kind.starts_with("0x0300") || kind.starts_with("0x0302");
        if (address != 0 && gpu && line_of(entry.path() / "vendor") == "0x10de") found.push_back(address);
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace opus::manager
