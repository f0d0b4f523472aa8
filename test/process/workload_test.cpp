#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tools/replay/dry_run.h"
#include "tools/replay/generate.h"
#include "tools/replay/layered_shape.h"
#include "tools/replay/pattern.h"
#include "tools/replay/pipeline_order.h"

using namespace opus::replay;

namespace {

std::string text_of(const Workload& w) {
    std::ostringstream out;
    write_workload(w, out);
    return out.str();
}
Workload read(const std::string& text, std::vector<WorkloadError>& errors) {
    std::istringstream in(text);
    return read_workload(in, errors);
}
std::vector<WorkloadError> errors_of(const std::string& lines) {
    std::vector<WorkloadError> errors;
    read(R"({"workload":1,"name":"t","places":[[0,0],[1,0]]}
{"comm":"c","groups":[[0,1]]}
{"role":"a","ranks":[0]}
{"role":"b","ranks":[1]}
)" + lines,
         errors);
    return errors;
}
bool mentions(const std::vector<WorkloadError>& errors, std::uint32_t line, const std::string& what) {
    for (const WorkloadError& e : errors)
        if (e.line == line && e.text.find(what) != std::string::npos) return true;
    return false;
}

}  // namespace

TEST_CASE("every generator writes a file that reads back the same and agrees with itself") {
    for (const Generator& g : generators()) {
        CAPTURE(g.name);
        const std::string once = text_of(g.make({}));
        CHECK(once == text_of(g.make({})));
        std::vector<WorkloadError> errors;
        const Workload back = read(once, errors);
        for (const WorkloadError& e : errors) FAIL_CHECK(e.line << ": " << e.text);
        CHECK(text_of(back) == once);
    }
}

TEST_CASE("pipelines of any depth and number of micro-batches agree") {
    for (const char* kind : {"pp", "interleaved", "zero-bubble"})
        for (std::uint32_t nodes = 1; nodes <= 6; ++nodes)
            for (std::uint32_t micro_batches = 1; micro_batches <= 9; ++micro_batches) {
                GenerateOptions o;
                o.nodes = nodes, o.gpus = 1, o.layers = 2, o.micro_batches = micro_batches;
                std::vector<WorkloadError> errors;
                read(text_of(generate(kind, o)), errors);
                for (const WorkloadError& e : errors)
                    FAIL_CHECK(kind << ", " << nodes << " stages, " << micro_batches << ": " << e.text);
            }
}

TEST_CASE("every mix agrees with itself, with interludes, rare optimizer steps and changing lengths") {
    for (const Generator& g : generators())
        for (std::uint32_t nodes : {1, 2, 3, 4, 8}) {
            CAPTURE(g.name);
            CAPTURE(nodes);
            GenerateOptions o;
            o.nodes = nodes, o.gpus = 2, o.layers = 3;
            o.optimizer_every = 2, o.evaluate_every = 3, o.checkpoint_every = 5, o.lengths = {1, 0.5, 2};
            std::vector<WorkloadError> errors;
            const std::string once = text_of(g.make(o));
            const Workload back = read(once, errors);
            for (const WorkloadError& e : errors) FAIL_CHECK(e.line << ": " << e.text);
            CHECK(text_of(back) == once);
        }
}

TEST_CASE("jobs that are drawn agree with themselves and run to their end, whatever the seed") {
    GenerateOptions o;
    DryRunOptions bright;
    bright.iterations = 8;  // every interlude but the rarest
    for (o.seed = 1; o.seed <= 150; ++o.seed) {
        CAPTURE(o.seed);
        const Workload w = generate("layered", o);
        const std::string once = text_of(w);
        CHECK(once == text_of(generate("layered", o)));
        std::vector<WorkloadError> errors;
        CHECK(text_of(read(once, errors)) == once);
        for (const WorkloadError& e : errors) FAIL_CHECK(e.line << ": " << e.text);
        CHECK(dry_run(w, bright).ended);
    }
}

TEST_CASE("every sort of job is drawn") {
    std::set<std::string> seen;
    const auto note = [&seen](const char* what, auto value) {
        seen.insert(what + std::to_string(static_cast<int>(value)));
    };
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        const LayeredShape s = draw_layered(seed);
        note("stages ", s.stages), note("replicas ", s.replicas), note("GPUs ", s.gpus);
        note("gpipe ", s.gpipe), note("order ", s.order), note("exchange ", s.exchange), note("sharding ", s.sharding);
        note("experts ", s.expert), note("ring of ", s.context), note("slow ", s.slow != kNobody);
        note("evaluates ", s.evaluate_every != 0), note("optimizer every ", s.optimizer_every), note("norm ", s.norm);
    }
    // 4 + 4 + 3 + 2 + 3 + 4 + 3 + 3 + 4 + 2 + 2 + 4 + 3
    CHECK(seen.size() == 41);
}

