// The rank's own program: enqueues the steps of each iteration, never ahead of the iteration's end, so
// memory is bounded by one iteration's calls and by the largest operation of each stream.
#include "tools/replay/player.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <deque>
#include <fstream>
#include <memory>

#include <nlohmann/json.hpp>

#include "tools/replay/operation.h"
#include "tools/replay/timeline.h"
#include "tools/replay/watchdog.h"

namespace opus::replay {
namespace {

constexpr std::size_t kAlign = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void sleep_us(double us) {
    if (us <= 0) return;
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const auto ns = until.tv_nsec + static_cast<std::int64_t>(us * 1e3);
    until.tv_sec += ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {}
}

struct StreamState {
    cudaStream_t stream = nullptr;
    std::size_t capacity = 0, used = 0;  // used: of the launch being collected
    char *device = nullptr, *host = nullptr;
};

class Player;

// What a host function on a stream works on; lives until the iteration's end.
struct Work {
    Player* player = nullptr;
    Operation op;
    std::uint32_t stream = 0;
    double us = 0;
    std::int64_t begin_ns = 0;
    std::uint64_t runs = 0;  // more than one of what a graph replays
};

class Player {
public:
    Player(const PlayOptions& options, Workload workload)
        : o_(options),
          w_(std::move(workload)),
          steps_(unrolled(w_.role_of(o_.rank).steps)),
          rendezvous_(open_rendezvous(o_.rendezvous, o_.rank)) {
        choose_device();
        comms_ = std::make_unique<Communicators>(w_, o_.rank, *rendezvous_, patience_ms());
        watchdog_ =
            std::make_unique<Watchdog>("rank " + std::to_string(o_.rank), o_.timeout_s, [this] { return background(); });
        make_streams();
    }

    int run() {
        const std::uint32_t iterations = o_.iterations ? o_.iterations : w_.iterations;
        for (std::uint32_t i = 0; i < iterations; ++i) {
            const std::int64_t begin = realtime_ns();
            o_.graph&& i != 0 ? replay(i) : iterate(i);
            ends_.push_back({begin, realtime_ns()});
            if (!o_.progress) continue;
            std::printf("opus-replay: rank %u: iteration %u of %u: %.3f s\n", o_.rank, i + 1, iterations,
                        static_cast<double>(ends_.back().second - begin) / 1e9);
            std::fflush(stdout);
        }
        finish();
        return mismatches_ == 0 ? kExitOk : kExitMismatch;
    }

private:
    std::uint64_t patience_ms() const {
        return o_.timeout_s > 0 ? static_cast<std::uint64_t>(o_.timeout_s * 1e3) : 1ull << 40;
    }

    void choose_device() {
        int devices = 0;
        cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
        if (devices < 1) throw PlayError(kExitNccl, "no CUDA device");
        const int usual = static_cast<int>(w_.places[o_.rank].gpu) % devices;
        cuda(cudaSetDevice(o_.device >= 0 ? o_.device : usual), "cudaSetDevice");
    }

    std::string background() {
        const ncclResult_t found = comms_->background_error();
        if (found == ncclSuccess) return {};
        return std::string("NCCL found an error: ") + ncclGetErrorString(found);
    }

    void make_streams() {
        streams_.resize(w_.streams.size());
        std::vector<std::size_t> now(streams_.size(), 0);
        bool group = false;
        for (const Step& s : steps_) {
            if (s.kind == StepKind::group_begin || s.kind == StepKind::group_end)
                group = s.kind == StepKind::group_begin;
            if (!group) std::fill(now.begin(), now.end(), 0);
            if (!is_operation(s.kind)) continue;
            now[s.stream] += aligned(buffer_bytes(s, comms_->at(s.comm), o_.scale_bytes * longest(w_, s))) + kAlign;
            streams_[s.stream].capacity = std::max(streams_[s.stream].capacity, now[s.stream]);
        }
        for (StreamState& s : streams_) {
            cuda(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "cudaStreamCreate");
            if (s.capacity == 0) continue;
            cuda(cudaMalloc(reinterpret_cast<void**>(&s.device), s.capacity), "cudaMalloc");
            if (o_.check) cuda(cudaMallocHost(reinterpret_cast<void**>(&s.host), s.capacity), "cudaMallocHost");
        }
        events_.resize(w_.events.size());
        for (cudaEvent_t& e : events_) cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreate");
    }

