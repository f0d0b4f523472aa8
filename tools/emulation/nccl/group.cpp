// Groups: what the outermost ncclGroupEnd does, in NCCL's order: connections of transfers, connections of
// collectives, then the launches, communicators by ascending key.
#include <algorithm>
#include <future>
#include <utility>

#include "comm.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "settings.h"
#include "transport.h"

namespace opus::standin {

namespace {

struct Group {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    std::vector<Task> tasks;
    std::vector<Creation> creations;
};
thread_local Group group;

using Tasks = std::vector<Task>;
struct CommTasks {
    ncclComm* comm;
    Tasks tasks;
};

std::vector<CommTasks> by_communicator(Tasks tasks) {
    std::vector<CommTasks> all;
    for (Task& task : tasks) {
        auto it = std::find_if(all.begin(), all.end(), [&](const CommTasks& c) { return c.comm == task.comm; });
        if (it == all.end()) it = all.insert(all.end(), {task.comm, {}});
        it->tasks.push_back(std::move(task));
    }
    std::stable_sort(all.begin(), all.end(), [](const CommTasks& a, const CommTasks& b) {
        return a.comm->core->key != b.comm->core->key ? a.comm->core->key < b.comm->core->key
                                                      : a.comm->core->rank < b.comm->core->rank;
    });
    return all;
}

void add_edge(Connecting& making, bool transfer, std::uint32_t src, std::uint32_t dst) {
    const CommCore& core = *making.core;
    if (transfer)
        making.edges.push_back({{true, src, dst, core.transfer_way(src, dst)}});
    else
        for (const Way way : src == core.rank ? core.ways_out : core.ways_in) making.edges.push_back({{false, src, dst, way}});
}

void connect_transfer(Connecting& making, ncclComm& comm, const TransferCall& call) {
    const std::uint32_t me = comm.core->rank;
    if (call.peer == me) return;
    if (call.sending && comm.connected_to.insert(call.peer).second) add_edge(making, true, me, call.peer);
    if (!call.sending && comm.connected_from.insert(call.peer).second) add_edge(making, true, call.peer, me);
}

void connect_ring(Connecting& making, ncclComm& comm) {
    if (comm.core->size() <= 1 || std::exchange(comm.connected, true)) return;
    add_edge(making, false, comm.core->previous(), comm.core->rank);
    add_edge(making, false, comm.core->rank, comm.core->next());
}

// What the communicator's tasks connect for the first time: of transfers, and of collectives that are made of some, or rings.
std::shared_ptr<Connecting> connections(ncclComm& comm, const Tasks& tasks, bool transfers) {
    auto making = std::make_shared<Connecting>();
    making->core = comm.core;
    for (const Task& task : tasks) {
        if (task.transfer && transfers) connect_transfer(*making, comm, task.p2p);
        if (task.transfer) continue;
        const bool parts = is_transfers(task.collective.kind);
        if (!parts && !transfers) connect_ring(*making, comm);
        if (!parts || !transfers) continue;
        for (const TransferCall& part : transfers_of(task.collective, comm.rank, comm.nranks))
            connect_transfer(*making, comm, part);
    }
    return making;
}

// Blocks until all first uses of the group have their connections; `made`: there were some.
ncclResult_t connect(std::vector<CommTasks>& comms, bool transfers, bool& made) {
    std::vector<std::pair<ncclComm*, std::future<int>>> waiting;
    for (auto& [comm, tasks] : comms) {
        auto making = connections(*comm, tasks, transfers);
        if (making->edges.empty()) continue;
        waiting.emplace_back(comm, making->result.get_future());
        Transport::get().post([making] { making->start(); });
    }
    made |= !waiting.empty();
    ncclResult_t first = ncclSuccess;
    for (auto& [comm, result] : waiting) {
        const auto got = static_cast<ncclResult_t>(result.get());
        if (got != ncclSuccess && first == ncclSuccess)
            first = say_error(comm, got, "stand-in: the connections of a first use failed");
    }
    return first;
}

using Calls = std::vector<KernelCall>;

std::shared_ptr<Op> kernel_of(const CommRef& core, Calls calls) {
    auto op = std::make_shared<Op>();
    op->kernel_locked = [core, calls = std::make_shared<const Calls>(std::move(calls))](const OpRef& self) {
        auto run = std::make_shared<Launch>();
        run->core = core;
        run->calls = *calls;
        run->op = self;
        Transport::get().post([run] { run->start(); });
    };
    return op;
}

// Launches of a family take turns. Of a captured kernel that is each launch of its graph.
OpRef submit_in_turn(const std::shared_ptr<Family>& family, Stream* on, const std::shared_ptr<Op>& op) {
    const auto take_turn = [family](const OpRef& launched) {
        if (family->last) launched->after.push_back(family->last);
        family->last = launched;
    };
    if (capture_status(on) != CaptureStatus::none) {
        op->at_launch = [family, take_turn](const OpRef& copy) {
            std::lock_guard lock(family->mutex);
            take_turn(copy);
        };
        return submit(on, op);
    }
    std::lock_guard lock(family->mutex);
    take_turn(op);
    return submit(on, op);
}

// As long as the graph or one made of it lives, so does the count.
void count_captured(const ncclComm& comm, Graph& graph) {
    using Count = std::shared_ptr<std::atomic<unsigned>>;
    const auto forget = [](void* at) {
        const std::unique_ptr<Count> count(static_cast<Count*>(at));
        --**count;
        (*count)->notify_all();
    };
    ++*comm.captured;
    give_object(graph, make_object(forget, new Count(comm.captured), 1), 1, true);
}

void launch(ncclComm& comm, const Tasks& tasks) {
    Calls calls;
    std::vector<Stream*> streams;  // distinct, in order of first use
    for (const Task& task : tasks) {
        Stream* stream = resolve_stream(task.stream);
        if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
        calls.push_back({task.transfer, task.collective, task.p2p});
    }
    Stream* on = streams.back();
    for (Stream* other : streams)
        if (other != on) wait_for(on, record(other));
    const OpRef op = submit_in_turn(comm.family, on, kernel_of(comm.core, std::move(calls)));
    if (Graph* graph = graph_of_capture(on)) count_captured(comm, *graph);
    for (Stream* other : streams)
        if (other != on) wait_for(other, op);
}

ncclResult_t launch_all(std::vector<CommTasks> comms) {
    const int device = current_device();
    bool made = false;
    ncclResult_t result = connect(comms, true, made);
    if (result == ncclSuccess) result = connect(comms, false, made);
    if (made && Settings::get().drains) sync_device(device);
    if (result == ncclSuccess) {
        for (auto& [comm, tasks] : comms) {
            set_current_device(comm->device);
            if (device_error(comm->device) != 0) {
                result = say_error(comm, ncclUnhandledCudaError, "stand-in: the device has failed");
                break;
            }
            launch(*comm, tasks);
        }
    }
    set_current_device(device);
    return result;
}

// Runs `work` here, or, if any of the communicators is non-blocking, on a thread, all of them in progress.
ncclResult_t run_for(const std::vector<ncclComm*>& comms, std::function<ncclResult_t()> work) {
    const bool blocking = std::all_of(comms.begin(), comms.end(), [](const ncclComm* c) { return c->blocking; });
    if (blocking) return work();
    for (ncclComm* comm : comms) comm->state = ncclInProgress;
    std::thread([comms, work = std::move(work), device = current_device()] {
        set_current_device(device);
        const ncclResult_t result = work();
        for (ncclComm* comm : comms) comm->state = result;
    }).detach();
    return ncclInProgress;
}

ncclResult_t create_all(std::vector<Creation> creations) {
    if (creations.size() == 1) return creations.front().run();
    std::vector<std::future<ncclResult_t>> running;
    for (Creation& creation : creations) running.push_back(std::async(std::launch::async, creation.run));
    ncclResult_t first = ncclSuccess;
    for (auto& result : running) {
        const ncclResult_t got = result.get();
        if (first == ncclSuccess) first = got;
    }
    return first;
}

}  // namespace

void group_start() { ++group.depth; }
bool in_group() { return group.depth > 0; }

ncclResult_t group_error(ncclResult_t result) {
    if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress && group.error == ncclSuccess)
        group.error = result;
    return result;
}

