// Which format a file has, found by what is in it; and a job read from its files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tools/opus-sim/chakra.h"
#include "tools/opus-sim/kineto.h"
#include "tools/opus-sim/other_files.h"
#include "tools/opus-sim/recordings.h"
#include "tools/opus-sim/unpack.h"

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
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped() {
        if (data_ != nullptr && data_ != MAP_FAILED) munmap(data_, size_);
    }
    NamedText text() const { return {path_, {static_cast<const char*>(data_), size_}}; }

private:
    std::string path_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

enum class Format : std::uint8_t { workload, recording, chakra, communicators, kineto, simai, aicb };

Format format_of(const NamedText& file) {
    const std::string_view text = file.text;
    const std::size_t from = text.find_first_not_of(" \t\r\n");
    const std::string_view head = from == text.npos ? std::string_view() : text.substr(from, 4096);
    if (head.starts_with("HYBRID_") || head.starts_with("DATA") || head.starts_with("MODEL") || head.starts_with("MICRO"))
        return Format::simai;
    if ((head.starts_with("[") && head.substr(0, head.find('\n')).find("rank") != head.npos && head.find('"') == head.npos) ||
        head.starts_with("comm_type,"))
        return Format::aicb;
    if (head.starts_with("{")) {
        if (head.find("\"opus-recording\"") != head.npos) return Format::recording;
        if (head.substr(0, head.find('\n')).find("\"workload\":") != head.npos) return Format::workload;
    }
    const std::string_view other = other_file(text);
    if (head.starts_with("{")) {
        if (is_kineto(text)) return Format::kineto;
        const std::size_t colon = head.find(':');
        if (other.empty() && colon != head.npos && head.find_first_not_of(" \t\r\n", colon + 1) == head.find('[', colon))
            return Format::communicators;
    }
    if (!other.empty()) throw BadFile(file.name, "", std::string(other));
    if (is_chakra(text)) return Format::chakra;
    throw BadFile(file.name, "",
                  "its format is not known. Known are: Opus recordings, opus-replay workloads, Chakra execution traces "
                  "(NAME.RANK.et and the JSON file of communicators), PyTorch profiler traces (JSON), SimAI workloads, "
                  "AICB tables; and archives of these (tar, zip, gzip, xz, zstd, bzip2)");
}

// The files of a job, unpacked, by format. Those of archives are unpacked again each time that they are looked at, so
// that no more than one is in memory.
class JobFiles {
public:
    explicit JobFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {
        for (const std::string& path : paths_)
            unpack(Mapped(path).text(), [&](const NamedText& file) {
                const Format format = format_of(file);
                std::vector<std::string>& same = names_[format];
                if (format == Format::communicators && !same.empty())
                    throw BadFile(file.name, "",
                                  "it is a second file of communicators; " + same.front() + " is one, too: give one");
                same.push_back(file.name);
                formats_.push_back(format);
            });
        if (formats_.empty()) throw BadFile(paths_.empty() ? "." : paths_.front(), "", "there is no file in it");
    }

    void each(Format wanted, const TakeFile& take) const {
        std::size_t next = 0, left = names(wanted).size();
        for (const std::string& path : paths_) {
            if (left == 0) return;
            unpack(Mapped(path).text(), [&](const NamedText& file) {
                if (next < formats_.size() && formats_[next++] == wanted) --left, take(file);
            });
        }
    }
    const std::vector<std::string>& names(Format format) const {
        static const std::vector<std::string> none;
        const auto at = names_.find(format);
        return at == names_.end() ? none : at->second;
    }
    std::uint32_t count(Format format) const { return static_cast<std::uint32_t>(names(format).size()); }
    // "FOLDER", or the name of the only file.
    std::string common_name(Format format) const {
        std::filesystem::path path(names(format).front());
        if (count(format) > 1 && path.has_parent_path()) path = path.parent_path();
        return path.filename().string();
    }

private:
    std::vector<std::string> paths_;
    std::vector<Format> formats_;  // in the order in which files are unpacked
    std::map<Format, std::vector<std::string>> names_;
};

JobFile from_trace(JobTrace trace, JobFile job, const ReadOptions& options) {
    check_trace(trace, options.fill, job.assumed);
    order_trace(trace);
    job.workload = workload_of(trace, choose_places(trace, options, job.assumed));
    return job;
}

