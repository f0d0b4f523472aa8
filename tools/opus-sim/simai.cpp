// SimAI's workload text, which ASTRA-sim 1 had before: a line of degrees, the number of layers, a line a layer: name, an unused
// number, then compute time (ns), operation and bytes for the forward pass, the inputs' gradients, the weights' gradients, and a time
// of the update. All ranks do the same. Forward layer by layer, backward in the opposite order; the weights' operations run beside.
#include <algorithm>
#include <map>

#include "tools/opus-sim/job_file.h"
#include "tools/opus-sim/parallel_groups.h"
#include "tools/opus-sim/text_lines.h"
#include "tools/replay/workload_builder.h"

namespace opus::job {
namespace {

using replay::StepKind;

constexpr std::uint64_t kMostBytes = 1ull << 46, kMostNs = 1ull << 50, kMostLayers = 1u << 20;

struct Pass {
    std::uint64_t ns = 0, bytes = 0;
    std::string operation;
};
struct Layer {
    std::string name;
    Pass forward, inputs, weights;
    std::uint32_t line = 0;
};

class LayerReader {
public:
    explicit LayerReader(const NamedText& file) : file_(file), lines_(file) {}

    JobFile read(const ReadOptions& options) {
        degrees();
        if (!lines_.next()) lines_.fail("the number of layers should follow: the file was cut short?");
        const std::uint64_t count = lines_.whole(lines_.fields(" \t", false).front(), "the number of layers", kMostLayers);
        while (layers_.size() < count && lines_.next()) layer();
        if (layers_.empty()) lines_.fail("there is no layer: the file was cut short");
        if (layers_.size() < count)  // as some that are published do
            job_.assumed.push_back("line 2 says " + std::to_string(count) + " layers, and there are " +
                                   std::to_string(layers_.size()) +
                                   ": those that are there are the job, unless the file was cut short");
        if (lines_.next()) lines_.fail("there are more layers than the " + std::to_string(count) + " that line 2 says");
        job_.format = "SimAI workload";
        const std::uint32_t gpus = choose_gpus_per_node(groups_.world(), groups_.of_tensor(), options, job_.assumed);
        replay::WorkloadBuilder b(file_.name.substr(file_.name.rfind('/') + 1), 0, 0, 1);
        for (std::uint32_t r = 0; r < groups_.world(); ++r) b.workload().places.push_back({r / gpus, r % gpus});
        if (groups_.tensor > 1) b.comm("tensor", "", groups_.of_tensor());
        if (groups_.data > 1) b.comm("data", "", groups_.of_data());
        if (groups_.expert > 1) b.comm("expert", "", groups_.of_expert());
        if (groups_.data > groups_.expert) b.comm("expert-data", "", groups_.of_expert_data());
        b.role("all", groups_.of_all().front());
        passes(b);
        job_.workload = std::move(b.workload());
        job_.figures.files = 1, job_.figures.ranks = groups_.world(), job_.figures.entries = layers_.size();
        count_workload(job_.workload, job_.figures);
        if (groups_.pipeline > 1)
            job_.assumed.push_back("the file does not say when pipeline stages send to each other: its " +
                                   std::to_string(groups_.pipeline) + " stages run side by side, without transfers");
        return std::move(job_);
    }

private:
    void degrees() {
        if (!lines_.next()) throw BadFile(file_.name, "", "it is empty");
        const std::vector<std::string_view> f = lines_.fields(" \t", false);
        if (f.front() == "MICRO")
            lines_.fail(
                "it is a list of single operations to measure (MICRO), which does not say how many GPUs do them: it is "
                "no "
                "job; give a workload whose first line has the degrees (HYBRID_TRANSFORMER_FWD_IN_BCKWD "
                "model_parallel_NPU_group: ...)");
        if (f.front() != "HYBRID_TRANSFORMER_FWD_IN_BCKWD" && f.front() != "HYBRID_TRANSFORMER")
            lines_.fail("the parallelism " + std::string(f.front().substr(0, 60)) +
                        " is not served; HYBRID_TRANSFORMER and HYBRID_TRANSFORMER_FWD_IN_BCKWD are");
        std::map<std::string_view, std::string_view> given;
        for (std::size_t i = 1; i + 1 < f.size(); ++i)
            if (f[i].ends_with(':')) given[f[i].substr(0, f[i].size() - 1)] = f[i + 1];
        const auto degree = [&](const char* name, std::uint64_t otherwise) {
            const auto at = given.find(name);
            const std::uint64_t n = at == given.end() ? otherwise : lines_.whole(at->second, name, kMostBytes);
            if (n == 0 || n > replay::kMaxWorld)
                lines_.fail(std::string(name) + " must be from 1 to " + std::to_string(replay::kMaxWorld));
            return static_cast<std::uint32_t>(n);
        };
        groups_.tensor = degree("model_parallel_NPU_group", 1);
        groups_.pipeline = degree("pp", 1);
        groups_.expert = degree("ep", 1);
        const std::uint32_t all = degree("all_gpus", groups_.tensor * groups_.pipeline * groups_.expert);
        const std::uint64_t one = std::uint64_t{groups_.tensor} * groups_.pipeline;
        if (all % one != 0 || all / one % groups_.expert != 0)
            lines_.fail("all_gpus: " + std::to_string(all) + " is no multiple of tensor " + std::to_string(groups_.tensor) +
                        " x pipeline " + std::to_string(groups_.pipeline) + " x expert " + std::to_string(groups_.expert));
        groups_.data = static_cast<std::uint32_t>(all / one);
        if (!given.contains("all_gpus"))
            job_.assumed.push_back("the file does not say how many GPUs there are: " + std::to_string(all));
    }

