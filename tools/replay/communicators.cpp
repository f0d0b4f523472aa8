#include "tools/replay/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tools/replay/pattern.h"

// Younger than the oldest NCCL the player is used with.
#pragma weak ncclCommShrink

namespace opus::replay {
namespace {

// Of what a non-blocking communicator has in progress: soon seen where it is soon over, no load where it takes long.
constexpr std::chrono::microseconds kShortestPoll{50};
constexpr std::chrono::microseconds kLongestPoll{2000};

std::uint64_t seed_of(const std::string& name, std::uint32_t group, std::uint32_t life) {
    std::uint64_t seed = 0x6f707573;
    for (char c : name) seed = mix(seed, static_cast<unsigned char>(c));
    seed = mix(seed, group);
    return life == 1 ? seed : mix(seed, life);
}

}  // namespace

Communicators::Communicators(const Workload& workload, std::uint32_t rank, Rendezvous& rendezvous, std::uint64_t timeout_ms)
    : workload_(workload), rendezvous_(rendezvous), timeout_ms_(timeout_ms), handles_(workload.comms.size()) {
    for (std::uint32_t i = 0; i < handles_.size(); ++i) {
        const Membership m = membership(workload.comms[i], rank);
        CommHandle& h = handles_[i];
        h.group = m.group, h.rank = m.rank;
        h.non_blocking = workload.comms[i].parent.empty() ? workload.comms[i].non_blocking : handles_[parent_of(i)].non_blocking;
        if (m.group != kNobody) h.size = static_cast<std::uint32_t>(workload.comms[i].groups[m.group].size());
    }
    for (std::uint32_t i = 0; i < handles_.size(); ++i)
        if (!workload.comms[i].later) create(i);
}

void Communicators::create(std::uint32_t comm) {
    CommHandle& h = handles_[comm];
    ++h.lives;
    h.collectives = 0;
    h.sent.clear(), h.received.clear();
    if (h.group != kNobody) h.seed = seed_of(workload_.comms[comm].name, h.group, h.lives);
    const Comm& made = workload_.comms[comm];
    set(h, made.parent.empty() ? from_id(comm) : made.shrink ? from_shrink(comm) : from_split(comm));
}

void Communicators::destroy(std::uint32_t comm) {
    const ncclComm_t gone = handles_[comm].comm;
    if (!gone) return;
    set(handles_[comm], nullptr);
    nccl(ncclCommDestroy(gone), "ncclCommDestroy " + workload_.comms[comm].name);
}

void Communicators::set(CommHandle& handle, ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    handle.comm = comm;
}

ncclComm_t Communicators::from_id(std::uint32_t index) {
    const CommHandle& h = handles_[index];
    if (h.group == kNobody) return nullptr;
    const std::string& name = workload_.comms[index].name;
    const std::string life = h.lives == 1 ? "" : "." + std::to_string(h.lives);
    const std::string key = "id." + std::to_string(index) + "." + name + "." + std::to_string(h.group) + life;
    ncclUniqueId id{};
    if (h.rank == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId for " + name);
        rendezvous_.put(key, std::string(id.internal, sizeof id.internal));
    } else {
        const std::string bytes = rendezvous_.get(key, timeout_ms_);
        if (bytes.size() != sizeof id.internal) throw PlayError(kExitUsage, "rendezvous: " + key + " is no unique id");
        std::memcpy(id.internal, bytes.data(), bytes.size());
    }
    ncclComm_t made = nullptr;
    const int size = static_cast<int>(h.size), rank = static_cast<int>(h.rank);
    if (!h.non_blocking) {
        nccl(ncclCommInitRank(&made, size, id, rank), "ncclCommInitRank " + name);
        return made;
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    nccl(ncclCommInitRankConfig(&made, size, id, rank, &config), "ncclCommInitRankConfig " + name);
    await(made, "ncclCommInitRankConfig " + name);
    return made;
}

std::uint32_t Communicators::parent_of(std::uint32_t index) const {
    std::uint32_t parent = 0;
    while (workload_.comms[parent].name != workload_.comms[index].parent) ++parent;
    return parent;
}

// A non-blocking parent's call returns at once, and gives the child's pointer when that is whole: only the parent says when.
ncclComm_t Communicators::from_split(std::uint32_t index) {
    const std::uint32_t parent = parent_of(index);
    if (!handles_[parent].comm) return nullptr;
    const CommHandle& h = handles_[index];
    const int color = h.group == kNobody ? NCCL_SPLIT_NOCOLOR : static_cast<int>(h.group);
    const int key = h.group == kNobody ? 0 : static_cast<int>(h.rank);
    ncclComm_t made = nullptr;
    const std::string what = "ncclCommSplit " + workload_.comms[index].name;
    nccl(ncclCommSplit(handles_[parent].comm, color, key, &made, nullptr), what);
    if (h.non_blocking) await(handles_[parent].comm, what);
    return made;
}

ncclComm_t Communicators::from_shrink(std::uint32_t index) {
    const CommHandle& h = handles_[index];
    if (h.group == kNobody) return nullptr;
    if (!ncclCommShrink) throw PlayError(kExitNccl, "this NCCL has no ncclCommShrink; it needs 2.27");
    const std::uint32_t parent = parent_of(index);
    const std::vector<std::uint32_t>&all = workload_.comms[parent].groups[handles_[parent].group],
                                &kept = workload_.comms[index].groups[h.group];
    std::vector<int> excluded;
    for (std::uint32_t i = 0; i < all.size(); ++i)
        if (std::find(kept.begin(), kept.end(), all[i]) == kept.end()) excluded.push_back(static_cast<int>(i));
    ncclComm_t made = nullptr;
    const std::string what = "ncclCommShrink " + workload_.comms[index].name;
    nccl(ncclCommShrink(handles_[parent].comm, excluded.data(), static_cast<int>(excluded.size()), &made, nullptr, NCCL_SHRINK_DEFAULT),
         what);
    if (h.non_blocking) await(handles_[parent].comm, what);
    return made;
}

void Communicators::settle(std::uint32_t comm) {
    const CommHandle& h = handles_[comm];
    if (h.non_blocking && h.comm) await(h.comm, workload_.comms[comm].name);
}

void Communicators::await(ncclComm_t comm, const std::string& what) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms_);
    for (std::chrono::microseconds pause = kShortestPoll;; pause = std::min(kLongestPoll, pause + pause / 4)) {
        ncclResult_t state = ncclSuccess;
        nccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
        if (state != ncclInProgress) return nccl(state, what);
        if (std::chrono::steady_clock::now() > until) throw PlayError(kExitTimeout, what + " is in progress, and nothing comes of it");
        std::this_thread::sleep_for(pause);
    }
}

ncclResult_t Communicators::background_error() const {
    const std::lock_guard lock(mutex_);
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
    for (std::uint32_t i = static_cast<std::uint32_t>(handles_.size()); i-- > 0;) destroy(i);
}

}  // namespace opus::replay
