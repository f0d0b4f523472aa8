#include "test/sim/special_programs.h"

#include <algorithm>

#include "test/sim/calendar.h"
#include "test/sim/draft.h"

namespace opus::sim {
namespace {

class Special {
public:
    Special(Scenario& scenario, std::uint32_t job, Random random)
        : s_(scenario), job_(job), random_(random), draft_(scenario, job) {
        for (const std::uint32_t r : ranks()) s_.ranks[r].streams = 1 + random_.below(3);
    }

    void write() {
        world_ = draft_.create(ranks());
        switch (s_.jobs[job_].shape) {
            case JobShape::silent: silent(); break;
            case JobShape::early: early(); break;
            case JobShape::ring: ring(); break;
            case JobShape::line: line(); break;
            case JobShape::any: break;
        }
        if (draft_.can_ring(world_) && random_.chance(500))
            for (const std::uint32_t r : ranks()) draft_.launch(r, {{world_, OpKind::all_reduce, 0, 0}});
        for (std::uint32_t c = world_; c < s_.comms.size(); ++c) draft_.destroy(c);
        draft_.resolve();
    }

private:
    const std::vector<std::uint32_t>& ranks() const { return s_.jobs[job_].ranks; }
    std::uint32_t some_stream(std::uint32_t r) { return random_.below(s_.ranks[r].streams); }

    void transfer(std::uint32_t comm, std::uint32_t src, std::uint32_t dst) {
        const std::uint32_t s = s_.comms[comm].ranks[src], d = s_.comms[comm].ranks[dst];
        draft_.launch(s, {{comm, OpKind::send, dst, some_stream(s)}});
        draft_.launch(d, {{comm, OpKind::recv, src, some_stream(d)}});
    }
    void transfer_on(std::uint32_t stream, std::uint32_t comm, std::uint32_t src, std::uint32_t dst) {
        draft_.launch(s_.comms[comm].ranks[src], {{comm, OpKind::send, dst, stream}});
        draft_.launch(s_.comms[comm].ranks[dst], {{comm, OpKind::recv, src, stream}});
    }

    // The first job's ranks meet again and again, until one of them computes for longer than its node may be silent.
    // The second's go on all the time, with pauses.
    void silent() {
        const bool goes_on = job_ > 0;
        const TimeNs lost = s_.timing.silence_ns + s_.timing.grace_ns;
        const std::uint32_t rounds = 6 + random_.below(8), pause = random_.below(rounds - 2);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            for (std::uint32_t i = 0; i < 2; ++i) {
                const std::uint32_t r = ranks()[i];
                TimeNs ns = random_.spread(10'000, goes_on ? lost / 2 : 5 * kMs);
                if (!goes_on && round == pause && (i == 0 || random_.chance(500)))
                    ns = i == 0 ? random_.between(lost / 4 * 3, 2 * lost) : random_.between(0, lost);
                draft_.compute(r, some_stream(r), ns);
            }
            if (random_.chance(600)) {
                for (const std::uint32_t r : ranks())
                    draft_.launch(r, {{world_, OpKind::all_reduce, 0, some_stream(r)}});
            } else {
                const std::uint32_t sender = random_.below(2);
                transfer(world_, sender, 1 - sender);
            }
        }
    }

    // The second rank goes on with the third, and needs what the first one sends only when they are through; its receive
    // is posted before that. There and back in the midst of it is two dark times. Now and then a round is otherwise.
    void early() {
        const std::vector<std::uint32_t>& all = ranks();
        const std::uint32_t sender = all[0], receiver = all[1], neighbour = all[2];
        const std::uint32_t pair = draft_.create({receiver, neighbour}, random_.chance(100));
        s_.ranks[receiver].streams = std::max(2u, s_.ranks[receiver].streams);
        const std::uint32_t rounds = 7 + random_.below(10), steps = 5 + random_.below(8), often = 1 + random_.below(3),
                            odd = random_.below(3) * 60;
        const TimeNs pace = random_.spread(50'000, 1 * kMs), ahead = pace * (1 + random_.below(steps));
        const TimeNs dark = s_.fabric.switches[0].dark_ns;
        s_.about_ns += rounds * (steps * (pace + s_.timing.wire_high_ns * 2 + kMs) + 2 * dark);
        const auto compute = [this](std::uint32_t r, TimeNs ns) {
            draft_.compute(r, 0, random_.between(ns, ns + ns / 8));
        };
        const bool replays = Random(s_.seed, 0x6b00 + job_).chance(300);
        const std::uint32_t graph = draft_.new_graph();
        const std::vector<RawOp> step{{pair, OpKind::all_reduce, 0, 0}};
        for (const std::uint32_t r : {receiver, neighbour})
            if (replays) draft_.capture(r, graph, 0, step);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const bool strange = random_.chance(odd), long_wait = random_.chance(odd / 2);
            const std::uint32_t length = strange ? 1 + random_.below(2 * steps) : steps;
            const std::uint32_t used = random_.chance(odd) ? random_.below(length) : length;
            compute(sender, ahead);
            draft_.launch(sender, {{world_, OpKind::send, 1, 0}});
            draft_.launch(receiver, {{world_, OpKind::recv, 0, 1}});
            const std::uint32_t event = s_.ranks[receiver].events++;
            ++s_.jobs[job_].early_receives;
            draft_.record(receiver, 1, event);
            for (std::uint32_t i = 0; i <= length; ++i) {
                if (i == used) draft_.wait(receiver, 0, event);
                if (i == length) break;
                if (long_wait && i == length / 2) compute(neighbour, 1500 * kMs);
                for (const std::uint32_t r : {receiver, neighbour}) {
                    replays ? draft_.replay(r, graph, 0, step) : draft_.launch(r, step);
                    compute(r, pace);
                }
            }
            transfer_on(0, world_, 1, 0);
            if (round % often == 0)
                for (const std::uint32_t r : all) draft_.sync(r, 0);
        }
    }