TEST_CASE("computation takes longer from some iteration on, where it is to") {
    GenerateOptions g;
    g.seed = 97;
    const Workload w = generate("layered", g);
    DryRunOptions o;
    o.iterations = 6;
    const auto as_ever = dry_run(w, o).ends();
    o.slower = 0.5, o.slower_from = 4;
    const auto ends = dry_run(w, o).ends();
    REQUIRE(ends.size() == 6);
    CHECK(ends[3] == as_ever[3]);
    CHECK(ends[5] - ends[4] > 5 * (as_ever[5] - as_ever[4]) / 4);
    CHECK(ends[5] - ends[4] <= 3 * (as_ever[5] - as_ever[4]) / 2);
}

TEST_CASE("groups that do not divide the nodes are refused") {
    GenerateOptions o;
    o.nodes = 4, o.pipeline = 3;
    CHECK_THROWS_AS(generate("3d", o), std::invalid_argument);
    o.pipeline = 0, o.expert = 3;
    CHECK_THROWS_AS(generate("ep", o), std::invalid_argument);
}

TEST_CASE("a stage holds no more activations than its order allows") {
    for (std::uint32_t stages : {2u, 4u, 8u})
        for (std::uint32_t stage = 0; stage < stages; ++stage) {
            const std::uint32_t micro_batches = 4 * stages;
            const auto most_held = [](const std::vector<Pass>& order, PassKind releases) {
                int held = 0, most = 0;
                for (const Pass& p : order) {
                    held += p.kind == PassKind::forward ? 1 : p.kind == releases ? -1 : 0;
                    most = std::max(most, held);
                }
                CHECK(held == 0);
                return static_cast<std::uint32_t>(most);
            };
            CHECK(most_held(one_forward_one_backward(stages, stage, micro_batches), PassKind::backward) == stages - stage);
            CHECK(most_held(zero_bubble(stages, stage, micro_batches), PassKind::weights) <= stages);
            CHECK(most_held(interleaved(stages, stage, micro_batches, 2), PassKind::backward) ==
                  2 * (stages - 1 - stage) + stages + 1);
        }
}

TEST_CASE("steps of every n-th iteration and lengths are drawn alike on all ranks") {
    Step s;
    s.every = 3;
    CHECK_FALSE(is_played(s, 0));
    CHECK(is_played(s, 2));
    CHECK(is_played(s, 5));
    Workload w;
    w.lengths = {0.5, 2};
    CHECK(length_of(w, s, 7) == 1);
    s.varies = true;
    int longer = 0;
    for (std::uint32_t i = 0; i < 100; ++i) longer += length_of(w, s, i) == 2;
    CHECK(longer > 20);
    CHECK(longer < 80);
    CHECK(longest(w, s) == 2);
}

TEST_CASE("the paper's job has the paper's volumes in the profile's order") {
    const Workload w = generate_llama3_8b({});
    REQUIRE(w.world() == 16);
    // Stage 0 of the profile without its first iteration's set-up: fwd, send, fwd, exchange, bwd, recv, gradients.
    std::string order;
    std::uint64_t gathered = 0, scattered = 0;
    for (const Step& s : unrolled(w.role_of(0).steps)) {
        if (s.first_only || !is_operation(s.kind) || w.comms[s.comm].name == "tp") continue;
        const char letter = s.kind == StepKind::all_gather       ? 'G'
                            : s.kind == StepKind::reduce_scatter ? 'S'
                            : s.kind == StepKind::send           ? '>'
                            : s.kind == StepKind::recv           ? '<'
                                                                 : 'r';
        order += letter;
        if (letter == 'G') gathered += s.bytes;
        if (letter == 'S') scattered += s.bytes;
        if (letter == '>' || letter == '<') CHECK(s.bytes == 64u << 20);
    }
    const std::string pass(17, 'G');
    CHECK(order == pass + '>' + pass + "><" + pass + '<' + std::string(17, 'S') + "rrrr");
    CHECK(gathered == 3 * 957ull << 20);
    CHECK(scattered == 3828ull << 20);
}

