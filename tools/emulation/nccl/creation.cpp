// Communicators come to be: by unique id, by split, by shrink, by grow. Each ends with the same steps: the members
// are known, sockets are at the NIC ports, everyone has said ready.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>

#include "comm.h"
#include "settings.h"
#include "transport.h"
#include "unique_id.h"

namespace opus::standin {

namespace {

enum Tag : std::uint64_t { kReady = 1, kSplit = 2, kGrow = 3 };  // of children: plus 16 * number of the child

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    v += 0x9e3779b97f4a7c15ull + h;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return v ^ (v >> 31);
}

// A switch of a communicator: as the environment says, else its config, else its parent's if it was made without a
// config. A config has what its version had: behind that is the caller's memory.
bool is_on(const char* environment, const ncclConfig_t* config, std::size_t offset, bool inherited) {
    if (const char* said = std::getenv(environment); said != nullptr && said[0] != '\0') return said[0] != '0';
    if (config == nullptr) return inherited;
    if (config->size < offset + sizeof(int)) return false;
    int value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(config) + offset, sizeof value);
    return value != NCCL_CONFIG_UNDEF_INT && value != 0;
}

std::shared_ptr<Family> family_of_device(int device) {
    static std::mutex mutex;
    static std::map<int, std::shared_ptr<Family>> families;
    const std::lock_guard lock(mutex);
    auto& family = families[device];
    if (!family) family = std::make_shared<Family>();
    return family;
}

void configure(ncclComm& comm, const ncclConfig_t* config, const ncclComm* parent) {
    if (config)
        comm.blocking = config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
    else if (parent)
        comm.blocking = parent->blocking;
    comm.split_share = is_on("NCCL_COMM_SPLIT_SHARE_RESOURCES", config, offsetof(ncclConfig_t, splitShare),
                             parent && parent->split_share);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    comm.shrink_share = is_on("NCCL_COMM_SHRINK_SHARE_RESOURCES", config, offsetof(ncclConfig_t, shrinkShare),
                              parent && parent->shrink_share);
#endif
    // Launches of a device take turns, whatever their communicator.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
    constexpr std::size_t kOrder = offsetof(ncclConfig_t, launchOrderImplicit);
#else
    constexpr std::size_t kOrder = sizeof(ncclConfig_t);
#endif
    comm.in_order =
        Settings::get().in_order || is_on("NCCL_LAUNCH_ORDER_IMPLICIT", config, kOrder, parent && parent->in_order);
}

// By unique id the handle exists at once, as NCCL's does: a non-blocking creation goes on behind it.
ncclComm* new_comm(int device, const ncclConfig_t* config, const ncclComm* parent) {
    auto* comm = new ncclComm;
    comm->device = device;
    comm->core = std::make_shared<CommCore>();
    configure(*comm, config, parent);
    comm->family = comm->in_order ? family_of_device(device) : std::make_shared<Family>();
    return comm;
}

// A child of one that shares its resources with its children: their launches take turns.
ncclComm* new_child(const ncclComm& parent, const ncclConfig_t* config, bool shares) {
    ncclComm* comm = new_comm(parent.device, config, &parent);
    if (shares && !comm->in_order && !parent.revoked) comm->family = parent.family;
    return comm;
}

// Members and key are set: joins the others. Blocks.
ncclResult_t join(ncclComm& comm) {
    CommCore& core = *comm.core;
    core.lay_ring();
    auto& transport = Transport::get();
    std::promise<void> added;
    transport.post([&] {
        transport.add(comm.core);
        added.set_value();
    });
    added.get_future().wait();
    const std::string missing = transport.attach(core);
    if (!missing.empty()) return say_error(&comm, ncclSystemError, "stand-in: NIC port not attached: " + missing);
    for (std::uint32_t r = 0; r < core.size(); ++r)
        if (r != core.rank) transport.write_mail(core, r, kReady, "ready");
    for (std::uint32_t r = 0; r < core.size(); ++r)
        if (r != core.rank && !transport.read_mail(core, r, kReady))
            return say_error(&comm, ncclRemoteError,
                             "stand-in: rank " + std::to_string(r) + " died while the communicator was made");
    return ncclSuccess;
}

// The pointer of a child is null until it is whole, and its parent says when (init.cc: "should be NCCL_COMM_NULL until comm
// split fully complete").
ncclResult_t join_child(ncclComm& comm, ncclComm_t* out) {
    const ncclResult_t result = join(comm);
    if (result == ncclSuccess) *out = &comm;
    return result;
}

// All members of a new one meet by its unique id.
ncclResult_t meet(ncclComm& comm, const UniqueId& root, int nranks, int rank, int device) {
    set_current_device(device);
    auto& transport = Transport::get();
    CommCore& core = *comm.core;
    core.key = mix(root.number, static_cast<std::uint64_t>(nranks));
    core.rank = static_cast<std::uint32_t>(rank);
    core.members = transport.meet(root.port, root.number, comm.nranks, comm.rank, transport.self(device));
    if (core.members.empty())
        return say_error(&comm, ncclRemoteError, "stand-in: the process that made the unique id does not answer");
    return ncclSuccess;
}

