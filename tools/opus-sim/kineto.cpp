#include "tools/opus-sim/kineto.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "tools/opus-sim/kineto_events.h"

namespace opus::job {

using replay::kNobody;
using replay::StepKind;

namespace {

constexpr std::int64_t kLooseNs = 1000;  // times are of so little use below
constexpr std::int64_t kClocksAgreeNs = 1'000'000;

std::uint32_t number_at(const std::string& name, std::size_t at) {
    std::size_t end = at;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    const std::vector<std::uint32_t> numbers = numbers_of(std::string_view(name).substr(at, end - at));
    return numbers.empty() ? kNobody : numbers.front();
}

// "worker3_step_12.1694128201557.pt.trace.json", "rank3.json", "rank-3.Apr_03_18_51.json", "kineto_3.json".
std::uint32_t rank_of_name(const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const std::string before : {"rank", "worker"}) {
        const std::size_t at = name.find(before);
        if (at == std::string::npos) continue;
        std::size_t digit = at + before.size();
        if (digit < name.size() && (name[digit] == '_' || name[digit] == '-')) ++digit;
        if (const std::uint32_t rank = number_at(name, digit); rank != kNobody) return rank;
    }
    // The number that ends the name, and no date.
    const std::string stem = name.substr(0, name.find('.'));
    const std::size_t line = stem.rfind('_');
    const bool ends = line != std::string::npos && stem.find_first_not_of("0123456789", line + 1) == std::string::npos;
    return ends ? number_at(stem, line + 1) : kNobody;
}

// Lists the items of a rank, in the order in which they began.
class Lister {
public:
    explicit Lister(TraceRank& rank) : rank_(rank) {}

    std::int64_t computed_ns() const { return over_ns_; }

    void compute(const GpuWork& w) {
        if (w.end_ns <= over_ns_ && over_item_ != kNobody) return;  // beside something else that computes
        const std::int64_t start = over_item_ == kNobody ? w.start_ns : std::max(w.start_ns, over_ns_);
        if (start > over_ns_ || over_item_ == kNobody) wait(w, start);
        push(w, w.end_ns - start);
        over_ns_ = w.end_ns, over_item_ = last();
        computed_.emplace_back(w.end_ns, last());
    }

    void operation(const GpuWork& w, TraceItem item) {
        const std::uint32_t computed = computed_before(w.start_ns), other = ended_before(w.start_ns);
        const std::int64_t a = computed == kNobody ? begin_ns_ : end_of(computed),
                           b = other == kNobody ? begin_ns_ : ends_[other].first;
        const std::int64_t base = std::max(a, b);
        std::vector<std::uint32_t> needs;
        if (computed != kNobody) needs.push_back(computed_[computed].second);
        if (other != kNobody && b > a) needs.push_back(ends_[other].second);
        if (w.start_ns - base > kLooseNs && base != begin_ns_) {
            push(w, w.start_ns - base, needs);
            rank_.items.back().stream = kNextOnly;
            needs.clear();
        }
        item.place = w.event, item.ns = w.end_ns - w.start_ns;
        item.first_need = static_cast<std::uint32_t>(rank_.needs.size()),
        item.needs = static_cast<std::uint32_t>(needs.size());
        rank_.needs.insert(rank_.needs.end(), needs.begin(), needs.end());
        rank_.items.push_back(item);
        ends_.emplace_back(w.end_ns, last());
    }
    void begin(std::int64_t ns) { begin_ns_ = ns; }

private:
    std::uint32_t last() const { return static_cast<std::uint32_t>(rank_.items.size() - 1); }
    std::int64_t end_of(std::uint32_t computed) const { return computed_[computed].first; }

    void push(const GpuWork& w, std::int64_t ns, const std::vector<std::uint32_t>& needs = {}) {
        TraceItem item;
        item.ns = ns, item.place = w.event;
        item.first_need = static_cast<std::uint32_t>(rank_.needs.size()),
        item.needs = static_cast<std::uint32_t>(needs.size());
        rank_.needs.insert(rank_.needs.end(), needs.begin(), needs.end());
        rank_.items.push_back(item);
    }