    // Each rank posts its receive from the one before it, computes, sends to the next, and waits for what it receives:
    // what each wants next is often wanted of somebody who wants something else. Now and then a round is otherwise.
    void ring() {
        const std::vector<std::uint32_t>& all = ranks();
        const auto count = static_cast<std::uint32_t>(all.size());
        const TimeNs dark = s_.fabric.switches[0].dark_ns, least = dark / 2 + 4 * s_.timing.wire_high_ns;
        std::vector<TimeNs> work;
        const std::uint32_t pairs = world_ + 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            draft_.create({all[i], all[(i + 1) % count]});  // a receive holds no send up
            s_.ranks[all[i]].streams = std::max(2u, s_.ranks[all[i]].streams);
            work.push_back(random_.spread(least, 12 * least));
        }
        // Connected one after the other: who first receives from the one before would wait all around the ring.
        for (std::uint32_t i = 0; i < count; ++i) transfer_on(0, pairs + i, 0, 1);
        const std::uint32_t rounds = 10 + random_.below(20), odd = random_.below(3) * 60;
        for (std::uint32_t round = 0; round < rounds; ++round)
            for (std::uint32_t i = 0; i < count; ++i) {
                const std::uint32_t event = s_.ranks[all[i]].events++;
                const TimeNs ns = random_.chance(odd) ? random_.below(4) * work[i] : work[i];
                draft_.launch(all[i], {{pairs + (i + count - 1) % count, OpKind::recv, 0, 1}});
                draft_.record(all[i], 1, event);
                draft_.compute(all[i], 0, random_.between(ns, ns + ns / 16));
                draft_.launch(all[i], {{pairs + i, OpKind::send, 1, 0}});
                draft_.wait(all[i], 0, event);
            }
    }

    // There and back along a line of stages: what a stage sends and what it gets for that is one launch, which has sent long
    // before it receives. Meanwhile the next stage needs its ports for the one after. Now and then a round is otherwise.
    void line() {
        const std::vector<std::uint32_t>& all = ranks();
        const auto last = static_cast<std::uint32_t>(all.size()) - 1;
        const TimeNs dark = s_.fabric.switches[0].dark_ns, least = dark / 2 + 4 * s_.timing.wire_high_ns;
        std::vector<TimeNs> work;
        const std::uint32_t pairs = world_ + 1;
        for (std::uint32_t i = 0; i <= last; ++i) {
            if (i < last) draft_.create({all[i], all[i + 1]});
            work.push_back(random_.spread(least, 2 * least));  // one stage after the other
        }
        const std::uint32_t rounds = 8 + random_.below(12), odd = random_.below(3) * 60;
        const bool reduces = draft_.can_ring(world_) && random_.chance(500);
        const auto compute = [&](std::uint32_t i) {
            const TimeNs ns = random_.chance(odd) ? random_.below(4) * work[i] : work[i];
            draft_.compute(all[i], 0, random_.between(ns, ns + ns / 16));
        };
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const bool apart = random_.chance(odd);
            for (std::uint32_t i = 0; i <= last; ++i) {
                if (i > 0) draft_.launch(all[i], {{pairs + i - 1, OpKind::recv, 0, 0}});
                compute(i);
                if (i < last && apart) {
                    draft_.launch(all[i], {{pairs + i, OpKind::send, 1, 0}});
                    draft_.launch(all[i], {{pairs + i, OpKind::recv, 1, 0}});
                } else if (i < last) {
                    draft_.launch(all[i], {{pairs + i, OpKind::send, 1, 0}, {pairs + i, OpKind::recv, 1, 0}});
                    compute(i);
                }
                if (i > 0) draft_.launch(all[i], {{pairs + i - 1, OpKind::send, 0, 0}});
                if (reduces) draft_.launch(all[i], {{world_, OpKind::all_reduce, 0, 0}});
            }
        }
    }

    Scenario& s_;
    std::uint32_t job_;
    Random random_;
    Draft draft_;
    std::uint32_t world_ = 0;
};

}  // namespace

void write_special(Scenario& scenario, std::uint32_t job, Random random) { Special(scenario, job, random).write(); }

}  // namespace opus::sim
