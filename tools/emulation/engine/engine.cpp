#include "engine.h"

#include <algorithm>
#include <cstring>

#include "queues.h"

namespace opus::standin {

namespace {

// Kernels that take less are over at once, and what they take is owed: the next ones begin that much later. Nobody is
// woken for a few microseconds, and their sum is right.
constexpr std::int64_t kShortest_ns = 100'000;
constexpr std::size_t kInlineCopy = 256 * 1024;  // below: copied by whoever pumps

thread_local int current = 0;

// cudaStreamPerThread's stream of this thread, one a device.
struct PerThread {
    std::vector<Stream*> streams;
    ~PerThread() {
        for (Stream* s : streams)
            if (s) destroy_stream(s);
    }
};
thread_local PerThread per_thread;

// On a dead device nobody waits for what still runs.
bool finished(const Op& op) { return op.state == OpState::done || op.device->error != 0; }

Device* device_at(int device) {
    auto& engine = Engine::get();
    if (device < 0 || device >= static_cast<int>(engine.devices.size())) return nullptr;
    return engine.devices[static_cast<std::size_t>(device)].get();
}

// Legacy default stream: it waits for all blocking streams of the device, and they for it.
void add_default_stream_order(Stream& stream, Op& op) {
    Device& device = *stream.device;
    if (&stream == device.legacy) {
        for (Stream* other : device.streams)
            if (other != &stream && (other->flags & 1) == 0 && other->last) op.after.push_back(other->last);
    } else if ((stream.flags & 1) == 0 && device.legacy->last) {
        op.after.push_back(device.legacy->last);
    }
}

}  // namespace

int device_count() { return static_cast<int>(Engine::get().devices.size()); }

int physical_device(int device) {
    auto& engine = Engine::get();
    return device_at(device) ? engine.physical[static_cast<std::size_t>(device)] : -1;
}

int current_device() { return current; }

bool set_current_device(int device) {
    if (!device_at(device)) return false;
    current = device;
    return true;
}

int device_error(int device) {
    Device* d = device_at(device);
    if (!d) return 0;
    std::lock_guard lock(Engine::get().mutex);
    return d->error;
}

int hardware_queues() {
    Device* d = device_at(0);
    return d ? static_cast<int>(d->queues.size()) : 0;
}

// --- streams ---------------------------------------------------------------------------------------

Stream* resolve_stream(void* handle) {
    auto& engine = Engine::get();
    Device* device = device_at(current);
    if (!device) return nullptr;
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    if (value <= 1) return device->legacy;
    if (value == 2) {
        auto& mine = per_thread.streams;
        if (mine.size() <= static_cast<std::size_t>(current)) mine.resize(static_cast<std::size_t>(current) + 1);
        Stream*& stream = mine[static_cast<std::size_t>(current)];
        if (!stream) stream = create_stream(0, 0);
        return stream;
    }
    std::lock_guard lock(engine.mutex);
    auto* stream = static_cast<Stream*>(handle);
    return engine.streams.count(stream) ? stream : nullptr;
}

Stream* create_stream(unsigned flags, int priority) {
    auto& engine = Engine::get();
    Device* device = device_at(current);
    if (!device) return nullptr;
    std::lock_guard lock(engine.mutex);
    return engine.make_stream(*device, flags, priority);
}

// What is queued still runs; only the handle goes.
bool destroy_stream(void* handle) {
    auto& engine = Engine::get();
    std::unique_lock lock(engine.mutex);
    auto* stream = static_cast<Stream*>(handle);
    if (!engine.streams.erase(stream)) return false;
    Device& device = *stream->device;
    if (stream == device.legacy) {
        engine.streams.insert(stream);
        return false;
    }
    const auto afterwards = forget_captures_of(*stream);
    device.streams.erase(stream);
    if (stream->last && stream->last->state != OpState::done && (stream->flags & 1) == 0) {
        // The legacy stream must still wait for it.
        auto marker = std::make_shared<Op>();
        marker->stream = device.legacy;
        marker->device = &device;
        marker->after.push_back(stream->last);
        if (device.legacy->last) marker->after.push_back(device.legacy->last);
        ++device.unfinished;
        device.queues[device.legacy->queue].ops.push_back(marker);
        device.legacy->last = marker;
    }
    for (auto& queue : device.queues)
        for (auto& op : queue.ops)
            if (op->stream == stream) op->stream = nullptr;
    delete stream;
    lock.unlock();
    afterwards();
    return true;
}

void sync_op(const OpRef& op) {
    if (!op) return;
    auto& engine = Engine::get();
    std::unique_lock lock(engine.mutex);
    engine.await(lock, [&] { return finished(*op); });
}

bool op_done(const OpRef& op) {
    if (!op) return true;
    std::lock_guard lock(Engine::get().mutex);
    return op->state == OpState::done;
}

void when_done(const OpRef& op, std::function<void()> then) {
    {
        std::lock_guard lock(Engine::get().mutex);
        if (op && op->state != OpState::done) {
            op->then = op->then ? [first = std::move(op->then), then = std::move(then)] { first(), then(); } : std::move(then);
            return;
        }
    }
    then();
}

// The legacy stream is idle when all blocking streams are.
void sync_stream(Stream* stream) {
    OpRef last;
    {
        std::lock_guard lock(Engine::get().mutex);
        last = stream->last;
    }
    if (stream == stream->device->legacy) last = record(stream);
    sync_op(last);
}

bool stream_idle(Stream* stream) {
    std::lock_guard lock(Engine::get().mutex);
    const auto idle = [](const Stream* s) { return !s->last || s->last->state == OpState::done; };
    if (!idle(stream)) return false;
    if (stream != stream->device->legacy) return true;
    for (const Stream* other : stream->device->streams)
        if ((other->flags & 1) == 0 && !idle(other)) return false;
    return true;
}

void sync_device(int device) {
    auto& engine = Engine::get();
    Device* d = device_at(device);
    if (!d) return;
    std::unique_lock lock(engine.mutex);
    std::vector<OpRef> last;
    for (Stream* stream : d->streams)
        if (stream->last) last.push_back(stream->last);
    for (const OpRef& op : last) engine.await(lock, [&] { return finished(*op); });
}

// --- operations --------------------------------------------------------------------------------------

OpRef submit(Stream* stream, std::shared_ptr<Op> op) {
    auto& engine = Engine::get();
    bool block;
    {
        std::lock_guard lock(engine.mutex);
        if (stream->capture != nullptr) {
            capture_locked(*stream, op);
            return op;
        }
        Device& device = *stream->device;
        op->stream = stream;
        op->device = &device;
        if (stream->last) op->after.push_back(stream->last);
        add_default_stream_order(*stream, *op);
        stream->last = op;
        ++device.unfinished;
        device.queues[stream->queue].ops.push_back(op);
        engine.pump();
        block = engine.launch_blocking && (op->poll_locked || op->kernel_locked || op->work) && !op->poll_in_queue;
    }
    if (block) sync_op(op);
    return op;
}

OpRef record(Stream* stream) { return submit(stream, std::make_shared<Op>()); }

void wait_for(Stream* stream, const OpRef& other) {
    if (!other) return;
    auto op = std::make_shared<Op>();
    {
        std::lock_guard lock(Engine::get().mutex);
        if (other->captured != 0 && stream->capture == nullptr) join_capture_of(*stream, *other);
        if (other->state == OpState::done || other == stream->last || other == stream->captured) return;
        op->after.push_back(other);
    }
    submit(stream, std::move(op));
}

OpRef compute(Stream* stream, std::int64_t busy_ns, std::function<void()> run) {
    auto op = std::make_shared<Op>();
    op->instant = run ? std::move(run) : [] {};  // that of a node of a graph, though it takes no time
    if (busy_ns > 0) {
        op->poll_locked = [device = stream->device, busy_ns](Op& self, std::int64_t now) {
            if (self.due_ns == 0) {
                device->busy_until_ns = std::max(device->busy_until_ns, now) + busy_ns;
                self.due_ns = device->busy_until_ns - kShortest_ns;
            }
            return now >= self.due_ns ? 0 : kPending;
        };
    }
    return submit(stream, std::move(op));
}

void complete(const OpRef& op, int error) {
    auto& engine = Engine::get();
    std::lock_guard lock(engine.mutex);
    engine.finish(op, error);
    engine.pump();
}

OpRef copy(Stream* stream, void* dst, const void* src, std::size_t bytes) {
    auto op = std::make_shared<Op>();
    std::function<void()> run = [=] { std::memmove(dst, src, bytes); };
    // A program's own memory is read before the call returns, as CUDA does it: it may be freed then.
    if (stream->capture == nullptr && memory_of(src, nullptr, nullptr, nullptr) == Memory::unknown) {
        const auto* from = static_cast<const char*>(src);
        run = [dst, staged = std::vector<char>(from, from + bytes)] { std::memmove(dst, staged.data(), staged.size()); };
    }
    (bytes < kInlineCopy ? op->instant : op->work) = std::move(run);
    return submit(stream, std::move(op));
}

OpRef fill(Stream* stream, void* dst, std::uint64_t pattern, unsigned pattern_bytes, std::size_t count) {
    auto op = std::make_shared<Op>();
    auto run = [=] {
        auto* to = static_cast<unsigned char*>(dst);
        if (pattern_bytes == 1) {
            std::memset(to, static_cast<int>(pattern), count);
            return;
        }
        for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * pattern_bytes, &pattern, pattern_bytes);
    };
    (count * pattern_bytes < kInlineCopy ? op->instant : op->work) = run;
    return submit(stream, std::move(op));
}

OpRef host_function(Stream* stream, void (*function)(void*), void* argument) {
    auto op = std::make_shared<Op>();
    op->work = [=] { function(argument); };
    return submit(stream, std::move(op));
}

// --- events --------------------------------------------------------------------------------------------

void record_event(Event* event, Stream* stream) {
    OpRef op = record(stream);
    std::lock_guard lock(Engine::get().mutex);
    event->op = std::move(op);
}

void record_outside(Event* event, Stream* stream) {
    auto op = std::make_shared<Op>();
    op->at_launch = [event](const OpRef& launched) {
        std::lock_guard lock(Engine::get().mutex);
        event->op = launched;
    };
    submit(stream, std::move(op));
}

void wait_for_outside(Stream* stream, Event* event) {
    auto op = std::make_shared<Op>();
    op->at_launch = [event](const OpRef& launched) {
        std::lock_guard lock(Engine::get().mutex);
        if (event->op) launched->after.push_back(event->op);
    };
    submit(stream, std::move(op));
}

OpRef event_op(Event* event) {
    std::lock_guard lock(Engine::get().mutex);
    return event->op;
}

}  // namespace opus::standin
