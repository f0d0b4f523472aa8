#include "tools/opus-sim/sweep_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tools/opus-sim/digest.h"

namespace opus::job {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    if (!file && fs::file_size(path) != 0) throw BadFile(path, "", "it cannot be read: may you read it?");
    return std::move(text).str();
}

// Its size and digest.
json content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> some(1 << 20);
    Digest digest;
    std::uint64_t bytes = 0;
    while (file.read(some.data(), static_cast<std::streamsize>(some.size())) || file.gcount() > 0) {
        digest.add({some.data(), static_cast<std::size_t>(file.gcount())});
        bytes += static_cast<std::uint64_t>(file.gcount());
    }
    if (!file.eof()) throw BadFile(path, "", "it cannot be read: is the name right, and may you read it?");
    return {{"bytes", bytes}, {"digest", digest.text()}};
}

std::string reason() { return std::strerror(errno); }

// What differs first, for people.
std::string difference(const json& was, const json& is) {
    for (const auto& [key, value] : is.items())
        if (!was.contains(key) || was[key] != value)
            return key + ": " + (was.contains(key) ? was[key].dump() : "nothing") + ", now " + value.dump();
    return "it had more than is asked for now";
}

}  // namespace

json SweepInputs::of(const PointOptions& options) {
    if (program_.is_null())
        program_ = {{"version", OPUS_PROGRAM_VERSION}, {"digest", content_of("/proc/self/exe")["digest"]}};
    json files = json::array();
    const auto add = [&](const std::string& path) {
        json& file = files_[path];
        if (file.is_null()) {
            if (!fs::is_regular_file(path))
                throw BadFile(path, "", "it is not there, or no file (names are relative to the sweep's file)");
            file = content_of(path);
            file["name"] = folder_.empty() ? path : fs::path(path).lexically_relative(folder_).string();
        }
        files.push_back(file);
    };
    for (const std::string& path : options.files)
        for (const std::string& file : files_in({path})) add(file);
    return {{"program", program_}, {"job", options.job_words}, {"files", files}, {"run", options.run_words}};
}

PointLock::PointLock(PointLock&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
PointLock::~PointLock() {
    if (fd_ >= 0) close(fd_);
}

void PointLock::write(const std::string& text) const {
    bool ok = ftruncate(fd_, 0) == 0;
    for (std::size_t at = 0; ok && at < text.size();) {
        const ssize_t n = pwrite(fd_, text.data() + at, text.size() - at, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        ok = n > 0, at += ok ? static_cast<std::size_t>(n) : 0;
    }
    if (!ok) throw std::runtime_error(path_ + ": cannot be written (" + reason() + ")");
}

void PointLock::publish(const std::string& as) const {
    if (fsync(fd_) != 0 || rename(path_.c_str(), as.c_str()) != 0)
        throw std::runtime_error(as + ": cannot be written (" + reason() + ")");
    const int folder = open(fs::path(as).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);  // else the name may be lost with the power; then it is played again
    close(folder);
}

std::string PointLock::text() const {
    std::string text(4096, '\0');
    const ssize_t n = pread(fd_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

void PointLock::discard() const { unlink(path_.c_str()); }

SweepStore::SweepStore(std::string folder) : folder_(std::move(folder)) {
    std::error_code error;
    fs::create_directories(fs::path(folder_) / "points", error);
    if (error) throw std::invalid_argument(folder_ + ": cannot be made (" + error.message() + "): say another --out");
}

std::string SweepStore::file_of(const SweepPoint& point) const {
    return (fs::path(folder_) / "points" / (point.name + ".json")).string();
}

std::optional<json> SweepStore::find(const SweepPoint& point, const json& inputs) const {
    const std::string path = file_of(point);
    if (!fs::exists(path)) return std::nullopt;
    json held = json::parse(contents(path), nullptr, false);
    if (!held.is_object() || !held.contains("inputs"))
        throw BadFile(path, "", "it is no point of a sweep: remove it, or say --replace");
    if (held["inputs"] != inputs)
        throw BadFile(path, "",
                      "it was played from something else (" + difference(held["inputs"], inputs) +
                          "): say another --out, or --replace to play such points again");
    return held;
}

std::optional<PointLock> SweepStore::lock(const SweepPoint& point) const {
    const std::string path = file_of(point) + ".part";
    for (;;) {
        const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) throw std::invalid_argument(path + ": cannot be written (" + reason() + "): say another --out");
        PointLock lock(fd, path);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) return std::nullopt;
            throw std::invalid_argument(path + ": cannot be locked (" + reason() +
                                        "): say an --out on another file system");
        }
        // Whoever held it before may have renamed or removed it since it was opened.
        struct stat held {
        }, named{};
        if (fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino) return lock;
    }
}

void SweepStore::write(const std::string& name, const std::string& text) const {
    const std::string path = (fs::path(folder_) / name).string(), part = path + "." + std::to_string(getpid()) + ".part";
    const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) throw std::invalid_argument(part + ": cannot be written (" + reason() + "): say another --out");
    const PointLock file(fd, part);
    try {
        file.write(text);
        file.publish(path);
    } catch (const std::runtime_error& error) {
        file.discard();
        throw std::invalid_argument(error.what());
    }
}

std::size_t SweepStore::strangers(const std::vector<SweepPoint>& points) const {
    std::set<std::string> known;
    for (const SweepPoint& point : points) known.insert(fs::path(file_of(point)).filename().string());
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(folder_) / "points"))
        count += entry.path().extension() == ".json" && !known.contains(entry.path().filename().string()) ? 1 : 0;
    return count;
}

}  // namespace opus::job