JobFile read_chakra(const JobFiles& files, const ReadOptions& options) {
    std::vector<Communicator> groups;
    files.each(Format::communicators, [&](const NamedText& file) { groups = read_communicators(file); });
    ChakraReader reader(std::move(groups), files.count(Format::chakra), options);
    files.each(Format::chakra, [&](const NamedText& file) { reader.read(file); });
    JobFile job;
    job.format = "MLCommons Chakra execution traces";
    job.figures.files = files.count(Format::chakra), job.figures.entries = reader.entries();
    job.figures.span_ms = reader.span_ms();
    if (reader.estimated()) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "computations without a time take what their operations take at %g TFLOP/s and %g GB/s "
                      "(--gpu-tflops, --gpu-memory-gbytes)",
                      options.tflops, options.memory_gbytes);
        job.assumed.emplace_back(text);
    }
    if (reader.host())
        job.assumed.emplace_back(
            "the traces were made of PyTorch's: what the host does runs beside the GPU, and control dependencies, "
            "which "
            "say who called whom, are not waited for");
    JobTrace trace = reader.trace();
    trace.name = files.common_name(Format::chakra);
    count_trace(trace, job.figures);
    return from_trace(std::move(trace), std::move(job), options);
}

JobFile read_kineto(const JobFiles& files, const ReadOptions& options) {
    KinetoReader reader;
    files.each(Format::kineto, [&](const NamedText& file) { reader.read(file); });
    JobFile job;
    job.format = "PyTorch profiler (Kineto) traces";
    job.figures.files = files.count(Format::kineto), job.figures.entries = reader.entries();
    job.figures.span_ms = reader.span_ms();
    JobTrace trace = reader.trace();
    trace.name = files.common_name(Format::kineto);
    count_trace(trace, job.figures);
    job.assumed = reader.assumed(trace);
    return from_trace(std::move(trace), std::move(job), options);
}

JobFile read_recordings(const JobFiles& files, const ReadOptions& options) {
    std::vector<std::string> held;
    files.each(Format::recording, [&](const NamedText& file) { held.emplace_back(file.text); });
    std::vector<NamedText> texts;
    for (std::size_t i = 0; i < held.size(); ++i) texts.push_back({files.names(Format::recording)[i], held[i]});
    JobFile job = read_recorded(texts, options);
    if (job.workload.name == "recorded") job.workload.name = files.common_name(Format::recording);
    return job;
}

JobFile read_one(const JobFiles& files, Format format, const ReadOptions& options) {
    JobFile job;
    files.each(format, [&](const NamedText& file) {
        job = format == Format::workload ? read_played(file)
              : format == Format::simai  ? read_simai(file, options)
                                         : read_aicb(file, options);
    });
    return job;
}

}  // namespace

std::vector<std::string> files_in(const std::vector<std::string>& paths) {
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

std::string whole_text(const std::string& path, const std::string& remedy) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    if (file) text << file.rdbuf();
    std::string held = std::move(text).str();
    if (!file || text.bad() || held.empty()) throw BadFile(path, "", "it cannot be read, or is empty: " + remedy);
    return held;
}

JobFile read_files(const std::vector<std::string>& paths, const ReadOptions& options) {
    const std::vector<std::string> found = files_in(paths);
    if (found.empty()) throw BadFile(paths.empty() ? "." : paths.front(), "", "there is no file in it");
    const JobFiles files(found);
    std::vector<Format> formats;
    std::uint32_t jobs = 0;
    for (const Format f : {Format::chakra, Format::kineto, Format::recording, Format::workload, Format::simai, Format::aicb}) {
        if (files.count(f) == 0) continue;
        formats.push_back(f);
        const bool one_a_job = f == Format::workload || f == Format::simai || f == Format::aicb;
        jobs += one_a_job ? files.count(f) : 1;
    }
    if (jobs > 1)
        throw BadFile(found.front(), "",
                      "these files are of more than one job, or of more than one format: give those of one job");
    if (formats.empty())
        throw BadFile(files.names(Format::communicators).front(), "",
                      "this is a file of communicators; give the traces with it");
    switch (formats.front()) {
        case Format::chakra: return read_chakra(files, options);
        case Format::kineto: return read_kineto(files, options);
        case Format::recording: return read_recordings(files, options);
        default: return read_one(files, formats.front(), options);
    }
}

}  // namespace opus::job
