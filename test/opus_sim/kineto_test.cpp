// Traces of PyTorch's profiler: what is read of them, and what is said of bad ones.
#include <doctest/doctest.h>

#include <string>

#include "tools/opus-sim/kineto.h"
#include "tools/opus-sim/kineto_facts.h"
#include "tools/replay/dry_run.h"

using namespace opus;
using namespace opus::job;
using replay::StepKind;

namespace {

std::string kernel(const char* name, int stream, double ts, double dur, const std::string& more = "") {
    return R"({"ph":"X","cat":"kernel","name":")" + std::string(name) + R"(","pid":0,"tid":)" + std::to_string(stream) +
           R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) + R"(,"args":{"device":0,"stream":)" +
           std::to_string(stream) + R"(,"correlation":5)" + more + "}}";
}
std::string nccl(double ts, double dur, const char* what = "allreduce", int elements = 1024) {
    return kernel("ncclDevKernel_Generic_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, ts, dur,
                  R"(,"Collective name":")" + std::string(what) + R"(","In msg nelems":)" + std::to_string(elements) +
                      R"(,"dtype":"BFloat16","Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]")");
}
std::string file(int rank, const std::string& events) {
    return R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":)" + std::to_string(rank) +
           R"(,"world_size":2,"pg_config":[{"pg_name":"0","ranks":[0,1]}]},"traceEvents":[)" + events + "]}";
}
// 10 ms of computing; a reduction beside the second half of them; 2 ms more that wait for it.
std::string overlapped(int rank, double began = 1e9, double reduced_ms = 8) {
    return file(rank, kernel("gemm", 7, began, 5000) + "," + kernel("gemm", 7, began + 5000, 5000) + "," +
                          nccl(began + 5000, reduced_ms * 1000) + "," +
                          kernel("adam", 7, began + 5000 + reduced_ms * 1000, 2000));
}

JobTrace checked(KinetoReader& reader, bool fill = false) {
    JobTrace trace = reader.trace();
    std::vector<std::string> assumed;
    check_trace(trace, fill, assumed);
    return trace;
}
double lasts_ms(const replay::Workload& w, double operation_us) {
    replay::DryRunOptions o;
    o.latency_us = operation_us, o.bytes_per_us = 1e12;
    const replay::DryRun run = dry_run(w, o);
    REQUIRE(run.ended);
    return static_cast<double>(run.ends().back()) / 1e6;
}
std::string refused(const std::string& text) {
    try {
        KinetoReader reader;
        reader.read({"rank0.json", text});
        checked(reader, true);
    } catch (const BadFile& error) { return error.what(); }
    return "";
}

replay::Workload played(const JobTrace& trace) {
    std::vector<std::string> assumed;
    return workload_of(trace, choose_places(trace, {.gpus_per_node = 1}, assumed));
}

}  // namespace

TEST_CASE("what overlapped when it was recorded overlaps when it is played") {
    KinetoReader reader;
    reader.read({"a", overlapped(0)});
    reader.read({"b", overlapped(1)});
    const JobTrace trace = checked(reader);
    Figures f;
    count_trace(trace, f);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).calls == 2);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).bytes == 2 * 2048);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).recorded_ms == doctest::Approx(16));
    CHECK(reader.span_ms() == doctest::Approx(15));
    const replay::Workload w = played(trace);
    // As slow as then: as long as then. Faster: only what computes counts. Slower: all of it is waited for.
    CHECK(lasts_ms(w, 8000) == doctest::Approx(15).epsilon(0.01));
    CHECK(lasts_ms(w, 100) == doctest::Approx(12).epsilon(0.01));
    CHECK(lasts_ms(w, 20000) == doctest::Approx(27).epsilon(0.01));
}

TEST_CASE("time in which the host was late is kept, and time in which peers were waited for is not") {
    KinetoReader reader;
    const std::string late =
        kernel("gemm", 7, 1e9, 1000) + "," + kernel("gemm", 7, 1e9 + 4000, 1000) + "," + nccl(1e9 + 5000, 50'000);
    reader.read({"a", file(0, late)});
    reader.read({"b", file(1, late)});
    CHECK(lasts_ms(played(checked(reader)), 1000) == doctest::Approx(6).epsilon(0.01));
}

TEST_CASE("clocks that disagree are told of, and do not matter") {
    KinetoReader reader;
    reader.read({"a", overlapped(0, 1e9)});
    reader.read({"b", overlapped(1, 5e9)});
    const JobTrace trace = checked(reader);
    const std::vector<std::string> said = reader.assumed(trace);
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("4000000 ms apart") != std::string::npos);
    CHECK(lasts_ms(played(trace), 8000) == doctest::Approx(15).epsilon(0.01));
}

TEST_CASE("older traces tell of a collective by the annotation that launched it") {
    const std::string events =
        R"({"ph":"X","cat":"user_annotation","name":"nccl:_all_gather_base","pid":9,"tid":3,"ts":100,"dur":50,"args":{"Input Dims":[[4,8],[2]],"Input type":["c10::Half","c10::Half"]}},)"
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernelExC","pid":9,"tid":3,"ts":120,"dur":5,"args":{"correlation":5}},)" +
        kernel("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", 20, 200, 10);
    KinetoReader reader;
    reader.read({"a", file(0, events)});
    Figures f;
    count_trace(checked(reader, true), f);
    CHECK(f.operations.at({StepKind::all_gather, 2}).bytes == 2 * (32 + 2) * 2);
}

