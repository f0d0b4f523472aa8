// Which format a file has, found by what is in it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/opus-sim/chakra.h"
#include "tools/opus-sim/inflate.h"
#include "tools/opus-sim/kineto.h"
#include "tools/opus-sim/recordings.h"

namespace opus::job {
namespace {

// A file in memory as long as somebody looks at it.
class Mapped {
public:
    explicit Mapped(const std::string& path) : path_(path) {
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat about {};
        if (fd < 0 || fstat(fd, &about) != 0) {
            if (fd >= 0) close(fd);
            throw BadFile(path, "", "it cannot be read: is the name right, and may you read it?");
        }
        size_ = static_cast<std::size_t>(about.st_size);
        if (size_ != 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        if (size_ == 0) throw BadFile(path, "", "it is empty");
        if (data_ == MAP_FAILED) throw BadFile(path, "", "it cannot be read");
        if (is_gzip({static_cast<const char*>(data_), size_}))
            unpacked_ = inflated({path, {static_cast<const char*>(data_), size_}});
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped() {
        if (data_ != nullptr && data_ != MAP_FAILED) munmap(data_, size_);
    }
    NamedText text() const {
        return {path_, unpacked_.empty() ? std::string_view(static_cast<const char*>(data_), size_)
                                         : std::string_view(unpacked_)};
    }

private:
    std::string path_, unpacked_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

enum class Format : std::uint8_t {
    workload,
    recording,
    chakra,
    communicators,
    kineto,
    simai,
    aicb,
    pytorch_graph,
    unknown
};

Format format_of(std::string_view text) {
    const std::size_t from = text.find_first_not_of(" \t\r\n");
    const std::string_view head = from == text.npos ? std::string_view() : text.substr(from, 4096);
    if (head.starts_with("HYBRID_") || head.starts_with("DATA") || head.starts_with("MODEL") || head.starts_with("MICRO"))
        return Format::simai;
    if (head.starts_with("[") && head.find("rank") != head.npos) return Format::aicb;
    if (head.starts_with("comm_type,")) return Format::aicb;
    if (head.starts_with("{")) {
        if (head.find("\"opus-recording\"") != head.npos) return Format::recording;
        if (head.substr(0, head.find('\n')).find("\"workload\":") != head.npos) return Format::workload;
        if (head.find("chakra") != head.npos && head.find("\"schema\"") != head.npos) return Format::pytorch_graph;
        if (is_kineto(text)) return Format::kineto;
        const std::size_t colon = head.find(':');
        if (colon != head.npos && head.find_first_not_of(" \t\r\n", colon + 1) == head.find('[', colon))
            return Format::communicators;
        return Format::unknown;
    }
    return is_chakra(text) ? Format::chakra : Format::unknown;
}

std::vector<std::string> in_folders(const std::vector<std::string>& paths) {
    std::vector<std::string> all;
    for (const std::string& path : paths) {
        if (!std::filesystem::is_directory(path)) {
            all.push_back(path);
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator(path)) {
            const std::string name = entry.path().filename().string();
            if (entry.is_regular_file() && !name.starts_with(".")) all.push_back(entry.path().string());
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

std::string common_name(const std::vector<std::string>& paths) {
    std::filesystem::path path(paths.front());
    if (paths.size() > 1 && path.has_parent_path()) path = path.parent_path();
    return path.filename().string();
}

JobFile from_trace(JobTrace trace, JobFile job, const ReadOptions& options) {
    check_trace(trace, options.fill, job.assumed);
    order_trace(trace);
    job.workload = workload_of(trace, choose_places(trace, options, job.assumed));
    return job;
}

JobFile read_chakra(const std::vector<std::string>& traces, const std::string& communicators, const ReadOptions& options) {
    std::vector<Communicator> groups;
    if (!communicators.empty()) groups = read_communicators(Mapped(communicators).text());
    ChakraReader reader(std::move(groups), static_cast<std::uint32_t>(traces.size()), options);
    for (const std::string& path : traces) reader.read(Mapped(path).text());
    JobFile job;
    job.format = "MLCommons Chakra execution traces";
    job.figures.files = static_cast<std::uint32_t>(traces.size()), job.figures.entries = reader.entries();
    job.figures.span_ms = reader.span_ms();
    if (reader.estimated()) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "computations without a time take what their operations take at %g TFLOP/s and %g GB/s "
                      "(--gpu-tflops, --gpu-memory-gbytes)",
                      options.tflops, options.memory_gbytes);
        job.assumed.emplace_back(text);
    }
    JobTrace trace = reader.trace();
    trace.name = common_name(traces);
    count_trace(trace, job.figures);
    return from_trace(std::move(trace), std::move(job), options);
}

JobFile read_kineto(const std::vector<std::string>& paths, const ReadOptions& options) {
    KinetoReader reader;
    for (const std::string& path : paths) reader.read(Mapped(path).text());
    JobFile job;
    job.format = "PyTorch profiler (Kineto) traces";
    job.figures.files = static_cast<std::uint32_t>(paths.size()), job.figures.entries = reader.entries();
    job.figures.span_ms = reader.span_ms();
    JobTrace trace = reader.trace();
    trace.name = common_name(paths);
    count_trace(trace, job.figures);
    job.assumed = reader.assumed(trace);
    return from_trace(std::move(trace), std::move(job), options);
}

JobFile read_recordings(const std::vector<std::string>& paths, const ReadOptions& options) {
    std::vector<std::unique_ptr<Mapped>> files;
    std::vector<NamedText> texts;
    for (const std::string& path : paths) {
        files.push_back(std::make_unique<Mapped>(path));
        texts.push_back(files.back()->text());
    }
    JobFile job = read_recorded(texts, options);
    if (job.workload.name == "recorded") job.workload.name = common_name(paths);
    return job;
}

}  // namespace

JobFile read_files(const std::vector<std::string>& paths, const ReadOptions& options) {
    const std::vector<std::string> files = in_folders(paths);
    if (files.empty()) throw BadFile(paths.empty() ? "." : paths.front(), "", "there is no file in it");
    std::vector<std::string> chakra, kineto, recordings, other;
    std::string communicators;
    Format single = Format::unknown;
    for (const std::string& path : files) {
        const Mapped file(path);
        switch (const Format format = format_of(file.text().text)) {
            case Format::chakra: chakra.push_back(path); break;
            case Format::kineto: kineto.push_back(path); break;
            case Format::recording: recordings.push_back(path); break;
            case Format::communicators:
                if (!communicators.empty())
                    throw BadFile(path, "",
                                  "it is a second file of communicators; " + communicators + " is one, too: give one");
                communicators = path;
                break;
            case Format::pytorch_graph:
                throw BadFile(
                    path, "",
                    "it is PyTorch's execution graph, which has no times: give the profiler's trace of the same rank");
            case Format::unknown:
                throw BadFile(path, "",
                              "its format is not known. Known are: Opus recordings, opus-replay workloads, Chakra "
                              "execution traces (NAME.RANK.et and the "
                              "JSON file of communicators), PyTorch profiler traces (JSON, gzip too), SimAI workloads, "
                              "AICB tables");
            default: other.push_back(path), single = format;
        }
    }
    if (!chakra.empty() + !kineto.empty() + !recordings.empty() + !other.empty() > 1 || other.size() > 1)
        throw BadFile(files.front(), "",
                      "these files are of more than one job, or of more than one format: give those of one job");
    if (!chakra.empty()) return read_chakra(chakra, communicators, options);
    if (!kineto.empty()) return read_kineto(kineto, options);
    if (!recordings.empty()) return read_recordings(recordings, options);
    if (other.empty()) throw BadFile(communicators, "", "this is a file of communicators; give the traces with it");
    const Mapped file(other.front());
    switch (single) {
        case Format::workload: return read_played(file.text());
        case Format::simai: return read_simai(file.text(), options);
        default: return read_aicb(file.text(), options);
    }
}

}  // namespace opus::job
