#include "tools/opus-sim/advice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace opus::job {
namespace {

constexpr double kWorthIt = 0.005;      // of an iteration: less is not spoken of
constexpr double kLongestDarkMs = 1e4;  // beyond, a technology moves between jobs, not in them

std::string ports_text(std::uint32_t ports) {
    return std::to_string(ports) + (ports == 1 ? " port" : " ports") + " a GPU";
}

const Technology* technology_at(double dark_ms) {
    for (const Technology& t : kTechnologies)
        if (static_cast<double>(t.dark_ns) / 1e6 == dark_ms) return &t;
    return nullptr;
}

std::string switch_text(double dark_ms) {
    const Technology* t = technology_at(dark_ms);
    if (t == nullptr) return "switches that are dark for " + dark_text(dark_ms) + " a move";
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
        const std::optional<double> split = loss_of(run_.split.iteration_ms, run_);
        for (const Technology& t : kTechnologies) v_.technologies.push_back(fit(t));
        for (const Point& p : run_.points)
            if (v_.point == nullptr || p.dark_ms < v_.point->dark_ms) v_.point = &p;
        for (const Point& p : run_.points) {
            const auto loss = loss_of(p.provisioned.iteration_ms, run_);
            if (loss && *loss <= accept_ && p.dark_ms >= v_.point->dark_ms) v_.point = &p;
        }
        const auto loss = v_.point == nullptr ? std::nullopt : loss_of(v_.point->provisioned.iteration_ms, run_);
        const bool moves = loss && *loss <= accept_;
        if (!run_.unserved.empty())
            in_part();
        else if (split && *split <= accept_)
            say(Conclusion::Answer::yes,
                "Yes, with " + ports_text(o_.ports) +
                    " and circuits that never move during the job (a patch panel or the slowest switch will do): an "
                    "iteration " +
                    loses(*split) + (moves ? "; with " + switch_text(v_.point->dark_ms) + " it " + loses(*loss) : "") +
                    ".");
        else if (moves)
            say(Conclusion::Answer::yes, "Yes, with " + switch_text(v_.point->dark_ms) + " and " +
                                             ports_text(o_.ports) + ": an iteration " + loses(*loss) + ".");
        else
            otherwise(loss);
        if (run_.unserved.empty()) more_ports(), fewer_ports();
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

    // The best that other ports give at a dark time; with a split that never moves, or provisioned.
    struct Other {
        const Alternative* with = nullptr;
        bool split = false;
        double loss = 0;
    };
    std::optional<Other> best_other(std::size_t point) const {
        std::optional<Other> best;
        for (const Alternative& a : run_.alternatives) {
            if (!a.unserved.empty()) continue;
            const auto take = [&](bool split, std::optional<double> loss) {
                if (loss && (!best || *loss < best->loss - 1e-9)) best = Other{&a, split, *loss};
            };
            take(true, loss_of(a.split.iteration_ms, run_));
            take(false, loss_of(a.points[point].provisioned_ms, run_));
        }
        return best;
    }
    static std::string text_of(const Other& other) {
        std::string text = "with " + ports_text(other.with->ports);
        return other.split ? text + " and a static split of " + split_list(other.with->split) : text + ", provisioned,";
    }
    // What the job loses as it is: provisioned, or by the split.
    std::optional<double> now(std::size_t point) const {
        auto loss = loss_of(run_.points[point].provisioned.iteration_ms, run_);
        const auto split = loss_of(run_.split.iteration_ms, run_);
        if (split && (!loss || *split < *loss)) loss = split;
        return loss;
    }

    void in_part() {
        say(Conclusion::Answer::with_changes,
            "Only in part with " + ports_text(o_.ports) + ": " + list_of(run_.unserved) +
                (run_.unserved.size() == 1 ? " needs" : " need") +
                " more neighbours at a time than a GPU has ports, and would have to go over a packet network.");
        for (const Alternative& a : run_.alternatives)
            if (a.unserved.empty() && a.ports > o_.ports) {
                std::string text = "With " + ports_text(a.ports) + " circuits serve every operation";
                for (std::size_t i = 0; i < a.points.size(); ++i)
                    if (const auto loss = loss_of(a.points[i].provisioned_ms, run_))
                        text += (i == 0 ? ": provisioned it loses " : ", ") + percent_text(*loss) + " at " +
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

    void otherwise(std::optional<double> loss) {
        std::optional<Other> best;
        double dark_ms = 0;
        for (std::size_t i = 0; i < run_.points.size(); ++i)  // of those that will do, the slowest switch
            if (const auto other = best_other(i);
                other && other->loss <= accept_ && (!best || run_.points[i].dark_ms >= dark_ms))
                best = other, dark_ms = run_.points[i].dark_ms;
        const std::string as_it_is = loss ? "with " + ports_text(o_.ports) + " and " + switch_text(v_.point->dark_ms) +
                                                ", the fastest that were played, an iteration " + loses(*loss)
                                          : "it comes to a halt";
        if (best)
            say(Conclusion::Answer::with_changes, "Not as it is (" + as_it_is + "), but " + text_of(*best) + " it does" +
                                                      (best->split ? " with any switch" : " with " + switch_text(dark_ms)) +
                                                      ": an iteration " + loses(best->loss) + ".");
        else
            say(Conclusion::Answer::no,
                "No: " + as_it_is + ", and nothing else that was played keeps within " + percent_text(accept_) + ".");
    }

    void more_ports() {
        std::map<std::pair<std::uint32_t, bool>, std::string> said;  // ports, by a split
        for (std::size_t i = run_.points.size(); i-- > 0;) {
            const auto before = now(i);
            const auto other = best_other(i);
            if (!before || !other || *before - other->loss < kWorthIt) continue;
            std::string& text = said[{other->with->ports, other->split}];
            text += text.empty() ? "W" + text_of(*other).substr(1) + " it loses " : ", ";
            text += percent_text(other->loss) + " instead of " + percent_text(*before) + " at " +
                    dark_text(run_.points[i].dark_ms);
        }
        for (auto& [which, text] : said) v_.changes.push_back(text + ".");
    }

    void fewer_ports() {
        for (const Alternative& a : run_.alternatives) {
            if (a.ports >= o_.ports || !a.unserved.empty() || run_.points.empty()) continue;
            std::string text;
            bool as_good = true;
            for (std::size_t i = 0; i < run_.points.size() && as_good; ++i) {
                const auto before = now(i);
                const auto after = loss_of(a.points[i].provisioned_ms, run_);
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
            const auto loss = loss_of(p.provisioned.iteration_ms, run_);
            if (!loss) continue;
            if (*loss <= accept_ && (fast == nullptr || p.dark_ms > fast->dark_ms)) fast = &p;
            if (*loss > accept_ && (slow == nullptr || p.dark_ms < slow->dark_ms)) slow = &p;
        }
        if (slow == nullptr || fast == nullptr || fast->dark_ms > slow->dark_ms) return;
        v_.changes.push_back("Choose " + switch_text(fast->dark_ms) + ", none slower: it loses " +
                             percent_text(*loss_of(fast->provisioned.iteration_ms, run_)) + "; at " +
                             dark_text(slow->dark_ms) + " " +
                             percent_text(*loss_of(slow->provisioned.iteration_ms, run_)) + ".");
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
        if (loss && demand && *loss - *demand > kWorthIt)
            v_.changes.push_back("Provisioning does not pay at " + dark_text(p->dark_ms) + ": on demand it loses " +
                                 percent_text(*demand) + ", provisioned " + percent_text(*loss) + ".");
        if (loss && best && *loss - *best > kWorthIt)
            v_.changes.push_back("At " + dark_text(p->dark_ms) +
                                 " a better order of moves is known than the controller finds: " + percent_text(*best) +
                                 " instead of " + percent_text(*loss) + ".");
    }

    const Run& run_;
    const RunOptions& o_;
    double accept_;
    Conclusion v_;
};

}  // namespace

std::optional<double> loss_of(double iteration_ms, const Run& run) {
    if (iteration_ms <= 0 || run.electrical.iteration_ms <= 0) return std::nullopt;
    return iteration_ms / run.electrical.iteration_ms - 1;
}

std::string percent_text(double part) {
    char text[32];
    const double percent = std::abs(part) < 0.0005 ? 0.0 : 100 * part;  // no minus before a zero
    std::snprintf(text, sizeof text, std::abs(percent) < 100 ? "%.1f %%" : "%.0f %%", percent);
    return text;
}

std::string dark_text(double ms) {
    char text[32];
    if (ms > 0 && ms < 1e-3)
        std::snprintf(text, sizeof text, "%g ns", ms * 1e6);
    else if (ms > 0 && ms < 1)
        std::snprintf(text, sizeof text, "%g us", ms * 1e3);
    else if (ms < 1e4)
        std::snprintf(text, sizeof text, "%g ms", ms);
    else
        std::snprintf(text, sizeof text, "%g s", ms / 1e3);
    return text;
}

std::string split_list(const StaticSplit& split) {
    std::string text;
    for (std::size_t i = 0; i < split.circuits.size(); ++i) text += (i == 0 ? "" : "; ") + split.circuits[i];
    return text;
}

std::vector<double> with_technologies(std::vector<double> dark_ms) {
    for (const Technology& t : kTechnologies)
        if (static_cast<double>(t.dark_ns) / 1e6 <= kLongestDarkMs)
            dark_ms.push_back(static_cast<double>(t.dark_ns) / 1e6);
    std::sort(dark_ms.begin(), dark_ms.end());
    dark_ms.erase(std::unique(dark_ms.begin(), dark_ms.end()), dark_ms.end());
    return dark_ms;
}

Conclusion conclusion_of(const Run& run, const RunOptions& options, double accept) {
    return Judge(run, options, accept).judge();
}

}  // namespace opus::job
