// A recording: any line is taken or refused with words, and a summary can be told after whatever was taken.
#include <cstdint>
#include <string_view>

#include "controller/recording/recording.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::controller;
    Profile profile;
    RecordingReader reader;
    reader.read(R"({"format": "opus-recording", "version": 1})", profile);  // behind which the lines get anywhere
    std::string_view text(reinterpret_cast<const char*>(data), size);
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        reader.read(text.substr(0, end), profile);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    profile.summary();
    return 0;
}