    // Nothing computed until now: for what ended last in the meantime, or for the host.
    void wait(const GpuWork& w, std::int64_t start) {
        const std::int64_t before = over_item_ == kNobody ? begin_ns_ : over_ns_;
        const std::uint32_t other = ended_before(start);
        if (other != kNobody && ends_[other].first > before)
            return push(w, std::max<std::int64_t>(0, start - ends_[other].first), {ends_[other].second});
        if (start - before > kLooseNs) push(w, start - before);
    }

    std::uint32_t computed_before(std::int64_t ns) const {
        for (std::size_t i = computed_.size(); i-- > 0;)
            if (computed_[i].first <= ns + kLooseNs) return static_cast<std::uint32_t>(i);
        return kNobody;
    }
    // Of operations: the one that ended last.
    std::uint32_t ended_before(std::int64_t ns) const {
        std::uint32_t best = kNobody;
        const std::size_t few = std::min<std::size_t>(ends_.size(), 64);
        for (std::size_t i = ends_.size() - few; i < ends_.size(); ++i)
            if (ends_[i].first <= ns + kLooseNs && (best == kNobody || ends_[i].first >= ends_[best].first))
                best = static_cast<std::uint32_t>(i);
        return best;
    }

    TraceRank& rank_;
    std::int64_t begin_ns_ = 0, over_ns_ = 0;
    std::uint32_t over_item_ = kNobody;
    std::vector<std::pair<std::int64_t, std::uint32_t>> computed_, ends_;  // when, and which item
};

std::string key_of(const std::string& name, const std::vector<std::uint32_t>& ranks) {
    std::string key = name + ":";
    for (const std::uint32_t r : ranks) key += " " + std::to_string(r);
    return key;
}

}  // namespace

struct KinetoReader::Found {
    KinetoEvents events;
    std::string file;
};

bool is_kineto(std::string_view text) {
    const std::string_view head = text.substr(0, 4096);
    return head.find("\"traceEvents\"") != head.npos || head.find("\"deviceProperties\"") != head.npos ||
           head.find("\"distributedInfo\"") != head.npos ||
           (head.find("\"schemaVersion\"") != head.npos && text.find("\"traceEvents\"") != text.npos);
}

void KinetoReader::read(const NamedText& file) {
    Found found{scan_kineto(file), file.name};
    if (found.events.rank == kNobody) found.events.rank = rank_of_name(file.name);
    if (found.events.rank == kNobody)
        throw BadFile(file.name, "", "which rank's trace is it? It has no distributedInfo; call the file rank<N>.json");
    if (found.events.work.empty())
        throw BadFile(file.name, "", "there is nothing of a GPU in it; record with ProfilerActivity.CUDA");
    trace_.world = std::max({trace_.world, found.events.world, found.events.rank + 1});
    entries_ += found.events.count;
    steps_ = std::max(steps_, found.events.steps);
    TraceRank rank;
    rank.rank = found.events.rank, rank.file = file.name;
    build(found, rank);
    trace_.ranks.push_back(std::move(rank));
}

void KinetoReader::build(Found& found, TraceRank& rank) {
    const std::vector<GpuWork>& work = found.events.work;
    std::int64_t end = 0;
    Lister list(rank);
    list.begin(work.front().start_ns);
    auto& ends = ends_[rank.rank];
    for (const GpuWork& w : work) {
        end = std::max(end, w.end_ns);
        if (w.facts == kNobody) {
            list.compute(w);
            continue;
        }
        const CollectiveFacts& facts = found.events.facts[w.facts];
        const std::string place = "event " + std::to_string(w.event);
        if (facts.kind == StepKind::end && !found.events.launches.contains(w.correlation)) {
            ++unlaunched_;
            list.compute(w);
            continue;
        }
        if (facts.kind == StepKind::end)
            throw BadFile(found.file, place,
                          "which operation this NCCL kernel is of is not told; record with PyTorch 2.3 or newer");
        TraceItem item;
        item.kind = facts.kind, item.bytes = facts.bytes;
        no_bytes_ |= !facts.has_bytes;
        const std::uint32_t group = group_of(found, facts, place);
        const auto& members = trace_.groups[group];
        if (facts.kind == StepKind::send || facts.kind == StepKind::recv) {
            if (facts.peer >= members.size())
                throw BadFile(found.file, place,
                              "the other side of this transfer is not told; record with PyTorch 2.3 or newer");
            item.peer = members[facts.peer];
        } else if (members.size() < 2 && trace_.world != 0 && !members.empty()) {
            item.kind = StepKind::compute;  // alone
        } else {
            item.group = group;
            if (ends.size() <= group) ends.resize(group + 1);
            ends[group].push_back(w.end_ns);
        }
        list.operation(w, item);
    }
    span_ns_ = std::max(span_ns_, end - work.front().start_ns);
}

