// The text of SCPI as Polatis switches write it: channel lists, errors, identity, sizes, powers. Pure
// functions over one line without its line end; whatever the bytes are, each answers or says nullopt.
// Used by the driver (replies) and by the emulator (commands). Sources: docs/drivers.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opus/switch_driver.h"

namespace opus::drivers::scpi {

inline constexpr std::size_t kMaxLine = std::size_t{64} * 1024;  // a longer line is garbage
inline constexpr std::size_t kMaxListEntries = 4096;             // twice the largest switch known, and more

std::string_view trim(std::string_view text);
std::optional<std::uint32_t> parse_number(std::string_view text);

// "(@1,2,5:7)"; "(@)" is empty. Ranges may run either way. Port 0 is no port.
std::optional<std::vector<SwitchPort>> parse_list(std::string_view text);
std::string format_list(std::span<const SwitchPort> ports);

// "(@1,2),(@17,18)": two lists of equal length, taken pairwise.
std::optional<std::vector<CrossConnect>> parse_map(std::string_view text);
std::string format_map(std::span<const CrossConnect> circuits);

// Splits at `separator` outside parentheses and double quotes.
std::vector<std::string_view> split(std::string_view text, char separator);

struct Error {
    int code = 0;  // 0: no error
    std::string text;
};
std::optional<Error> parse_error(std::string_view line);  // -222, "Data out of range"
std::string format_error(const Error& error);

std::optional<SwitchIdentity> parse_identity(std::string_view line);  // vendor,model,serial,firmware

struct Size {
    std::uint32_t ingress = 0, egress = 0;
    bool operator==(const Size&) const = default;
};
std::optional<Size> parse_size(std::string_view line);  // "16,16"; "32,0" or "32" has no sides

std::optional<std::vector<double>> parse_powers(std::string_view line);  // "(-3.1,-60.0)", dBm
std::string format_powers(std::span<const double> dbm);

}  // namespace opus::drivers::scpi
