#include "tools/opus-sim/advice.h"

#include <algorithm>
#include <map>

namespace opus::job {
namespace {

std::string ports_text(std::uint32_t ports) {
    return std::to_string(ports) + (ports == 1 ? " port" : " ports") + " a GPU";
}

const Technology* technology_at(double dark_ms) {
    for (const Technology& t : kTechnologies)
        if (static_cast<double>(t.dark_ns) / 1e6 == dark_ms) return &t;
    return nullptr;
}

// The switch, by its technology where it is that of one.
std::string switch_text(double dark_ms) {
    const Technology* t = technology_at(dark_ms);
    if (t == nullptr) return "switches that are dark for " + dark_text(dark_ms) + " a move";
    if (t->ports == 0) return std::string(t->name) + "s that switch (" + dark_text(dark_ms) + " dark a move)";
    return std::string(t->name) + " switches (" + dark_text(dark_ms) + " dark a move)";
}

std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    return text;
}

std::string loses(double part) {
    if (part < 0.0005 && part > -0.0005) return "takes as long as on electrical rails";
    return part < 0 ? "takes " + percent_text(-part) + " less time than on electrical rails"
                    : "takes " + percent_text(part) + " longer than on electrical rails";
}

class Judge {
public:
    Judge(const Run& run, const RunOptions& options, double accept) : run_(run), o_(options), accept_(accept) {}

    Conclusion judge() {
        for (const Technology& t : kTechnologies) v_.technologies.push_back(fit(t));
        v_.point = to_look_at();
        const std::optional<double> split = loss_of(run_.split.iteration_ms, run_);
        const Moved moved = v_.point == nullptr ? Moved{} : moved_at(*v_.point);
        const bool moves = moved.loss && *moved.loss <= accept_;
        if (run_.unserved.matters())
            in_part();
        else if (split && *split <= accept_)
            say(Conclusion::Answer::yes, "Yes, with " + ports_text(o_.ports) +
                                             " and circuits that never move during the job (a patch panel or the "
                                             "slowest switch will do): an iteration " +
                                             loses(*split) +
                                             (moves ? "; " + moved.how() + " with " + switch_text(v_.point->dark_ms) +
                                                          beyond(v_.point->dark_ms, o_.ports) + " it " + loses(*moved.loss)
                                                    : "") +
                                             ".");
        else if (moves)
            say(Conclusion::Answer::yes, "Yes, with " + switch_text(v_.point->dark_ms) +
                                             beyond(v_.point->dark_ms, o_.ports) + " and " + ports_text(o_.ports) +
                                             ": an iteration, " + moved.how() + ", " + loses(*moved.loss) + ".");
        else
            otherwise();
        if (!run_.unserved.matters()) more_ports(), fewer_ports(), beside();
        faster_switch();
        where_it_waits();
        left_to_gain();
        return std::move(v_);
    }

private:
    void say(Conclusion::Answer answer, std::string sentence) { v_.answer = answer, v_.sentence = std::move(sentence); }

    TechnologyFit fit(const Technology& t) const {
        TechnologyFit f;
        f.technology = &t, f.dark_ms = static_cast<double>(t.dark_ns) / 1e6;
        f.rail_ports = run_.nodes * o_.ports, f.fits = t.ports != 0 && f.rail_ports <= t.ports;
        for (const Point& p : run_.points)
            if (p.dark_ms == f.dark_ms) f.point = &p;
        return f;
    }

    Moved moved_at(const Point& p) const { return moved_of(p.demand.iteration_ms, p.provisioned.iteration_ms, run_); }

    // The slowest switch that will do; else the slowest at which it loses no more than twice the least.
    const Point* to_look_at() const {
        double least = 1e300;
        for (const Point& p : run_.points) least = std::min(least, moved_at(p).loss.value_or(least));
        const double most = least > accept_ ? 2 * least : accept_;
        const Point* point = nullptr;
        for (const Point& p : run_.points) {
            const Moved m = moved_at(p);
            if (m.loss && *m.loss <= most && (point == nullptr || p.dark_ms > point->dark_ms)) point = &p;
        }
        return point != nullptr || run_.points.empty() ? point : &run_.points.front();
    }

    // Of a technology whose switches are too small for a rail.
    std::string beyond(double dark_ms, std::uint32_t ports) const {
        const Technology* t = technology_at(dark_ms);
        if (t == nullptr || t->ports == 0 || run_.nodes * ports <= t->ports) return "";
        return ", if one had the " + std::to_string(run_.nodes * ports) + " ports that a rail needs (they have " +
               std::to_string(t->ports) + "),";
    }

