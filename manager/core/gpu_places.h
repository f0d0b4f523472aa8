// Which of this node's GPUs a rank is on: what the fabric file calls them decides, by PCI address before UUID; where it
// names none, the GPU's place among those of the host; and where that is not known either, what the ordinal says.
#pragma once

#include <cstdint>
#include <vector>

#include "opus/gpu_identity.h"
#include "opus/wire.h"

namespace opus::manager {

class GpuPlaces {
public:
    // PCI addresses of the host's GPUs, sorted.
    explicit GpuPlaces(std::vector<PciAddress> host) : host_(std::move(host)) {}

    // What the controller says of the fabric file.
    void assign(const std::vector<wire::GpuAssignment>& gpus);

    // Local index of the GPU; `otherwise` is what its ordinal says. kNone: the file has other GPUs.
    std::uint32_t local_of(const GpuIdentity& gpu, std::uint32_t otherwise) const;

private:
    struct Named {
        std::uint32_t local = 0;
        GpuIdentity gpu;
    };
    std::vector<PciAddress> host_;
    std::vector<Named> named_;  // as far as the file names them
};

}  // namespace opus::manager
