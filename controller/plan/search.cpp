#include "controller/plan/search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>

#include "controller/plan/play.h"

namespace opus::controller::plan {
namespace {

constexpr TimeNs kLeastGain = 10'000;  // of so many parts of a lap one

class Search {
public:
    Search(const Task& task, const Fabric& fabric)
        : lap_(task.lap),
          play_(task.lap, fabric, task.usable),
          patience_(std::max(1u, task.trials)),
          most_(std::max(patience_, task.most_trials)),
          from_(task.from),
          least_gain_ns_(std::max<TimeNs>(1, task.gains_ns)) {
        find_ancestors();
        const TimeNs least = std::max(lap_.ns / kLeastGain, play_.dark_ns() / 2);
        for (std::uint32_t u = 0; u < play_.uses(); ++u)
            if (gains_ns(u) > least) wide_.push_back(u);
        std::ranges::stable_sort(wide_, std::greater{}, [this](std::uint32_t u) { return gains_ns(u); });
    }

    Order find() {
        const std::size_t n = lap_.uses.size();
        Way followed;
        Score by_followed;
        if (from_.place.size() == n && from_.circuits.size() == n) {
            followed = {{from_.place.begin(), from_.place.end()}, from_.circuits, from_.first_free};
            climb(followed);
            followed.ports = play_.named(from_.ports);
            if (!followed.ports.empty()) by_followed = play(followed);
        }
        std::vector<std::uint32_t> circuits(n, 1);
        if (!wide_.empty()) circuits = of_shortest(as_seen());
        for (const bool first_free : {false, true}) {
            climb({as_seen(), circuits, first_free});
            climb({critical(), circuits, first_free});
        }
        shake();
        const bool stays = !by_followed.lacks && by_followed.lap_ns - score_.lap_ns < least_gain_ns_;
        if (stays) best_ = std::move(followed);
        play_.play(best_);
        Order order;
        if (!play_.whole()) return order;
        order.lap_ns = play_.lap_ns();
        order.first_free = best_.first_free;
        order.place.resize(play_.uses());
        order.wait.resize(play_.uses());
        std::uint32_t place = 0;
        for (const std::uint32_t x : play_.order())
            if (x / play_.uses() == Play::kTypical) order.place[x % play_.uses()] = place++;
        for (std::uint32_t u = 0; u < play_.uses(); ++u)
            order.ports.push_back(play_.ports_of(u)), order.wait[u] = play_.typical(u).begin_ns - play_.typical(u).full_ns;
        for (std::uint32_t u = 0; u < play_.uses(); ++u) order.circuits.push_back(play_.circuits_of(u));
        if (stays) order.place = from_.place, order.ports = from_.ports, order.circuits = from_.circuits;
        for (std::uint32_t u = 0; u < play_.uses(); ++u) {
            order.begin_ns.push_back(play_.typical(u).begin_ns);
            order.lasts_ns.push_back(play_.typical(u).ns);
        }
        if (!order.begin_ns.empty())
            for (const TimeNs first = std::ranges::min(order.begin_ns); TimeNs & begin : order.begin_ns) begin -= first;
        return order;
    }

private:
    struct Score {
        bool lacks = true;  // ports, or an end
        TimeNs lap_ns = 0, held_ns = 0;
        auto operator<=>(const Score&) const = default;
    };

    std::vector<double> as_seen() const {
        std::vector<double> rank;
        for (const Use& use : lap_.uses) rank.push_back(static_cast<double>(use.at_ns));
        return rank;
    }

    // Those with the longest way to go come first.
    std::vector<double> critical() const {
        std::vector<TimeNs> tail(lap_.uses.size(), 0);
        for (std::size_t i = sorted_.size(); i-- > 0;) {
            const std::uint32_t u = sorted_[i];
            tail[u] = std::max(tail[u], lap_.uses[u].ns);
            for (const Before& b : lap_.uses[u].before)
                if (b.laps == 0) tail[b.use] = std::max(tail[b.use], b.ns + tail[u]);
        }
        std::vector<double> rank;
        for (const TimeNs t : tail) rank.push_back(-static_cast<double>(t));
        return rank;
    }

    // How much less it takes with all circuits that it can have.
    TimeNs gains_ns(std::uint32_t use) const {
        return play_.longer_ns(use, 1) - play_.longer_ns(use, play_.most_circuits(use));
    }

    // As few circuits as can be, as many, or as many where they save more than a dark time: whichever is shortest.
    std::vector<std::uint32_t> of_shortest(const std::vector<double>& rank) {
        std::vector<std::uint32_t> best;
        Score least;
        for (const double dark_times : {std::numeric_limits<double>::infinity(), 1.0, 0.0}) {
            std::vector<std::uint32_t> circuits(lap_.uses.size(), 1);
            for (const std::uint32_t u : wide_)
                if (static_cast<double>(gains_ns(u)) > dark_times * static_cast<double>(play_.dark_ns()))
                    circuits[u] = play_.most_circuits(u);
            const Score score = play({rank, circuits});
            if (!best.empty() && !(score < least)) continue;
            best = std::move(circuits), least = score;
        }
        return best;
    }

    Score play(const Way& way) {
        ++trials_;
        play_.play(way);
        const Score score{!play_.whole(), play_.lap_ns(), play_.held_ns()};
        note(way, score);
        return score;
    }

