#include "controller/shell/names.h"

#include "controller/recording/recording.h"

namespace opus::controller {

const char* verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::unknown: return "waiting for members";
        case Verdict::enforced: return "enforced";
        case Verdict::passes: return "passes";
        case Verdict::intra: return "intra-node";
        case Verdict::degraded: return "degraded";
    }
    return "unknown";
}

const char* port_use_name(PortUse use) {
    switch (use) {
        case PortUse::dark: return "dark";
        case PortUse::idle: return "idle";
        case PortUse::busy: return "busy";
        case PortUse::moving: return "moving";
        case PortUse::reserved: return "reserved";
        case PortUse::unknown: return "unknown";
        case PortUse::fenced: return "fenced";
        case PortUse::absent: return "absent";
    }
    return "unknown";
}

const char* why_state_name(Why::State state) {
    switch (state) {
        case Why::State::missing_member: return "missing member";
        case Why::State::queued: return "queued";
        case Why::State::programming: return "programming";
        case Why::State::granted: return "granted";
        case Why::State::suspended: return "suspended";
        case Why::State::passed: return "passed";
    }
    return "unknown";
}

const char* trace_kind_name(Trace::Kind kind) {
    switch (kind) {
        case Trace::Kind::gang_complete: return "gang complete";
        case Trace::Kind::gang_granted: return "gang granted";
        case Trace::Kind::gang_done: return "gang done";
        case Trace::Kind::launch_done: return "launch done";
        case Trace::Kind::circuit_up: return "circuit up";
        case Trace::Kind::circuit_lost: return "circuit lost";
        case Trace::Kind::circuit_down: return "circuit down";
        case Trace::Kind::program_begin: return "program begin";
        case Trace::Kind::program_end: return "program end";
        case Trace::Kind::suspend: return "suspended";
        case Trace::Kind::resume: return "resumed";
        case Trace::Kind::pass: return "passed";
        case Trace::Kind::port_fenced: return "port fenced";
        case Trace::Kind::port_unfenced: return "port unfenced";
    }
    return "unknown";
}

const char* mode_name(Mode mode) {
    switch (mode) {
        case Mode::off: return "off";
        case Mode::observe: return "observe";
        case Mode::enforce: return "enforce";
    }
    return "unknown";
}

std::string comm_name(const CommId& comm) { return group_name(comm); }

std::string rank_name(const Fabric& fabric, NodeIndex node, RankId rank) {
    return (node < fabric.nodes.size() ? fabric.nodes[node].name : "?") + ".r" + std::to_string(rank);
}

std::string launch_name(const Fabric& fabric, const LaunchId& launch) {
    return rank_name(fabric, launch.node, launch.rank) + "#" + std::to_string(launch.seq);
}

}  // namespace opus::controller
