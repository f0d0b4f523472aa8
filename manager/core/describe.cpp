// What the core holds, for people.
#include <string>
#include <vector>

#include "manager/core/impl.h"

namespace opus::manager {
namespace {

const char* name_of(Phase phase) {
    switch (phase) {
        case Phase::recorded: return "recorded";
        case Phase::waiting: return "waiting";
        case Phase::started: return "started";
        case Phase::suspended: return "suspended";
        case Phase::passed: return "passed";
        case Phase::done: return "done";
        case Phase::captured: return "captured";
    }
    return "?";
}

std::string line_of(const Launch& launch) {
    std::string text = "  launch " + std::to_string(launch.seq) + ": " + name_of(launch.phase) + ", stream " +
                       std::to_string(launch.stream) + ", " + std::to_string(launch.keys.size()) + " keys, grant " +
                       std::to_string(launch.grant);
    if (launch.early != EarlyRelease::no)
        text += launch.early == EarlyRelease::released ? ", released early" : ", being retracted";
    return text + (launch.reached ? ", reached" : "") + (launch.asked ? ", requested" : "");
}

}  // namespace

std::vector<std::string> Core::describe() const {
    std::vector<std::string> lines;
    for (const auto& [id, rank] : impl_->world.ranks) {
        lines.push_back("rank " + std::to_string(id) + " (pid " + std::to_string(rank.info.pid) + ", job " +
                        rank.info.job + ")");
        for (std::size_t i = 0; i < rank.members.size(); ++i)
            if (const auto& member = rank.members[i])
                lines.push_back("  communicator " + std::to_string(i) + ": rank " +
                                std::to_string(member->info.rank_in_comm) + " of " + std::to_string(member->info.size) +
                                ", verdict " + std::to_string(static_cast<unsigned>(member->verdict)) + ", " +
                                std::to_string(member->outstanding) + " launches not done");
        rank.each([&lines](const Launch& launch) {
            if (launch.phase != Phase::done) lines.push_back(line_of(launch));
        });
    }
    return lines;
}

}  // namespace opus::manager
