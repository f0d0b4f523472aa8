// The GPUs of this host, as the kernel lists PCI devices.
#pragma once

#include <string>
#include <vector>

#include "opus/gpu_identity.h"

namespace opus::manager {

// Addresses of NVIDIA's display and 3D controllers below `devices`, sorted: the order in which CUDA counts them with
// CUDA_DEVICE_ORDER=PCI_BUS_ID. Empty where the folder cannot be read.
std::vector<PciAddress> host_gpus(const std::string& devices = "/sys/bus/pci/devices");

}  // namespace opus::manager
