#include "tools/opus-sim/chakra.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "tools/opus-sim/json_scan.h"
#include "tools/opus-sim/wire_scan.h"

namespace opus::job {

using replay::kNobody;
using replay::StepKind;

namespace {

enum NodeType : std::uint32_t {
    kMetadata = 1,
    kLoad = 2,
    kStore = 3,
    kCompute = 4,
    kSend = 5,
    kRecv = 6,
    kCollective = 7
};

// CollectiveCommType of et_def.proto, by number.
StepKind collective_of(std::uint64_t type) {
    static constexpr StepKind kinds[] = {StepKind::all_reduce, StepKind::reduce,         StepKind::all_gather,
                                         StepKind::gather,     StepKind::scatter,        StepKind::broadcast,
                                         StepKind::all_to_all, StepKind::reduce_scatter, StepKind::reduce_scatter,
                                         StepKind::all_reduce /* barrier */};
    return type < std::size(kinds) ? kinds[type] : StepKind::end;
}

// A barrier: an all-reduce of so much.
constexpr std::uint64_t kBarrier = 9, kBarrierBytes = 4;

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t h = 1469598103934665603ull;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    return h | 1;
}

constexpr std::uint64_t kMostCarried = 1ull << 50;  // of an operation; more is none that anybody meant

std::uint64_t whole_of(double value) { return value > 0 ? static_cast<std::uint64_t>(std::min(value, 1e18)) : 0; }

// Of an attribute: whatever of its kinds a number may have.
struct Attribute {
    std::string_view name, text;
    std::uint64_t number = 0;
    bool bad = false;
};

Attribute attribute_of(std::string_view record) {
    Attribute a;
    WireScan scan(record);
    while (scan.next()) {
        switch (scan.field) {
            case 1: a.name = scan.text; break;
            case 3: a.number = whole_of(scan.real()); break;
            case 5: a.number = whole_of(scan.little_real()); break;
            case 7:
            case 9:
            case 11:
            case 13:
            case 19:
            case 21:
            case 23:
            case 25:
            case 27: a.number = scan.number; break;
            case 15:
            case 17: a.number = static_cast<std::uint64_t>(scan.zigzag()); break;
            case 29: a.text = scan.text; break;
            default: break;  // lists, and what is none of ours
        }
    }
    a.bad = scan.bad();
    return a;
}

}  // namespace

struct ChakraReader::Node {
    std::uint64_t id = 0, start_us = 0, duration_us = 0;
    std::string_view name, group;
    std::uint64_t type = 0, operations = 0, tensor_bytes = 0, comm_type = 0, comm_bytes = 0, tag = 0;
    std::uint64_t source = 0, target = 0, root = 0;
    bool has_comm_type = false, on_host = false;
    std::uint32_t number = 0;
    std::string place() const {
        return "node " + std::to_string(number) + " (" + std::string(name.substr(0, 80)) + ")";
    }
};

std::vector<Communicator> read_communicators(const NamedText& file) {
    // Comments go; strings have none of ours.
    std::string text(file.text);
    for (std::size_t at = 0; (at = text.find("//", at)) != std::string::npos;)
        while (at < text.size() && text[at] != '\n') text[at++] = ' ';
    std::vector<Communicator> all;
    JsonScan scan({file.name, text});
    scan.object([&](std::string_view name) {
        Communicator c{std::string(name), {}};
        scan.array([&] {
            const std::uint64_t rank = scan.whole();
            if (rank >= replay::kMaxWorld) scan.fail("rank " + std::to_string(rank) + " is beyond what a job may have");
            c.second.push_back(static_cast<std::uint32_t>(rank));
        });
        std::vector<std::uint32_t> sorted = c.second;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
            scan.fail("a rank is twice in communicator " + c.first);
        all.push_back(std::move(c));
    });
    scan.finish();
    return all;
}

bool is_chakra(std::string_view text) {
    std::string_view record;
    WireScan scan(text);
    if (!scan.record(record) || record.empty()) return false;
    WireScan fields(record);
    bool some = false;
    while (fields.next()) some |= fields.field == 1 || fields.field == 2;
    return some && !fields.bad();
}