    void iterate(std::uint32_t iteration) {
        iteration_ = iteration;
        for (std::size_t i = 0; i < steps_.size(); ++i)
            if (is_played(steps_[i], iteration)) step(steps_[i], i);
        synchronize(kNobody);
        work_.clear();
    }

    // All streams are forked from the first and joined to it again. What the host does in an iteration it does once.
    void capture(std::uint32_t iteration) {
        iteration_ = iteration;
        cudaEvent_t fork = nullptr;
        cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "cudaEventCreate");
        const cudaStream_t first = streams_.front().stream;
        cuda(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        const auto order = [fork](cudaStream_t before, cudaStream_t after) {
            cuda(cudaEventRecord(fork, before), "cudaEventRecord");
            cuda(cudaStreamWaitEvent(after, fork, 0), "cudaStreamWaitEvent");
        };
        for (std::size_t i = 1; i < streams_.size(); ++i) order(first, streams_[i].stream);
        for (std::size_t i = 0; i < steps_.size(); ++i)
            if (is_played(steps_[i], iteration)) step(steps_[i], i);
        for (std::size_t i = 1; i < streams_.size(); ++i) order(streams_[i].stream, first);
        cudaGraph_t graph = nullptr;
        cuda(cudaStreamEndCapture(first, &graph), "cudaStreamEndCapture");
        cuda(cudaGraphInstantiateWithFlags(&graph_, graph, 0), "cudaGraphInstantiate");
        cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        cuda(cudaEventDestroy(fork), "cudaEventDestroy");
    }

    void replay(std::uint32_t iteration) {
        if (graph_ == nullptr) capture(iteration);
        cuda(cudaGraphLaunch(graph_, streams_.front().stream), "cudaGraphLaunch");
        synchronize(kNobody);
    }

    void step(const Step& s, std::size_t index) {
        watchdog_->progress();
        switch (s.kind) {
            case StepKind::compute: return enqueue(compute, s, duration(s, index));
            case StepKind::host: return sleep_us(duration(s, index));
            case StepKind::record:
                return cuda(cudaEventRecord(events_[s.event], streams_[s.stream].stream), "cudaEventRecord");
            case StepKind::wait:
                return cuda(cudaStreamWaitEvent(streams_[s.stream].stream, events_[s.event], 0), "cudaStreamWaitEvent");
            case StepKind::sync: return synchronize(s.stream);
            case StepKind::create: return comms_->create(s.comm);
            case StepKind::destroy: return comms_->destroy(s.comm);
            case StepKind::group_begin:
                start_launch();
                in_group_ = true;
                return nccl(ncclGroupStart(), "ncclGroupStart");
            case StepKind::group_end:
                nccl(ncclGroupEnd(), "ncclGroupEnd");
                in_group_ = false;
                return end_launch();
            case StepKind::repeat:
            case StepKind::end: return;
            default: return operation(s);
        }
    }

    double duration(const Step& s, std::size_t index) const {
        const std::uint64_t draw = mix(mix(o_.seed, o_.rank), (std::uint64_t(iteration_) << 32) | index);
        return static_cast<double>(s.us + (s.jitter_us ? draw % (s.jitter_us + 1) : 0)) * o_.scale_time *
               length_of(w_, s, iteration_);
    }

