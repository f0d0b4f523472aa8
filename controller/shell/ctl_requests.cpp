// The daemon's answers to opus-ctl. Commands: status, circuits {from}, ports {from}, groups, jobs, why {who, from}, connect
// {a, b, force}, disconnect {port, force}, fence {port, why}, unfence {port}, watch, record {job}, summary {job},
// phases {job}.
#include <stdexcept>

#include "controller/fabric/fabric_names.h"
#include "controller/fabric/spelling.h"
#include "controller/shell/clock.h"
#include "controller/shell/daemon.h"

namespace opus::controller {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxWatchers = 64;
constexpr std::size_t kMaxPending = 1024;

std::string text_argument(const json& arguments, const char* key) {
    const auto at = arguments.find(key);
    if (at == arguments.end()) return "";
    if (!at->is_string()) throw std::invalid_argument(std::string("argument ") + key + " must be text");
    return at->get<std::string>();
}

std::size_t count_argument(const json& arguments, const char* key) {
    const auto at = arguments.find(key);
    if (at == arguments.end()) return 0;
    if (!at->is_number_unsigned()) throw std::invalid_argument(std::string("argument ") + key + " must be a count");
    return at->get<std::uint32_t>();
}

PortId port_argument(const Fabric& fabric, const json& arguments, const char* key) {
    const std::string name = text_argument(arguments, key);
    const PortId port = fabric::find_port(fabric, name);
    if (port != kNone) return port;
    std::vector<std::string> names;
    for (const Port& p : fabric.ports) names.push_back(p.name);
    throw std::invalid_argument("no port is called '" + name + "'" + fabric::suggestion(name, names));
}

bool flag_argument(const json& arguments, const char* key) {
    const auto at = arguments.find(key);
    return at != arguments.end() && at->is_boolean() && at->get<bool>();
}

}  // namespace

ControllerView Daemon::view() const {
    return {fabric_,     core_, server_.counters(), control_, epoch_, OPUS_PROGRAM_VERSION, server_.address(),
            started_ns_, now_, bystanders_};
}

std::vector<std::string> Daemon::what_it_knows() const {
    return {"status: " + to_text(status_reply(view())), "groups: " + to_text(groups_reply(view())),
            "ports: " + to_text(ports_reply(view())), "why: " + to_text(why_reply(view(), ""))};
}

void Daemon::ctl(const std::string& peer, const wire::CtlRequest& request) {
    const CtlPending from{peer, request.id};
    try {
        const json arguments = request.arguments.empty() ? json::object() : json::parse(request.arguments);
        if (!arguments.is_object()) throw std::invalid_argument("arguments must be a JSON object");
        const std::string& command = request.command;
        if (command == "status") return ctl_answer(from, true, false, to_text(status_reply(view())));
        if (command == "ports")
            return ctl_answer(from, true, false, to_text(ports_reply(view(), count_argument(arguments, "from"))));
        if (command == "circuits")
            return ctl_answer(from, true, false, to_text(circuits_reply(view(), count_argument(arguments, "from"))));
        if (command == "groups") return ctl_answer(from, true, false, to_text(groups_reply(view())));
        if (command == "jobs") return ctl_answer(from, true, false, to_text(jobs_reply(view())));
        if (command == "why")
            return ctl_answer(from, true, false,
                              to_text(why_reply(view(), text_argument(arguments, "who"), count_argument(arguments, "from"))));
        if (command == "connect" || command == "disconnect" || command == "fence" || command == "unfence")
            return ctl_move(from, request, arguments);
        if (command == "summary")
            return ctl_answer(from, true, false, to_text(recorders_.summary(text_argument(arguments, "job"))));
        if (command == "phases") {
            json body = recorders_.summary(text_argument(arguments, "job"));
            add_guards(view(), body);
            return ctl_answer(from, true, false, to_text(body));
        }
        if (command == "record") {
            if (!recorders_.open(from.peer, from.request, text_argument(arguments, "job"), core_, now_))
                throw std::invalid_argument("too many are recording already");
            return deliver_recordings();
        }
        if (command == "watch") {
            if (watchers_.size() >= kMaxWatchers) throw std::invalid_argument("too many are watching already");
            watchers_.push_back(from);
            return ctl_answer(from, true, true,
                              to_text({{"event", "watching"}, {"at_ns", now_}, {"realtime_ns", realtime_ns()}}));
        }
        throw std::invalid_argument("the controller knows no command '" + command + "'");
    } catch (const json::exception&) {
        ctl_answer(from, false, false, "the arguments are not a JSON object");
    } catch (const std::invalid_argument& error) { ctl_answer(from, false, false, error.what()); }
}

// Answered when the core says CtlDone: at once when refused, else when the switch has confirmed.
void Daemon::ctl_move(const CtlPending& from, const wire::CtlRequest& request, const json& arguments) {
    if (ctl_pending_.size() >= kMaxPending) throw std::invalid_argument("too many requests wait for a switch");
    const bool force = flag_argument(arguments, "force");
    const std::uint64_t id = ++ctl_count_;
    Event event;
    if (request.command == "connect")
        event = CtlConnect{id, port_argument(fabric_, arguments, "a"), port_argument(fabric_, arguments, "b"), force};
    else if (request.command == "fence")
        event = CtlFence{id, port_argument(fabric_, arguments, "port"), text_argument(arguments, "why")};
    else if (request.command == "unfence")
        event = CtlUnfence{id, port_argument(fabric_, arguments, "port")};
    else
        event = CtlDisconnect{id, port_argument(fabric_, arguments, "port"), force};
    ctl_pending_[id] = from;
    feed(event);
    // A switch may take its time: say at once that somebody is at work.
    if (ctl_pending_.count(id) != 0) ctl_answer(from, true, true, to_text({{"state", "programming"}}));
}

void Daemon::ctl_answer(const CtlPending& to, bool ok, bool more, std::string body) {
    if (body.size() > wire::kMaxBody) ok = false, body = "the answer is longer than 8 MiB";
    server_.send(to.peer, {0, 0, 1, {wire::CtlReply{to.request, ok, more, std::move(body)}}});
}

// Events carry the wall clock as well: at_ns means nothing outside this process.
void Daemon::tell_watchers(json event) {
    const TimeNs at = event.value("at_ns", TimeNs{0});
    event["realtime_ns"] = realtime_ns() - (at > 0 ? monotonic_ns() - at : 0);
    const std::string text = to_text(event);
    std::erase_if(watchers_, [&](const CtlPending& watcher) {
        return !server_.send(watcher.peer, {0, 0, 1, {wire::CtlReply{watcher.request, true, true, text}}});
    });
}

}  // namespace opus::controller