std::uint32_t chakra_rank(const std::string& path) {
    std::string name = path;
    for (const std::string_view packed : {".gz", ".xz", ".zst", ".bz2"})
        if (name.ends_with(packed)) name.resize(name.size() - packed.size());
    const std::size_t slash = name.rfind('/'), end = name.rfind('.');
    const std::size_t begin = end == std::string::npos || end == 0 ? std::string::npos : name.rfind('.', end - 1);
    std::uint32_t rank = kNobody;
    if (begin != std::string::npos && (slash == std::string::npos || begin > slash))
        std::from_chars(name.data() + begin + 1, name.data() + end, rank);
    if (rank >= replay::kMaxWorld) throw BadFile(path, "", "which rank's trace is it? Its name must be NAME.RANK.et");
    return rank;
}

ChakraReader::ChakraReader(std::vector<Communicator> communicators, std::uint32_t world, const ReadOptions& options)
    : options_(options) {
    for (auto& [name, ranks] : communicators) {
        for (const std::uint32_t r : ranks) world = std::max(world, r + 1);
        groups_[name] = static_cast<std::uint32_t>(trace_.groups.size());
        trace_.groups.push_back(std::move(ranks));
        trace_.group_names.push_back(name);
    }
    trace_.world = world;
}

void ChakraReader::read(const NamedText& file) {
    TraceRank rank;
    rank.rank = chakra_rank(file.name), rank.file = file.name;
    ids_.clear(), wanted_.clear(), host_ = false;
    WireScan scan(file.text);
    std::string_view record;
    scan.record(record);  // the metadata
    for (std::uint32_t number = 0; scan.record(record); ++number) node(record, number, rank);
    if (scan.bad())
        throw BadFile(
            file.name, "byte " + std::to_string(scan.at() - file.text.data()),
            "the record after node " + std::to_string(rank.items.size()) + " is cut short; copy the file again");
    entries_ += rank.items.size();
    link(rank);
    trace_.ranks.push_back(std::move(rank));
}

void ChakraReader::node(std::string_view record, std::uint32_t number, TraceRank& rank) {
    Node n;
    n.number = number;
    TraceItem item;
    item.place = number, item.first_need = static_cast<std::uint32_t>(wanted_.size());
    WireScan scan(record);
    bool bad = false;
    while (scan.next()) {
        switch (scan.field) {
            case 1: n.id = scan.number; break;
            case 2: n.name = scan.text; break;
            case 3: n.type = scan.number; break;
            case 4:
            case 5: {  // what must be over, of control and of data; packed, or one at a time
                const bool control = scan.field == 4;
                if (scan.type == 0) wanted_.push_back({scan.number, control});
                if (scan.type != 2) break;
                WireScan list(scan.text);
                for (std::uint64_t id = 0; list.bare(id);) wanted_.push_back({id, control});
                bad |= list.bad();
                break;
            }
            case 6: n.start_us = scan.number; break;
            case 7: n.duration_us = scan.number; break;
            case 10: {
                const Attribute a = attribute_of(scan.text);
                bad |= a.bad;
                if (a.name == "num_ops")
                    n.operations = a.number;
                else if (a.name == "tensor_size")
                    n.tensor_bytes = a.number;
                else if (a.name == "comm_type")
                    n.comm_type = a.number, n.has_comm_type = true;
                else if (a.name == "comm_size")
                    n.comm_bytes = std::min(a.number, kMostCarried);
                else if (a.name == "comm_tag")
                    n.tag = a.number;
                else if (a.name == "comm_src")
                    n.source = a.number;
                else if (a.name == "comm_dst")
                    n.target = a.number;
                else if (a.name == "root")
                    n.root = a.number;
                else if (a.name == "is_cpu_op")
                    n.on_host = a.number != 0;
                else if (a.name == "pg_name" || a.name == "comm_group")
                    n.group = a.text;
                break;
            }
            default: break;
        }
    }
    if (bad || scan.bad())
        throw BadFile(rank.file, "node " + std::to_string(number),
                      "it is no node of a Chakra trace; copy the file again");
    item.needs = static_cast<std::uint32_t>(wanted_.size() - item.first_need);
    span_ms_ = std::max(span_ms_, static_cast<double>(n.start_us + n.duration_us) / 1e3);
    operation(n, item, rank);
    ids_.push_back(n.id);
    rank.items.push_back(item);
}

