// Whether a lap of a job is planned: as long as it is no slower for it. The yardstick is the job itself: its laps are
// timed on demand first and then planned. Where planned laps come out worse twice in a row, or lose more than a little
// in all, the job goes on on demand, and then is tried again: after a number of laps that doubles each time, and never
// before what was lost is less than kMostLost of the time since. A lap is longer for its plan as far as it has lost for
// light (loss.h), which is an estimate. Where planned laps are longer and the estimate says that they lost nothing, the
// job is asked: it goes on demand for a moment, and falls back where it is faster so. Now and then a planned job runs
// on demand for two laps, so that the yardstick stays true; the more seldom, the more there is to lose by it.
//
// One a kind of lap; pure, no clock.
#pragma once

#include <cstdint>
#include <string>

namespace opus::controller::plan {

class Guard {
public:
    static constexpr double kWorse = 0.003;           // part of a lap: less cannot be told from noise
    static constexpr double kFarWorse = 0.05;         // of a lap, lost since it last gained by as much: enough
    static constexpr double kMostLost = 0.005;        // part of all laps that trials may cost
    static constexpr std::uint32_t kProven = 4;       // laps, after which one that is slow is not believed at once
    static constexpr std::uint32_t kFirstAway = 2;    // laps on demand, the first time: what was learned makes the next plan better
    static constexpr std::uint32_t kLongestAway = 1024;
    static constexpr std::uint32_t kLookLaps = 2;     // on demand, for a new yardstick
    static constexpr std::uint32_t kSuspectLaps = 2,
                                   kSurelySuspectLaps = 4;  // longer one after the other: alike, or however long
    static constexpr std::uint32_t kMostTrusted = 64;       // laps, before they are suspected again
    static constexpr double kLittle = 0.003;          // saved: then a look costs nothing, and is taken soon
    static constexpr double kSure = 3;                // standard deviations of one lap: what saves less may be luck
    static constexpr std::uint32_t kFirstLook = 8, kFirstLookWhereMuch = 256, kLongestLook = 4096;  // laps before it

    enum class Stage : std::uint8_t {
        measuring,    // on demand, until a lap has been timed
        trying,       // provisioned, and not proven
        provisioned,  // proven
        looking,      // on demand for a moment: a new yardstick
        asking,       // on demand for a moment: planned laps were longer, is it for the plan?
        away          // on demand, since provisioned laps were slower
    };

    bool provisions() const { return stage_ == Stage::trying || stage_ == Stage::provisioned; }
    // These are true where provisions() is another one now. A lap on demand has been timed.
    bool begin();
    // A lap is over: how long it took, as a part of what it takes on demand, so far as light accounts for it, and in all.
    bool lap_over(double ratio, double in_all);
    bool lap_over(double ratio) { return lap_over(ratio, ratio); }
    // So much of it is over, and it goes on.
    bool lasts_too_long(double ratio);

    Stage stage() const { return stage_; }
    std::uint32_t laps() const { return laps_; }  // in this stage
    std::uint32_t laps_owed() const { return owed_laps_; }  // on demand, before it is tried again
    double ratio() const { return ratio_; }               // of the last provisioned lap to it; 0: none yet
    std::uint32_t fallbacks() const { return fallbacks_; }
    std::string text() const;  // for people, one line

private:
    struct Spread {
        double count = 0, sum = 0, squares = 0, least = 1;
        void add(double x);
        double mean() const;
        double deviation() const;  // standard, of one
    };

    bool enter(Stage stage);
    bool provisioned_lap(double ratio, double in_all);
    bool is_suspect(double in_all);
    bool asked_lap(double in_all);
    bool away_lap(double ratio);
    bool fall_back(double ratio);

    Stage stage_ = Stage::measuring;
    bool again_ = false;  // it was slower before: one slow lap is enough
    std::uint32_t laps_ = 0, slow_laps_ = 0;
    std::uint32_t away_laps_ = kFirstAway, owed_laps_ = 0, look_after_ = 0, fallbacks_ = 0;
    double ratio_ = 0, slow_ratio_ = 0, away_sum_ = 0;
    struct Suspicion {  // laps by plan, one after the other, that were longer
        std::uint32_t laps = 0;
        double sum = 0, least = 0, most = 0;
        double mean() const { return sum / laps; }
    };
    Suspicion suspicion_;
    Stage before_asking_ = Stage::trying;
    std::uint32_t trusted_ = kSuspectLaps, unasked_ = 0;  // laps for which nothing is suspected, and since it was asked last
    Spread saved_;  // of the laps of this trial, each a part of a lap on demand
    double lost_ = 0;  // laps, since it last had gained as much as it had lost
};

}  // namespace opus::controller::plan
