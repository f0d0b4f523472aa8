// SimAI's and AICB's text, files that are packed, and which format a file has.
#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "tools/opus-sim/inflate.h"
#include "tools/opus-sim/job_file.h"

using namespace opus::job;
using opus::replay::StepKind;

namespace {

const std::string kSimai =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0 "
    "checkpoint_initiates: 0\n"
    "2\n"
    "attention\t-1\t1500\tALLGATHER\t4096\t700\tREDUCESCATTER\t4096\t800\tALLREDUCE\t8192\t100\n"
    "experts\t-1\t1500\tALLTOALL_EP\t2048\t1000\tALLTOALL_EP\t2048\t1000\tREDUCESCATTER_DP_EP\t1024\t100\n";

const std::string kAicb =
    "[ pp_stage0: [rank0, rank1, rank2, rank3] ]\n"
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n"
    "CommType.all_reduce,CommGroup.dp_group,2,8,init.model_setup,None,None,,None,None,None,1\n"
    "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n"
    "CommType.all_reduce,CommGroup.tp_group,2,64,forward.Linear,None,None,,None,None,None,1\n"
    "CommType.isend,CommGroup.pp_group,1,128,forward_step,None,None,send_next,None,None,None,1\n"
    "CommType.irecv,CommGroup.pp_group,1,128,backward_step,None,None,recv_next,None,None,None,1\n"
    "[ pp_stage1: [rank4, rank5, rank6, rank7] ]\n"
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n"
    "CommType.all_reduce,CommGroup.dp_group,2,8,init.model_setup,None,None,,None,None,None,1\n"
    "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n"
    "CommType.irecv,CommGroup.pp_group,1,128,forward_step,None,None,recv_prev,None,None,None,1\n"
    "CommType.all_gather,CommGroup.tp_group,2,64,forward.Linear,None,None,,None,None,None,1\n"
    "CommType.isend,CommGroup.pp_group,1,128,backward_step,None,None,send_prev,None,None,None,1\n";

template <class F>
std::string refusal(F&& read) {
    try {
        read();
    } catch (const BadFile& error) { return error.what(); }
    return "";
}
std::string simai(const std::string& text) {
    return refusal([&] { read_simai({"s.txt", text}, {}); });
}
std::string aicb(const std::string& text) {
    return refusal([&] { read_aicb({"a.csv", text}, {}); });
}
std::string without(std::string text, const std::string& what, const std::string& instead = "") {
    text.replace(text.find(what), what.size(), instead);
    return text;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string packed(const std::string& text) {
    z_stream z{};
    deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    std::string out(compressBound(text.size()) + 64, '\0');
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data())), z.avail_in = static_cast<uInt>(text.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = static_cast<uInt>(out.size());
    deflate(&z, Z_FINISH);
    out.resize(z.total_out);
    deflateEnd(&z);
    return out;
}

struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("opus-sim-test-" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name, std::ios::binary) << text;
        return (path / name).string();
    }
};

}  // namespace

TEST_CASE("a SimAI file is read: forward in order, backward in the opposite one, groups by their endings") {
    const JobFile job = read_simai({"s.txt", kSimai}, {});
    CHECK(job.workload.world() == 8);
    const auto& operations = job.figures.operations;
    CHECK(operations.at({StepKind::all_gather, 2}).calls == 8);
    CHECK(operations.at({StepKind::all_gather, 2}).bytes == 8 * 2048);  // what each of two gives
    CHECK(operations.at({StepKind::all_to_all, 2}).calls == 16);
    CHECK(operations.at({StepKind::all_reduce, 4}).calls == 8);  // over all replicas
    CHECK(operations.at({StepKind::reduce_scatter, 2}).calls == 16);
    CHECK(job.figures.compute_ms == doctest::Approx(8 * 0.0065).epsilon(0.2));
    std::vector<std::string> order;
    for (const auto& step : job.workload.roles.front().steps)
        if (is_operation(step.kind)) order.push_back(step.name + " " + name_of(step.kind));
    CHECK(order == std::vector<std::string>{"attention all_gather", "experts all_to_all", "experts all_to_all",
                                            "experts reduce_scatter", "attention reduce_scatter",
                                            "attention all_reduce"});
}

TEST_CASE("bad SimAI files are refused with their line") {
    CHECK(has(simai(""), "empty"));
    CHECK(has(simai("DATA x: 1\n1\n"), "line 1: the parallelism DATA"));
    CHECK(has(simai(kSimai.substr(0, kSimai.size() - 10)), "line 4"));
    CHECK(
        has(simai("MICRO\n1\nm\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t4096\t1\n"), "single operations to measure"));
    CHECK(has(simai(without(kSimai, "ALLTOALL_EP", "ALLTOSOME")), "line 4: an operation ALLTOSOME"));
    CHECK(has(simai(without(kSimai, "all_gpus: 8", "all_gpus: 7")), "line 1: all_gpus: 7 is no multiple"));
    CHECK(has(simai(without(kSimai, "4096", "4k")), "line 3: a size"));
    CHECK(has(simai(kSimai + "more\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tNONE\t0\t1\n"), "more layers than the 2"));
    CHECK(simai(kSimai).empty());
}