    // The best that other ports give at a dark time; with a split that never moves, or with circuits that do.
    struct Other {
        const Alternative* with = nullptr;
        std::string how;  // empty: by the split
        double loss = 0;
    };
    std::optional<Other> best_other(std::size_t point) const {
        std::optional<Other> best;
        for (const Alternative& a : run_.alternatives) {
            if (a.unserved.matters()) continue;
            const auto take = [&](const std::string& how, std::optional<double> loss) {
                if (loss && (!best || *loss < best->loss - 1e-9)) best = Other{&a, how, *loss};
            };
            take("", loss_of(a.split.iteration_ms, run_));
            const Moved m = moved_of(a.points[point].demand_ms, a.points[point].provisioned_ms, run_);
            take(m.how(), m.loss);
        }
        return best;
    }
    static std::string text_of(const Other& other) {
        std::string text = "with " + ports_text(other.with->ports);
        if (!other.with->unserved.names.empty())
            text += " and a packet network for " + list_of(other.with->unserved.names);
        return other.how.empty() ? text + " and a static split of " + split_list(other.with->split)
                                 : text + ", " + other.how;
    }
    // What the job loses as it is: by moving, or by the split.
    std::optional<double> now(std::size_t point) const {
        auto loss = moved_at(run_.points[point]).loss;
        const auto split = loss_of(run_.split.iteration_ms, run_);
        if (split && (!loss || *split < *loss)) loss = split;
        return loss;
    }

    void in_part() {
        say(Conclusion::Answer::with_changes, "Only in part with " + ports_text(o_.ports) + ": " +
                                                  list_of(run_.unserved.names) + " (" +
                                                  percent_text(run_.unserved.share) + " of the bytes between nodes)" +
                                                  (run_.unserved.names.size() == 1 ? " needs" : " need") +
                                                  " more neighbours at a time than a GPU has ports, and would have to "
                                                  "go over a packet network (--packet-gbits plays one).");
        for (const Alternative& a : run_.alternatives)
            if (!a.unserved.matters() && a.ports > o_.ports) {
                std::string text = "With " + ports_text(a.ports) + " circuits serve every operation";
                for (std::size_t i = 0; i < a.points.size(); ++i)
                    if (const Moved m = moved_of(a.points[i].demand_ms, a.points[i].provisioned_ms, run_); m.loss)
                        text += (i == 0 ? ": it loses " : ", ") + percent_text(*m.loss) + " at " +
                                dark_text(a.points[i].dark_ms);
                if (const auto split = loss_of(a.split.iteration_ms, run_))
                    text += "; with a static split of " + split_list(a.split) + " " + percent_text(*split);
                v_.changes.push_back(text + ".");
                return;
            }
        if (!run_.alternatives.empty())
            v_.changes.push_back(
                "None of the numbers of ports that were tried serves it all: up to " +
                ports_text(std::max_element(run_.alternatives.begin(), run_.alternatives.end(),
                                            [](const Alternative& a, const Alternative& b) { return a.ports < b.ports; })
                               ->ports) +
                ". More are played with --try-ports.");
    }

    // What the ports cannot serve and hardly matters.
    void beside() {
        if (run_.unserved.names.empty()) return;
        v_.changes.push_back("Let " + list_of(run_.unserved.names) +
                             " go over a packet network: " + (run_.unserved.names.size() == 1 ? "it needs" : "they need") +
                             " more neighbours at a time than a GPU has ports, for " +
                             (run_.unserved.share < 0.0005 ? "less than 0.1 %" : percent_text(run_.unserved.share)) +
                             " of the bytes between nodes.");
    }

    void otherwise() {
        std::optional<Other> best;
        double dark_ms = 0;
        const Point* fastest = nullptr;
        for (std::size_t i = 0; i < run_.points.size(); ++i) {  // of those that will do, the slowest switch
            const Point& p = run_.points[i];
            if (fastest == nullptr || p.dark_ms < fastest->dark_ms) fastest = &p;
            if (const auto other = best_other(i);
                other && other->loss <= accept_ && (!best || run_.points[i].dark_ms >= dark_ms))
                best = other, dark_ms = run_.points[i].dark_ms;
        }
        std::string as_it_is = "whatever switches the job comes to a halt";
        if (fastest != nullptr)
            if (const Moved m = moved_at(*fastest); m.loss)
                as_it_is = switch_text(fastest->dark_ms) + ", the fastest that were played, an iteration, " + m.how() +
                           ", " + loses(*m.loss);
        const std::string ports = ports_text(o_.ports);
        if (best)
            say(Conclusion::Answer::with_changes,
                "Not with " + ports + " (with " + as_it_is + "); " + text_of(*best) +
                    (best->how.empty() ? " and any switch"
                                       : " and " + switch_text(dark_ms) + beyond(dark_ms, best->with->ports)) +
                    ", it " + loses(best->loss) + ".");
        else
            say(Conclusion::Answer::no, "No. With " + ports + " and " + as_it_is +
                                            ", and nothing else that was played keeps within " + percent_text(accept_) +
                                            ".");
    }

