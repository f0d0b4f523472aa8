#include "manager/core/gpu_places.h"

#include <algorithm>

namespace opus::manager {

void GpuPlaces::assign(const std::vector<wire::GpuAssignment>& gpus) {
    named_.clear();
    for (const wire::GpuAssignment& g : gpus) {
        const GpuIdentity known{parse_pci(g.pci.data(), g.pci.size()), parse_uuid(g.uuid.data(), g.uuid.size())};
        if (known.known()) named_.push_back({g.local, known});
    }
}

std::uint32_t GpuPlaces::local_of(const GpuIdentity& gpu, std::uint32_t otherwise) const {
    for (const Named& n : named_)
        if (gpu.pci != 0 && n.gpu.pci == gpu.pci) return n.local;
    for (const Named& n : named_)
        if (gpu.uuid.known() && n.gpu.uuid == gpu.uuid) return n.local;
    const auto at = std::lower_bound(host_.begin(), host_.end(), gpu.pci);
    const bool here = gpu.pci != 0 && at != host_.end() && *at == gpu.pci;
    const auto place = here ? static_cast<std::uint32_t>(at - host_.begin()) : otherwise;
    // The file may say that another GPU is there.
    const bool taken = std::any_of(named_.begin(), named_.end(), [&](const Named& n) {
        return n.local == place && ((n.gpu.pci != 0 && gpu.pci != 0) || (n.gpu.uuid.known() && gpu.uuid.known()));
    });
    return taken ? kNone : place;
}

}  // namespace opus::manager
