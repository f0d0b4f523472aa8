// What plans have cost a job is known whatever its laps are, and it pays for it before another one begins.
#include "controller/plan/guard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace opus;
using namespace opus::controller::plan;

namespace {

constexpr TimeNs kMs = 1'000'000;

// A job of two ranks: iterations of a few short launches and a long one, and now and then, at random, something else.
struct Job {
    Guard guard;
    TimeNs now = kMs;
    std::uint64_t seq = 0;
    double by_plan = 1, itself = 1;  // what a launch takes of what it took at first
    bool odd = false;                // one iteration in four, at random, has more in it
    bool out_of_order = false;
    std::mt19937 random{1};
    std::uniform_real_distribution<double> noise{1, 1};

    void launch(OpKind op, std::uint64_t comm, TimeNs ns, bool planned) {
        now += static_cast<TimeNs>(static_cast<double>(ns) * itself * (planned ? by_plan : 1) * noise(random));
        Key key;
        key.comm = CommId{comm, 0};
        for (std::uint32_t r = 0; r < 2; ++r)
            ended.push_back({r, {op, {{key, false}}, seq, 0, now, now, now}, planned});
        ++seq;
        if (out_of_order && seq % 4 != 0) return;
        if (out_of_order) std::shuffle(ended.begin(), ended.end(), random);
        for (const Ended& e : ended) guard.ended({e.rank, 0}, e.launch, e.planned);
        ended.clear();
    }
    void iteration(bool planned) {
        for (int i = 0; i < 6; ++i)
            launch(OpKind::send, 1, 5 * kMs, planned), launch(OpKind::recv, 2, 3 * kMs, planned);
        if (odd && random() % 4 == 0)
            for (int i = 0; i < 5; ++i) launch(OpKind::all_gather, 4, 40 * kMs, planned);
        launch(OpKind::all_reduce, 3, 50 * kMs, planned);
    }
    void on_demand(int iterations) {
        while (iterations-- > 0) iteration(false);
    }
    // Planned until it loses; how many iterations.
    int planned(int most) {
        for (int i = 0; i < most; ++i) {
            iteration(true);
            if (guard.loses()) return guard.stop(), i + 1;
        }
        return most;
    }

    struct Ended {
        std::uint32_t rank = 0;
        Seen launch;
        bool planned = false;
    };
    std::vector<Ended> ended;
};

}  // namespace

TEST_CASE("what comes again after how long is known, and something seldom does not matter") {
    Job job;
    job.on_demand(30);
    CHECK(job.guard.period_ns() >= 98 * kMs);
    CHECK(job.guard.period_ns() <= 98 * kMs * 3 / 2);
    for (int i = 0; i < 3; ++i) {
        job.launch(OpKind::broadcast, 9, kMs, false);
        job.on_demand(40);
    }
    CHECK(job.guard.period_ns() <= 98 * kMs * 3 / 2);
}

