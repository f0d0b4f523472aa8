// JSON lines into a Workload. Never throws for what a file may hold: every mistake becomes a
// WorkloadError with its line.
#include <algorithm>
#include <istream>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "tools/replay/workload.h"

namespace opus::replay {
namespace {

using Json = nlohmann::json;
constexpr std::uint64_t kMaxBytes = 1ull << 44;
constexpr std::uint64_t kMaxUs = 24ull * 3600 * 1000 * 1000;
constexpr std::uint64_t kMaxTimes = 1u << 20;

class Reader {
public:
    Reader(Workload& workload, std::vector<WorkloadError>& errors) : w_(workload), errors_(errors) {}

    void line(const std::string& text, std::uint32_t number) {
        line_ = number;
        const Json j = Json::parse(text, nullptr, false);
        if (!j.is_object()) return fail("not a JSON object");
        if (j.contains("workload")) return header(j);
        if (!has_header_) return fail("the first line must be the header: {\"workload\": 1, ...}");
        if (j.contains("do")) return step(j);
        if (j.contains("comm")) return comm(j);
        if (j.contains("role")) return role(j);
        fail("neither a header, a comm, a role nor a step");
    }

    void finish() {
        line_ = 0;
        if (!has_header_) return fail("empty: no header line");
        std::vector<std::uint32_t> roles(w_.world(), 0);
        for (const Role& r : w_.roles)
            for (std::uint32_t rank : r.ranks) ++roles[rank];
        for (std::uint32_t rank = 0; rank < w_.world(); ++rank)
            if (roles[rank] != 1)
                fail("rank " + std::to_string(rank) + " has " + std::to_string(roles[rank]) +
                     " roles; it must have exactly one");
        for (const Role& r : w_.roles) nesting(r);
    }

private:
    void fail(const std::string& text) { errors_.push_back({line_, text}); }

    std::uint64_t number(const Json& j, const char* key, std::uint64_t fallback, std::uint64_t highest) {
        const auto it = j.find(key);
        if (it == j.end()) return fallback;
        if (!it->is_number_unsigned() || it->get<std::uint64_t>() > highest) {
            fail(std::string(key) + " must be a whole number from 0 to " + std::to_string(highest));
            return fallback;
        }
        return it->get<std::uint64_t>();
    }

    std::string text(const Json& j, const char* key, bool required) {
        const auto it = j.find(key);
        if (it != j.end() && it->is_string()) return it->get<std::string>();
        if (it != j.end() || required) fail(std::string(key) + " must be a text");
        return {};
    }

    static bool truth(const Json& j, const char* key) {
        const auto it = j.find(key);
        return it != j.end() && it->is_boolean() && it->get<bool>();
    }

    std::vector<std::uint32_t> ranks(const Json& j) {
        std::vector<std::uint32_t> out;
        if (!j.is_array()) return fail("expected a list of ranks"), out;
        for (const Json& r : j) {
            if (!r.is_number_unsigned() || r.get<std::uint64_t>() >= w_.world())
                return fail("a rank must be a whole number below the world size, " + std::to_string(w_.world())), out;
            out.push_back(r.get<std::uint32_t>());
        }
        return out;
    }

    void header(const Json& j) {
        if (has_header_) return fail("a second header");
        has_header_ = true;
        if (number(j, "workload", 0, kNobody) != 1) fail("workload format version must be 1");
        w_.name = text(j, "name", true);
        w_.source = text(j, "source", false);
        w_.iterations = static_cast<std::uint32_t>(number(j, "iterations", 1, 1u << 30));
        lengths(j.value("lengths", Json::array()));
        const auto places = j.find("places");
        if (places == j.end() || !places->is_array() || places->empty() || places->size() > kMaxWorld)
            return fail("places must be a list of [node, gpu], one a rank");
        std::set<std::pair<std::uint64_t, std::uint64_t>> taken;
        for (const Json& p : *places) {
            if (!p.is_array() || p.size() != 2 || !p[0].is_number_unsigned() || !p[1].is_number_unsigned() ||
                p[0].get<std::uint64_t>() >= kMaxWorld || p[1].get<std::uint64_t>() >= 1024)
                return fail("a place must be [node, gpu]");
            const auto node = p[0].get<std::uint64_t>(), gpu = p[1].get<std::uint64_t>();
            if (!taken.emplace(node, gpu).second)
                fail("two ranks at node " + std::to_string(node) + ", gpu " + std::to_string(gpu));
            w_.places.push_back({static_cast<std::uint32_t>(node), static_cast<std::uint32_t>(gpu)});
        }
    }

