#include "collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "activity.h"
#include "transport.h"

namespace opus::standin {

Collective::Collective(Launch& launch, CommCore& core, const CollectiveCall& call)
    : launch_(launch), core_(core), call_(call), size_of_(type_bytes(call.reduction.type)), ranks_(core.size()) {}

std::uint32_t Collective::chunks() const {
    switch (call_.kind) {
        case CollectiveKind::broadcast:
        case CollectiveKind::reduce: return 1;
        default: return ranks_;
    }
}

Collective::Path Collective::path(std::uint32_t chunk) const {
    const auto position_of = [&](std::uint32_t rank) {
        return static_cast<std::uint32_t>(std::find(core_.ring.begin(), core_.ring.end(), rank) - core_.ring.begin());
    };
    Path p;
    p.hops = ranks_ - 1;
    p.elements = call_.count;
    switch (call_.kind) {
        case CollectiveKind::all_reduce: {
            const std::size_t each = call_.count / ranks_, more = call_.count % ranks_;
            p.start = chunk;
            p.hops = 2 * (ranks_ - 1);
            p.elements = each + (chunk < more ? 1 : 0);
            p.mine_at = p.out_at = chunk * each + std::min<std::size_t>(chunk, more);
            break;
        }
        case CollectiveKind::reduce_scatter:
            p.start = (position_of(chunk) + 1) % ranks_;
            p.mine_at = chunk * call_.count;
            break;
        case CollectiveKind::all_gather:
            p.start = position_of(chunk);
            p.out_at = chunk * call_.count;
            break;
        case CollectiveKind::broadcast: p.start = position_of(call_.root); break;
        case CollectiveKind::reduce: p.start = (position_of(call_.root) + 1) % ranks_; break;
        default: break;
    }
    return p;
}

std::uint64_t Collective::pieces(const Path& path) const {
    return (path.elements * size_of_ + kPieceBytes - 1) / kPieceBytes;
}

void Collective::start() {
    for (std::uint32_t c = 0; c < chunks(); ++c) {
        const Path p = path(c);
        const std::uint32_t first = (core_.position + ranks_ - p.start + ranks_ - 1) % ranks_;
        for (std::uint32_t hop = first; hop < p.hops; hop += ranks_) expected_ += pieces(p);
    }
    alone();
    if (ranks_ == 1) {
        originated_ = true;
        return;
    }
    core_.collectives[call_.n] = this;
    auto clear = std::make_shared<Frame>();
    clear->head.say = Say::clear;
    clear->head.comm = core_.key;
    clear->head.src = core_.rank;
    clear->head.dst = core_.previous();
    clear->head.n = call_.n;
    clear->owner = launch_.shared_from_this();
    Transport::get().send(core_.members[core_.previous()], core_.ways_in.front().back(), clear);
    if (core_.early_collective_clear.erase(call_.n)) clear_came();
}

// What needs no other rank: one's own block, or everything where there is one rank.
void Collective::alone() {
    const std::size_t block = call_.count * size_of_;
    const auto copy = [&](std::size_t out, std::size_t in) {
        if (call_.receive + out != call_.send + in) std::memmove(call_.receive + out, call_.send + in, block);
    };
    switch (call_.kind) {
        case CollectiveKind::all_gather: copy(core_.rank * block, 0); break;
        case CollectiveKind::broadcast:
            if (core_.rank == call_.root && call_.receive) copy(0, 0);
            break;
        default:
            if (ranks_ == 1) scale(call_.reduction, call_.receive, call_.send, call_.count);
            break;
    }
}

void Collective::clear_came() {
    if (originated_) return;
    originated_ = true;
    // What goes by a pipe may be delivered, and the launch asked whether it is over, before the next piece is sent.
    ++launch_.undelivered;
    for (std::uint32_t c = 0; c < chunks(); ++c) {
        const Path p = path(c);
        if (p.start == core_.position && p.hops > 0) originate(c, p);
    }
    for (auto& [way, frame] : std::exchange(held_, {}))
        if (!launch_.ended()) Transport::get().send(core_.members[core_.next()], way, std::move(frame));
    --launch_.undelivered;
    launch_.check();
}

void Collective::originate(std::uint32_t chunk, const Path& p) {
    const std::size_t bytes = p.elements * size_of_;
    const std::byte* from = call_.send + p.mine_at * size_of_;
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
        const std::size_t part = std::min<std::size_t>(kPieceBytes, bytes - at);
        std::unique_ptr<std::byte[]> scaled;
        if (call_.reduction.scaled) {
            scaled = std::make_unique<std::byte[]>(part);
            scale(call_.reduction, scaled.get(), from + at, part / size_of_);
        }
        pass_on(chunk, 0, at, part, from + at, std::move(scaled));
    }
}

void Collective::pass_on(std::uint32_t chunk, std::uint32_t hop, std::size_t offset, std::size_t bytes,
                         const std::byte* data, std::unique_ptr<std::byte[]> owned) {
    if (launch_.ended()) return;  // a pipe broke on the piece before: the buffers may be gone
    auto frame = std::make_shared<Frame>();
    Head& h = frame->head;
    h.say = Say::piece;
    h.bytes = static_cast<std::uint32_t>(bytes);
    h.comm = core_.key;
    h.src = core_.rank;
    h.dst = core_.next();
    h.n = call_.n;
    h.offset = offset;
    h.chunk = chunk;
    h.hop = hop;
    frame->data = owned ? owned.get() : data;
    frame->owned = std::move(owned);
    frame->owner = launch_.shared_from_this();
    // Neighbouring pieces, and neighbouring small chunks, take different rails.
    const Way way = core_.ways_out[(chunk + offset / kPieceBytes) % core_.ways_out.size()];
    if (originated_)
        Transport::get().send(core_.members[core_.next()], way, frame);
    else
        held_.emplace_back(way, frame);
}

