#include "manager/shell/ring_entries.h"

namespace opus::manager {
namespace {

// What the wire carries (opus/wire.h): more would have our frames refused.
constexpr std::uint32_t kMaxRanks = 1u << 22;
constexpr std::uint32_t kMaxLocal = 64;

bool is_directed(std::uint8_t kind) {
    switch (static_cast<OpKind>(kind)) {
        case OpKind::send:
        case OpKind::recv:
        case OpKind::put_signal:
        case OpKind::signal:
        case OpKind::wait_signal: return true;
        default: return false;
    }
}

std::string name_of(std::uint32_t index) { return "communicator entry " + std::to_string(index); }

}  // namespace

void RingEntries::lose_all(std::vector<Event>& events) const {
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].life != Life::free) events.push_back(CommLost{rank_, i});
}

std::string RingEntries::scan(std::vector<Event>& events) {
    std::string fault;
    for (std::uint32_t i = 0; i < entries_.size() && fault.empty(); ++i) fault = scan(i, events);
    return fault;
}

std::string RingEntries::scan(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    Entry& entry = entries_[index];
    const auto state = static_cast<ring::CommState>(shared.state.load(std::memory_order_acquire));
    // It never got its place. The entry may be another's by now: no launch has named it.
    if (entry.life == Life::entering && (state == ring::CommState::free || shared.generation != entry.generation)) {
        entry.life = Life::free;
        events.push_back(CommDown{rank_, index});
    }
    if (entry.life == Life::free) {
        if (state == ring::CommState::entering) return enter(index, events);
        if (state != ring::CommState::registered && state != ring::CommState::retired) return {};
        // Retired and freed before: its last life, already reported.
        if (entry.ever_freed && shared.generation == entry.generation) return {};
        if (recovered_ && state == ring::CommState::retired &&
            shared.freed.load(std::memory_order_relaxed) == shared.generation) {
            entry.ever_freed = true;
            entry.generation = shared.generation;
            return {};
        }
        std::string fault = register_member(index, events);
        if (!fault.empty()) return fault;
    }
    if (entry.life == Life::entering && state != ring::CommState::entering) {
        std::string fault = register_member(index, events);
        if (!fault.empty()) return fault;
    }
    if (entry.life == Life::live) {
        const auto creation = static_cast<CreationState>(shared.creation.load(std::memory_order_relaxed));
        if (creation == CreationState::returned && !entry.created) events.push_back(CommCreated{rank_, index});
        entry.created |= creation == CreationState::returned;
        const std::uint32_t lost = shared.lost.load(std::memory_order_relaxed);
        if (lost > entry.lost) events.push_back(CommLost{rank_, index});
        entry.lost = lost;
        if (state == ring::CommState::retired) {
            entry.life = Life::ending;
            entry.ends_at = view_.header->head.load(std::memory_order_acquire);
            ++ending_;
        } else if (state != ring::CommState::registered || shared.generation != entry.generation) {
            return name_of(index) + " changed while it was registered";
        }
    }
    return {};
}

// Its rank and size come later. What it says of them until then is not looked at.
std::string RingEntries::enter(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    const CommEntering entering{rank_, index, shared.id};
    const std::uint32_t generation = shared.generation;
    if (entering.comm == CommId{}) return name_of(index) + " has no id";
    entries_[index] = {Life::entering, true, generation, 0, 0, false, 0};
    events.push_back(entering);
    return {};
}

std::string RingEntries::register_member(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    CommUp up;
    up.rank = rank_;
    up.index = index;
    up.family = shared.family;
    up.member = {shared.id, shared.parent, shared.rank, shared.size, rank_, kNone, Mode::off, shared.generation, {}};
    wire::CommMember& m = up.member;
    const std::uint32_t mode = shared.mode, device = shared.device;
    if (m.comm == CommId{}) return name_of(index) + " has no id";
    if (m.size == 0 || m.size > kMaxRanks || m.rank_in_comm >= m.size)
        return name_of(index) + ": rank " + std::to_string(m.rank_in_comm) + " of " + std::to_string(m.size);
    if (mode > static_cast<std::uint32_t>(Mode::enforce))
        return name_of(index) + ": mode " + std::to_string(mode);
    m.mode = static_cast<Mode>(mode);
    up.gpu = {shared.pci, shared.uuid};
    const std::uint32_t ways = shared.ways;
    m.own_nic = (ways & ring::kWaysOwnNic) != 0;
    m.own_host = (ways & ring::kWaysOwnHost) != 0;
    m.at_once = (ways & ring::kWaysAtOnce) != 0;
    m.also = shared.also;
    if (m.also == m.comm) m.also = {};
    const std::uint32_t gpu = std::atomic_ref(view_.header->gpu).load(std::memory_order_relaxed);
    // The header names the GPU of the process's first communicator; its other devices count on from there.
    if (first_device_ == kNone) first_device_ = device;
    const std::uint32_t local = gpu < kMaxLocal ? gpu + (device - first_device_) : device;
    if (local < kMaxLocal) m.gpu = local;
    if (recovered_) {
        const std::uint32_t verdict = shared.verdict.load(std::memory_order_relaxed);
        if (verdict < kVerdicts) up.verdict = static_cast<Verdict>(verdict);
        const std::uint32_t reason = shared.reason.load(std::memory_order_relaxed);
        if (reason < kReasons) up.reason = static_cast<Reason>(reason);
        up.reason_rank = shared.reason_rank.load(std::memory_order_relaxed);
    }
    const std::uint32_t creation = shared.creation.load(std::memory_order_relaxed);
    if (creation < kCreationStates) m.creation = static_cast<CreationState>(creation);
    entries_[index] = {Life::live, true, m.generation, m.size, 0, m.creation == CreationState::returned, 0};
    events.push_back(std::move(up));
    return {};
}

void RingEntries::end(std::uint64_t next, std::vector<Event>& events) {
    if (ending_ == 0) return;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
        Entry& entry = entries_[i];
        if (entry.life != Life::ending || entry.ends_at == kSeqNone || next < entry.ends_at) continue;
        entry.ends_at = kSeqNone;
        --ending_;
        events.push_back(CommDown{rank_, i});
    }
}

void RingEntries::freed(std::uint32_t index, std::uint32_t generation) {
    if (index >= entries_.size() || entries_[index].generation != generation) return;
    entries_[index].life = Life::free;
}

std::string RingEntries::fault_of(const ring::OpEntry& op, std::vector<Event>& events) {
    if (op.kind == 0 || op.kind >= kOpKinds) return "kind " + std::to_string(op.kind);
    if (op.comm >= entries_.size()) return name_of(op.comm);
    const auto unknown = [&] { return entries_[op.comm].life == Life::free || entries_[op.comm].life == Life::entering; };
    if (unknown())  // registered since the scan
        if (std::string fault = scan(op.comm, events); !fault.empty()) return fault;
    if (unknown()) return name_of(op.comm) + " is free";
    const std::uint32_t size = entries_[op.comm].size;
    if (is_directed(op.kind) && op.peer >= size)
        return "peer " + std::to_string(op.peer) + " of " + std::to_string(size);
    if (op.count == 0) return "count 0";
    if (op.n > ring::kSeqMask - op.count) return "number " + std::to_string(op.n);
    return {};
}

}  // namespace opus::manager
