// Recordings of jobs that nobody here wrote, played again in virtual time.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/replay/recorded.h"
#include "tools/sim/against_demand.h"

using namespace opus;
using namespace opus::sim;
using replay::StepKind;
using replay::Workload;

namespace {

Workload read(const std::string& text, std::vector<replay::WorkloadError>& errors) {
    std::istringstream in(text);
    return replay::read_recording(in, errors);
}

const std::string kRanks = R"({"format":"opus-recording","version":1,"fabric":"f","program":"p","began_ns":1}
{"rank":0,"name":"n10.r0","gpu":"n10.g0","job":"j"}
{"rank":1,"name":"n9.r0","gpu":"n9.g0","job":"j"}
{"group":0,"id":"a","size":2}
{"member":[0,0,0]}
{"member":[1,0,1]}
)";

// Of these a rank left before a collective that the others had begun.
bool lost_a_rank(const std::string& name) { return name == "watchdog" || name == "elastic"; }

struct Recorded {
    std::string name;
    Workload job;
    std::vector<replay::WorkloadError> errors;
};

std::vector<Recorded> all() {
    std::vector<Recorded> found;
    for (const auto& entry : std::filesystem::directory_iterator(OPUS_TEST_PYTORCH)) {
        if (entry.path().extension() != ".jsonl") continue;
        std::ifstream in(entry.path());
        Recorded one{.name = entry.path().stem().string(), .job = {}, .errors = {}};
        one.job = replay::read_recording(in, one.errors);
        found.push_back(std::move(one));
    }
    return found;
}

// What a GPU needs where every node sends to each of three others (test/data/pytorch/record.py has it, too).
std::uint32_t ports_of(const std::string& name) {
    return name == "tensor" || name == "expert" || name == "accumulate-evaluate" ? 4 : 2;
}

}  // namespace

TEST_CASE("a recording is read as what its ranks did, and how long they computed between") {
    std::vector<replay::WorkloadError> errors;
    const Workload w = read(kRanks + R"({"launch":[0,0,0,"Send",64,100,200,300,1,[[0,3,0,1,0,1]]]}
{"launch":[0,1,0,"Send",4096,1000000,1500000,2000000,1,[[0,1,0,1,0,1]]]}
{"launch":[1,1,0,"Recv",4096,900000,1500000,2100000,1,[[0,1,0,1,0,1]]]}
{"launch":[1,2,0,"AllReduce",512,5100000,6000000,7000000,1,[[0,0,3,1]]]}
{"launch":[0,2,0,"AllReduce",512,2000000,6000000,7000000,1,[[0,0,3,1]]]}
)",
                            errors);
    REQUIRE(errors.empty());
    REQUIRE(w.world() == 2);
    CHECK(w.iterations == 1);
    REQUIRE(w.comms.size() == 1);
    CHECK(w.comms[0].groups == std::vector<std::vector<std::uint32_t>>{{1, 0}});  // n9 comes before n10
    const auto& receives = w.role_of(0).steps;
    REQUIRE(receives.size() == 5);  // receive, record, wait, compute, all-reduce: no first use
    CHECK(receives[0].kind == StepKind::recv);
    CHECK(receives[0].bytes == 4096);
    CHECK(receives[3].kind == StepKind::compute);
    CHECK(receives[3].us == 3000);
    CHECK(receives[4].kind == StepKind::all_reduce);
    const auto& sends = w.role_of(1).steps;
    CHECK(sends[0].kind == StepKind::send);
    CHECK(std::none_of(sends.begin(), sends.end(), [](const replay::Step& s) { return s.kind == StepKind::compute; }));
}

TEST_CASE("what a recording does not tell is said, with its line") {
    std::vector<replay::WorkloadError> errors;
    read(kRanks + "{\"launch\":[0,0,0,\"AllReduce\",64,100,200,300,1]}\n", errors);
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].line == 7);
    errors.clear();
    read(kRanks, errors);
    CHECK(errors.size() == 1);
}

TEST_CASE("recorded jobs of PyTorch lose nothing, and are not slower for having been provisioned") {
    const auto jobs = all();
    REQUIRE(!jobs.empty());
    for (const auto& [name, job, errors] : jobs) {
        if (lost_a_rank(name)) continue;
        CAPTURE(name);
        REQUIRE(errors.empty());
        for (const double dark_ms : {10.0, 100.0}) {
            VariantOptions o;
            o.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
            o.learned = 0;
            o.ports = ports_of(name);
            o.dry_run.iterations = 1;
            o.rails.guard = true;
            const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
            CAPTURE(dark_ms);
            for (const PlayedVariant* c : {&demand, &ahead}) {
                REQUIRE(c->ended);
                CHECK(c->fault == "");
                CHECK(c->counters.passes + c->counters.aborts == 0);
            }
            // While it learns it may lose as much as a job that is drawn (tools/sim/against_demand.h).
            const double learns_ms = AgainstDemand::kMostDarkTimes * o.ports * dark_ms;
            CHECK(ahead.total_ms <= demand.total_ms * (1 + AgainstDemand::kMostPercent / 100) + learns_ms);
        }
    }
}

TEST_CASE("recordings of jobs that lost a rank in the midst of a collective are refused by name, not played") {
    int seen = 0;
    for (const auto& [name, job, errors] : all()) {
        if (!lost_a_rank(name)) continue;
        ++seen;
        CAPTURE(name);
        REQUIRE(!errors.empty());
        CHECK(errors[0].text.find("disagree on collective") != std::string::npos);
    }
    CHECK(seen == 2);
}