// Each old member gives the others the unique id that it has, if it has one. Blocks.
ncclResult_t exchange_id(ncclComm* parent, std::uint64_t number, const std::string& own, UniqueId& found) {
    const CommCore& from = *parent->core;
    auto& transport = Transport::get();
    const std::uint64_t tag = kGrow + 16 * number;
    std::string id = own;
    for (std::uint32_t r = 0; r < from.size(); ++r)
        if (r != from.rank) transport.write_mail(from, r, tag, own.empty() ? "none" : own);
    for (std::uint32_t r = 0; r < from.size(); ++r) {
        if (r == from.rank) continue;
        const auto text = transport.read_mail(from, r, tag);
        if (!text) return say_error(parent, ncclRemoteError, "stand-in: rank " + std::to_string(r) + " died during a grow");
        if (text->size() == sizeof found) id = *text;
    }
    if (id.size() != sizeof found) return say_error(parent, ncclInvalidArgument, "ncclCommGrow: no old member has the unique id");
    std::memcpy(static_cast<void*>(&found), id.data(), sizeof found);
    return ncclSuccess;
}

}  // namespace

ncclResult_t create_by_id(ncclComm_t* out, int nranks, const ncclUniqueId& id, int rank, int device,
                          const ncclConfig_t* config) {
    ncclComm* comm = new_comm(device, config, nullptr);
    comm->nranks = static_cast<std::uint32_t>(nranks);
    comm->rank = static_cast<std::uint32_t>(rank);
    *out = comm;
    UniqueId root;
    std::memcpy(static_cast<void*>(&root), &id, sizeof root);
    return add(Creation{
        comm, [comm, root, nranks, rank, device] {
            const ncclResult_t met = meet(*comm, root, nranks, rank, device);
            return met == ncclSuccess ? join(*comm) : met;
        }});
}

ncclResult_t create_by_split(ncclComm* parent, int color, int key, ncclComm_t* out, const ncclConfig_t* config) {
    const std::uint64_t number = parent->children++;
    ncclComm* comm = nullptr;
    if (color != NCCL_SPLIT_NOCOLOR) comm = new_child(*parent, config, parent->split_share);
    *out = nullptr;
    const auto run = [=]() -> ncclResult_t {
        const CommCore& from = *parent->core;
        auto& transport = Transport::get();
        struct Choice {
            int color, key;
        };
        const Choice mine{color, key};
        const std::uint64_t tag = kSplit + 16 * number;
        std::vector<Choice> all(from.size());
        all[from.rank] = mine;
        for (std::uint32_t r = 0; r < from.size(); ++r)
            if (r != from.rank)
                transport.write_mail(from, r, tag, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
        for (std::uint32_t r = 0; r < from.size(); ++r) {
            if (r == from.rank) continue;
            const auto text = transport.read_mail(from, r, tag);
            if (!text || text->size() != sizeof(Choice))
                return say_error(parent, ncclRemoteError,
                                 "stand-in: rank " + std::to_string(r) + " died during a split");
            std::memcpy(&all[r], text->data(), sizeof(Choice));
        }
        if (!comm) return ncclSuccess;
        std::vector<std::uint32_t> chosen;
        for (std::uint32_t r = 0; r < from.size(); ++r)
            if (all[r].color == color) chosen.push_back(r);
        std::stable_sort(chosen.begin(), chosen.end(), [&](auto a, auto b) { return all[a].key < all[b].key; });
        CommCore& core = *comm->core;
        core.key = mix(mix(from.key, number * 2 + 1), static_cast<std::uint64_t>(color));
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            core.members.push_back(from.members[chosen[i]]);
            if (chosen[i] == from.rank) core.rank = static_cast<std::uint32_t>(i);
        }
        comm->nranks = core.size();
        comm->rank = core.rank;
        return join_child(*comm, out);
    };
    return add(Creation{parent, run, true});
}

ncclResult_t create_by_grow(ncclComm* parent, int nranks, const ncclUniqueId* id, int rank, int device, ncclComm_t* out,
                            const ncclConfig_t* config) {
    if (!parent) return create_by_id(out, nranks, *id, rank, device, config);
    ncclComm* comm = new_comm(parent->device, config, parent);
    comm->nranks = static_cast<std::uint32_t>(nranks);
    comm->rank = parent->rank;
    *out = nullptr;
    const std::uint64_t number = parent->children++;
    const std::string own = id ? std::string(reinterpret_cast<const char*>(id), sizeof *id) : "";
    return add(Creation{parent, [=] {
                            UniqueId root;
                            ncclResult_t result = exchange_id(parent, number, own, root);
                            if (result == ncclSuccess)
                                result = meet(*comm, root, nranks, static_cast<int>(comm->rank), comm->device);
                            return result == ncclSuccess ? join_child(*comm, out) : result;
                        }, true});
}

ncclResult_t create_by_shrink(ncclComm* parent, const std::set<int>& excluded, bool shares, ncclComm_t* out,
                              const ncclConfig_t* config) {
    ncclComm* comm = new_child(*parent, config, shares && parent->shrink_share);
    *out = nullptr;
    CommCore& core = *comm->core;
    const CommCore& from = *parent->core;
    core.key = mix(from.key, parent->shrinks++ * 2);
    for (const int r : excluded) core.key = mix(core.key, static_cast<std::uint64_t>(r) + 1);
    for (std::uint32_t r = 0; r < from.size(); ++r) {
        if (excluded.count(static_cast<int>(r))) continue;
        if (r == from.rank) core.rank = core.size();
        core.members.push_back(from.members[r]);
    }
    comm->nranks = core.size();
    comm->rank = core.rank;
    return add(Creation{parent, [comm, out] { return join_child(*comm, out); }, true});
}

}  // namespace opus::standin