TEST_CASE("of the annotations that were under way on its thread a launch takes what it lacks, the outermost first") {
    const auto call = [](const char* name, int thread, int ts, int dur, int elements) {
        return R"({"ph":"X","cat":"user_annotation","name":")" + std::string(name) + R"(","pid":9,"tid":)" +
               std::to_string(thread) + R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) +
               R"(,"args":{"Input Dims":[[)" + std::to_string(elements) + R"(]],"Input type":["float"]}},)";
    };
    const std::string events =
        call("nccl:reduce", 4, 100, 900, 5) + call("nccl:all_to_all", 3, 10, 20, 6) +
        call("nccl:all_to_all", 3, 100, 300, 7) + call("nccl:broadcast", 3, 110, 50, 8) +
        call("nccl:all_gather", 3, 115, 2, 9) +
        R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":3,"ts":120,"dur":5,"args":{"correlation":5}},)" +
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 20, 500, 10);
    KinetoReader reader;
    reader.read({"a", file(0, events)});
    Figures f;
    count_trace(checked(reader, true), f);
    REQUIRE(f.operations.size() == 1);
    CHECK(f.operations.at({StepKind::all_to_all, 2}).bytes == 2 * 7 * 4);
}

TEST_CASE("kernels that were launched before recording began and say nothing count as computation") {
    const std::string launch =
        R"(,{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":3,"ts":120,"dur":5,"args":{"correlation":5}})";
    const std::string events =
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 20, 1e6, 3000) + "," + nccl(1e6 + 4000, 1000);
    KinetoReader reader;
    reader.read({"a", file(0, events)});
    const JobTrace trace = checked(reader, true);
    Figures f;
    count_trace(trace, f);
    CHECK(f.operations.size() == 1);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).calls == 2);
    const std::vector<std::string> said = reader.assumed(trace);
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("1 NCCL kernels do not say which operation") == 0);
    // Where the launch is there, more should be known.
    CHECK(refused(file(0, events + launch)).find("which operation") != std::string::npos);
}

TEST_CASE("where a trace does not say its rank, its name does, and no date in it") {
    const std::string trace = R"({"schemaVersion":1,"traceEvents":[)" + kernel("gemm", 7, 1, 1) + "]}";
    const auto rank = [&](const char* name) -> int {
        try {
            KinetoReader reader;
            reader.read({name, trace});
            return static_cast<int>(reader.trace().ranks.front().rank);
        } catch (const BadFile& error) {
            CHECK(std::string(error.what()).find("which rank's trace is it") != std::string::npos);
            return -1;
        }
    };
    CHECK(rank("a_7/rank3.json") == 3);
    CHECK(rank("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz") == 0);
    CHECK(rank("rank_12.json") == 12);
    CHECK(rank("worker5_step_12.1694128201557.pt.trace.json") == 5);
    CHECK(rank("x.tar/megatron_kineto_2.json") == 2);
    CHECK(rank("toy_train_6_2_kineto.json") == -1);
    CHECK(rank("trace.json") == -1);
}

TEST_CASE("names of collectives are understood in every spelling of PyTorch's") {
    CHECK(facts_of_annotation("nccl:all_reduce").kind == StepKind::all_reduce);
    CHECK(facts_of_annotation("nccl:_reduce_scatter_base").kind == StepKind::reduce_scatter);
    CHECK(facts_of_annotation("nccl:all_gather_into_tensor_coalesced").kind == StepKind::all_gather);
    CHECK(facts_of_annotation("nccl:all_to_all").kind == StepKind::all_to_all);
    CHECK(facts_of_annotation("nccl:reduce").kind == StepKind::reduce);
    CHECK(facts_of_annotation("nccl:send 0->3").peer == 3);
    CHECK(facts_of_annotation("nccl:recv 1<-12").peer == 12);
    CHECK(facts_of_kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)").kind == StepKind::reduce_scatter);
    CHECK(facts_of_kernel("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)").kind == StepKind::broadcast);
    CHECK(facts_of_kernel("ncclDevKernel_SendRecv(x)").kind == StepKind::end);
}

TEST_CASE("a trace that is cut short is refused with its byte, wherever it is cut") {
    const std::string whole = overlapped(0);
    for (std::size_t size = 1; size < whole.size(); size += 7) {
        CAPTURE(size);
        CHECK(refused(whole.substr(0, size)).find("rank0.json: byte") == 0);
    }
}

TEST_CASE("bad traces are refused in words") {
    CHECK(refused(R"({"schemaVersion":1})").find("traceEvents") != std::string::npos);
    CHECK(refused(file(0, "")).find("ProfilerActivity.CUDA") != std::string::npos);
    CHECK(refused(file(0, kernel("gemm", 7, 1, -4))).find("ends before it begins") != std::string::npos);
    CHECK(refused(file(70000, nccl(1, 1))).find("beyond") != std::string::npos);
    KinetoReader reader;
    reader.read({"a", file(0, nccl(1, 1))});
    CHECK_THROWS_WITH_AS(checked(reader), doctest::Contains("1 of 2"), BadFile);
    KinetoReader both;
    both.read({"a", file(0, nccl(1, 1) + "," + nccl(5, 1))});
    both.read({"b", file(1, nccl(1, 1))});
    CHECK_THROWS_WITH_AS(checked(both), doctest::Contains("rank 1 never joins"), BadFile);
}