void Collective::piece_came(const Head& head, const std::byte* data) {
    if (head.chunk >= chunks()) return;
    const Path p = path(head.chunk);
    if (head.offset + head.bytes > p.elements * size_of_ || head.hop >= p.hops) return;
    const std::size_t elements = head.bytes / size_of_;
    const bool last = head.hop + 1 == p.hops;
    const bool reduces = call_.kind == CollectiveKind::all_reduce || call_.kind == CollectiveKind::reduce_scatter ||
                         call_.kind == CollectiveKind::reduce;
    // A rank that only passes on may have given no buffer.
    std::byte* out = call_.receive ? call_.receive + p.out_at * size_of_ + head.offset : nullptr;
    const std::byte* mine = call_.send ? call_.send + p.mine_at * size_of_ + head.offset : nullptr;
    std::unique_ptr<std::byte[]> owned;
    if (reduces && head.hop + 2 < ranks_) {  // a part of the sum
        owned = std::make_unique<std::byte[]>(head.bytes);
        reduce(call_.reduction, owned.get(), data, mine, elements);
    } else if (reduces && head.hop + 2 == ranks_) {  // the sum
        reduce(call_.reduction, out, data, mine, elements);
        conclude(call_.reduction, out, elements, ranks_);
    } else {
        std::memcpy(out, data, head.bytes);
    }
    ++arrived_;
    if (!last) pass_on(head.chunk, head.hop + 1, head.offset, head.bytes, out, std::move(owned));
    launch_.check();
}

bool is_transfers(CollectiveKind kind) {
    return kind == CollectiveKind::all_to_all || kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}

std::vector<TransferCall> transfers_of(const CollectiveCall& call, std::uint32_t rank, std::uint32_t ranks) {
    std::vector<TransferCall> all;
    const std::size_t block = call.count * type_bytes(call.reduction.type);
    auto* from = const_cast<std::byte*>(call.send);
    const auto send = [&](std::uint32_t to, std::size_t at) {
        all.push_back({true, to, kOfCollective | call.n, from + at, block});
    };
    const auto receive = [&](std::uint32_t peer, std::size_t at) {
        all.push_back({false, peer, kOfCollective | call.n, call.receive + at, block});
    };
    const bool root = rank == call.root;
    if (call.kind == CollectiveKind::gather) send(call.root, 0);
    if (call.kind == CollectiveKind::scatter) receive(call.root, 0);
    // Beginning with one's neighbour, so that not all send to the same rank at first.
    for (std::uint32_t step = 1; step <= ranks; ++step) {
        const std::uint32_t to = (rank + step) % ranks, peer = (rank + ranks - step) % ranks;
        if (call.kind == CollectiveKind::all_to_all) {
            send(to, to * block);
            receive(peer, peer * block);
        }
        if (call.kind == CollectiveKind::gather && root) receive(peer, peer * block);
        if (call.kind == CollectiveKind::scatter && root) send(to, to * block);
    }
    return all;
}

// --- transfers -----------------------------------------------------------------------------------------------

Transfer::Transfer(Launch& launch, CommCore& core, const TransferCall& call)
    : launch_(launch), core_(core), call_(call), bytes_(call.bytes) {}

void Transfer::start() {
    if (call_.sending) {
        core_.sends[{call_.peer, call_.n}] = this;
        if (core_.early_clear.erase({call_.peer, call_.n})) clear_came();
        return;
    }
    core_.receives[{call_.peer, call_.n}] = this;
    auto clear = std::make_shared<Frame>();
    clear->head.say = Say::clear_transfer;
    clear->head.comm = core_.key;
    clear->head.src = core_.rank;
    clear->head.dst = call_.peer;
    clear->head.n = call_.n;
    clear->owner = launch_.shared_from_this();
    Transport::get().send(core_.members[call_.peer], core_.transfer_way(call_.peer, core_.rank).back(), clear);
}

void Transfer::clear_came() {
    if (done()) return;
    const Member& to = core_.members[call_.peer];
    const Way way = core_.transfer_way(core_.rank, call_.peer);
    std::size_t at = 0;
    do {  // an empty one is a frame, too
        auto frame = std::make_shared<Frame>();
        Head& h = frame->head;
        h.say = Say::transfer;
        h.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(kPieceBytes, bytes_ - at));
        h.comm = core_.key;
        h.src = core_.rank;
        h.dst = call_.peer;
        h.n = call_.n;
        h.offset = at;
        h.total = bytes_;
        frame->data = call_.buffer + at;
        frame->owner = launch_.shared_from_this();
        Transport::get().send(to, way, frame);
        at += kPieceBytes;
    } while (at < bytes_ && !launch_.ended());
    met_ = true;
    done_bytes_ = bytes_;
    launch_.check();
}

void Transfer::part_came(const Head& head, const std::byte* data) {
    if (head.total > call_.bytes) return Transport::get().fail(launch_.core, ncclInvalidUsage);
    bytes_ = head.total;
    if (head.offset + head.bytes > bytes_) return;
    if (head.bytes != 0) std::memmove(call_.buffer + head.offset, data, head.bytes);  // to itself: perhaps in place
    met_ = true;
    done_bytes_ += head.bytes;
    launch_.check();
}

}  // namespace opus::standin
