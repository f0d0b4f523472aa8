#include "manager/core/core.h"

#include <algorithm>

#include "manager/core/impl.h"

namespace opus::manager {

Core::Core(std::string node_name, CoreOptions options) : impl_(std::make_unique<Impl>(std::move(node_name), options)) {}
Core::~Core() = default;

void Core::on(const Event& event, TimeNs now, TimeNs realtime_ns, Actions& out) {
    impl_->world.now = now;
    impl_->world.realtime = realtime_ns;
    impl_->world.out = &out;
    if (!impl_->rooms.session.is_up()) impl_->rooms.holds.note_alone();
    std::visit([this](const auto& e) { impl_->handle(e); }, event);
}

bool Core::flush(TimeNs now, Actions& out) {
    impl_->world.now = now;
    impl_->world.out = &out;
    return impl_->flush();
}

// What was asked for is on its way first; gates can wait for that.
bool Core::Impl::flush() {
    const bool asks = rooms.reports.send();
    const bool later = asks && rooms.early_releases.is_due();
    if (!later) rooms.early_releases.release_all();
    const TimeNs at = std::min({rooms.session.next_deadline(), rooms.holds.next_deadline(), rooms.runs.next_deadline()});
    if (std::exchange(wake_at, at) != at) world.out->push_back(WakeAt{at});
    return later;
}

bool Core::pending() const {
    return std::any_of(impl_->world.ranks.begin(), impl_->world.ranks.end(), [](const auto& entry) {
        bool any = false;
        entry.second.each([&any](const Launch& launch) { any |= launch.phase != Phase::done; });
        return any;
    });
}

bool Core::goes_ahead() const { return impl_->rooms.early_releases.go_ahead(); }
bool Core::holds_back() const { return impl_->rooms.early_releases.holds_back(); }
TimeNs Core::lit_ns() const { return impl_->rooms.runs.lit_ns(); }
bool Core::awaits_end(const wire::LocalLaunch& launch) const { return impl_->rooms.launches.awaits_end(launch); }

const Counters& Core::counters() const { return impl_->world.counters; }

std::string Core::check() const {
    for (const auto& [id, rank] : impl_->world.ranks) {
        if (rank.info.rank != id) return "rank " + std::to_string(id) + " is filed under another number";
        if (auto fault = rank.check(); !fault.empty()) return fault;
    }
    for (std::string fault : {impl_->rooms.early_releases.check(), impl_->rooms.members.check()})
        if (!fault.empty()) return fault;
    if (impl_->rooms.session.is_up() && impl_->rooms.holds.is_alone()) return "alone, and with a controller";
    return {};
}

std::string name_of(const wire::LocalLaunch& launch) {
    return "launch " + std::to_string(launch.seq) + " of rank " + std::to_string(launch.rank);
}

}  // namespace opus::manager