    void more_ports() {
        constexpr std::size_t kTimes = 3;  // dark times that are spoken of: those that gain most
        struct Gain {
            std::size_t point = 0;
            double before = 0;
            Other other;
        };
        std::map<std::pair<std::uint32_t, std::string>, std::vector<Gain>> by_other;  // ports, and how
        for (std::size_t i = 0; i < run_.points.size(); ++i) {
            const auto before = now(i);
            const auto other = best_other(i);
            if (!before || !other || *before - other->loss < kWorthIt) continue;
            by_other[{other->with->ports, other->how}].push_back({i, *before, *other});
        }
        for (auto& [which, gains] : by_other) {
            std::stable_sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) {
                return a.before - a.other.loss > b.before - b.other.loss;
            });
            if (gains.size() > kTimes) gains.resize(kTimes);
            std::string text = "W" + text_of(gains.front().other).substr(1) + ", it loses ";
            for (const Gain& gain : gains)
                text += (&gain == &gains.front() ? "" : ", ") + percent_text(gain.other.loss) + " instead of " +
                        percent_text(gain.before) + " at " + dark_text(run_.points[gain.point].dark_ms);
            v_.changes.push_back(text + ".");
        }
    }

    void fewer_ports() {
        for (const Alternative& a : run_.alternatives) {
            if (a.ports >= o_.ports || a.unserved.matters() || run_.points.empty()) continue;
            std::string text;
            bool as_good = true;
            for (std::size_t i = 0; i < run_.points.size() && as_good; ++i) {
                const auto before = now(i);
                const auto after = moved_of(a.points[i].demand_ms, a.points[i].provisioned_ms, run_).loss;
                as_good = before && after && *after <= *before + kWorthIt;
                if (as_good)
                    text += (i == 0 ? "" : ", ") + percent_text(*after) + " instead of " + percent_text(*before) +
                            " at " + dark_text(run_.points[i].dark_ms);
            }
            if (!as_good) continue;
            v_.changes.push_back(ports_text(a.ports) + " will do, at the same bandwidth: it loses " + text + ".");
            return;
        }
    }

    void faster_switch() {
        const Point *slow = nullptr, *fast = nullptr;
        for (const Point& p : run_.points) {
            const auto loss = moved_at(p).loss;
            if (!loss) continue;
            if (*loss <= accept_ && (fast == nullptr || p.dark_ms > fast->dark_ms)) fast = &p;
            if (*loss > accept_ && (slow == nullptr || p.dark_ms < slow->dark_ms)) slow = &p;
        }
        if (slow == nullptr || fast == nullptr || fast->dark_ms > slow->dark_ms) return;
        v_.changes.push_back("Take " + switch_text(fast->dark_ms) + " or faster ones: it loses " +
                             percent_text(*moved_at(*fast).loss) + "; at " + dark_text(slow->dark_ms) + " " +
                             percent_text(*moved_at(*slow).loss) + ".");
    }

    void where_it_waits() {
        const Point* last = nullptr;
        for (const Point& p : run_.points)
            if (last == nullptr || p.dark_ms > last->dark_ms) last = &p;
        if (last == nullptr || !last->provisioned_answers.any) return;
        const DarkPhase* most = nullptr;
        double sum = 0;
        for (const DarkPhase& phase : last->provisioned_answers.rails.phases) {
            sum += phase.exposed_ms;
            if (most == nullptr || phase.exposed_ms > most->exposed_ms) most = &phase;
        }
        if (sum <= 0 || most == nullptr) return;
        v_.changes.push_back("At " + dark_text(last->dark_ms) + ", provisioned, " + percent_text(most->exposed_ms / sum) +
                             " of the dark time that is waited for is before " + run_.labels[most->label] +
                             ": a longer window before it, or a circuit of its own, gains most.");
    }

    void left_to_gain() {
        const Point* p = v_.point;
        if (p == nullptr || p->best_ms <= 0) return;
        const auto loss = loss_of(p->provisioned.iteration_ms, run_), best = loss_of(p->best_ms, run_);
        const auto demand = loss_of(p->demand.iteration_ms, run_);
        const double least = demand && loss ? std::min(*demand, *loss) : 0;
        if (loss && demand && *loss - *demand > kWorthIt)
            v_.changes.push_back("Provisioning does not pay at " + dark_text(p->dark_ms) + ": on demand it loses " +
                                 percent_text(*demand) + ", provisioned " + percent_text(*loss) + ".");
        const bool moves = run_.split.iteration_ms == 0 || p->best_ms < run_.split.iteration_ms;
        if (loss && best && moves && least - *best > kWorthIt)
            v_.changes.push_back("At " + dark_text(p->dark_ms) +
                                 " a better order of moves is known than the controller finds: " + percent_text(*best) +
                                 " instead of " + percent_text(least) + ".");
    }

    const Run& run_;
    const RunOptions& o_;
    double accept_;
    Conclusion v_;
};

}  // namespace

Conclusion conclusion_of(const Run& run, const RunOptions& options, double accept) {
    return Judge(run, options, accept).judge();
}

}  // namespace opus::job
