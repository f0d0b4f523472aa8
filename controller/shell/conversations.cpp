// The daemon's conversations with managers: who may say what, and when a session begins and ends.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "controller/fabric/fabric_names.h"
#include "controller/fabric/spelling.h"
#include "controller/shell/daemon.h"
#include "controller/shell/names.h"
#include "opus/wire_codec.h"

namespace opus::controller {
namespace {

constexpr std::size_t kStrangersRemembered = 4096;
constexpr std::uint64_t kDecadeMs = 10ull * 365 * 86'400 * 1'000;

template <class T, class... List>
constexpr bool is_one_of = (std::is_same_v<T, List> || ...);

// Of launches only.
bool is_hot(const wire::Message& message) {
    return std::holds_alternative<wire::Demand>(message) || std::holds_alternative<wire::Done>(message);
}

}  // namespace

void Daemon::hear(const std::string& peer, wire::Frame&& frame) {
    if (frame.messages.empty()) return;
    if (!is_hot(frame.messages[0])) take_notes();  // what came before it was before it
    if (const auto* greeting = std::get_if<wire::Hello>(&frame.messages[0])) return hello(peer, frame, *greeting);
    if (std::holds_alternative<wire::CtlRequest>(frame.messages[0])) {
        for (const auto& message : frame.messages)
            if (const auto* request = std::get_if<wire::CtlRequest>(&message)) ctl(peer, *request);
        return;
    }
    switch (sessions_.judge(peer, frame, epoch_, now_)) {
        case Sessions::Judgement::take: break;
        case Sessions::Judgement::stale: return;
        case Sessions::Judgement::stranger:
            // In its own epoch and session, so that it listens. Once: an answer to each would feed a flood.
            if (strangers_.size() >= kStrangersRemembered) strangers_.clear();
            if (strangers_.insert(peer).second)
                server_.send(peer, {frame.epoch, frame.session, 1, {wire::Resync{"the controller knows no such session"}}});
            return;
        case Sessions::Judgement::gap: {
            const Session& session = *sessions_.of_peer(peer);
            return end_session(session.node, "frame " + std::to_string(frame.sequence) + " came after frame " +
                                                 std::to_string(session.received));
        }
    }
    const NodeIndex node = sessions_.of_peer(peer)->node;
    for (wire::Message& message : frame.messages) {
        const Session* session = sessions_.of_node(node);
        if (!session || session->peer != peer) return;  // ended by an earlier message of this frame
        if (std::string reason = misfit(node, message); !reason.empty()) return end_session(node, reason);
        if (!is_hot(message)) {  // says who is who: what came before it is noted before
            take_notes();
            if (trace_) name_ranks(node, message);
            recorders_.heard(node, message);
            if (auto* beat = std::get_if<wire::Heartbeat>(&message)) bystanders_[node] = std::move(beat->bystanders);
        }
        if (recorders_.any()) recorders_.heard_launches(node, message);
        feed(NodeMessage{node, session->id, std::move(message)});
    }
}

void Daemon::name_ranks(NodeIndex node, const wire::Message& message) {
    const auto* snapshot = std::get_if<wire::Snapshot>(&message);
    const auto* newcomers = std::get_if<wire::Register>(&message);
    if (!snapshot && !newcomers) return;
    for (const auto& rank : snapshot ? snapshot->ranks : newcomers->ranks) trace_->name_rank(node, rank.rank, rank.gpu);
    for (const auto& comm : snapshot ? snapshot->comms : newcomers->comms) trace_->name_rank(node, comm.rank, comm.gpu);
}

void Daemon::hello(const std::string& peer, const wire::Frame& frame, const wire::Hello& hello) {
    const NodeIndex node = fabric::find_node(fabric_, hello.node);
    if (node == kNone) {
        std::vector<std::string> names;
        for (const Node& n : fabric_.nodes) names.push_back(n.name);
        return refuse(peer, hello.session,
                      "node '" + hello.node + "' is not in the fabric file" + fabric::suggestion(hello.node, names) +
                          "; set OPUS_NODE to this node's name in the file");
    }
    if (hello.known_epoch > epoch_ + kDecadeMs)
        return refuse(peer, hello.session,
                      "node " + hello.node + " has seen an epoch ten years ahead: is a clock wrong?");
    if (hello.known_epoch > epoch_) raise_epoch(hello.known_epoch);
    const Session* before = sessions_.of_node(node);
    if (before && before->id == hello.session && before->peer == peer) return;  // said twice
    Speaker speaker{server_.sender_address(), hello.where, hello.seat};
    if (const Speaker* first = sessions_.other_than(speaker, node, now_, options_.node_silence_ns))
        return refuse_second(peer, hello, speaker, *first);
    outbox_[node].clear();
    const Session& session = sessions_.open(peer, node, frame, hello.session, now_, std::move(speaker));
    strangers_.erase(peer);
    if (heartbeat_at_ <= now_) heartbeat_at_ = now_ + 1'000'000'000;
    spdlog::info("{}: manager {} is connected", hello.node, hello.version);

    wire::Welcome welcome{session.id,
                          epoch_,
                          node,
                          {},
                          {},
                          {},
                          static_cast<std::uint32_t>(options_.core.node_grace_ns / 1'000'000),
                          static_cast<std::uint32_t>(options_.node_silence_ns / 1'000'000)};
    for (const GpuId id : fabric_.nodes[node].gpus) {
        const Gpu& gpu = fabric_.gpus[id];
        welcome.gpus.push_back(
            {gpu.local, static_cast<std::uint32_t>(gpu.ports.size()), gpu.pci, fabric_.rails[gpu.rail].name, gpu.uuid});
    }
    post(node, session.id, std::move(welcome));
    feed(NodeSession{node, session.id});
}

void Daemon::refuse(const std::string& peer, std::uint64_t session, const std::string& reason) {
    spdlog::warn("refused: {}", reason);
    server_.send(peer, {epoch_, session, 1, {wire::Refused{session, reason}}});
}

// It asks again, and is let in once the first has been silent; or it is told that for good, and ends.
void Daemon::refuse_second(const std::string& peer, const wire::Hello& hello, const Speaker& second, const Speaker& first) {
    const std::string reason = "node " + hello.node + " has a manager already: " + first.name() + "; this one is " +
                               second.name() + ". End one of them, or give each the name of its own node (--node, OPUS_NODE)";
    if (seconds_.size() >= kStrangersRemembered) seconds_.clear();
    if (seconds_.insert(reason).second) spdlog::warn("refused: {}", reason);
    const auto silence_ms = static_cast<std::uint32_t>(options_.node_silence_ns / 1'000'000);
    server_.send(peer, {epoch_, hello.session, 1, {wire::Refused{hello.session, reason, std::max(silence_ms, 1u)}}});
}

// A manager has followed a later epoch than ours: the clock went back. Every session begins anew under a
// higher one, since frames of this epoch would not be believed.
void Daemon::raise_epoch(std::uint64_t known) {
    spdlog::warn("epoch {} is behind {}, which a manager has seen: going on as epoch {}", epoch_, known, known + 1);
    std::vector<NodeIndex> nodes;
    sessions_.each([&](Session& session) { nodes.push_back(session.node); });
    for (const NodeIndex node : nodes) end_session(node, "the epoch changes");
    epoch_ = known + 1;
}

void Daemon::post(NodeIndex node, std::uint64_t session_id, wire::Message&& message) {
    const Session* session = sessions_.of_node(node);
    if (!session || session->id != session_id) return;  // meant for one who has gone
    if (outbox_[node].empty()) outbox_nodes_.push_back(node);
    outbox_[node].push_back(std::move(message));
}

void Daemon::end_session(NodeIndex node, const std::string& reason) {
    Session* session = sessions_.of_node(node);
    if (!session) return;
    spdlog::warn("{}: session ended: {}", fabric_.nodes[node].name, reason);
    wire::Frame frame{epoch_, session->id, session->sent + 1, {}};
    frame.messages.swap(outbox_[node]);  // what was decided goes out before
    frame.messages.push_back(wire::Resync{reason});
    server_.send(session->peer, frame);
    const std::uint64_t id = session->id;
    sessions_.close(node);
    bystanders_.erase(node);
    feed(NodeLost{node, id});
}

// What is whole on the wire and yet cannot be: not a manager's to say, or a GPU that the node lacks.
std::string Daemon::misfit(NodeIndex node, const wire::Message& message) const {
    const Node& n = fabric_.nodes[node];
    const auto missing_gpu = [&](const auto& list) -> std::string {
        for (const auto& x : list)
            if (x.gpu != kNone && x.gpu >= n.gpus.size())
                return rank_name(fabric_, node, x.rank) + " says it is on GPU " + std::to_string(x.gpu) +
                       ", the fabric file gives " + n.name + " " + std::to_string(n.gpus.size()) +
                       " GPUs: correct the file, or set OPUS_GPU";
        return "";
    };
    const auto judge = [&](const auto& body) -> std::string {
        using T = std::decay_t<decltype(body)>;
        if constexpr (is_one_of<T, wire::Snapshot, wire::Register>) {
            std::string text = missing_gpu(body.ranks);
            return text.empty() ? missing_gpu(body.comms) : text;
        } else if constexpr (is_one_of<T, wire::Hello, wire::Welcome, wire::Refused, wire::Verdicts, wire::Grant,
                                       wire::Revoke, wire::Pass, wire::Suspended, wire::Waiting,
                                       wire::Resync, wire::CtlRequest, wire::CtlReply>) {
            return std::string("a manager does not say ") + wire::message_name(message);
        } else {
            return "";
        }
    };
    return std::visit(judge, message);
}

}  // namespace opus::controller
