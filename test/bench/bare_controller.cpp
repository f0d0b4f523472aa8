// The floor of the controller: a ROUTER, msgpack's own unpacking, a barrier of the members of a
// communicator, an acknowledgement of a grant's size to each. No gangs, no plan, no checks. Speaks just
// enough of the wire for the same load to drive it.
//
//   bench_bare_controller --bind tcp://127.0.0.1:0 --core 0      prints "bench_bare_controller: ready wire=ADDRESS"
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <msgpack.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opus/wire.h"
#include "rank_player.h"

namespace {

using namespace opus;

enum : std::uint64_t {
    kHello = 1,
    kSnapshot = 2,
    kRegister = 3,
    kDemand = 5,
    kWelcome = 20,
    kVerdicts = 22,
    kGrant = 23
};

struct Peer {
    std::string name;  // ZeroMQ's, of the connection
    std::uint64_t session = 0, sequence = 0;
};

struct Waiting {
    std::uint32_t peer = 0;
    std::uint64_t rank = 0, seq = 0;
};

class BareController {
public:
    explicit BareController(void* router) : router_(router) {}

    void serve_one() {
        zmq_msg_t name, body;
        ::zmq_msg_init(&name);
        ::zmq_msg_init(&body);
        if (::zmq_msg_recv(&name, router_, 0) >= 0 && ::zmq_msg_recv(&body, router_, 0) >= 0) {
            const std::uint32_t peer = peer_of({static_cast<char*>(::zmq_msg_data(&name)), ::zmq_msg_size(&name)});
            const auto unpacked = msgpack::unpack(static_cast<char*>(::zmq_msg_data(&body)), ::zmq_msg_size(&body));
            const msgpack::object_array& frame = unpacked.get().via.array;
            for (std::uint32_t i = 0; i < frame.ptr[6].via.array.size; ++i)
                handle(peer, frame, frame.ptr[6].via.array.ptr[i].via.array);
        }
        ::zmq_msg_close(&name);
        ::zmq_msg_close(&body);
    }

private:
    using Packer = msgpack::packer<msgpack::sbuffer>;

    std::uint32_t peer_of(std::string name) {
        const auto [at, fresh] = numbers_.try_emplace(std::move(name), std::uint32_t(peers_.size()));
        if (fresh) peers_.push_back({at->first});
        return at->second;
    }

    void handle(std::uint32_t peer, const msgpack::object_array& frame, const msgpack::object_array& message) {
        const msgpack::object_array& body = message.ptr[1].via.array;
        switch (message.ptr[0].via.u64) {
            case kHello:
                peers_[peer].session = frame.ptr[4].via.u64;
                answer(peer, kWelcome, [&](Packer& p) {
                    p.pack_array(4).pack(peers_[peer].session).pack(1).pack(peer);
                    p.pack_array(0);
                });
                break;
            case kSnapshot:
            case kRegister:
                for (const msgpack::object& member : items(body.ptr[1])) enforce(peer, member.via.array);
                break;
            case kDemand:
                for (const msgpack::object& launch : items(body.ptr[0])) demand(peer, launch.via.array);
                break;
            default: break;
        }
    }

    static std::span<const msgpack::object> items(const msgpack::object& list) {
        return {list.via.array.ptr, list.via.array.size};
    }
    static CommId comm_id(const msgpack::object& comm) {
        return {comm.via.array.ptr[0].via.u64, comm.via.array.ptr[1].via.u64};
    }

    // Every communicator is enforced, whoever has come.
    void enforce(std::uint32_t peer, const msgpack::object_array& member) {
        const CommId comm = comm_id(member.ptr[0]);
        sizes_[comm] = member.ptr[3].via.u64;
        answer(peer, kVerdicts, [&](Packer& p) {
            p.pack_array(1).pack_array(1).pack_array(2).pack_array(2);
            p.pack(comm.hi).pack(comm.lo).pack(1);
        });
    }

    // Meets the others at the last of its keys.
    void demand(std::uint32_t peer, const msgpack::object_array& launch) {
        const msgpack::object_array& keys = launch.ptr[1].via.array;
        const msgpack::object_array& key = keys.ptr[keys.size - 1].via.array.ptr[0].via.array;
        const Key met{comm_id(key.ptr[0]), KeyKind::coll, 0, 0, key.ptr[4].via.u64};
        std::vector<Waiting>& waiting = barrier_[met];
        const msgpack::object_array& id = launch.ptr[0].via.array;
        waiting.push_back({peer, id.ptr[0].via.u64, id.ptr[1].via.u64});
        if (waiting.size() < sizes_[met.comm]) return;
        ++grants_;
        // Launches of one peer came together: one answer.
        for (auto from = waiting.begin(); from != waiting.end();) {
            const auto to = std::find_if(from, waiting.end(), [&](const Waiting& w) { return w.peer != from->peer; });
            answer(from->peer, kGrant, [&](Packer& p) {
                p.pack_array(4).pack(grants_);
                p.pack_array(std::uint32_t(to - from));
                for (auto w = from; w != to; ++w) p.pack_array(2).pack(w->rank).pack(w->seq);
                p.pack_array(0);
                p.pack_array(0);
            });
            from = to;
        }
        barrier_.erase(met);
    }

    template <class Body>
    void answer(std::uint32_t peer, std::uint64_t type, Body body) {
        Peer& to = peers_[peer];
        buffer_.clear();
        Packer p(buffer_);
        p.pack_array(7).pack(wire::kMagic).pack(wire::kMajor).pack(wire::kMinor);
        p.pack(std::uint64_t(1)).pack(to.session).pack(++to.sequence);
        p.pack_array(1).pack_array(2).pack(type);
        body(p);
        ::zmq_send(router_, to.name.data(), to.name.size(), ZMQ_SNDMORE);
        ::zmq_send(router_, buffer_.data(), buffer_.size(), 0);
    }

    void* router_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::vector<Peer> peers_;
    std::unordered_map<Key, std::vector<Waiting>> barrier_;
    msgpack::sbuffer buffer_;
    std::unordered_map<CommId, std::uint64_t> sizes_;
    std::uint64_t grants_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    std::string address = "tcp://127.0.0.1:0";
    int core = -1;
    CLI::App app{"The bare loop that the controller is measured against"};
    app.add_option("--bind", address, "address, port 0: any");
    app.add_option("--core", core, "core of this process");
    CLI11_PARSE(app, argc, argv);
    bench::pin_to(core);
    void* context = ::zmq_ctx_new();
    void* router = ::zmq_socket(context, ZMQ_ROUTER);
    if (::zmq_bind(router, address.c_str()) != 0) {
        std::fprintf(stderr, "bench_bare_controller: %s: %s\n", address.c_str(), ::zmq_strerror(::zmq_errno()));
        return 1;
    }
    char bound[256] = {};
    std::size_t length = sizeof(bound);
    ::zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, bound, &length);
    std::printf("bench_bare_controller: ready wire=%s\n", bound);
    std::fflush(stdout);
    BareController controller(router);
    for (;;) controller.serve_one();
}
