#include "graph.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "queues.h"

namespace opus::standin {

namespace {

// --- captures: all under the engine's mutex -----------------------------------------------------------------

void join(Stream& stream, Capture& capture) {
    stream.capture = &capture;
    stream.captured = nullptr;
    stream.lane = capture.lanes++;
    capture.streams.push_back(&stream);
}

void leave_all(Capture& capture) {
    for (Stream* stream : capture.streams) {
        stream->capture = nullptr;
        stream->captured = nullptr;
    }
}

// An event that is recorded and a wait for one are no nodes of CUDA's graphs: they say what the next node comes after.
bool is_node(const Op& op) { return op.instant || op.work || op.kernel_locked || op.poll_locked || op.at_launch; }

// Walks from the last of a stream towards what came first, where `onwards` says so.
template <typename Onwards>
void walk(const OpRef& last, const Onwards& onwards) {
    std::vector<const Op*> open;
    if (last) open.push_back(last.get());
    while (!open.empty()) {
        const Op* op = open.back();
        open.pop_back();
        if (!onwards(op)) continue;
        for (const OpRef& before : op->after) open.push_back(before.get());
    }
}

// All nodes that were captured are behind what the origin has captured last.
bool is_joined(const Capture& capture) {
    std::unordered_set<const Op*> reached, seen;
    walk(capture.origin->captured, [&](const Op* op) { return reached.insert(op).second; });
    bool joined = true;
    for (const Stream* stream : capture.streams)
        walk(stream->captured, [&](const Op* op) {
            if (reached.count(op) != 0 || !seen.insert(op).second) return false;
            joined = joined && !is_node(*op);
            return !is_node(*op);
        });
    return joined;
}

int invalidate(Capture& capture, int fault) {
    capture.invalidated = true;
    return fault;
}

// The legacy stream would wait for a blocking stream that captures.
int implicit_fault(const Stream& stream) {
    if (&stream != stream.device->legacy) return 0;
    for (Stream* other : stream.device->streams)
        if (other->capture != nullptr && (other->flags & 1) == 0) return invalidate(*other->capture, kCaptureImplicit);
    return 0;
}

bool alike(const Op& a, const Op& b) {
    const auto does = [](const Op& op) {
        return std::make_tuple(bool(op.instant), bool(op.work), bool(op.kernel_locked), bool(op.poll_locked), op.lane,
                               op.after.size());
    };
    if (does(a) != does(b)) return false;
    for (std::size_t i = 0; i < a.after.size(); ++i)
        if (a.after[i]->place != b.after[i]->place) return false;
    return true;
}

// --- user objects --------------------------------------------------------------------------------------------

void hold(const HeldObjects& objects) {
    for (const auto& [object, count] : objects) object->references += count;
}

void let_go(HeldObjects objects) {
    for (const auto& [object, count] : objects) release_object(object, count);
}

// Of an executable: once its launches have ended.
void let_go_after(const OpRef& last, HeldObjects objects) {
    when_done(last, [objects = std::move(objects)] { let_go(objects); });
}

}  // namespace

void capture_locked(Stream& stream, const OpRef& op) {
    op->captured = stream.capture->graph->id;
    op->lane = stream.lane;
    op->device = stream.device;
    op->place = stream.capture->graph->ops.size();
    if (stream.captured) op->after.push_back(stream.captured);
    stream.captured = op;
    stream.capture->graph->ops.push_back(op);
}

void join_capture_of(Stream& stream, const Op& op) {
    for (Stream* other : Engine::get().streams)
        if (other->capture != nullptr && other->capture->graph->id == op.captured) return join(stream, *other->capture);
}

// What it has captured stays; its end is reached by nobody if it was not joined before. A capture whose origin goes
// makes no graph any more: what that was to hold is let go.
std::function<void()> forget_captures_of(Stream& stream) {
    if (stream.capture == nullptr) return [] {};
    std::erase(stream.capture->streams, &stream);
    if (stream.capture->origin != &stream) return [] {};
    stream.capture->invalidated = true;
    return [objects = std::exchange(stream.capture->graph->objects, {})] { let_go(objects); };
}

int begin_capture(Stream* stream) {
    static std::uint64_t ids = 0;
    std::lock_guard lock(Engine::get().mutex);
    if (stream == stream->device->legacy || stream->capture != nullptr) return kCaptureUnsupported;
    auto* capture = new Capture;
    capture->graph = std::make_unique<Graph>();
    capture->graph->id = ++ids;
    capture->origin = stream;
    join(*stream, *capture);
    return 0;
}

int end_capture(Stream* stream, Graph** graph) {
    *graph = nullptr;
    std::unique_lock lock(Engine::get().mutex);
    if (stream->capture == nullptr) return kInvalidValue;
    if (stream->capture->origin != stream) return kCaptureUnmatched;
    const std::unique_ptr<Capture> capture(stream->capture);
    const int fault = capture->invalidated ? kCaptureInvalidated : is_joined(*capture) ? 0 : kCaptureUnjoined;
    leave_all(*capture);
    lock.unlock();
    if (fault == 0)
        *graph = capture->graph.release();
    else
        destroy_graph(capture->graph.release());
    return fault;
}

CaptureStatus capture_status(Stream* stream) {
    std::lock_guard lock(Engine::get().mutex);
    if (stream->capture == nullptr) return CaptureStatus::none;
    return stream->capture->invalidated ? CaptureStatus::invalidated : CaptureStatus::active;
}

Graph* graph_of_capture(Stream* stream) {
    std::lock_guard lock(Engine::get().mutex);
    return stream->capture != nullptr ? stream->capture->graph.get() : nullptr;
}

int submit_fault(Stream* stream) {
    std::lock_guard lock(Engine::get().mutex);
    if (stream->capture != nullptr && stream->capture->invalidated) return kCaptureInvalidated;
    return implicit_fault(*stream);
}

int wait_fault(Stream* stream, const OpRef& op) {
    std::lock_guard lock(Engine::get().mutex);
    if (!op) return 0;
    Capture* const capture = stream->capture;
    if (op->captured == 0) return capture != nullptr ? invalidate(*capture, kCaptureIsolation) : 0;
    if (capture != nullptr) return capture->graph->id == op->captured ? 0 : invalidate(*capture, kCaptureMerge);
    const auto& streams = Engine::get().streams;
    const bool goes_on = std::any_of(streams.begin(), streams.end(), [&](const Stream* s) {
        return s->capture != nullptr && s->capture->graph->id == op->captured;
    });
    return goes_on ? implicit_fault(*stream) : kCapturedEvent;
}

int sync_fault(Stream* stream) {
    std::lock_guard lock(Engine::get().mutex);
    if (stream->capture != nullptr) return invalidate(*stream->capture, kCaptureUnsupported);
    return implicit_fault(*stream);
}

int device_sync_fault() {
    std::lock_guard lock(Engine::get().mutex);
    for (Stream* stream : Engine::get().streams)
        if (stream->capture != nullptr && stream->device->index == current_device())
            return invalidate(*stream->capture, kCaptureUnsupported);
    return 0;
}

// --- graphs ----------------------------------------------------------------------------------------------------

GraphExec* instantiate(const Graph& graph) {
    std::lock_guard lock(Engine::get().mutex);
    auto* exec = new GraphExec;
    exec->ops = graph.ops;
    exec->objects = graph.objects;
    hold(exec->objects);
    unsigned lanes = 1;
    for (const OpRef& op : graph.ops) lanes = std::max(lanes, op->lane + 1);
    exec->device = graph.ops.empty() ? nullptr : graph.ops.front()->device;
    for (unsigned i = 1; i < lanes; ++i) exec->lanes.push_back(Engine::get().make_stream(*exec->device, 1, 0));
    return exec;
}

int launch_graph(GraphExec& exec, Stream* stream) {
    if (capture_status(stream) != CaptureStatus::none) return kCaptureUnsupported;
    wait_for(stream, exec.last);
    const OpRef begin = record(stream);
    std::vector<OpRef> copies(exec.ops.size());
    for (std::size_t i = 0; i < exec.ops.size(); ++i) {
        const Op& from = *exec.ops[i];
        auto copy = std::make_shared<Op>(from);
        copy->captured = 0;
        copy->at_launch = nullptr;  // may hold what is to hold the copy
        copy->after.clear();
        for (const OpRef& before : from.after) copy->after.push_back(copies[before->place]);
        if (copy->after.empty()) copy->after.push_back(begin);
        if (from.at_launch) from.at_launch(copy);
        submit(from.lane == 0 ? stream : exec.lanes[from.lane - 1], copy);
        copies[i] = copy;
    }
    for (Stream* lane : exec.lanes) wait_for(stream, record(lane));
    exec.last = record(stream);
    return 0;
}

bool update_graph(GraphExec& exec, const Graph& graph) {
    HeldObjects before;
    {
        std::lock_guard lock(Engine::get().mutex);
        if (exec.ops.size() != graph.ops.size()) return false;
        for (std::size_t i = 0; i < graph.ops.size(); ++i)
            if (!alike(*exec.ops[i], *graph.ops[i])) return false;
        forget(exec.ops);
        exec.ops = graph.ops;
        hold(graph.objects);
        before = std::exchange(exec.objects, graph.objects);
    }
    let_go_after(exec.last, std::move(before));
    return true;
}

void destroy_graph(Graph* graph) {
    let_go(std::move(graph->objects));
    delete graph;
}

void destroy_graph(GraphExec* exec) {
    let_go_after(exec->last, std::move(exec->objects));
    for (Stream* lane : exec->lanes) destroy_stream(lane);
    delete exec;
}

// --- user objects ----------------------------------------------------------------------------------------------

UserObject* make_object(void (*destroy)(void*), void* argument, unsigned references) {
    return new UserObject{destroy, argument, references};
}

void retain_object(UserObject* object, unsigned count) {
    std::lock_guard lock(Engine::get().mutex);
    object->references += count;
}

void release_object(UserObject* object, unsigned count) {
    {
        std::lock_guard lock(Engine::get().mutex);
        object->references -= std::min(object->references, count);
        if (object->references != 0) return;
    }
    object->destroy(object->argument);
    delete object;
}

int give_object(Graph& graph, UserObject* object, unsigned count, bool move) {
    std::lock_guard lock(Engine::get().mutex);
    if (count == 0 || (move && object->references < count)) return kInvalidValue;
    if (!move) object->references += count;
    graph.objects[object] += count;
    return 0;
}

int take_object(Graph& graph, UserObject* object, unsigned count) {
    {
        std::lock_guard lock(Engine::get().mutex);
        const auto it = graph.objects.find(object);
        if (it == graph.objects.end() || it->second < count) return kInvalidValue;
        it->second -= count;
        if (it->second == 0) graph.objects.erase(it);
    }
    release_object(object, count);
    return 0;
}

}  // namespace opus::standin
