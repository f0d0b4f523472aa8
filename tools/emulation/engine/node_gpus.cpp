#include "node_gpus.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

namespace opus::standin {
namespace {

std::vector<std::string> words_of(const char* list) {
    std::vector<std::string> words;
    for (std::string_view rest = list; !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        words.emplace_back(rest.substr(0, comma));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return words;
}

// As nvidia-smi -L prints it.
std::string uuid_text(int place) {
    const auto bytes = uuid_of(place);
    std::string text = "GPU";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        char digits[4];
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        text += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(digits);
    }
    return text;
}

// The one of `known` that a word names, or -1.
int chosen(const std::string& word, const std::vector<int>& known) {
    char* end = nullptr;
    const long index = std::strtol(word.c_str(), &end, 10);
    if (end != word.c_str() && *end == '\0')
        return index >= 0 && index < static_cast<long>(known.size()) ? known[static_cast<std::size_t>(index)] : -1;
    if (!word.starts_with("GPU-")) return -1;
    const auto is_meant = [&](int place) { return uuid_text(place).starts_with(word); };
    const auto found = std::find_if(known.begin(), known.end(), is_meant);
    return found != known.end() && std::count_if(known.begin(), known.end(), is_meant) == 1 ? *found : -1;
}

// Those that a variable's list chooses, or all.
std::vector<int> chosen_by(const char* variable, std::vector<int> known) {
    const char* list = std::getenv(variable);
    if (!list) return known;
    std::vector<int> seen;
    for (const std::string& word : words_of(list)) {
        const int place = chosen(word, known);
        if (place < 0) break;
        seen.push_back(place);
    }
    return seen;
}

}  // namespace

std::vector<int> visible_gpus(int present) {
    std::vector<int> all(static_cast<std::size_t>(present));
    std::iota(all.begin(), all.end(), 0);
    return chosen_by("CUDA_VISIBLE_DEVICES", chosen_by("STANDIN_OPEN_GPUS", std::move(all)));
}

std::array<unsigned char, 16> uuid_of(int place) {
    const char* node = std::getenv("STANDIN_NODE");
    const auto number = static_cast<unsigned>(node ? std::strtoul(node, nullptr, 10) : 0);
    std::array<unsigned char, 16> bytes{};
    std::memcpy(bytes.data(), "standin", 7);
    for (std::size_t i = 0; i < 4; ++i) {
        bytes[8 + i] = static_cast<unsigned char>(number >> (24 - 8 * i));
        bytes[12 + i] = static_cast<unsigned char>(static_cast<unsigned>(place) >> (24 - 8 * i));
    }
    return bytes;
}

std::string pci_of(int place) {
    char text[16];
    std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(0x10 + place) & 0xff);
    return text;
}

}  // namespace opus::standin