void ChakraReader::operation(const Node& n, TraceItem& item, const TraceRank& rank) {
    item.ns = static_cast<std::int64_t>(std::min<std::uint64_t>(n.duration_us, 1ull << 40)) * 1000;
    if (n.on_host) item.stream = kHost, host_ = any_host_ = true;
    if (n.on_host && n.type >= kSend && n.type <= kCollective)
        return;  // the call; what it launches is a node of its own
    if (n.type == kSend || n.type == kRecv) {
        item.kind = n.type == kSend ? StepKind::send : StepKind::recv;
        item.peer = static_cast<std::uint32_t>(std::min<std::uint64_t>(n.type == kSend ? n.target : n.source, kNobody));
        item.same = n.tag | 1ull << 63, item.bytes = n.comm_bytes;
        return;
    }
    if (n.type == kCollective) {
        item.kind = collective_of(n.comm_type);
        if (!n.has_comm_type)
            throw BadFile(rank.file, n.place(),
                          "it is a collective, and has no comm_type that says which; convert it again");
        if (item.kind == StepKind::end)
            throw BadFile(rank.file, n.place(),
                          "its comm_type " + std::to_string(n.comm_type) + " is no collective of Chakra's (0 to 9)");
        item.group = group(n.group, n, rank);
        item.same = hash_of(n.name), item.bytes = n.comm_type == kBarrier ? kBarrierBytes : n.comm_bytes;
        item.peer = static_cast<std::uint32_t>(std::min<std::uint64_t>(n.root, kNobody));
        if (trace_.groups[item.group].size() < 2) item.kind = StepKind::compute, item.group = kNobody, item.ns = 0;
        return;
    }
    if (n.type == 0 || n.type > kCollective)
        throw BadFile(rank.file, n.place(), "its type " + std::to_string(n.type) + " is no type of node");
    if (item.ns != 0 || n.operations == 0) return;
    // As fast as arithmetic or memory allow.
    const double compute = static_cast<double>(n.operations) / (options_.tflops * 1e3);
    const double memory = static_cast<double>(n.tensor_bytes) / options_.memory_gbytes;
    item.ns = static_cast<std::int64_t>(std::min(std::max(compute, memory), 1e15));
    estimated_ = true;
}

std::uint32_t ChakraReader::group(std::string_view name, const Node& n, const TraceRank& rank) {
    const auto found = groups_.find(name);
    if (found != groups_.end()) return found->second;
    if (!name.empty())
        throw BadFile(
            rank.file, n.place(),
            "its communicator " + std::string(name.substr(0, 80)) +
                " is in no file of communicators; give the JSON file that came with the traces ({\"1\":[0,1],...})");
    if (world_group_ == kNobody) {
        world_group_ = static_cast<std::uint32_t>(trace_.groups.size());
        trace_.groups.emplace_back(trace_.world);
        std::iota(trace_.groups.back().begin(), trace_.groups.back().end(), 0u);
        trace_.group_names.emplace_back("of all ranks");
    }
    return world_group_;
}

// From ids to numbers of items.
void ChakraReader::link(TraceRank& rank) {
    std::unordered_map<std::uint64_t, std::uint32_t> number;
    number.reserve(ids_.size());
    for (std::uint32_t i = 0; i < ids_.size(); ++i)
        if (!number.emplace(ids_[i], i).second)
            throw BadFile(rank.file, "node " + std::to_string(i),
                          "its id " + std::to_string(ids_[i]) + " is that of another node too");
    rank.needs.reserve(wanted_.size());
    for (std::uint32_t i = 0; i < rank.items.size(); ++i) {
        TraceItem& item = rank.items[i];
        const auto from = static_cast<std::uint32_t>(rank.needs.size());
        for (std::uint32_t k = 0; k < item.needs; ++k) {
            const Need& need = wanted_[item.first_need + k];
            if (host_ && need.control) continue;  // who called it, which may be over later than it is
            const auto found = number.find(need.id);
            if (found != number.end()) {
                rank.needs.push_back(found->second);
                continue;
            }
            throw BadFile(
                rank.file, "node " + std::to_string(i),
                "it waits for node " + std::to_string(need.id) + ", which is not in the file; copy the file again");
        }
        item.first_need = from, item.needs = static_cast<std::uint32_t>(rank.needs.size()) - from;
    }
}

}  // namespace opus::job
