#include "manager/shell/local_rank.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "manager/shell/futex.h"
#include "manager/shell/poller.h"
#include "manager/shell/process_watch.h"

namespace opus::manager {

bool LocalRank::lives() const { return owner_of(segment.path(), static_cast<pid_t>(pid), pid_start) != Owner::gone; }

void LocalRank::perform(const SetVerdict& a) {
    ring::CommEntry& entry = segment.view().comms[a.index];
    entry.reason.store(static_cast<std::uint32_t>(a.reason), std::memory_order_relaxed);
    entry.reason_rank.store(a.reason_rank, std::memory_order_relaxed);
    entry.known_as = a.known_as;
    entry.verdict.store(static_cast<std::uint32_t>(a.verdict), std::memory_order_release);
    futex_wake(entry.verdict);
}

void LocalRank::perform(const FreeComm& a) {
    ring::CommEntry& entry = segment.view().comms[a.index];
    entry.verdict.store(static_cast<std::uint32_t>(Verdict::unknown), std::memory_order_relaxed);
    entry.go.store(0, std::memory_order_relaxed);
    entry.freed.store(a.generation, std::memory_order_release);
    ring.comm_freed(a.index, a.generation);
}

Segment accept_rank(const RuntimeDirectory& directory, RankId id, pid_t pid, std::uint64_t pid_start,
                    const attach::AttachRequest& request, AttachServer::Accepted& accepted) {
    const std::string path = directory.segment_path(id);
    Segment segment = Segment::create(path, {id, static_cast<std::uint32_t>(pid), pid_start}, request);
    accepted.rank = id;
    accepted.slots = segment.view().header->slots;
    accepted.bytes = segment.view().header->bytes;
    accepted.segment = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    accepted.doorbell = Descriptor(::open(directory.doorbell_path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!accepted.segment || !accepted.doorbell) throw std::runtime_error(path + ": " + std::strerror(errno));
    return segment;
}

LocalRank serve_rank(Segment segment, RankId id, std::uint32_t pid, std::uint64_t pid_start, bool recovered, int poller,
                     std::map<int, RankId>& watches) {
    const ring::View view = segment.view();
    LocalRank rank{std::move(segment),
                   RingReader(view, id, recovered),
                   watch_process(static_cast<pid_t>(pid)),
                   pid,
                   pid_start,
                   false};
    if (rank.watch) {
        watch(poller, rank.watch.get());
        watches[rank.watch.get()] = id;
    }
    return rank;
}

void beat(LocalRanks& ranks) {
    for (auto& entry : ranks) entry.second.segment.view().header->heartbeat.fetch_add(1, std::memory_order_relaxed);
}

void tell_asleep(LocalRanks& ranks, std::uint32_t value) {
    for (auto& entry : ranks) entry.second.segment.view().header->asleep.store(value, std::memory_order_seq_cst);
#ifndef __SANITIZE_THREAD__  // which does not know fences, and makes every access stronger anyway
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

std::vector<RankId> unwatched(const LocalRanks& ranks) {
    std::vector<RankId> found;
    for (const auto& [id, rank] : ranks)
        if (!rank.watch) found.push_back(id);
    return found;
}

}  // namespace opus::manager