TEST_CASE("of a SimAI file's first line only the degrees must be whole numbers") {
    CHECK(simai(without(kSimai, "checkpoints: 0", "pp_comm: 8388608.0")).empty());
    CHECK(has(simai(without(kSimai, "ep: 2", "ep: 2.0")), "line 1: ep must be a whole number"));
}

TEST_CASE("broadcasts of a SimAI file are read") {
    const JobFile job = read_simai({"s.txt", without(kSimai, "ALLTOALL_EP", "BROADCAST")}, {});
    CHECK(job.figures.operations.count({StepKind::broadcast, 2}) == 1);
}

TEST_CASE("layers that a SimAI file announces and lacks are told of") {
    const JobFile job = read_simai({"s.txt", without(kSimai, "\n2\n", "\n9\n")}, {});
    REQUIRE(job.assumed.size() >= 1);
    CHECK(has(job.assumed[0], "line 2 says 9 layers, and there are 2"));
}

TEST_CASE("an AICB table is read: stages, groups, transfers between neighbours, set-up in the first iteration only") {
    const JobFile job = read_aicb({"a.csv", kAicb}, {});
    CHECK(job.workload.world() == 8);
    CHECK(job.workload.roles.size() == 2);
    CHECK(job.figures.operations.at({StepKind::send, 2}).calls == 8);
    CHECK(job.figures.operations.at({StepKind::recv, 2}).bytes == 8 * 128);
    CHECK(job.figures.operations.at({StepKind::all_gather, 2}).bytes == 4 * 32);
    CHECK(job.workload.roles[0].steps.front().first_only);
    CHECK(!job.workload.roles[0].steps.back().first_only);
}

TEST_CASE("entries of an AICB table are its lines, also where the first stage joins what the last one lists") {
    const std::string shared =
        "CommType.all_reduce,CommGroup.embedding_group,2,16,init.model_setup,None,None,,None,None,None,1\n";
    std::string table = kAicb;
    table.insert(table.rfind("CommType.epoch_end"), shared);
    const JobFile before = read_aicb({"a.csv", kAicb}, {}), job = read_aicb({"a.csv", table}, {});
    CHECK(job.figures.entries == before.figures.entries + 1);
    const auto calls = [](const JobFile& of) { return of.figures.operations.at({StepKind::all_reduce, 2}).calls; };
    CHECK(calls(job) == calls(before) + 8);  // four GPUs in each of the two stages
}

TEST_CASE("bad AICB tables are refused with their line") {
    CHECK(aicb(kAicb).empty());
    CHECK(has(aicb(without(kAicb, "rank6, ")), "line 8: rank 6 should follow"));
    CHECK(has(aicb(without(kAicb, "rank3] ]", "rank3, rank4] ]")), "line 8"));
    CHECK(has(aicb(without(kAicb, "send_prev", "send_next")), "line 14: stage 1 has nobody for 'send_next'"));
    CHECK(has(aicb(without(kAicb, ",128,", ",12x,")), "line 6: msg_size"));
    CHECK(has(aicb(without(kAicb, "all_gather", "all_hands")), "line 13: an operation 'all_hands'"));
    CHECK(has(aicb(without(kAicb, "comm_group_size,")), "its columns are not those"));
    CHECK(has(aicb(without(kAicb, "[ pp_stage0: [rank0, rank1, rank2, rank3] ]\n")),
              "line 2: it does not say which ranks do this"));
    CHECK(has(aicb(kAicb.substr(0, kAicb.rfind("CommType.isend"))), "no equal other side"));
    CHECK(has(aicb(kAicb.substr(0, kAicb.size() - 60)), "line 14"));
}

TEST_CASE("what gzip packed is unpacked, in several members too, and refused where it is cut short or damaged") {
    const std::string text(100'000, 'x');
    CHECK(inflated({"z", packed(text)}) == text);
    CHECK(inflated({"z", packed(text) + packed("y")}) == text + "y");
    std::string bad = packed(kAicb);
    CHECK(has(refusal([&] { inflated({"z.gz", bad.substr(0, bad.size() / 2)}); }), "cut short"));
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 0x55);
    CHECK(has(refusal([&] { inflated({"z.gz", bad}); }), "z.gz: byte"));
}

TEST_CASE("a format is found by what is in a file, packed or not") {
    const Folder folder;
    CHECK(read_files({folder.write("anything", kSimai)}, {}).format == "SimAI workload");
    CHECK(read_files({folder.write("else", packed(kAicb))}, {}).format == "AICB workload table");
    CHECK(has(refusal([&] { read_files({folder.write("x", "hello")}, {}); }), "its format is not known"));
    CHECK(has(refusal([&] { read_files({folder.write("x", "")}, {}); }), "it is empty"));
    CHECK(has(refusal([&] { read_files({(folder.path / "nothing").string()}, {}); }), "cannot be read"));
    CHECK(has(refusal([&] { read_files({folder.path.string()}, {}); }), "x: "));  // one of the files of the folder
    CHECK(has(refusal([&] {
                  read_files({folder.write("a", kSimai), folder.write("b", kAicb)}, {});
              }),
              "more than one"));
}