    void lengths(const Json& j) {
        if (!j.is_array() || j.size() > 1024) return fail("lengths must be a list of factors");
        for (const Json& f : j) {
            if (!f.is_number() || !(f.get<double>() > 0) || f.get<double>() > 1024)
                return fail("a length must be a factor above 0, at most 1024");
            w_.lengths.push_back(f.get<double>());
        }
    }

    // Ranks keep their order, and of each group of the parent there is one at most.
    static bool shrinks(const Comm& c, const Comm& parent) {
        std::set<std::uint32_t> of;
        return std::all_of(c.groups.begin(), c.groups.end(), [&](const std::vector<std::uint32_t>& ranks) {
            std::vector<std::uint32_t> at;
            for (const std::uint32_t r : ranks) at.push_back(membership(parent, r).rank);
            const Membership first = membership(parent, ranks.front());
            return first.group != kNobody && of.insert(first.group).second && std::is_sorted(at.begin(), at.end()) &&
                   ranks.size() < parent.groups[first.group].size();
        });
    }

    void comm(const Json& j) {
        Comm c;
        c.name = text(j, "comm", true);
        c.parent = text(j, "parent", false);
        c.later = truth(j, "later");
        c.non_blocking = truth(j, "non_blocking");
        c.shrink = truth(j, "shrink");
        if (comm_index(c.name)) fail("communicator " + c.name + " twice");
        const auto parent = c.parent.empty() ? std::nullopt : comm_index(c.parent);
        if (!c.parent.empty() && !parent) fail("parent " + c.parent + " is not defined above");
        const auto groups = j.find("groups");
        if (groups == j.end() || !groups->is_array()) return fail("groups must be a list of lists of ranks");
        std::set<std::uint32_t> seen;
        for (const Json& g : *groups) {
            c.groups.push_back(ranks(g));
            std::set<std::uint32_t> parents;
            for (std::uint32_t r : c.groups.back()) {
                if (!seen.insert(r).second) fail("rank " + std::to_string(r) + " is twice in " + c.name);
                if (parent) parents.insert(membership(w_.comms[*parent], r).group);
            }
            if (c.groups.back().empty()) fail("an empty group");
            if (parents.count(kNobody) || parents.size() > 1)
                fail("the ranks of a group of " + c.name + " must lie in one group of its parent " + c.parent);
        }
        if (c.non_blocking && parent) fail(c.name + " is as its parent is: non_blocking is said of what has none");
        if (c.shrink && (!parent || c.later || !shrinks(c, w_.comms[*parent])))
            fail(c.name + " cannot be shrunk: it must be there at the start, and be one group of its parent's, with some ranks left out");
        w_.comms.push_back(std::move(c));
    }

    void role(const Json& j) {
        Role r;
        r.name = text(j, "role", true);
        if (role_of(r.name)) return fail("role " + r.name + " twice");
        r.ranks = ranks(j.value("ranks", Json()));
        w_.roles.push_back(std::move(r));
    }

    void step(const Json& j) {
        Role* role = role_of(text(j, "role", true));
        if (!role) return fail("no such role above");
        Step s;
        s.line = line_;
        const std::string what = text(j, "do", true);
        bool known = false;
        for (int k = 0; k <= static_cast<int>(StepKind::end); ++k)
            if (what == name_of(static_cast<StepKind>(k))) s.kind = static_cast<StepKind>(k), known = true;
        if (!known) return fail("do: unknown step " + what);
        s.name = text(j, "name", false);
        s.bytes = number(j, "bytes", 0, kMaxBytes);
        s.us = number(j, "us", 0, kMaxUs);
        s.jitter_us = number(j, "jitter_us", 0, kMaxUs);
        s.times = static_cast<std::uint32_t>(number(j, "times", 1, kMaxTimes));
        s.every = static_cast<std::uint32_t>(number(j, "every", 1, kMaxTimes));
        if (s.every == 0) s.every = 1, fail("every must be at least 1");
        s.first_only = truth(j, "first_only");
        s.varies = truth(j, "varies");
        if (j.contains("stream")) s.stream = intern(w_.streams, text(j, "stream", true));
        if (j.contains("event")) s.event = intern(w_.events, text(j, "event", true));
        if (s.kind == StepKind::create || s.kind == StepKind::destroy) comm_of(j, s);
        if (is_operation(s.kind)) operation(j, s);
        const bool on_stream = is_operation(s.kind) || s.kind == StepKind::compute || s.kind == StepKind::record ||
                               s.kind == StepKind::wait;
        if (on_stream && s.stream == kNobody) fail(what + " needs a stream");
        if ((s.kind == StepKind::record || s.kind == StepKind::wait) && s.event == kNobody)
            fail(what + " needs an event");
        role->steps.push_back(std::move(s));
    }

