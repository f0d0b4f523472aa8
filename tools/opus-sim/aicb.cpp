// AICB's workload tables (aliyun/aicb): a section for each pipeline stage, or one for all ranks; a line for each
// operation, in the order of the program. What comes before the first epoch_end is set-up.
#include <algorithm>
#include <iterator>
#include <map>

#include "tools/opus-sim/job_file.h"
#include "tools/opus-sim/parallel_groups.h"
#include "tools/opus-sim/text_lines.h"
#include "tools/replay/workload_builder.h"

namespace opus::job {
namespace {

using replay::StepKind;

constexpr std::uint64_t kMostMessage = 1ull << 44;

struct Row {
    std::string type, group, stage, additional;
    std::uint64_t size = 1, bytes = 0, ns = 0;
    std::uint32_t line = 0;
};
struct Section {
    std::vector<std::uint32_t> ranks;
    std::vector<Row> rows;
    std::uint32_t line = 0;
};

std::string behind_dot(std::string_view text) {
    return std::string(text.substr(text.find('.') == text.npos ? 0 : text.find('.') + 1));
}

class TableReader {
public:
    explicit TableReader(const NamedText& file) : file_(file), lines_(file) {}

    JobFile read(const ReadOptions& options) {
        while (lines_.next()) line();
        if (sections_.empty() || sections_.back().rows.empty())
            throw BadFile(file_.name, "", "there is no operation in it: it was cut short?");
        degrees();
        job_.format = "AICB workload table";
        const std::uint32_t gpus = choose_gpus_per_node(groups_.world(), groups_.of_tensor(), options, job_.assumed);
        replay::WorkloadBuilder b(file_.name.substr(file_.name.rfind('/') + 1), 0, 0, 1);
        for (std::uint32_t r = 0; r < groups_.world(); ++r) b.workload().places.push_back({r / gpus, r % gpus});
        communicators(b);
        for (const Section& s : sections_) job_.figures.entries += s.rows.size();
        embeddings();
        for (std::uint32_t s = 0; s < sections_.size(); ++s) section(b, s);
        job_.workload = std::move(b.workload());
        job_.figures.files = 1, job_.figures.ranks = groups_.world();
        if (!computes_)
            job_.assumed.emplace_back("the table has no computations: operations follow each other at once");
        if (computes_) job_.assumed.emplace_back("times of computations are taken to be nanoseconds");
        count_workload(job_.workload, job_.figures);
        return std::move(job_);
    }

private:
    void line() {
        if (lines_.line.front() == '[') return header();
        if (lines_.line.starts_with("comm_type,")) return columns();
        if (sections_.empty())
            lines_.fail(
                "it does not say which ranks do this; put a line before it that does, such as [rank0 ~ rank7] for "
                "eight");
        const std::vector<std::string_view> f = lines_.fields(",", true);
        if (f.size() < 8)
            lines_.fail("an operation has at least 8 fields, this line " + std::to_string(f.size()) +
                        ": the file was cut short?");
        Row row{behind_dot(f[0]), behind_dot(f[1]), std::string(f[4]), std::string(f[7]), 1, 0, 0, lines_.number};
        if (f[2] != "None" && !f[2].empty()) row.size = lines_.whole(f[2], "comm_group_size", replay::kMaxWorld);
        if (row.type == "computation") {
            computes_ = true;
            if (f.size() > 8 && f[8] != "None" && !f[8].empty())
                row.ns = lines_.whole(f[8].substr(0, f[8].find('.')), "_elapsed_time", 1ull << 50);
        } else {
            row.bytes = f[3].empty() || f[3] == "None"
                            ? 0
                            : lines_.whole(f[3].substr(0, f[3].find('.')), "msg_size", kMostMessage);
        }
        sections_.back().rows.push_back(std::move(row));
    }

    // Tables of other versions of AICB, and of what it measured, have others.
    void columns() const {
        constexpr std::string_view known = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional";
        if (!lines_.line.starts_with(known))
            lines_.fail("its columns are not those of an AICB workload of a job, which begin with " +
                        std::string(known) + ": without the groups' sizes nothing can be played");
    }