    void operation(const Step& s) {
        if (!in_group_) start_launch();
        Work& w = new_work(s);
        w.op = next_operation(s, w_.comms[s.comm].name, comms_->at(s.comm), iteration_,
                              o_.scale_bytes * length_of(w_, s, iteration_));
        StreamState& stream = streams_[s.stream];
        w.op.send_device = stream.device + stream.used;
        w.op.send_host = stream.host + stream.used;
        stream.used += aligned(w.op.send_bytes);
        w.op.recv_device = stream.device + stream.used;
        w.op.recv_host = stream.host + stream.used;
        stream.used += aligned(w.op.recv_bytes);
        if (o_.check) {
            cuda(cudaLaunchHostFunc(stream.stream, prepare, &w), "cudaLaunchHostFunc");
            copy(w.op.send_device, w.op.send_host, w.op.send_bytes, cudaMemcpyHostToDevice, stream);
        }
        call(w.op, stream.stream);
        ++operations_;
        launch_.push_back(&w);
        if (!in_group_) end_launch();
    }

    void start_launch() {
        for (StreamState& s : streams_) s.used = 0;
    }
    void end_launch() {
        for (Work* w : launch_) comms_->settle(w->op.step->comm);  // its kernels are on the streams
        for (Work* w : launch_) {
            if (!o_.check) break;
            StreamState& stream = streams_[w->stream];
            copy(w->op.recv_host, w->op.recv_device, w->op.recv_bytes, cudaMemcpyDeviceToHost, stream);
            cuda(cudaLaunchHostFunc(stream.stream, inspect, w), "cudaLaunchHostFunc");
        }
        launch_.clear();
    }

    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const StreamState& stream) {
        if (bytes != 0) cuda(cudaMemcpyAsync(to, from, bytes, kind, stream.stream), "cudaMemcpyAsync");
    }

    Work& new_work(const Step& s) {
        Work& w = work_.emplace_back();
        w.player = this;
        w.stream = s.stream;
        w.op.step = &s;
        return w;
    }
    void enqueue(cudaHostFn_t function, const Step& s, double us) {
        Work& w = new_work(s);
        w.us = us;
        cuda(cudaLaunchHostFunc(streams_[s.stream].stream, function, &w), "cudaLaunchHostFunc");
    }

    void synchronize(std::uint32_t which) {
        for (std::uint32_t s = 0; s < streams_.size(); ++s)
            if (which == kNobody || which == s)
                cuda(cudaStreamSynchronize(streams_[s].stream), "cudaStreamSynchronize");
        if (const std::string error = background(); !error.empty()) throw PlayError(kExitNccl, error);
        watchdog_->progress();
    }

    // Host functions: on the stream's timeline, no CUDA calls.
    static void compute(void* p) {
        Work& w = *static_cast<Work*>(p);
        const std::int64_t begin = realtime_ns();
        sleep_us(w.us);
        w.player->watchdog_->progress();
        if (!w.player->o_.trace.empty())
            w.player->timeline_.add(w.op.step->name.empty() ? "compute" : w.op.step->name, "compute", w.stream, begin,
                                    realtime_ns());
    }
    static void prepare(void* p) {
        Work& w = *static_cast<Work*>(p);
        if (w.runs++ != 0) w.op.seed = mix(w.op.seed, w.runs);  // no replay has the data of the one before
        fill(w.op);
        w.begin_ns = realtime_ns();
    }
    static void inspect(void* p) {
        Work& w = *static_cast<Work*>(p);
        Player& me = *w.player;
        const std::int64_t end = realtime_ns();
        me.watchdog_->progress();
        me.checked_bytes_ += w.op.recv_bytes;
        const std::string wrong = verify(w.op, me.o_.rank);
        // What a failed communicator has left undone is no result: whoever waits for the stream says why.
        if (!wrong.empty() && me.background().empty() && me.mismatches_++ < 10)
            std::fprintf(stderr, "opus-replay: wrong result: %s\n", wrong.c_str());
        if (!me.o_.trace.empty()) me.timeline_.add(label(w.op), "operation", w.stream, w.begin_ns, end);
    }
    static std::string label(const Operation& op) {
        const std::string what = std::string(name_of(op.step->kind)) + " " + *op.comm_name;
        return op.step->name.empty() ? what : what + " (" + op.step->name + ")";
    }

