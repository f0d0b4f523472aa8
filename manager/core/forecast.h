// What a rank will launch next, as keys. The predictor knows launches by signatures; here they get the
// communicator, the sequence and the number that their peers will meet them at. What is recorded and has not
// started is known future, and goes before any guess.
//
// Fed with launches in the order in which they start. One a rank; bounded memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "manager/core/circuits.h"
#include "manager/core/keys.h"
#include "manager/core/known_launches.h"
#include "manager/core/predictor.h"
#include "opus/wire.h"

namespace opus::manager {

struct Launch;

// What is known of the circuits of a key: they change when one of these numbers does. Empty: it needs none.
using Circuits = std::vector<std::uint64_t>;
// By where its members are; where that is not known, by its communicator and peers.
Circuits circuits_by(const wire::KeyRange& range, const Places& places, NodeIndex here);

// What the predictor is to know a launch by. Sizes count for collectives over a ring only: those of transfers and
// of all-to-all follow the data.
Predictor::Launch programme_of(OpKind op, std::uint64_t bytes, const std::vector<LaunchKey>& keys,
                               const std::vector<Circuits>& circuits);

class Forecast {
public:
    static constexpr std::size_t kMaxLook = 64;  // launches recorded ahead that are looked at

    // Also when it passed. `launches`: all of the rank that are not retired.
    void started(const Launch& launch, TimeNs now, const std::deque<Launch>& launches);
    void ended(const Launch& launch, TimeNs now);  // one that had started

    // A receive that is ready, and nothing else, goes after what this rank is to do before it: by the order that was
    // learned; or because, where it was served the last time, what came next waited for its circuits, and not for what
    // was received.
    bool can_wait(const Launch& launch) const;
    bool is_due(const Launch& launch) const;  // or another for these circuits: next, of those that are not passed over
    TimeNs due_until() const;                 // afterwards it is late
    bool knows_due() const { return predictor_.due().needs != 0; }
    void never_let_wait(const Launch& launch);

    // Do the circuits of these keys lead where they must, as far as this node has been told?
    using Lit = std::function<bool(const std::vector<wire::KeyRange>&)>;

    // The first launch of the next phase, once nothing of this one is under way or expected. Inside a phase, the
    // next launch, if its circuits have gone to others meanwhile; or the next phase, if what is left of this one
    // waits for its peers and made the next one wait the last time.
    std::optional<wire::Expectation> next_phase(const std::deque<Launch>& launches, const Lit& lit);

    // What of this rank's phase is expected to follow `first`, which is the next to start: how many keys of which
    // sequences, from the first that is not part of `first`. Nothing while the order is still being learned.
    std::vector<LaunchKey> rest_of_phase(const Launch& first) const;

    static constexpr std::size_t kBytes = Predictor::kBytes + KnownLaunches::kBytes;  // of a rank, whatever it does
    const Predictor::Accuracy& accuracy() const { return predictor_.accuracy(); }
    Predictor::Knowledge knowledge() const { return predictor_.knowledge(); }

private:
    struct Head {  // a launch that nothing of its communicators goes before
        const Launch* launch = nullptr;
        std::uint64_t needs = 0;
    };

    static std::vector<Head> heads(const std::deque<Launch>& launches);  // in ring order
    std::vector<LaunchKey> keys_of(std::uint64_t signature) const;
    std::optional<wire::Expectation> foretold(const Predictor::Launch& next, const std::vector<Head>& heads,
                                              const Lit& lit) const;
    std::optional<wire::Expectation> recorded(const std::vector<Head>& heads, const Lit& lit) const;
    std::optional<wire::Expectation> posted(const std::vector<Head>& heads, bool sure, const Lit& lit) const;
    bool agrees(const std::vector<Head>& heads) const;
    bool regrets(const Launch& launch, TimeNs now) const;
    bool gives_way(const std::vector<Head>& heads, const Predictor::Launch& next) const;
    bool in_vain(const Launch& launch) const;

    Predictor predictor_;
    KnownLaunches launches_;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> under_way_;  // needs, launches
    std::uint64_t phase_ = 0;                                         // needs of the last that started
    TimeNs started_ns_ = 0;                                           // it did
    TimeNs ended_ns_ = 0;                                             // the last that has
    struct Between {  // the last that started: a receive in the midst of another phase
        std::uint64_t signature = 0, phase = 0;
        TimeNs ended_ns = -1;
    } between_;
    TimeNs went_on_ns_ = 0;  // the last that is none of these started
    bool gave_way_ = false;  // since the last that started
};

static_assert(Forecast::kBytes <= std::size_t{64} * 1024);

}  // namespace opus::manager