ncclResult_t group_end(bool launching) {
    if (group.depth == 0) return say_error(nullptr, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group.depth > 0) return ncclSuccess;
    Group closed = std::move(group);
    group = {};
    if (closed.error != ncclSuccess) {
        for (const Creation& creation : closed.creations)
            if (!creation.of_child) creation.comm->state = closed.error;
        return closed.error;
    }
    if (!launching) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    if (!closed.creations.empty()) {
        std::vector<ncclComm*> comms;
        for (const Creation& creation : closed.creations) comms.push_back(creation.comm);
        result = run_for(comms, [creations = std::move(closed.creations)] { return create_all(creations); });
    }
    if (closed.tasks.empty() || (result != ncclSuccess && result != ncclInProgress)) return result;
    auto tasks = by_communicator(std::move(closed.tasks));
    std::vector<ncclComm*> comms;
    for (const CommTasks& c : tasks) comms.push_back(c.comm);
    return run_for(comms, [tasks = std::move(tasks)] { return launch_all(tasks); });
}

ncclResult_t add(Task task) {
    group_start();
    group.tasks.push_back(std::move(task));
    return group_end(true);
}

ncclResult_t add(Creation creation) {
    group_start();
    group.creations.push_back(std::move(creation));
    return group_end(true);
}

}  // namespace opus::standin
