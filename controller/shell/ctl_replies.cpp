#include "controller/shell/ctl_replies.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "controller/fabric/fabric_names.h"
#include "controller/fabric/spelling.h"
#include "controller/shell/names.h"

namespace opus::controller {
namespace {

using nlohmann::json;

std::string gpu_name(const Fabric& fabric, NodeIndex node, std::uint32_t local) {
    if (node >= fabric.nodes.size() || local >= fabric.nodes[node].gpus.size()) return "";
    return fabric.gpus[fabric.nodes[node].gpus[local]].name;
}

double age_ms(const ControllerView& view, TimeNs since) {
    return since == 0 ? 0 : static_cast<double>(view.now_ns - since) / 1e6;
}

json counters_json(const Counters& c) {
    return {{"demands", c.demands},
            {"gangs", c.gangs},
            {"gangs_without_move", c.gangs_without_move},
            {"grants", c.grants},
            {"reconfigurations", c.reconfigurations},
            {"circuits_moved", c.circuits_moved},
            {"suspensions", c.suspensions},
            {"passes", c.passes},
            {"aborts", c.aborts},
            {"switch_errors", c.switch_errors},
            {"launches_done", c.launches_done},
            {"launches_seen", c.launches_seen},
            {"unroutable", c.unroutable},
            {"differences", c.differences},
            {"speculations", c.speculations},
            {"speculations_used", c.speculations_used},
            {"speculations_wrong", c.speculations_wrong},
            {"runs", c.runs},
            {"run_launches", c.run_launches},
            {"revocations", c.revocations},
            {"dark_hidden_ns", c.dark_hidden_ns},
            {"dark_exposed_ns", c.dark_exposed_ns},
            {"control_ns", c.control_ns},
            {"dark_wait_ns", c.dark_wait_ns},
            {"queue_wait_ns", c.queue_wait_ns}};
}

}  // namespace

std::string to_text(const json& body) { return body.dump(-1, ' ', false, json::error_handler_t::replace); }

json status_reply(const ControllerView& view) {
    json nodes = json::array(), switches = json::array();
    for (const NodeStatus& n : view.core.nodes())
        nodes.push_back({{"node", view.fabric.nodes.at(n.node).name},
                         {"session", n.session},
                         {"reported", n.reported},
                         {"ranks", n.ranks},
                         {"last_seen_ms", age_ms(view, n.last_seen_ns)}});
    for (const SwitchStatus& s : view.core.switches()) {
        const Switch& d = view.fabric.switches.at(s.sw);
        switches.push_back({{"switch", d.name},
                            {"driver", d.driver},
                            {"address", d.address},
                            {"session", s.session},
                            {"map_known", s.map_known},
                            {"circuits", s.circuits},
                            {"ports", d.size()},
                            {"identity", s.identity},
                            {"dark_ms", static_cast<double>(d.dark_ns) / 1e6},
                            {"last_error", s.last_error},
                            {"differences", s.differences},
                            {"differed_ms", age_ms(view, s.differed_ns)},
                            {"note", s.note}});
    }
    return {{"controller",
             {{"version", view.version},
              {"address", view.address},
              {"epoch", view.epoch},
              {"fabric", view.fabric.name},
              {"up_ms", age_ms(view, view.started_ns)}}},
            {"nodes", nodes},
            {"switches", switches},
            {"counters", counters_json(view.core.counters())},
            {"control_plane",
             {{"gangs", view.control.count()},
              {"median_us", static_cast<double>(view.control.quantile(0.5)) / 1e3},
              {"p99_us", static_cast<double>(view.control.quantile(0.99)) / 1e3}}},
            {"wire",
             {{"frames_in", view.wire.frames_in},
              {"frames_out", view.wire.frames_out},
              {"rejected", view.wire.rejected},
              {"undelivered", view.wire.undelivered}}}};
}

namespace {

void note_next(json& reply, std::size_t next, std::size_t all) {
    if (next < all) reply["next"] = next;
}

}  // namespace

json ports_reply(const ControllerView& view, std::size_t from) {
    json list = json::array();
    from = std::min(from, view.fabric.ports.size());
    for (const PortStatus& p : view.core.ports(static_cast<PortId>(from), kMostInReply)) {
        json holders = json::array(), fence;
        if (p.fence) {
            fence = {{"by", p.fence->by_hand ? "hand" : "controller"},
                     {"since_ms", age_ms(view, p.fence->since_ns)},
                     {"why", p.fence->why}};
            if (!p.fence->by_hand)
                fence["tried_in_ms"] =
                    static_cast<double>(std::max(p.fence->tried_ns, view.now_ns) - view.now_ns) / 1e6;
        }
        for (const LaunchId& launch : p.holders) holders.push_back(launch_name(view.fabric, launch));
        const Port& port = view.fabric.ports.at(p.port);
        list.push_back({{"port", port.name},
                        {"rail", view.fabric.rails.at(view.fabric.gpus.at(port.gpu).rail).name},
                        {"switch_port", fabric::switch_port_name(view.fabric, p.port)},
                        {"use", port_use_name(p.use)},
                        {"peer", p.peer == kNone ? json() : json(fabric::port_name(view.fabric, p.peer))},
                        {"holders", holders},
                        {"holder_count", p.holder_count},
                        {"since_ms", age_ms(view, p.since_ns)},
                        {"fence", fence},
                        {"note", p.note}});
    }
    json reply = {{"ports", list}};
    note_next(reply, from + kMostInReply, view.fabric.ports.size());
    return reply;
}

json circuits_reply(const ControllerView& view, std::size_t from) {
    json list = json::array();
    from = std::min(from, view.fabric.ports.size());
    for (const PortStatus& p : view.core.ports(static_cast<PortId>(from), kMostInReply)) {
        if (p.peer == kNone || p.peer <= p.port) continue;  // each circuit once, by its lower port
        json holders = json::array();
        for (const LaunchId& launch : p.holders) holders.push_back(launch_name(view.fabric, launch));
        list.push_back({{"a", fabric::port_name(view.fabric, p.port)},
                        {"b", fabric::port_name(view.fabric, p.peer)},
                        {"switch", view.fabric.switches.at(view.fabric.ports.at(p.port).sw).name},
                        {"use", port_use_name(p.use)},
                        {"holders", holders},
                        {"holder_count", p.holder_count},
                        {"since_ms", age_ms(view, p.since_ns)},
                        {"note", p.note}});
    }
    json reply = {{"circuits", list}};
    note_next(reply, from + kMostInReply, view.fabric.ports.size());
    return reply;
}

json groups_reply(const ControllerView& view) {
    json list = json::array();
    for (const GroupStatus& g : view.core.groups()) {
        json members = json::array();
        for (const auto& [gpu, launch] : g.members)
            members.push_back({{"gpu", gpu < view.fabric.gpus.size() ? view.fabric.gpus[gpu].name : ""},
                               {"rank", launch.node == kNone ? "" : rank_name(view.fabric, launch.node, launch.rank)}});
        list.push_back({{"group", comm_name(g.comm)},
                        {"size", g.size},
                        {"registered", g.registered},
                        {"verdict", verdict_name(g.verdict)},
                        {"why", g.why},
                        {"job", g.job},
                        {"members", members}});
    }
    return {{"groups", list}};
}

// Which pair when, port by port.
static json planned_ports(const ControllerView& view, const std::string& job, std::size_t& most_turns,
                          const std::map<CommId, std::uint32_t>& sizes) {
    const auto ms = [](TimeNs ns) { return static_cast<double>(ns) / 1e6; };
    json ports = json::array();
    for (const PortPlan& plan : view.core.plan(job, most_turns)) {
        json turns = json::array();
        for (const plan::Course::Planned& turn : plan.turns) {
            const bool directed = is_directed(turn.key.kind);
            const auto size = sizes.find(turn.key.comm);
            turns.push_back({{"to", fabric::port_name(view.fabric, turn.peer)},
                             {"moves", turn.moves},
                             {"group", comm_name(turn.key.comm)},
                             {"group_size", size == sizes.end() ? 0 : size->second},
                             {"for", directed ? "transfer" : "collective"},
                             {"begin_ms", ms(turn.begin_ns)},
                             {"lasts_ms", ms(turn.lasts_ns)},
                             {"slack_ms", ms(turn.slack_ns)},
                             {"left", turn.left},
                             {"left_last", turn.left_last}});
        }
        most_turns -= std::min(most_turns, plan.turns.size());
        ports.push_back({{"port", fabric::port_name(view.fabric, plan.port)}, {"next", plan.next}, {"turns", turns}});
    }
    return ports;
}

void add_guards(const ControllerView& view, json& phases) {
    std::size_t most_turns = kMostTurnsTold;
    std::map<CommId, std::uint32_t> sizes;
    for (const GroupStatus& group : view.core.groups()) sizes[group.comm] = group.size;
    for (const JobStatus& s : view.core.jobs())
        for (json& job : phases["jobs"]) {
            if (job.value("job", "") != s.job || job.value("ended", false)) continue;
            job["provision"] = {{"state", s.state},
                                {"guarded", s.guarded},
                                {"provision", s.planned},
                                {"runs", s.runs},
                                {"fallbacks", s.fallbacks}};
            if (s.lap_ns > 0) job["provision"]["lap_ms"] = static_cast<double>(s.lap_ns) / 1e6;
            if (s.ratio > 0) job["provision"]["provisioned_to_on_demand"] = s.ratio;
            if (s.lap_phases > 0) job["plan"] = {{"phases", s.lap_phases}, {"made", s.plans}, {"followed", s.planned}};
            if (!s.planned) continue;
            json ports = planned_ports(view, s.job, most_turns, sizes);
            job["plan"]["ports_left_out"] = s.planned_ports - std::min(s.planned_ports, ports.size());
            job["plan"]["ports"] = std::move(ports);
        }
}

json jobs_reply(const ControllerView& view) {
    struct Job {
        std::uint32_t ranks = 0, in_flight = 0, ready = 0, groups = 0;
        std::set<std::string> nodes;
    };
    std::map<std::string, Job> jobs;
    for (const RankStatus& rank : view.core.ranks()) {
        Job& job = jobs[rank.info.job];
        ++job.ranks;
        job.in_flight += rank.launches_in_flight;
        job.ready += rank.launches_ready;
        job.nodes.insert(view.fabric.nodes.at(rank.node).name);
    }
    for (const GroupStatus& group : view.core.groups()) ++jobs[group.job].groups;
    json list = json::array();
    for (const auto& [name, job] : jobs)
        list.push_back({{"job", name},
                        {"ranks", job.ranks},
                        {"nodes", job.nodes},
                        {"groups", job.groups},
                        {"launches_in_flight", job.in_flight},
                        {"launches_ready", job.ready}});
    json bystanders = json::array();
    std::size_t count = 0;
    for (const auto& [node, processes] : view.bystanders)
        for (const wire::Bystander& one : processes)
            if (++count <= kMostInReply)
                bystanders.push_back({{"node", view.fabric.nodes.at(node).name},
                                      {"pid", one.pid},
                                      {"program", one.program},
                                      {"library", one.library},
                                      {"shim", one.shim}});
    return {{"jobs", list}, {"without_opus", bystanders}, {"without_opus_count", count}};
}

namespace {

using NcclRanks = std::map<std::pair<NodeIndex, RankId>, std::uint32_t>;

// NCCL ranks as people count them: in the largest communicator of the job, once all its members are there. Where two of
// the same size count differently, none is the one that people mean.
NcclRanks nccl_ranks(const Core& core) {
    struct Largest {
        std::uint32_t size = 0;
        std::vector<NcclRanks::key_type> processes;  // by rank; none: two say otherwise
    };
    std::map<std::string, Largest> of_job;
    for (const GroupStatus& group : core.groups()) {
        if (group.registered != group.size || group.members.size() != group.size) continue;
        Largest& largest = of_job[group.job];
        if (group.size < largest.size) continue;
        std::vector<NcclRanks::key_type> processes;
        for (const auto& [gpu, launch] : group.members) processes.emplace_back(launch.node, launch.rank);
        if (group.size > largest.size)
            largest = {group.size, std::move(processes)};
        else if (processes != largest.processes)
            largest.processes.clear();
    }
    NcclRanks ranks;
    for (const auto& [job, largest] : of_job)
        for (std::uint32_t i = 0; i < largest.processes.size(); ++i) ranks.try_emplace(largest.processes[i], i);
    return ranks;
}

// How one rank process may be called: n0.r4711, n0.g1, n0, 5, job:5.
struct RankNames {
    std::string process, gpu, node, job;
    std::uint32_t nccl = kNone;

