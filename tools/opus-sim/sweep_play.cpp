#include "tools/opus-sim/sweep_play.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <sstream>

#include "tools/opus-sim/run_json.h"
#include "tools/opus-sim/sweep_progress.h"

namespace opus::job {
namespace {

using nlohmann::json;

JobFile job_of(const PointOptions& o) {
    if (!o.model) return read_files(o.files, o.read);
    std::ostringstream text;  // as `generate` writes it and `run` reads it
    write_workload(model_job(*o.model), text);
    const std::string held = text.str();
    return read_played({"the model's job", held});
}

// A point's file. What is wrong with its options or comes to a halt is an outcome like others: it would be again.
std::string played_text(const SweepPoint& point, const PointOptions& o, const json& inputs, const JobFile* job) {
    json all = {{"point", point.name}, {"inputs", inputs}, {"exit", kExitOk}, {"error", json()}, {"run", json()}};
    for (const auto& [column, value] : point.varied) all["varied"][column] = value.json();
    try {
        JobFile own;
        if (job == nullptr) own = job_of(o);
        const JobFile& played = job != nullptr ? *job : own;
        RunOptions options = o.run;
        if (options.technologies) options.dark_ms = with_technologies(options.dark_ms);
        const Run run = run_job(played, options);
        const std::vector<std::string> halts = halts_of(played, run);
        if (run.electrical.ended)
            all["run"] = run_json(played, run, options, o.accept, priced_inputs(o.generation, ""));
        if (!halts.empty()) all["exit"] = kExitJob, all["error"] = halts.front();
    } catch (const BadFile& error) {
        all["exit"] = kExitUsage, all["error"] = error.what();
    } catch (const std::invalid_argument& error) { all["exit"] = kExitUsage, all["error"] = error.what(); }
    return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

// Signals are taken one by one, where nothing is by halves.
class Signals {
public:
    Signals() {
        sigemptyset(&mine_);
        sigaddset(&mine_, SIGCHLD);
        for (const int stop : kStops) sigaddset(&mine_, stop);
        std::signal(SIGCHLD, SIG_DFL);  // one that was ignored would take the children's exit codes along
        sigprocmask(SIG_BLOCK, &mine_, &before_);
    }
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;
    ~Signals() { give_back(); }
    void give_back() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    void take() const { sigprocmask(SIG_BLOCK, &mine_, nullptr); }
    // A second at most. The number of a signal that stops; else 0.
    int wait() const {
        const timespec second{1, 0};
        const int signal = sigtimedwait(&mine_, nullptr, &second);
        return std::find(std::begin(kStops), std::end(kStops), signal) != std::end(kStops) ? signal : 0;
    }

private:
    sigset_t mine_{}, before_{};
};

class Player {
public:
    Player(SweepWork& work, const SweepStore& store) : work_(work), store_(store), progress_(work.points.size()) {
        for (std::size_t i = 0; i < work.points.size(); ++i)
            if (!work.played[i].there) next_.push_back(i);
        progress_.begin(work.points.size() - next_.size());
        threads_ = std::max<unsigned>(1, work.at_once / static_cast<unsigned>(std::max<std::size_t>(1, next_.size())));
    }
    Player(const Player&) = delete;
    Player& operator=(const Player&) = delete;
    ~Player() {
        for (Child& child : children_) kill(child.pid, SIGKILL);
        for (Child& child : children_) waitpid(child.pid, nullptr, 0), child.lock.discard();
    }

    int play() {
        while (!next_.empty() || !children_.empty() || !elsewhere_.empty()) {
            while (children_.size() < work_.at_once && !next_.empty()) start();
            if (const int stop = signals_.wait(); stop != 0) return stop;
            reap();
            // What other processes play is looked at again while there is nothing else to do.
            if (next_.empty() && children_.size() < work_.at_once) next_.swap(elsewhere_);
            progress_.show();
        }
        progress_.end();
        return 0;
    }

private:
    struct Child {
        pid_t pid;
        std::size_t point;
        PointLock lock;
        std::chrono::steady_clock::time_point begin;
    };
    SweepWork& work_;
    const SweepStore& store_;
    Signals signals_;
    SweepProgress progress_;
    std::deque<std::size_t> next_, elsewhere_;
    std::list<Child> children_;
    unsigned threads_ = 1;  // of a child
    // Files that several points in a row are played from are read once, and the children share them.
    std::unique_ptr<JobFile> job_;
    std::vector<std::string> job_words_;

    void start() {
        const std::size_t i = next_.front();
        next_.pop_front();
        std::optional<PointLock> lock = store_.lock(work_.points[i]);
        if (!lock) {
            elsewhere_.push_back(i);
            return;
        }
        if (auto there = store_.find(work_.points[i], work_.inputs[i])) {  // by another process, since we looked
            lock->discard();
            work_.played[i] = played_of(*there);
            progress_.played_elsewhere();
            return;
        }
        read_job(work_.options[i]);
        std::fflush(nullptr);
        const pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
            lock->discard();
            throw std::invalid_argument(std::string("no process can be started (") + std::strerror(errno) +
                                        "): say --at-once 1");
        }
        if (pid == 0) child(i, *lock, parent);
        children_.push_back({pid, i, std::move(*lock), std::chrono::steady_clock::now()});
    }

    void read_job(const PointOptions& o) {
        if (o.model || (job_ != nullptr && o.job_words == job_words_)) return;
        job_.reset();
        signals_.give_back();  // a large job takes its time, and may be stopped
        try {
            job_ = std::make_unique<JobFile>(job_of(o));
            job_words_ = o.job_words;
        } catch (const std::exception&) { job_.reset(); }  // the child finds the same, and writes it down
        signals_.take();
    }

    [[noreturn]] void child(std::size_t i, const PointLock& lock, pid_t parent) const {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(kExitUsage);
        for (const int stop : kStops) std::signal(stop, SIG_DFL);
        signals_.give_back();
        int code = kExitUsage;
        try {
            PointOptions options = work_.options[i];
            options.run.at_once = threads_;
            lock.write(played_text(work_.points[i], options, work_.inputs[i], options.model ? nullptr : job_.get()));
            lock.publish(store_.file_of(work_.points[i]));
            code = kExitOk;
        } catch (const std::bad_alloc&) { note(lock, "memory ran out"); } catch (const std::exception& error) {
            note(lock, error.what());
        }
        _exit(code);
    }
    static void note(const PointLock& lock, const std::string& why) {
        try {
            lock.write(why);
        } catch (const std::runtime_error&) {}  // then its exit code must do
    }

    void reap() {
        for (auto child = children_.begin(); child != children_.end();) {
            int status = 0;
            if (waitpid(child->pid, &status, WNOHANG) <= 0) {
                ++child;
                continue;
            }
            ended(*child, status);
            child = children_.erase(child);
        }
    }

    void ended(const Child& child, int status) {
        PlayedPoint& played = work_.played[child.point];
        const SweepPoint& point = work_.points[child.point];
        if (WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) {
            if (const auto there = store_.find(point, work_.inputs[child.point])) played = played_of(*there);
        } else {
            played.error = WIFSIGNALED(status)
                               ? std::string("its process was killed (") + strsignal(WTERMSIG(status)) +
                                     "): has the machine memory for --at-once " + std::to_string(work_.at_once) + "?"
                               : child.lock.text();
            child.lock.discard();
        }
        if (!played.there && played.error.empty()) played.error = "its process ended early";
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - child.begin;
        progress_.played(point.name, !played.error.empty(), took.count());
    }
};

}  // namespace

int play_points(SweepWork& work, const SweepStore& store) { return Player(work, store).play(); }

}  // namespace opus::job
