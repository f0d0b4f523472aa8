// The GPUs of this process's emulated node: which of them it sees, and what they are called.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace opus::standin {

// Indices on the node of the GPUs that the process sees, by ordinal. `present` GPUs are on the node; of those the
// process may open all, or the ones that STANDIN_OPEN_GPUS lists (what a container or a device cgroup leaves), and of
// these it sees what CUDA_VISIBLE_DEVICES chooses, by index or by the beginning of a UUID. As in CUDA the first word of
// that list which names no GPU, or more than one, ends it.
std::vector<int> visible_gpus(int present);

// Of the GPU at this place of the node (STANDIN_NODE): no two of a cluster have the same.
std::array<unsigned char, 16> uuid_of(int place);
std::string pci_of(int place);  // "0000:10:00.0"

}  // namespace opus::standin