TEST_CASE("a pause in an early iteration does not make the period longer") {
    Job job;
    job.on_demand(1);
    job.launch(OpKind::all_reduce, 3, 20'000 * kMs, false);
    job.on_demand(40);
    CHECK(job.guard.period_ns() <= 98 * kMs * 3 / 2);
}

TEST_CASE("a job that takes as long by plan has lost nothing, whatever its iterations are") {
    for (const bool odd : {false, true}) {
        Job job;
        job.odd = odd;
        job.on_demand(40);
        CHECK(job.planned(300) == 300);
        CHECK(job.guard.may_begin());
    }
}

TEST_CASE("one that is longer by plan is stopped, and pays before it may begin again") {
    for (const bool odd : {false, true})
        for (const bool out_of_order : {false, true}) {
            CAPTURE(odd);
            CAPTURE(out_of_order);
            Job job;
            job.odd = odd, job.out_of_order = out_of_order;
            job.on_demand(40);
            job.by_plan = 1.04;
            const int ran = job.planned(100);
            CHECK(ran <= (odd ? 45 : 5));  // what is seldom in it makes its period long
            CHECK_FALSE(job.guard.may_begin());
            const TimeNs stopped = job.now, owed = job.guard.owed_ns();
            CHECK(owed >= 300 * kMs);
            while (!job.guard.may_begin() && job.now < stopped + 100 * owed) job.iteration(false);
            CHECK(job.now - stopped >= owed / 2);
            CHECK(job.now - stopped <= 3 * owed);  // less is by chance, the longer it is known what it does on demand
            // It was slower before: less is enough, but for what is by chance.
            job.guard.begin(0, 0, 0);
            CHECK(job.planned(100) <= (odd ? 45 : ran));
        }
}

TEST_CASE(
    "some iterations of a job are longer than others: that is no loss, and what is lost besides is seen in time") {
    Job job;
    const double lengths[] = {1, 0.5, 1.5};
    int n = 0;
    const auto iterations = [&](int most, bool planned) {
        for (int i = 0; i < most; ++i) {
            job.itself = lengths[n++ % 3];
            job.iteration(planned);
            if (planned && job.guard.loses()) return job.guard.stop(), i + 1;
        }
        return most;
    };
    iterations(40, false);
    CHECK(iterations(300, true) == 300);
    CHECK(job.guard.may_begin());
    job.by_plan = 1.15;
    CHECK(iterations(100, true) < 40);
    CHECK_FALSE(job.guard.may_begin());
}

TEST_CASE("by as much as its periods differ, one may be longer by chance") {
    for (const auto& [longer, loses] : {std::pair{1.3, false}, std::pair{1.7, true}}) {
        CAPTURE(longer);
        Job job;
        for (int i = 0; i < 40; ++i) job.itself = i % 4 < 2 ? 0.8 : 1.2, job.iteration(false);
        job.itself = 1, job.by_plan = longer;
        bool lost = false;
        for (int i = 0; i < 4; ++i) {
            if (i == 2) job.by_plan = 1;
            job.iteration(true);
            lost |= job.guard.loses();
        }
        CHECK(lost == loses);
    }
}

TEST_CASE("a begin may cost what it promised to, until it should have paid") {
    Job job;
    job.on_demand(40);
    job.by_plan = 1.1;
    job.guard.begin(60 * kMs, 3000 * kMs, 98 * kMs);
    CHECK(job.planned(3) == 3);  // 30 ms
    job.by_plan = 1;
    CHECK(job.planned(12) == 12);
    CHECK(job.guard.lost_ns() > 0);
    CHECK(job.planned(300) < 30);  // it has not: the time is over
}

TEST_CASE("what was saved pays for a little that is lost, and for no more") {
    Job job;
    job.on_demand(40);
    job.by_plan = 0.8;
    CHECK(job.planned(200) == 200);
    job.by_plan = 1.02;
    CHECK(job.planned(1) == 1);
    job.by_plan = 1.2;
    CHECK(job.planned(100) <= 2);
}

TEST_CASE("a job that has become slower itself is forgiven") {
    Job job;
    job.on_demand(40);
    job.itself = 1.06;
    CHECK(job.planned(100) < 20);
    int away = 0;
    while (!job.guard.may_begin() && away < 400) job.iteration(false), ++away;
    CHECK(away < 10);
    CHECK(job.planned(100) == 100);
}

TEST_CASE("noise is no loss") {
    Job job;
    job.noise = std::uniform_real_distribution<double>{1, 1.05};
    job.on_demand(40);
    job.by_plan = 0.98;
    CHECK(job.planned(2000) == 2000);
}

TEST_CASE("a job that comes to rest after a plan is not taken for what it is on demand") {
    Job job;
    job.on_demand(40);
    job.by_plan = 0.9;
    CHECK(job.planned(20) == 20);
    job.itself = 1.5;  // its light lies otherwise
    job.on_demand(1);
    job.itself = 1;
    while (!job.guard.may_begin()) job.on_demand(1);
    CHECK(job.planned(20) == 20);
    job.by_plan = 1.04;
    CHECK(job.planned(40) < 20);
}

TEST_CASE("a rank that has left and comes again is another one") {
    Job job;
    job.on_demand(40);
    job.guard.drop({1, 0});
    job.now += 10'000 * kMs;
    job.on_demand(2);
    CHECK(job.planned(50) == 50);
}

TEST_CASE("plans are timed where pauses were most of what a job did before them") {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Job job;
        std::mt19937 random{seed};
        const int before = 3 + static_cast<int>(random() % 10);
        for (int i = 0; i < before; ++i) {
            job.itself = random() % 2 ? 1 : 4 + random() % 8;
            job.on_demand(1);
        }
        job.itself = 1;
        if (!job.guard.is_known()) continue;
        job.guard.begin(0, 0, 98 * kMs);
        job.by_plan = 0.5;
        CHECK(job.planned(300) == 300);
        CHECK(job.guard.ratio() > 0);
        CHECK(job.guard.ratio() < 0.6);
        job.by_plan = 20;
        CHECK(job.planned(40) < 40);  // not when all that was saved is lost
    }
}
