// What the ranks of a node do, as lines of a recording (docs/recording.md). The manager's core in its place: events of
// rings come in, lines and words to store go out. It holds nothing, and asks nobody. No clock, thread, file or socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/recording/recording.h"
#include "manager/core/core.h"
#include "manager/core/gpu_places.h"
#include "manager/core/rank.h"

namespace opus::manager {

// What a rank's shim counted, as its segment says.
struct ShimCounts {
    std::uint64_t lost = 0;    // launches that its ring had no room for
    std::uint64_t passed = 0;  // launches that observe mode does not record: captured into a CUDA graph
    bool operator==(const ShimCounts&) const = default;
};

class Observation {
public:
    struct Totals {
        std::uint64_t ranks = 0, launches = 0, lost = 0, passed = 0;
        std::uint64_t under_way = 0;  // launches that had not ended when their rank did
        std::uint32_t losing = 0;     // ranks that lost launches
    };

    // `host_gpus`: as CoreOptions has it.
    Observation(controller::RecordingWriter& writer, std::string node, std::vector<PciAddress> host_gpus);

    // Events of the controller and of time are nobody's here. `realtime_ns`: of the writer's clock.
    void on(const Event& event, TimeNs realtime_ns, Actions& out);
    // Writes them where they have grown.
    void counted(RankId rank, const ShimCounts& counts);
    // Nothing more will come.
    void end();

    bool pending() const { return pending_ != 0; }  // launches that have not ended
    const Totals& totals() const { return totals_; }

private:
    struct Pending {
        controller::RecordedLaunch launch;
        std::vector<wire::KeyRange> keys;
        std::vector<controller::LaunchPart> parts;
        bool ready = false;
    };
    struct Observed {
        Rank slots;  // which of the ring's are free again
        std::string job;
        std::uint32_t gpu = kNone;
        std::map<std::uint16_t, wire::CommMember> members;  // by entry
        std::unordered_map<std::uint64_t, Pending> pending;
        ShimCounts counts;
    };

    void on_up(const RankUp& e);
    void on_down(RankId rank, TimeNs now);
    void on_comm(const CommUp& e, Actions& out);
    void on_record(const Recorded& e, TimeNs now);
    void on_done(const DoneSeen& e, TimeNs now, Actions& out);
    void name(RankId id, Observed& rank, std::uint32_t gpu);
    Observed* find(RankId rank);

    controller::RecordingWriter& writer_;
    std::string node_;
    GpuPlaces places_;
    std::map<RankId, Observed> ranks_;
    std::map<std::string, std::uint64_t> jobs_;  // launches of each
    std::uint64_t pending_ = 0;
    Totals totals_;
};

}  // namespace opus::manager
