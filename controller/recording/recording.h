// A recording: JSON lines, one thing a line, the first of them a header (docs/recording.md). Text in, text out.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "controller/recording/profile.h"
#include "opus/wire.h"

namespace opus::controller {

inline constexpr int kRecordingVersion = 1;

struct RecordedGang {
    std::uint64_t id = 0;    // its ticket
    std::uint64_t rank = 0;  // one of its members
    TimeNs complete_ns = 0, granted_ns = 0;
    TimeNs queue_ns = 0, dark_ns = 0;  // what it waited for: ports, light
};

// One of several operations of a launch.
struct LaunchPart {
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
};

// 32 hexadecimal digits: the same on all nodes.
std::string group_name(const CommId& group);

// Writes lines. Ranks and groups get numbers, and a line each, the first time they are seen.
class RecordingWriter {
public:
    // `began_ns`: all times are of the clock in which it is given; the file's are since then. Lines are appended to
    // `out`, which the caller may empty.
    // `node`: of which all that follows is; empty: of all nodes.
    RecordingWriter(std::string& out, const std::string& fabric, const std::string& program, TimeNs began_ns,
                    const std::string& node = "");

    bool knows_rank(std::uint64_t rank) const { return ranks_.count(rank) != 0; }
    bool knows_group(const CommId& group) const { return groups_.count(group) != 0; }

    void name_rank(std::uint64_t rank, const std::string& name, const std::string& gpu, const std::string& job);
    // `also`: another id, by which some members know it; or empty.
    void name_group(const CommId& group, const std::string& id, std::uint32_t size, const std::string& also = "");
    void member(std::uint64_t rank, const CommId& group, std::uint32_t place);
    // `keys`: of what it consists; those of groups that have no number are left out.
    // `parts`: of each key, where there are several; or none.
    void launch(const RecordedLaunch& launch, std::uint64_t seq, const std::vector<wire::KeyRange>& keys = {},
                const std::vector<LaunchPart>& parts = {});
    void gang(const RecordedGang& gang);
    void circuit(const std::string& a, const std::string& b, TimeNs at_ns, bool up);
    void change_set(const std::string& sw, TimeNs sent_ns, TimeNs acked_ns, TimeNs settled_ns, std::uint32_t circuits,
                    const std::string& error);
    void job_ended(const std::string& job);
    // So far: launches that the rank's ring had no room for, and those that were not to be recorded.
    void lost(std::uint64_t rank, std::uint64_t launches, std::uint64_t passed);
    // Its process has ended, and so many of its launches had not.
    void rank_gone(std::uint64_t rank, TimeNs at_ns, std::uint64_t under_way);
    void event(TimeNs at_ns, const std::string& what, const std::string& about);

private:
    std::string& out_;
    TimeNs began_ns_;
    std::unordered_map<std::uint64_t, std::uint32_t> ranks_;
    std::unordered_map<CommId, std::uint32_t> groups_;

    nlohmann::json since(TimeNs at) const;  // null for 0
    void line(const nlohmann::json& body);
};

// Reads lines into a profile.
class RecordingReader {
public:
    // Empty, or what is wrong with this line. What it does not know, it lets pass.
    std::string read(std::string_view line, Profile& profile);

private:
    bool header_ = false;
    std::string launch(const nlohmann::json& l, Profile& profile);
};

}  // namespace opus::controller
