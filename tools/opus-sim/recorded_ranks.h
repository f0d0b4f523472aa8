// Ranks and groups of several recordings, as those of one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/opus-sim/recordings.h"

namespace opus::job {

class RecordedRanks {
public:
    // By the clock of the first file. Throws BadFile where files contradict each other.
    RecordedRanks(const std::vector<NamedRecording>& files, const std::vector<ClockOffset>& clocks);

    // Keeps one job: ranks that share communicators, or, in one file, the job's name. Of several the one with most launches.
    void choose_job(std::vector<std::string>& assumed);
    // Processes that followed each other on one GPU are one rank.
    void join_successors(std::vector<std::string>& assumed);
    // Members that no file has: an error, or filled in.
    void find_missing(bool fill, std::vector<std::string>& assumed);

    replay::Recording take() { return std::move(all_); }

private:
    void add(std::size_t file, const ClockOffset& clock);
    std::uint32_t group_number(const replay::Recording::Group& group);
    void fill_in(const replay::Recording::Group& world, std::vector<std::string>& assumed);
    std::vector<std::uint32_t> used_groups() const;
    const std::string& file_of(std::uint32_t rank) const { return files_[origin_.at(rank)].file; }

    const std::vector<NamedRecording>& files_;
    replay::Recording all_;
    std::map<std::uint32_t, std::size_t> origin_;  // of a rank: which file
    std::map<std::string, std::uint32_t> ids_;     // of groups: their numbers
};

}  // namespace opus::job
