#include "controller/shell/recorders.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "controller/shell/names.h"

namespace opus::controller {
namespace {

constexpr TimeNs kPatience = 30'000'000'000;  // with one that does not read
constexpr std::size_t kMaxGroups = 1u << 18;
constexpr std::size_t kMaxKeys = 1u << 16;  // launches that are not done

const char* event_name(Trace::Kind kind) {
    switch (kind) {
        case Trace::Kind::suspend:
        case Trace::Kind::resume:
        case Trace::Kind::pass:
        case Trace::Kind::port_fenced:
        case Trace::Kind::port_unfenced:
        case Trace::Kind::circuit_lost: return trace_kind_name(kind);
        default: return nullptr;
    }
}

}  // namespace

Recorders::Recorders(const Fabric& fabric, std::string program, TimeNs realtime_offset_ns, const std::string& path)
    : fabric_(fabric), program_(std::move(program)), realtime_offset_ns_(realtime_offset_ns) {
    if (path.empty()) return;
    file_.open(path, std::ios::trunc);
    if (!file_) throw std::runtime_error("cannot write the recording " + path + ": " + std::strerror(errno));
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    recorders_.emplace_back(fabric, program_, TimeNs{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
}

template <class F>
void Recorders::write(const std::string& job, F&& f) {
    for (Recorder& r : recorders_) {
        if (r.over || (!r.job.empty() && !job.empty() && r.job != job)) continue;
        if (r.text.size() > kMaxBehind) {
            ++r.lost_lines;
            continue;
        }
        f(r);
        batch_due_ |= r.text.size() >= kBatch;
    }
}

bool Recorders::open(const std::string& peer, std::uint64_t request, const std::string& job, const Core& core, TimeNs now) {
    if (recorders_.size() >= kMax) return false;
    Recorder& r = recorders_.emplace_back(fabric_, program_, now + realtime_offset_ns_);
    r.peer = peer;
    r.request = request;
    r.job = job;
    for (const auto& [id, known] : ranks_)
        if (job.empty() || known.job == job) name_rank(r, id, known);
    for (const PortStatus& p : core.ports())
        if (p.peer != kNone && p.peer > p.port && p.peer < fabric_.ports.size())
            r.writer.circuit(fabric_.ports[p.port].name, fabric_.ports[p.peer].name, now + realtime_offset_ns_, true);
    return true;
}

// --- who is who -----------------------------------------------------------------------------------

void Recorders::name_rank(Recorder& recorder, std::uint64_t rank, const Known& known) {
    const auto node = static_cast<NodeIndex>(rank >> 32);
    const auto& gpus = fabric_.nodes[node].gpus;
    recorder.writer.name_rank(rank, rank_name(fabric_, node, static_cast<RankId>(rank)),
                              known.gpu < gpus.size() ? fabric_.gpus[gpus[known.gpu]].name : "", known.job);
}

void Recorders::came(NodeIndex node, const wire::RankInfo& info) {
    const std::uint64_t id = id_of(node, info.rank);
    const auto made = ranks_.try_emplace(id);
    const auto at = made.first;  // not a structured binding: clang 14 lets no lambda have one
    const bool fresh = made.second;
    if (!fresh && at->second.gpu == info.gpu && at->second.job == info.job) return;
    if (fresh || at->second.job != info.job) {
        if (!fresh && --jobs_[at->second.job] == 0) jobs_.erase(at->second.job);
        ++jobs_[info.job];
    }
    at->second.gpu = info.gpu;
    at->second.job = info.job;
    profile_.rank(id, info.job);
    write(info.job, [&](Recorder& r) { name_rank(r, id, at->second); });
}

void Recorders::gone(std::uint64_t rank) {
    const auto at = ranks_.find(rank);
    if (at == ranks_.end()) return;
    const std::string job = at->second.job;
    ranks_.erase(at);
    places_.erase(rank);
    keys_.erase(keys_.lower_bound({rank, 0}), keys_.lower_bound({rank + 1, 0}));
    if (--jobs_[job] > 0) return;
    jobs_.erase(job);
    profile_.job_ended(job);
    ended_.push_back(job);
    for (Recorder& r : recorders_) {
        if (r.over || (!r.job.empty() && r.job != job)) continue;
        r.writer.job_ended(job);
        r.over = r.job == job && !job.empty();
        batch_due_ |= r.over;
    }
}

void Recorders::joined(NodeIndex node, const wire::CommMember& m) {
    if (const auto rank = ranks_.find(id_of(node, m.rank)); rank != ranks_.end())
        places_[rank->first].insert_or_assign(m.comm, m.rank_in_comm);
    if (groups_.size() >= kMaxGroups) groups_.clear();
    if (!groups_.insert_or_assign(m.comm, m.size).second) return;
    profile_.group(m.comm, m.size);
}

void Recorders::keys_of(NodeIndex node, const wire::LaunchDemand& demand) {
    if (keys_.size() >= kMaxKeys) keys_.clear();
    keys_.insert_or_assign({id_of(node, demand.launch.rank), demand.launch.seq}, demand.keys);
}

void Recorders::heard(NodeIndex node, const wire::Message& message) {
    const auto enter = [&](const auto& m) {
        for (const wire::RankInfo& rank : m.ranks) came(node, rank);
        for (const wire::CommMember& member : m.comms) joined(node, member);
    };
    if (const auto* snapshot = std::get_if<wire::Snapshot>(&message)) {
        enter(*snapshot);
        std::set<std::uint64_t> there;
        for (const wire::RankInfo& rank : snapshot->ranks) there.insert(id_of(node, rank.rank));
        std::vector<std::uint64_t> left;
        for (auto at = ranks_.lower_bound(id_of(node, 0)); at != ranks_.end() && at->first >> 32 == node; ++at)
            if (there.count(at->first) == 0) left.push_back(at->first);
        for (const std::uint64_t rank : left) gone(rank);
    } else if (const auto* newcomers = std::get_if<wire::Register>(&message)) {
        enter(*newcomers);
    } else if (const auto* retired = std::get_if<wire::Retire>(&message)) {
        for (const RankId rank : retired->ranks) gone(id_of(node, rank));
    }
}

void Recorders::heard_launches(NodeIndex node, const wire::Message& message) {
    if (const auto* demand = std::get_if<wire::Demand>(&message)) {
        for (const wire::LaunchDemand& launch : demand->launches) keys_of(node, launch);
    } else if (const auto* done = std::get_if<wire::Done>(&message)) {
        for (const wire::LaunchRan& ran : done->ran) keys_of(node, ran.demand);
    } else if (const auto* returned = std::get_if<wire::Returned>(&message)) {
        for (const wire::LaunchDemand& launch : returned->running) keys_of(node, launch);
    } else if (const auto* snapshot = std::get_if<wire::Snapshot>(&message)) {
        for (const wire::LaunchSnapshot& launch : snapshot->launches) keys_of(node, launch.demand);
    }
}

std::vector<std::string> Recorders::ended() { return std::exchange(ended_, {}); }

// --- what happens ---------------------------------------------------------------------------------

void Recorders::launch(const Trace& t) {
    const RecordedLaunch l{
        id_of(t.launch.node, t.launch.rank), t.comm, t.op, t.bytes, t.ready_ns, t.go_ns, t.done_ns, t.held};
    profile_.launch(l);
    if (recorders_.empty()) return keys_.clear();
    const auto rank = ranks_.find(l.rank);
    if (rank == ranks_.end()) return;
    std::vector<wire::KeyRange> keys;
    if (const auto known = keys_.extract({l.rank, t.launch.seq})) keys = std::move(known.mapped());
    write(rank->second.job, [&](Recorder& r) {
        if (!r.writer.knows_rank(l.rank)) name_rank(r, l.rank, rank->second);
        name_member(r, l.rank, l.group);
        for (const wire::KeyRange& k : keys) name_member(r, l.rank, k.first.comm);
        r.writer.launch(l, t.launch.seq, keys);
    });
}

void Recorders::name_member(Recorder& r, std::uint64_t rank, const CommId& group) {
    if (!r.writer.knows_group(group)) {
        const auto size = groups_.find(group);
        r.writer.name_group(group, comm_name(group), size == groups_.end() ? 0 : size->second);
    }
    const auto places = places_.find(rank);
    if (places == places_.end()) return;
    const auto place = places->second.find(group);
    if (place != places->second.end() && r.members.emplace(rank, group).second)
        r.writer.member(rank, group, place->second);
}

void Recorders::add(const Trace& t) {
    const TimeNs at = t.at_ns + realtime_offset_ns_;
    if (t.kind == Trace::Kind::launch_done) return launch(t);
    const std::uint64_t rank_id = t.launch.node == kNone ? 0 : id_of(t.launch.node, t.launch.rank);
    if (t.kind == Trace::Kind::gang_granted) {
        if (t.launch.node == kNone) return;  // circuits made ahead: nobody was granted anything
        profile_.gang(rank_id, at, t.dark_ns);
        if (recorders_.empty()) return;
        const auto rank = ranks_.find(rank_id);
        const RecordedGang gang{t.id, rank_id, t.ready_ns + realtime_offset_ns_, at, t.queue_ns, t.dark_ns};
        if (rank != ranks_.end()) write(rank->second.job, [&](Recorder& r) { r.writer.gang(gang); });
        return;
    }
    if (recorders_.empty()) return;
    const bool up = t.kind == Trace::Kind::circuit_up;
    const bool known = t.circuit.a < fabric_.ports.size() && t.circuit.b < fabric_.ports.size();
    if (known && (up || t.kind == Trace::Kind::circuit_down || t.kind == Trace::Kind::circuit_lost))
        write("", [&](Recorder& r) {
            r.writer.circuit(fabric_.ports[t.circuit.a].name, fabric_.ports[t.circuit.b].name, at, up);
        });
    const char* event = event_name(t.kind);
    if (event == nullptr) return;
    const auto rank = ranks_.find(rank_id);
    const std::string about = t.launch.node != kNone               ? launch_name(fabric_, t.launch)
                              : t.circuit.a < fabric_.ports.size() ? fabric_.ports[t.circuit.a].name
                                                                   : "";
    write(t.launch.node == kNone || rank == ranks_.end() ? "" : rank->second.job,
          [&](Recorder& r) { r.writer.event(at, event, about); });
}

void Recorders::programmed(SwitchIndex sw, const ChangeSet& changes, const Applied& a) {
    if (a.sent_ns == 0) return;
    const auto circuits = static_cast<std::uint32_t>(changes.connect.size());
    const auto real = [this](TimeNs at) { return at == 0 ? 0 : at + realtime_offset_ns_; };
    if (a.error == DriverError::none) profile_.change_set(real(a.sent_ns), real(a.settled_ns), circuits);
    write("", [&](Recorder& r) {
        r.writer.change_set(fabric_.switches[sw].name, real(a.sent_ns), real(a.acked_ns), real(a.settled_ns), circuits,
                            a.error == DriverError::none ? ""
                            : a.text.empty()             ? "failed"
                                                         : a.text);
    });
}

// --- where it goes --------------------------------------------------------------------------------

void Recorders::deliver(const Send& send, TimeNs now) {
    batch_due_ = false;
    for (auto at = recorders_.begin(); at != recorders_.end();) {
        Recorder& r = *at;
        if (r.lost_lines > 0 && r.text.size() < kMaxBehind / 2) {
            r.writer.event(now + realtime_offset_ns_, "lines lost", std::to_string(r.lost_lines));
            r.lost_lines = 0;
        }
        bool done = false;
        if (r.peer.empty()) {
            file_ << r.text;
            r.text.clear();
        } else if (!r.text.empty() || r.over) {
            if (send(r.peer, r.request, r.text, r.over)) {
                r.text.clear();
                r.failing_since_ns = 0;
                done = r.over;
            } else {
                if (r.failing_since_ns == 0) r.failing_since_ns = now;
                done = now - r.failing_since_ns > kPatience;
            }
        }
        at = done ? recorders_.erase(at) : std::next(at);
    }
}

void Recorders::flush() { file_.flush(); }

std::string job_line(const nlohmann::json& job) {
    char text[512];
    std::snprintf(
        text, sizeof text,
        "job %s has ended: %u ranks, %llu launches in %.1f s; %llu windows, %.0f %% of them over 1 ms; %llu of "
        "%llu gangs waited for light, %.1f ms in all",
        job.value("job", "").substr(0, 200).c_str(), job.value("ranks", 0u), job.value("launches", 0ull),
        job.value("seconds", 0.0), job.value("windows", 0ull), job.value("over_1ms_percent", 0.0),
        job.value("gangs_that_waited_for_light", 0ull), job.value("gangs", 0ull), job.value("waited_for_light_ms", 0.0));
    return text;
}

}  // namespace opus::controller