    bool called(const std::string& who) const {
        if (who.empty() || who == process || who == node || (!gpu.empty() && who == gpu)) return true;
        if (nccl == kNone) return false;
        return who == std::to_string(nccl) || who == job + ":" + std::to_string(nccl);
    }
};

std::map<std::pair<NodeIndex, RankId>, RankNames> rank_names(const ControllerView& view) {
    const NcclRanks nccl = nccl_ranks(view.core);
    std::map<std::pair<NodeIndex, RankId>, RankNames> all;
    for (const RankStatus& rank : view.core.ranks()) {
        const std::pair id(rank.node, rank.info.rank);
        const auto number = nccl.find(id);
        all[id] = {rank_name(view.fabric, rank.node, rank.info.rank), gpu_name(view.fabric, rank.node, rank.info.gpu),
                   view.fabric.nodes.at(rank.node).name, rank.info.job, number == nccl.end() ? kNone : number->second};
    }
    return all;
}

void must_be_known(const ControllerView& view, const std::string& who, const auto& names) {
    if (fabric::find_node(view.fabric, who) != kNone || fabric::find_gpu(view.fabric, who) != kNone) return;
    std::vector<std::string> processes;
    for (const auto& [id, rank] : names) {
        if (rank.called(who)) return;
        processes.push_back(rank.process);
    }
    throw std::invalid_argument("no rank, GPU or node is called '" + who + "'" + fabric::suggestion(who, processes));
}

}  // namespace

json why_reply(const ControllerView& view, const std::string& who, std::size_t from) {
    const auto names = rank_names(view);
    if (!who.empty()) must_be_known(view, who, names);
    WhyQuestion question;
    question.of = [&](NodeIndex node, RankId rank) {
        const auto at = names.find({node, rank});
        return at != names.end() && at->second.called(who);
    };
    question.from = from;
    question.most = kMostInReply;
    const WhyPage page = view.core.why(view.now_ns, question);
    json list = json::array();
    for (const Why& w : page.waiting) {
        const RankNames& rank = names.at({w.launch.node, w.launch.rank});
        list.push_back({{"launch", launch_name(view.fabric, w.launch)},
                        {"rank", rank.process},
                        {"gpu", rank.gpu},
                        {"nccl_rank", rank.nccl == kNone ? json() : json(rank.nccl)},
                        {"job", rank.job},
                        {"group", comm_name(w.comm)},
                        {"op", op_name(w.op)},
                        {"bytes", w.bytes},
                        {"state", why_state_name(w.state)},
                        {"since_ms", age_ms(view, w.since_ns)},
                        {"reasons", w.reasons}});
    }
    std::uint32_t in_flight = 0;
    for (const RankStatus& rank : view.core.ranks())
        if (names.at({rank.node, rank.info.rank}).called(who)) in_flight += rank.launches_in_flight;
    json reply = {{"waiting", list}, {"waiting_count", page.all}, {"launches_in_flight", in_flight}};
    note_next(reply, from + page.waiting.size(), page.all);
    return reply;
}

json trace_event(const Fabric& fabric, const Trace& t) {
    json event = {{"event", trace_kind_name(t.kind)}, {"at_ns", t.at_ns}, {"id", t.id}};
    if (t.launch.node != kNone) event["launch"] = launch_name(fabric, t.launch);
    if (t.circuit.a != kNone) event["a"] = fabric::port_name(fabric, t.circuit.a);
    if (t.circuit.b != kNone) event["b"] = fabric::port_name(fabric, t.circuit.b);
    if (t.comm != CommId{}) event["group"] = comm_name(t.comm);
    if (t.op != OpKind::none) event["op"] = op_name(t.op), event["bytes"] = t.bytes;
    if (t.done_ns != 0) event["ready_ns"] = t.ready_ns, event["go_ns"] = t.go_ns, event["done_ns"] = t.done_ns;
    return event;
}

}  // namespace opus::controller