    bool comm_of(const Json& j, Step& s) {
        const std::string comm = text(j, "comm", true);
        const auto index = comm_index(comm);
        if (!index) return fail("no communicator " + comm + " above"), false;
        s.comm = *index;
        return true;
    }

    void operation(const Json& j, Step& s) {
        if (!comm_of(j, s)) return;
        if (j.contains("dtype") && !pick<DType>(text(j, "dtype", true), 10, s.dtype)) fail("unknown dtype");
        if (j.contains("reduction") && !pick<Reduction>(text(j, "reduction", true), 4, s.reduction))
            fail("unknown reduction");
        const bool p2p = s.kind == StepKind::send || s.kind == StepKind::recv;
        if (p2p && !j.contains("peer")) fail(std::string(name_of(s.kind)) + " needs a peer");
        s.peer = static_cast<std::uint32_t>(number(j, p2p ? "peer" : "root", 0, kMaxWorld));
    }

    template <class E>
    static bool pick(const std::string& name, int count, E& out) {
        for (int i = 0; i < count; ++i)
            if (name == name_of(static_cast<E>(i))) return out = static_cast<E>(i), true;
        return false;
    }

    void nesting(const Role& r) {
        int loops = 0;
        bool group = false;
        StepKind before = StepKind::host;
        for (const Step& s : r.steps) {
            line_ = s.line;
            if (s.kind == StepKind::repeat || s.kind == StepKind::end) {
                if (group) fail("a loop begins or ends inside a group");
                if (s.kind == StepKind::repeat && s.times == 0) fail("repeat: times must be at least 1");
                if (s.kind == StepKind::end && before == StepKind::repeat) fail("an empty loop");
                if ((loops += s.kind == StepKind::repeat ? 1 : -1) < 0) return fail("end without repeat");
            }
            if (s.kind == StepKind::group_begin || s.kind == StepKind::group_end) {
                if (group == (s.kind == StepKind::group_begin)) fail("groups do not nest here, and end once");
                group = s.kind == StepKind::group_begin;
            }
            before = s.kind;
            if (group && (s.kind == StepKind::sync || s.kind == StepKind::wait || s.kind == StepKind::record ||
                          s.kind == StepKind::compute || s.kind == StepKind::create || s.kind == StepKind::destroy))
                fail(std::string(name_of(s.kind)) + " inside a group");
        }
        if (loops != 0) fail("role " + r.name + ": a repeat without end");
        if (group) fail("role " + r.name + ": a group without end");
    }

    Role* role_of(const std::string& name) {
        for (Role& r : w_.roles)
            if (r.name == name) return &r;
        return nullptr;
    }
    std::optional<std::uint32_t> comm_index(const std::string& name) const {
        for (std::uint32_t i = 0; i < w_.comms.size(); ++i)
            if (w_.comms[i].name == name) return i;
        return std::nullopt;
    }
    static std::uint32_t intern(std::vector<std::string>& names, const std::string& name) {
        const auto it = std::find(names.begin(), names.end(), name);
        if (it != names.end()) return static_cast<std::uint32_t>(it - names.begin());
        names.push_back(name);
        return static_cast<std::uint32_t>(names.size() - 1);
    }

    Workload& w_;
    std::vector<WorkloadError>& errors_;
    std::uint32_t line_ = 0;
    bool has_header_ = false;
};

}  // namespace

Workload read_workload(std::istream& in, std::vector<WorkloadError>& errors) {
    Workload w;
    Reader reader(w, errors);
    std::string text;
    for (std::uint32_t n = 1; std::getline(in, text); ++n)
        if (text.find_first_not_of(" \t\r") != std::string::npos) reader.line(text, n);
    reader.finish();
    if (errors.empty()) check_agreement(w, errors);
    return w;
}

}  // namespace opus::replay