TEST_CASE("each mistake of a file is told with its line") {
    CHECK(mentions(errors_of("nonsense\n"), 5, "not a JSON object"));
    CHECK(mentions(errors_of(R"({"role":"z","do":"host","us":1})"), 5, "no such role"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"dance"})"), 5, "unknown step dance"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"all_reduce","comm":"x","stream":"s"})"), 5, "no communicator x"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"all_reduce","comm":"c"})"), 5, "needs a stream"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"host","us":-1})"), 5, "whole number"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"end"})"), 5, "end without repeat"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"group_begin"})"), 5, "without end"));
    CHECK(mentions(errors_of("{\"role\":\"a\",\"do\":\"repeat\",\"times\":9}\n{\"role\":\"a\",\"do\":\"end\"}"), 6,
                   "empty loop"));
}

TEST_CASE("programs that would hang any NCCL are refused") {
    CHECK(mentions(errors_of(R"({"role":"a","do":"all_reduce","comm":"c","stream":"s","bytes":8})"), 5, "disagree"));
    CHECK(mentions(errors_of(R"({"role":"a","do":"send","comm":"c","stream":"s","peer":1,"bytes":8})"), 5,
                   "no equal other side"));
    CHECK(mentions(errors_of(R"({"role":"b","do":"recv","comm":"c","stream":"s","peer":7,"bytes":8})"), 5,
                   "peer or root 7"));
    CHECK(errors_of("{\"role\":\"a\",\"do\":\"send\",\"comm\":\"c\",\"stream\":\"s\",\"peer\":1,\"bytes\":8}\n"
                    "{\"role\":\"b\",\"do\":\"recv\",\"comm\":\"c\",\"stream\":\"s\",\"peer\":0,\"bytes\":8}")
              .empty());
}

TEST_CASE("communicators are created and destroyed by all of their members, and used in between") {
    const std::string head = R"({"workload":1,"name":"t","iterations":4,"places":[[0,0],[1,0],[2,0]]}
{"comm":"all","groups":[[0,1,2]]}
{"comm":"pair","parent":"all","groups":[[0,1]],"later":true}
{"role":"a","ranks":[0,1]}
{"role":"b","ranks":[2]}
)";
    const auto step = [](const std::string& role, const std::string& what, const std::string& more = "") {
        return R"({"role":")" + role + R"(","do":")" + what + R"(","comm":"pair")" + more + "}\n";
    };
    const std::string use = R"(,"stream":"s","bytes":4)", twice = R"(,"every":2)";
    const auto found = [&](const std::string& lines) {
        std::vector<WorkloadError> errors;
        read(head + lines, errors);
        return errors;
    };
    CHECK(found(step("a", "create") + step("a", "all_reduce", use) + step("a", "destroy") + step("b", "create")).empty());
    CHECK(found(step("a", "create", twice) + step("a", "all_reduce", use + twice) + step("a", "destroy", twice) +
                step("b", "create", twice))
              .empty());
    CHECK(mentions(found(step("a", "create") + step("a", "destroy")), 6, "disagree on collective 0 of all"));
    CHECK(mentions(found(step("a", "all_reduce", use)), 6, "pair is not there"));
    CHECK(mentions(found(step("a", "create") + step("b", "create")), 6, "pair is there already"));
    CHECK(mentions(found(step("a", "create", twice) + step("a", "all_reduce", use) + step("a", "destroy", twice) +
                         step("b", "create", twice)),
                   7, "pair is not there"));
    CHECK(mentions(found(step("b", "destroy")), 6, "nothing to do with pair"));
    std::vector<WorkloadError> errors;
    const std::string whole = head + step("a", "create") + step("a", "destroy") + step("b", "create");
    CHECK(text_of(read(whole, errors)).find(R"("groups":[[0,1]],"later":true})") != std::string::npos);
}

