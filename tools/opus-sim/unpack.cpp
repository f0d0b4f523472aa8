#include "tools/opus-sim/unpack.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "tools/opus-sim/inflate.h"

namespace opus::job {
namespace {

constexpr std::size_t kMostUnpacked = 16ull << 30, kReadAtOnce = 4u << 20;
constexpr int kDeepest = 4;  // archives within archives

bool is_tar(std::string_view text) { return text.size() > 512 && text.substr(257, 5) == "ustar"; }
bool is_zip(std::string_view text) { return text.starts_with("PK\x03\x04"); }
bool is_zstd(std::string_view text) { return text.starts_with("\x28\xb5\x2f\xfd"); }
bool is_packed(std::string_view text) {
    return is_tar(text) || is_zip(text) || is_zstd(text) || text.starts_with(std::string_view("\xfd\x37zXZ\0", 6)) ||
           text.starts_with("BZh");
}

class Archive {
public:
    explicit Archive(const NamedText& file) : file_(file), reader_(archive_read_new(), &archive_read_free) {
        archive* a = reader_.get();
        archive_read_support_filter_xz(a), archive_read_support_filter_zstd(a), archive_read_support_filter_bzip2(a);
        archive_read_support_format_tar(a), archive_read_support_format_zip(a), archive_read_support_format_raw(a);
        check(archive_read_open_memory(a, file.text.data(), file.text.size()));
    }

    // The next file that is one: its path, empty where only a single file was packed. False at the end.
    bool next(std::string& path) {
        archive_entry* entry = nullptr;
        while (true) {
            const int result = archive_read_next_header(reader_.get(), &entry);
            if (result == ARCHIVE_EOF) return false;
            check(result);
            const char* name = archive_entry_pathname(entry);
            path = archive_format(reader_.get()) == ARCHIVE_FORMAT_RAW || name == nullptr ? "" : name;
            if (archive_format(reader_.get()) == ARCHIVE_FORMAT_RAW) return true;
            if (archive_entry_filetype(entry) == AE_IFREG && !path.substr(path.rfind('/') + 1).starts_with("."))
                return true;
        }
    }
    std::string content() {
        std::string out;
        while (true) {
            const std::size_t had = out.size();
            out.resize(had + kReadAtOnce);
            const la_ssize_t got = archive_read_data(reader_.get(), out.data() + had, kReadAtOnce);
            out.resize(had + static_cast<std::size_t>(std::max<la_ssize_t>(got, 0)));
            if (got < 0) check(static_cast<int>(got));
            if (got <= 0) return out;
            if (out.size() > kMostUnpacked) fail("unpacked it is larger than 16 GiB");
        }
    }

private:
    void check(int result) const {
        if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return;
        const char* said = archive_error_string(reader_.get());
        const std::string why = said == nullptr ? "" : said;
        if (is_zstd(file_.text) && why.find("too much memory") != why.npos)
            fail(
                "it was packed by zstd --long, with a window that is larger than 128 MiB; unpack it first: zstd -d "
                "--long=31 '" +
                file_.name + "'");
        if (why.find("runcated") != why.npos) fail("it was cut short; copy it again");
        fail("it is damaged (" + why + "); copy it again");
    }
    [[noreturn]] void fail(const std::string& text) const {
        const la_int64_t at = archive_filter_bytes(reader_.get(), -1);
        throw BadFile(file_.name, at > 0 ? "byte " + std::to_string(at) : "", text);
    }

    NamedText file_;
    std::unique_ptr<archive, decltype(&archive_read_free)> reader_;
};

void unpack(const NamedText& file, const TakeFile& take, int deep) {
    if (deep > kDeepest) throw BadFile(file.name, "", "archives lie too deep within each other; unpack it");
    if (is_gzip(file.text)) return unpack({file.name, inflated(file)}, take, deep + 1);
    if (!is_packed(file.text)) return take(file);
    Archive archive(file);
    std::string path;
    while (archive.next(path))
        unpack({path.empty() ? file.name : file.name + "/" + path, archive.content()}, take, deep + 1);
}

}  // namespace

void unpack(const NamedText& file, const TakeFile& take) { unpack(file, take, 0); }

}  // namespace opus::job