    void finish() {
        watchdog_.reset();  // what follows is NCCL's own end
        if (graph_ != nullptr) cuda(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy");
        comms_->destroy();
        for (cudaEvent_t e : events_) cudaEventDestroy(e);
        for (StreamState& s : streams_) {
            if (s.host) cudaFreeHost(s.host);
            if (s.device) cudaFree(s.device);
            cudaStreamDestroy(s.stream);
        }
        if (!o_.trace.empty()) timeline_.write(o_.trace, o_.rank, w_.streams);
        if (!o_.out.empty()) report();
    }

    void report() const {
        nlohmann::ordered_json j;
        j["workload"] = w_.name;
        j["rank"] = o_.rank;
        j["world"] = w_.world();
        j["scale_bytes"] = o_.scale_bytes;
        j["scale_time"] = o_.scale_time;
        j["operations"] = operations_;
        j["checked_bytes"] = checked_bytes_.load();
        j["mismatches"] = mismatches_.load();
        j["iterations"] = nlohmann::ordered_json::array();
        for (const auto& [begin, end] : ends_)
            j["iterations"].push_back(
                {{"begin_ns", begin}, {"end_ns", end}, {"seconds", static_cast<double>(end - begin) / 1e9}});
        std::ofstream out(o_.out);
        out << j.dump(1) << '\n';
        if (!out) throw PlayError(kExitUsage, "cannot write " + o_.out);
    }

    const PlayOptions o_;
    const Workload w_;
    const std::vector<Step> steps_;
    std::unique_ptr<Rendezvous> rendezvous_;
    std::unique_ptr<Communicators> comms_;
    std::unique_ptr<Watchdog> watchdog_;
    std::vector<StreamState> streams_;
    std::vector<cudaEvent_t> events_;
    cudaGraphExec_t graph_ = nullptr;
    std::deque<Work> work_;
    std::vector<Work*> launch_;
    bool in_group_ = false;
    std::uint32_t iteration_ = 0;
    std::uint64_t operations_ = 0;
    std::atomic<std::uint64_t> checked_bytes_{0}, mismatches_{0};
    std::vector<std::pair<std::int64_t, std::int64_t>> ends_;
    Timeline timeline_;
};

Workload load(const PlayOptions& options) {
    std::ifstream in(options.workload);
    if (!in) throw PlayError(kExitUsage, "cannot read " + options.workload);
    std::vector<WorkloadError> errors;
    Workload w = read_workload(in, errors);
    if (!errors.empty())
        throw PlayError(kExitUsage, options.workload + ":" + std::to_string(errors[0].line) + ": " + errors[0].text);
    if (options.world != 0 && options.world != w.world())
        throw PlayError(kExitUsage, options.workload + " is for " + std::to_string(w.world()) + " ranks, not " +
                                        std::to_string(options.world));
    if (options.rank >= w.world()) throw PlayError(kExitUsage, "no rank " + std::to_string(options.rank));
    return w;
}

}  // namespace
}  // namespace opus::replay

int opus_replay_play(const opus::replay::PlayOptions* options) {
    using namespace opus::replay;
    try {
        prctl(PR_SET_TIMERSLACK, 1);  // compute gaps last what they say
        // Never destroyed on failure: streams may still be running into its buffers.
        auto* player = new Player(*options, load(*options));
        const int code = player->run();
        delete player;
        return code;
    } catch (const PlayError& error) {
        std::fprintf(stderr, "opus-replay: rank %u: %s\n", options->rank, error.what());
        _exit(error.exit_code);
    }
}
