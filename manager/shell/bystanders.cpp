#include "manager/shell/bystanders.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <sstream>

#include "manager/shell/process_watch.h"

namespace opus::manager {
namespace {

constexpr std::chrono::seconds kInterval{2};
constexpr TimeNs kShare = 1000;  // to read of one process takes at most one part in so many of a core

TimeNs cpu_ns() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * TimeNs{1'000'000'000} + used.tv_nsec;
}

TimeNs steady_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string one_line(std::string text, std::size_t most) {
    text.resize(std::min(text.size(), most));
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
}

std::vector<pid_t> processes() {
    std::vector<pid_t> all;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
        pid_t pid = 0;
        const char* const end = entry->d_name + std::strlen(entry->d_name);
        if (const auto [at, error] = std::from_chars(entry->d_name, end, pid); error == std::errc() && at == end)
            all.push_back(pid);
    }
    return all;
}

}  // namespace

wire::Bystander bystander_in(const std::string& maps) {
    wire::Bystander found;
    std::istringstream lines(maps);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t path = line.find('/'), name = line.rfind('/');
        if (path == std::string::npos) continue;
        const auto is = [&](const char* begin) { return line.compare(name + 1, std::strlen(begin), begin) == 0; };
        if (is("rank-")) return {};  // a ring: of this manager, or of another one
        if (is("libopus_shim.so")) found.shim = true;
        if (is("libnccl.so") && found.library.empty()) found.library = one_line(line.substr(path), wire::kMaxText);
    }
    return found;
}

Bystanders::Bystanders() {
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { watch(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Bystanders::~Bystanders() {
    {
        const std::lock_guard guard(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::vector<wire::Bystander> Bystanders::found() const {
    const std::lock_guard guard(mutex_);
    return found_;
}

void Bystanders::watch() {
    for (std::unique_lock lock(mutex_); !stop_; changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
        lock.unlock();
        look(steady_ns());
        lock.lock();
    }
}

void Bystanders::look(TimeNs now) {
    const TimeNs interval = std::chrono::nanoseconds(kInterval).count();
    std::vector<wire::Bystander> found;
    std::map<pid_t, Known> known;
    for (const pid_t pid : processes()) {
        const auto before = known_.find(pid);
        Known process = before != known_.end() ? std::move(before->second) : Known{now, now, {}};
        if (now >= process.next_look) {
            const TimeNs begin = cpu_ns();
            process.found = bystander_in(text_of(pid, "maps"));
            const TimeNs seldom = process.found.library.empty() ? now - process.first_seen : 0;
            process.next_look = now + std::max({interval, seldom, (cpu_ns() - begin) * kShare});
            process.found.pid = static_cast<std::uint32_t>(pid);
            const std::string name = text_of(pid, "comm");
            process.found.program = one_line(name.substr(0, name.find('\n')), wire::kMaxName);
        }
        if (!process.found.library.empty() && found.size() < wire::kMaxBystanders) found.push_back(process.found);
        known.emplace(pid, std::move(process));
    }
    known_ = std::move(known);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
    const std::lock_guard guard(mutex_);
    found_ = std::move(found);
}

}  // namespace opus::manager
