#include "tools/replay/communicators.h"

#include <cstring>

#include "tools/replay/pattern.h"

namespace opus::replay {
namespace {

std::uint64_t seed_of(const std::string& name, std::uint32_t group) {
    std::uint64_t seed = 0x6f707573;
    for (char c : name) seed = mix(seed, static_cast<unsigned char>(c));
    return mix(seed, group);
}

}  // namespace

Communicators::Communicators(const Workload& workload, std::uint32_t rank, Rendezvous& rendezvous, std::uint64_t timeout_ms)
    : handles_(workload.comms.size()) {
    for (std::uint32_t i = 0; i < handles_.size(); ++i) {
        const Membership m = membership(workload.comms[i], rank);
        CommHandle& h = handles_[i];
        h.group = m.group, h.rank = m.rank;
        if (m.group != kNobody) {
            h.size = static_cast<std::uint32_t>(workload.comms[i].groups[m.group].size());
            h.seed = seed_of(workload.comms[i].name, m.group);
        }
        if (workload.comms[i].parent.empty())
            from_id(workload, i, rendezvous, timeout_ms);
        else
            from_split(workload, i);
    }
}

void Communicators::from_id(const Workload& workload, std::uint32_t index, Rendezvous& rendezvous, std::uint64_t timeout_ms) {
    CommHandle& h = handles_[index];
    if (h.group == kNobody) return;
    const std::string& name = workload.comms[index].name;
    const std::string key = "id." + std::to_string(index) + "." + name + "." + std::to_string(h.group);
    ncclUniqueId id{};
    if (h.rank == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId for " + name);
        rendezvous.put(key, std::string(id.internal, sizeof id.internal));
    } else {
        const std::string bytes = rendezvous.get(key, timeout_ms);
        if (bytes.size() != sizeof id.internal) throw PlayError(kExitUsage, "rendezvous: " + key + " is no unique id");
        std::memcpy(id.internal, bytes.data(), bytes.size());
    }
    nccl(ncclCommInitRank(&h.comm, static_cast<int>(h.size), id, static_cast<int>(h.rank)), "ncclCommInitRank " + name);
}

void Communicators::from_split(const Workload& workload, std::uint32_t index) {
    std::uint32_t parent = 0;
    while (workload.comms[parent].name != workload.comms[index].parent) ++parent;
    if (!handles_[parent].comm) return;
    CommHandle& h = handles_[index];
    const int color = h.group == kNobody ? NCCL_SPLIT_NOCOLOR : static_cast<int>(h.group);
    const int key = h.group == kNobody ? 0 : static_cast<int>(h.rank);
    nccl(ncclCommSplit(handles_[parent].comm, color, key, &h.comm, nullptr), "ncclCommSplit " + workload.comms[index].name);
}

ncclResult_t Communicators::background_error() const {
    for (const CommHandle& h : handles_) {
        ncclResult_t found = ncclSuccess;
        if (h.comm && ncclCommGetAsyncError(h.comm, &found) == ncclSuccess && found != ncclSuccess && found != ncclInProgress)
            return found;
    }
    return ncclSuccess;
}

void Communicators::abort() {
    for (auto it = handles_.rbegin(); it != handles_.rend(); ++it)
        if (it->comm) ncclCommAbort(it->comm);
}

void Communicators::destroy() {
    for (auto it = handles_.rbegin(); it != handles_.rend(); ++it) {
        if (!it->comm) continue;
        nccl(ncclCommDestroy(it->comm), "ncclCommDestroy");
        it->comm = nullptr;
    }
}

}  // namespace opus::replay