    void layer() {
        const std::vector<std::string_view> f = lines_.fields(" \t", false);
        if (f.size() != 12)
            lines_.fail("a layer has 12 fields, this line " + std::to_string(f.size()) + ": the file was cut short?");
        const auto pass = [&](std::size_t at) {
            return Pass{lines_.whole(f[at], "a compute time", kMostNs), lines_.whole(f[at + 2], "a size", kMostBytes),
                        std::string(f[at + 1])};
        };
        layers_.push_back({std::string(f[0]), pass(2), pass(5), pass(8), lines_.number});
        for (const Pass* p : {&layers_.back().forward, &layers_.back().inputs, &layers_.back().weights}) kind_of(*p);
    }

    static constexpr const char* kEnds[] = {"_DP_EP", "_EP"};

    StepKind kind_of(const Pass& pass) const {
        static const std::map<std::string_view, StepKind> kinds = {{"NONE", StepKind::end},
                                                                   {"ALLREDUCE", StepKind::all_reduce},
                                                                   {"ALLGATHER", StepKind::all_gather},
                                                                   {"REDUCESCATTER", StepKind::reduce_scatter},
                                                                   {"BROADCAST", StepKind::broadcast},
                                                                   {"ALLTOALL", StepKind::all_to_all}};
        std::string_view name = pass.operation;
        for (const std::string_view end : kEnds)
            if (name.ends_with(end)) {
                name.remove_suffix(end.size());
                break;
            }
        const auto found = kinds.find(name);
        if (found == kinds.end()) lines_.fail("an operation " + pass.operation + " is not known");
        return found->second;
    }

    void passes(replay::WorkloadBuilder& b) {
        for (const Layer& l : layers_) pass(b, l, l.forward, false);
        for (std::size_t i = layers_.size(); i-- > 0;) {
            pass(b, layers_[i], layers_[i].inputs, false);
            pass(b, layers_[i], layers_[i].weights, true);
        }
    }

    void pass(replay::WorkloadBuilder& b, const Layer& layer, const Pass& pass, bool weights) {
        left_ns_ += pass.ns;
        if (left_ns_ >= 1000) b.compute("compute", left_ns_ / 1000, layer.name);
        left_ns_ %= 1000;
        const StepKind kind = kind_of(pass);
        if (kind == StepKind::end || pass.bytes == 0) return;
        const bool both = pass.operation.ends_with("_DP_EP"), expert = !both && pass.operation.ends_with("_EP");
        const std::uint32_t size = both      ? groups_.data / groups_.expert
                                   : expert  ? groups_.expert
                                   : weights ? groups_.data
                                             : groups_.tensor;
        if (size < 2) return;
        const char* comm = both ? "expert-data" : expert ? "expert" : weights ? "data" : "tensor";
        const std::uint64_t bytes = kind == StepKind::all_gather ? pass.bytes / size : pass.bytes;
        if (weights) b.after(comm, "compute", "w" + std::to_string(events_++));
        b.collective(kind, comm, weights ? comm : "compute", bytes, replay::DType::uint8, layer.name);
    }

    NamedText file_;
    TextLines lines_;
    std::vector<Layer> layers_;
    ParallelGroups groups_;
    JobFile job_;
    std::uint64_t left_ns_ = 0, events_ = 0;
};

}  // namespace

JobFile read_simai(const NamedText& file, const ReadOptions& options) { return LayerReader(file).read(options); }

}  // namespace opus::job