    void header() {
        Section s;
        s.line = lines_.number;
        bool range = lines_.line.find('~') != std::string_view::npos;
        for (std::size_t at = 0; (at = lines_.line.find("rank", at)) != std::string_view::npos;) {
            at += 4;
            std::size_t end = at;
            while (end < lines_.line.size() && lines_.line[end] >= '0' && lines_.line[end] <= '9') ++end;
            const auto rank =
                static_cast<std::uint32_t>(lines_.whole(lines_.line.substr(at, end - at), "a rank", replay::kMaxWorld - 1));
            const std::uint32_t from = range && !s.ranks.empty() ? s.ranks.back() + 1 : rank;
            for (std::uint32_t r = from; r <= rank; ++r) s.ranks.push_back(r);
        }
        if (s.ranks.empty()) lines_.fail("a section must say which ranks it is of");
        const std::uint32_t expected = sections_.empty() ? 0 : sections_.back().ranks.back() + 1;
        for (std::size_t i = 0; i < s.ranks.size(); ++i)
            if (s.ranks[i] != expected + i)
                lines_.fail("rank " + std::to_string(expected + i) + " should follow, and rank " +
                            std::to_string(s.ranks[i]) + " does: is a rank missing?");
        if (!sections_.empty() && s.ranks.size() != sections_.front().ranks.size())
            lines_.fail("this stage has another number of ranks than the first");
        sections_.push_back(std::move(s));
    }

    void degrees() {
        const auto in_stage = static_cast<std::uint32_t>(sections_.front().ranks.size());
        std::uint64_t tensor = 0, data = 0, expert = 1;
        for (const Section& s : sections_)
            for (const Row& r : s.rows) {
                if (r.group == "tp_group") tensor = std::max(tensor, r.size);
                if (r.group == "dp_group") data = std::max(data, r.size);
                if (r.group == "ep_group") expert = std::max(expert, r.size);
            }
        if (tensor == 0) tensor = data == 0 ? 1 : in_stage / std::max<std::uint64_t>(1, data);
        groups_.pipeline = static_cast<std::uint32_t>(sections_.size());
        groups_.tensor = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, tensor));
        groups_.data = in_stage / groups_.tensor;
        groups_.expert = static_cast<std::uint32_t>(expert);
        if (groups_.data == 0 || in_stage % groups_.tensor != 0 || groups_.data % groups_.expert != 0 ||
            (data != 0 && data != groups_.data))
            throw BadFile(file_.name, "line " + std::to_string(sections_.front().line),
                          "its stages have " + std::to_string(in_stage) + " ranks, which groups of " +
                              std::to_string(tensor) + " tensor, " + std::to_string(data) + " data and " +
                              std::to_string(expert) + " expert parallel ranks do not divide: a rank is missing?");
    }

    void communicators(replay::WorkloadBuilder& b) {
        b.comm("all", "", groups_.of_all());
        if (groups_.tensor > 1) b.comm("tp_group", "", groups_.of_tensor());
        if (groups_.data > 1) b.comm("dp_group", "", groups_.of_data());
        if (groups_.expert > 1) b.comm("ep_group", "", groups_.of_expert());
        if (groups_.expert > 1 && groups_.data > groups_.expert) b.comm("ep_dp_group", "", groups_.of_expert_data());
        if (groups_.pipeline < 2) return;
        b.comm("pp_group", "", groups_.of_pipeline());
        b.comm("embedding_group", "", groups_.of_stages(0, groups_.pipeline - 1));
        for (std::uint32_t s = 0; s + 1 < groups_.pipeline; ++s)
            for (const char* way : {"next", "back"}) b.comm(way + std::to_string(s), "", groups_.of_stages(s, s + 1));
    }

    // The first stage and the last share them. AICB tells of them on the last only.
    void embeddings() {
        if (sections_.size() < 2) return;
        auto &first = sections_.front().rows, &last = sections_.back().rows;
        const auto shared = [](const Row& r) { return r.group == "embedding_group"; };
        std::vector<Row> missing;
        std::copy_if(last.begin(), last.end(), std::back_inserter(missing), shared);
        if (missing.empty() || std::any_of(first.begin(), first.end(), shared)) return;
        const auto end = std::find_if(first.begin(), first.end(), [](const Row& r) { return r.type == "epoch_end"; });
        first.insert(end, missing.begin(), missing.end());
        job_.assumed.push_back(std::to_string(missing.size()) +
                               " operations of embedding_group stand in the last stage only: the first stage joins "
                               "them when it has been set up");
    }