std::uint32_t KinetoReader::group_of(const Found& found, const CollectiveFacts& facts, const std::string& place) {
    std::vector<std::uint32_t> ranks = facts.ranks;
    const auto named = found.events.groups.find(facts.group);
    if (ranks.empty() && named != found.events.groups.end()) ranks = named->second;
    if (ranks.empty() && !facts.group.empty() && facts.group != "0" && !found.events.groups.empty())
        throw BadFile(found.file, place, "who is in process group " + facts.group + " is not told");
    no_groups_ |= ranks.empty();
    const auto [at, fresh] =
        groups_.try_emplace(key_of(facts.group, ranks), static_cast<std::uint32_t>(trace_.groups.size()));
    if (fresh) {
        for (const std::uint32_t r : ranks) trace_.world = std::max(trace_.world, r + 1);
        trace_.groups.push_back(std::move(ranks));
        trace_.group_names.push_back(facts.group.empty() ? "of all ranks" : facts.group);
    }
    return at->second;
}

JobTrace KinetoReader::trace() {
    JobTrace trace = trace_;
    for (auto& group : trace.groups)
        if (group.empty()) group.resize(trace.world), std::iota(group.begin(), group.end(), 0u);
    trace.ordered = trace.neighbours_share_nodes = true;
    return trace;
}

std::vector<std::string> KinetoReader::assumed(const JobTrace& checked) const {
    std::vector<std::string> said;
    if (no_groups_) said.emplace_back("the traces do not say who is in a process group: all ranks are in each");
    if (no_bytes_)
        said.emplace_back(
            "the traces do not say how much each NCCL kernel carried: those count as nothing but latency");
    if (unlaunched_ != 0)
        said.push_back(std::to_string(unlaunched_) +
                       " NCCL kernels do not say which operation they are of, and their launches are not in the traces "
                       "(recording began later): what they lasted counts as computation");
    if (steps_ > 1)
        said.push_back("the traces hold " + std::to_string(steps_) +
                       " steps of the job: what is called an iteration is all of them");
    // By the median, so that a rank that looked away once does not count.
    std::int64_t worst = 0;
    std::uint32_t whose = 0, against = 0;
    for (const auto& [rank, groups] : ends_)
        for (std::size_t g = 0; g < groups.size(); ++g) {
            const auto first = ends_.find(checked.groups[g].front());
            if (first == ends_.end() || first->first == rank || first->second.size() <= g) continue;
            const auto &mine = groups[g], &theirs = first->second[g];
            std::vector<std::int64_t> apart;
            for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) apart.push_back(mine[i] - theirs[i]);
            if (apart.empty()) continue;
            std::nth_element(apart.begin(), apart.begin() + static_cast<std::ptrdiff_t>(apart.size() / 2), apart.end());
            const std::int64_t median = apart[apart.size() / 2];
            if (std::abs(median) > std::abs(worst)) worst = median, whose = rank, against = first->first;
        }
    if (std::abs(worst) > kClocksAgreeNs)
        said.push_back("the clocks of ranks " + std::to_string(against) + " and " + std::to_string(whose) + " lie " +
                       std::to_string(std::abs(worst) / 1'000'000) +
                       " ms apart by the ends of their collectives: only times of one rank are compared, and ranks "
                       "meet where they call collectives");
    return said;
}

}  // namespace opus::job
