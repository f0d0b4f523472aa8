#include "tools/opus-sim/inflate.h"

#include <zlib.h>

#include <algorithm>

namespace opus::job {
namespace {

constexpr std::size_t kPiece = 1u << 20, kMost = 16ull << 30;

struct Stream {
    z_stream z{};
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { inflateEnd(&z); }
};

}  // namespace

std::string inflated(const NamedText& file) {
    Stream stream;
    z_stream& z = stream.z;
    if (inflateInit2(&z, 15 + 16) != Z_OK) throw BadFile(file.name, "", "there is no memory to unpack it");
    std::string out;
    std::size_t taken = 0;
    for (int result = Z_OK; result != Z_STREAM_END || taken < file.text.size();) {
        if (result == Z_STREAM_END) inflateReset(&z);  // another member follows
        const std::size_t piece = std::min(kPiece, file.text.size() - taken);
        z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(file.text.data() + taken));
        z.avail_in = static_cast<uInt>(piece);
        const std::size_t had = out.size();
        out.resize(had + 4 * kPiece);
        z.next_out = reinterpret_cast<Bytef*>(out.data() + had);
        z.avail_out = static_cast<uInt>(4 * kPiece);
        result = inflate(&z, Z_NO_FLUSH);
        taken += piece - z.avail_in;
        out.resize(out.size() - z.avail_out);
        const std::string place = "byte " + std::to_string(taken);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            throw BadFile(file.name, place, "it is damaged: gzip says so; copy it again");
        if (result != Z_STREAM_END && taken == file.text.size() && z.avail_out != 0)
            throw BadFile(file.name, place, "it was cut short; copy it again");
        if (out.size() > kMost) throw BadFile(file.name, place, "unpacked it is larger than 16 GiB");
    }
    return out;
}

}  // namespace opus::job