    void section(replay::WorkloadBuilder& b, std::uint32_t stage) {
        const Section& s = sections_[stage];
        b.role("stage" + std::to_string(stage), s.ranks);
        b.first_only(std::any_of(s.rows.begin(), s.rows.end(), [](const Row& r) { return r.type == "epoch_end"; }) &&
                     s.rows.front().stage.starts_with("init"));
        for (const Row& row : s.rows) {
            if (row.type == "epoch_end") {
                b.first_only(false);
                continue;
            }
            if (row.type == "computation") {
                left_ns_ += row.ns;
                if (left_ns_ >= 1000) b.compute("compute", left_ns_ / 1000, row.stage);
                left_ns_ %= 1000;
                continue;
            }
            if (row.type == "isend" || row.type == "irecv" || row.type == "send" || row.type == "recv")
                transfer(b, row, stage);
            else
                collective(b, row, stage);
        }
    }

    void transfer(replay::WorkloadBuilder& b, const Row& row, std::uint32_t stage) {
        const bool sends = row.type.ends_with("send"), next = row.additional.ends_with("next");
        if ((next ? stage + 1 >= groups_.pipeline : stage == 0) || !row.additional.starts_with(sends ? "send_" : "recv_"))
            fail(row, "stage " + std::to_string(stage) + " has nobody for '" + row.additional + "'");
        const bool forward = sends == next;
        const std::string comm = (forward ? "next" : "back") + std::to_string(next ? stage : stage - 1);
        const std::string event = comm + "." + row.type + std::to_string(events_++);
        if (sends) b.after(comm, "compute", event);
        b.transfer(sends ? StepKind::send : StepKind::recv, comm, next ? 1 : 0, comm, row.bytes, row.stage);
        if (!sends) b.after("compute", comm, event);
    }

    void collective(replay::WorkloadBuilder& b, const Row& row, std::uint32_t stage) {
        static const std::map<std::string, StepKind> kinds = {{"all_reduce", StepKind::all_reduce},
                                                              {"all_gather", StepKind::all_gather},
                                                              {"reduce_scatter", StepKind::reduce_scatter},
                                                              {"all_to_all", StepKind::all_to_all},
                                                              {"broadcast", StepKind::broadcast},
                                                              {"reduce", StepKind::reduce},
                                                              {"barrier", StepKind::all_reduce},
                                                              {"all_gather_into_tensor", StepKind::all_gather},
                                                              {"reduce_scatter_tensor", StepKind::reduce_scatter},
                                                              {"all_to_all_single", StepKind::all_to_all},
                                                              {"gather", StepKind::gather},
                                                              {"scatter", StepKind::scatter}};
        const auto kind = kinds.find(row.type);
        if (kind == kinds.end()) fail(row, "an operation '" + row.type + "' is not known");
        const std::uint64_t size = size_of(row);
        if (size < 2) return;
        if (row.size != size)
            fail(row, row.group + " has " + std::to_string(size) + " ranks here, not " + std::to_string(row.size));
        if (row.group == "embedding_group" && stage != 0 && stage + 1 != groups_.pipeline)
            fail(row, "stage " + std::to_string(stage) + " is not in embedding_group");
        const std::uint64_t bytes = row.type == "barrier"                  ? 4
                                    : kind->second == StepKind::all_gather ? row.bytes / size
                                                                           : row.bytes;
        b.collective(kind->second, row.group, "compute", bytes, replay::DType::uint8, row.stage);
    }

    std::uint64_t size_of(const Row& row) const {
        if (row.group == "all") return groups_.world();
        if (row.group == "tp_group") return groups_.tensor;
        if (row.group == "dp_group") return groups_.data;
        if (row.group == "ep_group") return groups_.expert;
        if (row.group == "ep_dp_group") return groups_.data / groups_.expert;
        if (row.group == "pp_group") return groups_.pipeline;
        if (row.group == "embedding_group") return groups_.pipeline > 1 ? 2 : 1;
        fail(row, "a group '" + row.group + "' is not known");
    }

    [[noreturn]] void fail(const Row& row, const std::string& text) const {
        throw BadFile(file_.name, "line " + std::to_string(row.line), text);
    }

    NamedText file_;
    TextLines lines_;
    std::vector<Section> sections_;
    ParallelGroups groups_;
    JobFile job_;
    bool computes_ = false;
    std::uint64_t left_ns_ = 0, events_ = 0;
};

}  // namespace

JobFile read_aicb(const NamedText& file, const ReadOptions& options) {
    JobFile job = TableReader(file).read(options);
    std::vector<replay::WorkloadError> errors;
    check_agreement(job.workload, errors);
    if (!errors.empty()) throw BadFile(file.name, "", errors.front().text);
    return job;
}

}  // namespace opus::job
