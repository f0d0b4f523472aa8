// The folder of a sweep: points/NAME.json, one a point, with what it was played from. A point is written as
// NAME.json.part, which whoever plays it holds locked, and renamed when all of it is on the disk. So a point is there
// whole or not at all, and no two processes play it at the same time.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/opus-sim/sweep_options.h"

namespace opus::job {

// What a point's figures follow from: the program, the job, its files, options. Equal inputs, equal bytes.
class SweepInputs {
public:
    explicit SweepInputs(std::string folder) : folder_(std::move(folder)) {}
    // Throws BadFile where a file of the job cannot be read.
    nlohmann::json of(const PointOptions& options);

private:
    std::string folder_;  // of the sweep's file
    std::map<std::string, nlohmann::json> files_;
    nlohmann::json program_;
};

// Holds NAME.json.part. Whoever has its descriptor holds the lock, so a child that was forked does, too.
class PointLock {
public:
    PointLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
    PointLock(PointLock&& other) noexcept;
    PointLock& operator=(PointLock&&) = delete;
    ~PointLock();
    void write(const std::string& text) const;  // instead of what is in it. Throws std::runtime_error
    void publish(const std::string& as) const;  // what was written, on the disk, under its name. Likewise
    std::string text() const;                   // what is in it
    void discard() const;

private:
    int fd_;
    std::string path_;
};

class SweepStore {
public:
    // Makes the folder. Throws std::invalid_argument where it cannot.
    explicit SweepStore(std::string folder);

    std::string file_of(const SweepPoint& point) const;  // its path
    // The point as it was played; nothing: not yet. Throws BadFile where the file is no point, or of other inputs.
    std::optional<nlohmann::json> find(const SweepPoint& point, const nlohmann::json& inputs) const;
    // Nothing: another process plays it. Throws std::invalid_argument where nothing can be written.
    std::optional<PointLock> lock(const SweepPoint& point) const;
    // Writes a file of the folder whole. Throws std::invalid_argument.
    void write(const std::string& name, const std::string& text) const;
    // Files in points/ that are of none of these.
    std::size_t strangers(const std::vector<SweepPoint>& points) const;

private:
    std::string folder_;
};

}  // namespace opus::job
