#include "tools/opus-sim/kineto_facts.h"

#include <algorithm>
#include <charconv>

namespace opus::job {
namespace {

using replay::StepKind;

std::string folded(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c != '_' && c != '-' && c != ' ') out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
}

// PyTorch's names of collectives, written small and without "_": what they begin with.
struct Spelling {
    std::string_view begins;
    StepKind kind;
};
constexpr Spelling kSpellings[] = {{"allreduce", StepKind::all_reduce},
                                   {"allgather", StepKind::all_gather},
                                   {"reducescatter", StepKind::reduce_scatter},
                                   {"alltoall", StepKind::all_to_all},
                                   {"broadcast", StepKind::broadcast},
                                   {"reduce", StepKind::reduce},
                                   {"gather", StepKind::gather},
                                   {"scatter", StepKind::scatter},
                                   {"send", StepKind::send},
                                   {"recv", StepKind::recv},
                                   {"barrier", StepKind::all_reduce}};

StepKind spelled(std::string_view text) {
    const std::string name = folded(text);
    for (const Spelling& s : kSpellings)
        if (name.starts_with(s.begins)) return s.kind;
    return StepKind::end;
}

std::uint64_t bytes_of_type(std::string_view type) {
    const std::string name = folded(type);
    struct Size {
        std::string_view name;
        std::uint64_t bytes;
    };
    constexpr Size sizes[] = {{"c10::half", 2},
                              {"c10::bfloat16", 2},
                              {"half", 2},
                              {"bfloat16", 2},
                              {"float16", 2},
                              {"float", 4},
                              {"float32", 4},
                              {"double", 8},
                              {"float64", 8},
                              {"int", 4},
                              {"int32", 4},
                              {"long", 8},
                              {"longint", 8},
                              {"int64", 8},
                              {"short", 2},
                              {"int16", 2},
                              {"byte", 1},
                              {"char", 1},
                              {"bool", 1},
                              {"int8", 1},
                              {"uint8", 1},
                              {"unsignedchar", 1},
                              {"signedchar", 1},
                              {"c10::float8e4m3fn", 1},
                              {"c10::float8e5m2", 1},
                              {"float8e4m3fn", 1},
                              {"float8e5m2", 1}};
    for (const Size& s : sizes)
        if (name == s.name) return s.bytes;
    return 0;
}

// Of "[[4, 2048], [3]]": elements of each list at the second level, summed. "[[]]": one.
std::uint64_t elements_of(std::string_view dims) {
    std::uint64_t sum = 0, product = 1;
    int depth = 0;
    bool inner = false;
    for (std::size_t i = 0; i < dims.size();) {
        const char c = dims[i];
        if (c == '[') {
            ++depth, product = 1, inner = true;
        } else if (c == ']') {
            if (inner && depth >= 2) sum += product;
            inner = false, --depth;
        } else if (c >= '0' && c <= '9') {
            std::uint64_t n = 0;
            for (; i < dims.size() && dims[i] >= '0' && dims[i] <= '9'; ++i)
                n = std::min<std::uint64_t>(n * 10 + static_cast<std::uint64_t>(dims[i] - '0'), 1ull << 31);
            product = std::min<std::uint64_t>(product * n, 1ull << 48);
            continue;
        }
        ++i;
    }
    return sum;
}

std::string_view first_string(std::string_view list) {
    const std::size_t from = list.find('"');
    const std::size_t to = from == std::string_view::npos ? from : list.find('"', from + 1);
    return to == std::string_view::npos ? std::string_view() : list.substr(from + 1, to - from - 1);
}

}  // namespace

void CollectiveFacts::add(const CollectiveFacts& other) {
    if (kind == StepKind::end) kind = other.kind;
    if (!has_bytes && other.has_bytes) bytes = other.bytes, has_bytes = true;
    if (group.empty()) group = other.group;
    if (ranks.empty()) ranks = other.ranks;
    if (peer == replay::kNobody) peer = other.peer;
}

bool is_nccl(std::string_view kernel) {
    return kernel.starts_with("nccl") || kernel.find("ncclDevKernel") != kernel.npos ||
           kernel.find("ncclKernel") != kernel.npos;
}

std::vector<std::uint32_t> numbers_of(std::string_view text) {
    std::vector<std::uint32_t> out;
    if (text.find("...") != text.npos) return out;  // PyTorch leaves out the middle of long lists
    for (const char *at = text.data(), *end = at + text.size(); at != end;) {
        if (*at < '0' || *at > '9') {
            ++at;
            continue;
        }
        std::uint32_t n = 0;
        const auto [after, error] = std::from_chars(at, end, n);
        if (error != std::errc() || n >= replay::kMaxWorld) return {};
        out.push_back(n);
        at = after;
    }
    return out;
}

CollectiveFacts facts_of_args(const NamedText& args) {
    CollectiveFacts f;
    std::string_view dims, types;
    std::uint64_t elements = 0, size = 0;
    bool has_elements = false;
    JsonScan scan(args);
    scan.object([&](std::string_view key) {
        if (key == "Collective name")
            f.kind = spelled(scan.string());
        else if (key == "In msg nelems")
            elements = scan.whole(), has_elements = true;
        else if (key == "dtype")
            size = bytes_of_type(scan.string());
        else if (key == "Process Group Name")
            f.group = scan.string();
        else if (key == "Process Group Ranks")
            f.ranks = numbers_of(scan.value());
        else if (key == "Src Rank" || key == "Dst Rank") {
            const std::vector<std::uint32_t> peer = numbers_of(scan.value());
            if (!peer.empty()) f.peer = peer.front();
        } else if (key == "Input Dims")
            dims = scan.value();
        else if (key == "Input type")
            types = scan.value();
        else
            scan.value();
    });
    if (has_elements && size != 0) f.bytes = std::min<std::uint64_t>(elements, 1ull << 48) * size, f.has_bytes = true;
    const std::uint64_t of_type = bytes_of_type(first_string(types));
    if (!f.has_bytes && of_type != 0) f.bytes = elements_of(dims) * of_type, f.has_bytes = true;
    return f;
}

CollectiveFacts facts_of_annotation(std::string_view name) {
    CollectiveFacts f;
    f.kind = spelled(name.substr(std::min<std::size_t>(name.size(), 5)));  // behind "nccl:"
    const std::size_t arrow = std::max(name.rfind("->") + 1, name.rfind("<-") + 1);
    if (arrow != 0 && (f.kind == StepKind::send || f.kind == StepKind::recv)) {
        const std::vector<std::uint32_t> peer = numbers_of(name.substr(arrow));
        if (!peer.empty()) f.peer = peer.front();
    }
    return f;
}

CollectiveFacts facts_of_kernel(std::string_view name) {
    CollectiveFacts f;
    for (const Spelling& s : kSpellings)
        for (std::size_t at = 0; f.kind == StepKind::end && (at = name.find('_', at)) != name.npos; ++at)
            if (folded(name.substr(at + 1, s.begins.size())) == s.begins &&
                !name.substr(at + 1).starts_with("SendRecv"))
                f.kind = s.kind;
    return f;
}

}  // namespace opus::job
