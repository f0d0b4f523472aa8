#include "tools/opus-sim/kineto_events.h"

#include <algorithm>

namespace opus::job {
namespace {

constexpr std::uint64_t kMostEvents = 1ull << 31;

struct Event {
    std::string_view phase, category, name, thread, args;
    std::int64_t ts_ns = 0, dur_ns = 0;
    bool timed = false;
};

class Scanner {
public:
    explicit Scanner(const NamedText& file) : file_(file), scan_(file) {}

    KinetoEvents run() {
        bool traced = false;
        scan_.object([&](std::string_view key) {
            if (key == "traceEvents") return traced = true, scan_.array([&] { event(); });
            if (key == "distributedInfo" && scan_.peek() == '{') return distributed();
            scan_.value();
        });
        scan_.finish();
        if (!traced) scan_.fail("there are no traceEvents in it: is it a trace of PyTorch's profiler?");
        return std::move(found_);
    }

private:
    void distributed() {
        scan_.object([&](std::string_view key) {
            if (key == "rank")
                found_.rank = small();
            else if (key == "world_size")
                found_.world = small();
            else if (key == "pg_config" && scan_.peek() == '[')
                scan_.array([&] { group(); });
            else
                scan_.value();
        });
    }
    std::uint32_t small() {
        const std::uint64_t n = scan_.whole();
        if (n > replay::kMaxWorld) scan_.fail("rank or world " + std::to_string(n) + " is beyond what a job may have");
        return static_cast<std::uint32_t>(n);
    }
    void group() {
        if (scan_.peek() != '{') return void(scan_.value());
        std::string name;
        std::vector<std::uint32_t> ranks;
        scan_.object([&](std::string_view key) {
            const std::string_view value = scan_.value();
            if (key == "pg_name" && value.size() > 2) name = value.substr(1, value.size() - 2);
            if (key == "ranks") ranks = numbers_of(value);
        });
        if (!name.empty() && !ranks.empty()) found_.groups[name] = std::move(ranks);
    }

    static std::string_view bare(std::string_view value) {
        return value.size() >= 2 && value.front() == '"' ? value.substr(1, value.size() - 2) : value;
    }

    void event() {
        if (scan_.peek() != '{') scan_.fail("an event should stand here");
        if (++found_.count >= kMostEvents) scan_.fail("there are more events than can be read");
        Event e;
        scan_.object([&](std::string_view key) {
            if (key == "ts") return e.timed = true, void(e.ts_ns = scan_.thousandths());
            if (key == "dur") return void(e.dur_ns = scan_.thousandths());
            const std::string_view value = scan_.value();
            if (key == "ph")
                e.phase = bare(value);
            else if (key == "cat")
                e.category = bare(value);
            else if (key == "name")
                e.name = bare(value);
            else if (key == "tid")
                e.thread = value;
            else if (key == "args")
                e.args = value;
        });
        if (e.phase != "X" || !e.timed) return;
        if (e.dur_ns < 0) scan_.fail("event " + std::to_string(found_.count) + " ends before it begins");
        if (e.category == "kernel" || e.category == "Kernel" || e.category == "gpu_memcpy" || e.category == "gpu_memset")
            return work(e);
        if (e.category == "cuda_runtime" || e.category == "cuda_driver") {
            if (e.name.find("Launch") != e.name.npos) found_.launches[correlation(e)] = {e.ts_ns, e.thread};
            return;
        }
        if (e.category != "user_annotation") return;
        found_.steps += e.name.starts_with("ProfilerStep#");
        if (!e.name.starts_with("nccl:")) return;
        HostCall call{e.ts_ns, e.ts_ns + e.dur_ns, std::string(e.thread), facts_of_annotation(e.name)};
        if (!e.args.empty()) call.facts.add(facts_of_args({file_.name, e.args}));
        found_.calls.push_back(std::move(call));
    }

    std::uint64_t correlation(const Event& e) const {
        const std::size_t at = e.args.find("\"correlation\"");
        const std::size_t digits = at == e.args.npos ? at : e.args.find_first_of("0123456789", at);
        std::uint64_t n = 0;
        for (std::size_t i = digits; i < e.args.size() && e.args[i] >= '0' && e.args[i] <= '9'; ++i)
            n = n * 10 + static_cast<std::uint64_t>(e.args[i] - '0');
        return n;
    }

    void work(const Event& e) {
        GpuWork w{e.ts_ns, e.ts_ns + e.dur_ns, 0, static_cast<std::uint32_t>(found_.count), replay::kNobody};
        if (is_nccl(e.name)) {
            w.correlation = correlation(e);
            w.facts = static_cast<std::uint32_t>(found_.facts.size());
            CollectiveFacts facts;
            if (!e.args.empty()) facts = facts_of_args({file_.name, e.args});
            facts.add(facts_of_kernel(e.name));
            found_.facts.push_back(std::move(facts));
        }
        found_.work.push_back(w);
    }

    NamedText file_;
    JsonScan scan_;
    KinetoEvents found_;
};

// Which host calls were under way on a thread at a time.
class CallsUnderWay {
public:
    explicit CallsUnderWay(const std::vector<HostCall>& calls) {
        for (std::uint32_t i = 0; i < calls.size(); ++i)
            threads_[calls[i].thread].push_back({calls[i].start_ns, calls[i].end_ns, 0, i});
        for (auto& [thread, spans] : threads_) {
            std::stable_sort(spans.begin(), spans.end(),
                             [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
            std::int64_t latest = spans.front().end_ns;
            for (Span& s : spans) s.latest_ns = latest = std::max(latest, s.end_ns);
        }
    }
    // The outermost first.
    template <class F>
    void each(std::string_view thread, std::int64_t ns, F&& call) const {
        const auto of = threads_.find(thread);
        if (of == threads_.end()) return;
        const std::vector<Span>& spans = of->second;
        auto at =
            std::upper_bound(spans.begin(), spans.end(), ns, [](std::int64_t t, const Span& s) { return t < s.start_ns; });
        const auto end = at;
        while (at != spans.begin() && (at - 1)->latest_ns >= ns) --at;
        for (; at != end; ++at)
            if (at->end_ns >= ns) call(at->index);
    }

private:
    struct Span {
        std::int64_t start_ns = 0, end_ns = 0;
        std::int64_t latest_ns = 0;  // end of this one and of all before
        std::uint32_t index = 0;
    };
    std::map<std::string_view, std::vector<Span>> threads_;
};

}  // namespace

KinetoEvents scan_kineto(const NamedText& file) {
    KinetoEvents found = Scanner(file).run();
    std::stable_sort(found.work.begin(), found.work.end(),
                     [](const GpuWork& a, const GpuWork& b) { return a.start_ns < b.start_ns; });
    // What launched a kernel says what the kernel does not.
    const CallsUnderWay calls(found.calls);
    for (const GpuWork& w : found.work) {
        const auto launch = w.facts == replay::kNobody ? found.launches.end() : found.launches.find(w.correlation);
        if (launch == found.launches.end() || found.facts[w.facts].has_bytes) continue;
        calls.each(launch->second.thread, launch->second.ns,
                   [&](std::uint32_t call) { found.facts[w.facts].add(found.calls[call].facts); });
    }
    return found;
}

}  // namespace opus::job