    std::vector<double> as_played() const {
        std::vector<double> rank(play_.uses(), 0);
        double n = 0;
        for (const std::uint32_t x : play_.order())
            if (x / play_.uses() == Play::kTypical) rank[x % play_.uses()] = ++n;
        return rank;
    }

    bool is_over() const { return trials_ >= std::min(most_, shorter_ + patience_); }

    void note(const Way& way, const Score& score) {
        const bool is_first = best_.rank.empty();
        if (!is_first && score >= score_) return;
        if (is_first || std::tie(score.lacks, score.lap_ns) < std::tie(score_.lacks, score_.lap_ns)) shorter_ = trials_;
        best_ = way, score_ = score;
    }

    void shake() {
        while (!is_over() && !best_.rank.empty()) {
            play(best_);
            Way way{as_played(), best_.circuits, draw() % 4 == 0 ? !best_.first_free : best_.first_free};
            for (int i = 0; i < 3; ++i) way.rank[draw() % way.rank.size()] += static_cast<double>(draw() % 41) - 20.5;
            if (!wide_.empty()) {
                const std::uint32_t u = wide_[draw() % wide_.size()];
                way.circuits[u] = way.circuits[u] % play_.most_circuits(u) + 1;
            }
            climb(std::move(way));
        }
    }

    bool can_move(const std::vector<double>& rank, std::uint32_t use, std::uint32_t blocker) const {
        return rank[blocker] < rank[use] && !is_before(blocker, use);
    }

    // What waited for a use of its ports, and can move, goes before it, with what it waits for itself.
    std::vector<double> moved_before(const std::vector<double>& rank, std::uint32_t use, std::uint32_t blocker) const {
        const double at = rank[blocker], to = rank[use];
        std::vector<double> moved = rank;
        for (std::uint32_t n = 0; n < rank.size(); ++n) {
            if (rank[n] < at || rank[n] > to) continue;
            if (n != use && !is_before(n, use)) continue;
            moved[n] = at - 1 + (rank[n] - at + 0.5) / (to - at + 1);
        }
        return moved;
    }

    void climb(Way way) {
        play(way);
        for (std::optional<Score> last; !is_over();) {
            way.rank = as_played();
            const Score score = play(way);  // by these ranks it may choose other ports
            if (last && !(score < *last)) return;
            last = score;
            struct Wait {
                std::uint32_t use, blocker;
                TimeNs ns;
            };
            std::vector<Wait> waits;
            for (std::uint32_t u = 0; u < play_.uses(); ++u) {
                const Play::Begun& b = play_.typical(u);
                if (b.blocker != Play::kNone32 && b.begin_ns > b.full_ns && b.blocker / play_.uses() == Play::kTypical)
                    waits.push_back({u, b.blocker % play_.uses(), b.begin_ns - b.full_ns});
            }
            std::stable_sort(waits.begin(), waits.end(), [](const Wait& x, const Wait& y) { return x.ns > y.ns; });
            bool better = false;
            for (const Wait& wait : waits) {
                if (is_over()) break;
                if (!can_move(way.rank, wait.use, wait.blocker)) continue;
                Way moved{moved_before(way.rank, wait.use, wait.blocker), way.circuits, way.first_free};
                if (!(play(moved) < score)) continue;
                way = std::move(moved);
                better = true;
                break;
            }
            if (!better) return;
        }
    }

    static constexpr std::size_t kBits = 64;  // of a word of before_
    bool is_before(std::uint32_t x, std::uint32_t y) const {
        return (before_[y * words_ + x / kBits] >> (x % kBits) & 1) != 0;
    }

    // Within a lap.
    void find_ancestors() {
        const std::size_t n = lap_.uses.size();
        std::vector<std::uint32_t> waits(n, 0);
        std::vector<std::vector<std::uint32_t>> next(n);
        for (std::uint32_t u = 0; u < n; ++u)
            for (const Before& b : lap_.uses[u].before)
                if (b.laps == 0) next[b.use].push_back(u), ++waits[u];
        for (std::uint32_t u = 0; u < n; ++u)
            if (waits[u] == 0) sorted_.push_back(u);
        words_ = (n + kBits - 1) / kBits;
        before_.assign(n * words_, 0);
        for (std::size_t i = 0; i < sorted_.size(); ++i) {
            const std::uint32_t u = sorted_[i];
            for (const std::uint32_t v : next[u]) {
                for (std::size_t w = 0; w < words_; ++w) before_[v * words_ + w] |= before_[u * words_ + w];
                before_[v * words_ + u / kBits] |= std::uint64_t{1} << (u % kBits);
                if (--waits[v] == 0) sorted_.push_back(v);
            }
        }
    }

    std::uint64_t draw() {
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
        return state_;
    }

    const Lap& lap_;
    Play play_;
    std::uint32_t patience_, most_, trials_ = 0;
    std::uint32_t shorter_ = 0;  // after so many trials the best one was found, but for those that are as long
    const Order& from_;
    TimeNs least_gain_ns_;
    std::vector<std::uint32_t> wide_;  // uses that gain enough by more circuits for the turns, those that gain most first
    std::vector<std::uint32_t> sorted_;
    std::size_t words_ = 0;
    std::vector<std::uint64_t> before_;  // of each use so many words: a bit for each use that it waits for
    Way best_;
    Score score_;
    std::uint64_t state_ = 88172645463325252ull;
};

}  // namespace

Order find_order(const Task& task, const Fabric& fabric) { return Search(task, fabric).find(); }

}  // namespace opus::controller::plan