TEST_CASE("a reduction of what the ranks give is what is expected, in every type and order") {
    for (int t = 0; t < 10; ++t)
        for (int r = 0; r < 4; ++r) {
            const auto type = static_cast<DType>(t);
            const auto reduction = static_cast<Reduction>(r);
            const std::vector<std::uint64_t> seeds = {3, 1, 4, 1, 5};
            const std::size_t count = 2 * kPeriod + 7;
            std::vector<unsigned char> all(count * size_of(type));
            Block::reduced(seeds, type, reduction, count).fill(all.data());
            CHECK_FALSE(Block::reduced(seeds, type, reduction, count).mismatch(all.data()));
            if (type != DType::int32) continue;
            std::vector<std::int32_t> sum(count, 0), one(count), must(count);
            std::memcpy(must.data(), all.data(), all.size());
            for (std::size_t rank = 0; rank < seeds.size(); ++rank) {
                Block::given(seeds[rank], type, reduction, rank, seeds.size(), count).fill(one.data());
                for (std::size_t e = 0; e < count; ++e)
                    sum[e] = rank == 0                      ? one[e]
                             : reduction == Reduction::sum  ? sum[e] + one[e]
                             : reduction == Reduction::prod ? sum[e] * one[e]
                             : reduction == Reduction::max  ? std::max(sum[e], one[e])
                                                            : std::min(sum[e], one[e]);
            }
            CHECK(sum == must);
        }
}

TEST_CASE("one wrong bit anywhere is found, by element") {
    const std::size_t count = 3 * kPeriod + 11;
    const Block block = Block::copied(99, DType::bfloat16, count);
    std::vector<unsigned char> data(block.bytes());
    block.fill(data.data());
    CHECK_FALSE(block.mismatch(data.data()));
    for (std::size_t element : {std::size_t{0}, kPeriod, count - 1}) {
        data[element * 2 + 1] ^= 0x10;
        REQUIRE(block.mismatch(data.data()));
        CHECK(*block.mismatch(data.data()) == element);
        data[element * 2 + 1] ^= 0x10;
    }
}

TEST_CASE("chunks that a transport swaps are found") {
    const Block block = Block::copied(7, DType::uint8, 1 << 20);
    std::vector<unsigned char> data(block.bytes());
    block.fill(data.data());
    std::swap_ranges(data.begin(), data.begin() + 65536, data.begin() + 131072);
    CHECK(block.mismatch(data.data()));
}

TEST_CASE("programs drawn at random agree with themselves, end where nothing is dark, and do what NCCL allows") {
    std::set<std::string> seen;
    GenerateOptions o;
    o.gpus = 2;
    for (o.seed = 1; o.seed <= 150; ++o.seed) {
        CAPTURE(o.seed);
        o.nodes = 2 + o.seed % 3;
        const std::string once = text_of(generate("random", o));
        CHECK(once == text_of(generate("random", o)));
        std::vector<WorkloadError> errors;
        const Workload w = read(once, errors);
        for (const WorkloadError& e : errors) FAIL_CHECK(e.line << ": " << e.text);
        CHECK(dry_run(w, {}).ended);
        for (const Comm& c : w.comms)
            for (const Comm& parent : w.comms)
                if (c.parent == parent.name && !parent.parent.empty()) seen.insert("split of a split");
        for (const Role& role : w.roles) {
            std::map<std::uint32_t, std::uint32_t> transfers;  // stream of the last, by communicator
            std::set<std::uint32_t> collectives, group;
            std::set<std::uint32_t> ended;
            bool grouped = false;
            for (const Step& s : role.steps) {
                if (s.kind == StepKind::create) seen.insert("communicator made in mid-job");
                if (s.kind == StepKind::create && !ended.empty()) seen.insert("communicator made after one has gone");
                if (s.kind == StepKind::create && ended.count(s.comm)) seen.insert("communicator made again");
                if (s.kind == StepKind::create && s.first_only) seen.insert("communicator made in the first iteration");
                if (s.kind == StepKind::destroy) ended.insert(s.comm);
                if (s.kind == StepKind::host && s.us >= 60'000'000) seen.insert("host that is busy for minutes");
                if (is_operation(s.kind) && s.first_only) seen.insert("use in the first iteration only");
                if (s.kind == StepKind::group_begin) grouped = true, group.clear();
                if (s.kind == StepKind::group_end) grouped = false;
                if (!is_operation(s.kind)) continue;
                group.insert(s.comm);
                if (grouped && group.size() > 1) seen.insert("group over several communicators");
                if (s.every > 1) seen.insert("odd iteration");
                const bool transfer = s.kind == StepKind::send || s.kind == StepKind::recv;
                if (transfer && s.bytes == 0) seen.insert("transfer of zero bytes");
                if (w.streams[s.stream] == "early") seen.insert("receive posted early");
                if (!transfer && !collectives.count(s.comm) && transfers.count(s.comm) && transfers[s.comm] == s.stream)
                    seen.insert("first collective after a transfer on its stream");
                transfer ? void(transfers[s.comm] = s.stream) : void(collectives.insert(s.comm));
            }
        }
    }
    CHECK(seen.size() == 12);
}
