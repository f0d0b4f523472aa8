// The commands of the instrument, one table and a function each.
#include <algorithm>

#include "drivers/scpi_text.h"
#include "opus/opus.h"
#include "tools/emulator/instrument.h"

namespace opus::emulator {

namespace scpi = drivers::scpi;

#define OPUS_STRING(x) #x
#define OPUS_NUMBER(x) OPUS_STRING(x)
static constexpr const char* kFirmware =
    OPUS_NUMBER(OPUS_VERSION_MAJOR) "." OPUS_NUMBER(OPUS_VERSION_MINOR) "." OPUS_NUMBER(OPUS_VERSION_PATCH);

const Instrument::Command Instrument::kCommands[] = {
    {"*IDN", true, &Instrument::identify},
    {"*RST", false, &Instrument::reset},
    {"*CLS", false, &Instrument::clear_status},
    {"*OPC", true, &Instrument::operation_complete},
    {"SYSTem:ERRor", true, &Instrument::next_error},
    {"OXC:SWITch:SIZE", true, &Instrument::size},
    {"OXC:SWITch:CONNect:ADD", false, &Instrument::connect_add},
    {"OXC:SWITch:CONNect:ONLY", false, &Instrument::connect_only},
    {"OXC:SWITch:CONNect:SUB", false, &Instrument::connect_sub},
    {"OXC:SWITch:CONNect:STATe", true, &Instrument::connect_state},
    {"OXC:SWITch:CONNect:PORT", true, &Instrument::connect_port},
    {"OXC:SWITch:DISConnect:ALL", false, &Instrument::disconnect_all},
    {"OXC:SWITch:PORT:DISable", false, &Instrument::port_disable},
    {"OXC:SWITch:PORT:ENABle", false, &Instrument::port_enable},
    {"OXC:SWITch:PORT:STATe", true, &Instrument::port_state},
    {"PMON:POWer", true, &Instrument::power},
    {"OXC:BOOT:MODE", false, &Instrument::boot_mode},
    {"OXC:BOOT:MODE", true, &Instrument::boot_mode_query},
    {"EMULator:COUNt", true, &Instrument::emulator_count},
    {"EMULator:REBoot", false, &Instrument::emulator_reboot},
    {"EMULator:FAULt:SLOW", false, &Instrument::fault_slow},
    {"EMULator:FAULt:LATE", false, &Instrument::fault_late},
    {"EMULator:FAULt:REFuse", false, &Instrument::fault_refuse},
    {"EMULator:FAULt:DROP", false, &Instrument::fault_drop},
    {"EMULator:FAULt:DROPNOW", false, &Instrument::fault_drop_now},
    {"EMULator:FAULt:STUCk", false, &Instrument::fault_stuck},
    {"EMULator:FAULt:READback", false, &Instrument::fault_readback},
    {"EMULator:FAULt:GARBage", false, &Instrument::fault_garbage},
    {"EMULator:FAULt:MUTE", false, &Instrument::fault_mute},
    {"EMULator:FAULt:PARTial", false, &Instrument::fault_partial},
    {"EMULator:FAULt:CLEar", false, &Instrument::fault_clear},
    {nullptr, false, nullptr},
};

namespace {

constexpr int kSyntax = -102, kNotAllowed = -108, kMissing = -109, kExecution = -200, kOutOfRange = -222;

const Outcome kBadList{kSyntax, "Syntax error; not a port list"};

}  // namespace

// --- common and system ------------------------------------------------------------------------------

void Instrument::identify(Call& call) { call.reply = "Opus," + options_.model + ",000000," + kFirmware; }

void Instrument::reset(Call& call) { disconnect_all(call); }

void Instrument::clear_status(Call& call) { call.session.errors.clear(); }

// Says nothing of the light: whether a real switch waits for it is not known.
void Instrument::operation_complete(Call& call) { call.reply = "1"; }

void Instrument::next_error(Call& call) {
    auto& errors = call.session.errors;
    if (errors.empty()) {
        call.reply = scpi::format_error({0, "No error"});
    } else {
        call.reply = errors.front();
        errors.pop_front();
    }
}

void Instrument::size(Call& call) {
    call.reply = std::to_string(optical_plane_.options().ingress) + ',' + std::to_string(optical_plane_.options().egress);
}

// --- the map ----------------------------------------------------------------------------------------

bool Instrument::take_change(Call& call) {
    if (faults_.refuse) {
        --faults_.refuse;
        error(call, kExecution, "Execution error; refused as asked");
        return false;
    }
    if (faults_.drop && --faults_.drop == 0) drop_caller_ = true;
    return true;
}

void Instrument::connect(Call& call, bool only) {
    const auto lists = scpi::split(call.arguments, ',');
    if (lists.size() != 2) return error(call, call.arguments.empty() ? kMissing : kNotAllowed, "two port lists wanted");
    const auto first = scpi::parse_list(lists[0]), second = scpi::parse_list(lists[1]);
    if (!first || !second) return finish(call, kBadList);
    if (first->size() != second->size()) return error(call, kSyntax, "Syntax error; lists of different lengths");
    if (!take_change(call)) return;
    std::vector<CrossConnect> batch;
    last_changed_.clear();
    for (std::size_t i = 0; i < first->size(); ++i) {
        batch.emplace_back((*first)[i], (*second)[i]);
        last_changed_.push_back((*first)[i]);
    }
    finish(call, optical_plane_.connect(batch, only, call.now));
}

void Instrument::connect_add(Call& call) { connect(call, false); }
void Instrument::connect_only(Call& call) { connect(call, true); }

void Instrument::connect_sub(Call& call) {
    const auto lists = scpi::split(call.arguments, ',');
    if (lists.size() != 2) return error(call, call.arguments.empty() ? kMissing : kNotAllowed, "two port lists wanted");
    const auto first = scpi::parse_list(lists[0]), second = scpi::parse_list(lists[1]);
    if (!first || !second) return finish(call, kBadList);
    if (!first->empty() && !second->empty() && first->size() != second->size())
        return error(call, kSyntax, "Syntax error; lists of different lengths");
    if (!take_change(call)) return;
    if (first->empty() || second->empty())
        return finish(call, optical_plane_.disconnect(first->empty() ? *second : *first, call.now));
    std::vector<CrossConnect> batch;
    for (std::size_t i = 0; i < first->size(); ++i) batch.emplace_back((*first)[i], (*second)[i]);
    finish(call, optical_plane_.disconnect_pairs(batch, call.now));
}

void Instrument::connect_state(Call& call) {
    auto circuits = optical_plane_.circuits();
    if (faults_.readback) {
        --faults_.readback;
        std::erase_if(circuits, [&](const CrossConnect& c) {
            return std::ranges::find(last_changed_, c.first) != last_changed_.end();
        });
    }
    call.reply = scpi::format_map(circuits);
}

void Instrument::connect_port(Call& call) {
    const auto port = scpi::parse_number(call.arguments);
    if (!port) return error(call, kSyntax, "Syntax error; one port number wanted");
    const SwitchPort ports[] = {*port};
    if (Outcome o = optical_plane_.check_ports(ports); o.code) return finish(call, o);
    const SwitchPort peer = optical_plane_.peer(*port);
    call.reply = peer ? '"' + std::to_string(peer) + '"' : "\"\"";
}

void Instrument::disconnect_all(Call& call) {
    if (take_change(call)) optical_plane_.disconnect_all(call.now);
}

// --- ports ------------------------------------------------------------------------------------------

void Instrument::port_disable(Call& call) {
    const auto ports = scpi::parse_list(call.arguments);
    finish(call, ports ? optical_plane_.set_enabled(*ports, false, call.now) : kBadList);
}

void Instrument::port_enable(Call& call) {
    const auto ports = scpi::parse_list(call.arguments);
    finish(call, ports ? optical_plane_.set_enabled(*ports, true, call.now) : kBadList);
}

void Instrument::port_state(Call& call) {
    const auto ports = scpi::parse_list(call.arguments);
    const Outcome o = ports ? optical_plane_.check_ports(*ports) : kBadList;
    if (o.code) return finish(call, o);
    call.reply = "(";
    for (SwitchPort p : *ports) {
        if (call.reply.size() > 1) call.reply += ',';
        call.reply += optical_plane_.enabled(p) ? 'E' : 'D';
    }
    call.reply += ')';
}

void Instrument::power(Call& call) {
    if (!options_.power_monitor) return error(call, -113, "Undefined header; no power monitor");
    const auto ports = scpi::parse_list(call.arguments);
    const Outcome o = ports ? optical_plane_.check_ports(*ports) : kBadList;
    if (o.code) return finish(call, o);
    std::vector<double> dbm;
    for (SwitchPort p : *ports) dbm.push_back(optical_plane_.power_dbm(p, call.now));
    call.reply = scpi::format_powers(dbm);
}

// --- boot -------------------------------------------------------------------------------------------

static constexpr std::pair<std::string_view, BootMode> kBootModes[] = {
    {"DARK", BootMode::dark}, {"REST", BootMode::restore}, {"AUT", BootMode::automatic}};

void Instrument::boot_mode(Call& call) {
    std::string mode(call.arguments);
    std::ranges::transform(mode, mode.begin(), [](unsigned char c) { return std::toupper(c); });
    for (const auto& [name, value] : kBootModes)
        if (mode == name) {
            options_.boot = value;
            return;
        }
    error(call, kOutOfRange, "Data out of range; DARK, REST or AUT");
}

void Instrument::boot_mode_query(Call& call) {
    for (const auto& [name, value] : kBootModes)
        if (options_.boot == value) call.reply = name;
}

// --- the emulator's own -----------------------------------------------------------------------------

void Instrument::emulator_count(Call& call) {
    const Counters& c = counters_;
    for (std::uint64_t n : {c.delivered_frames, c.delivered_bytes, c.lost_frames, c.lost_bytes, c.misdelivered_frames,
                            c.misdelivered_bytes, optical_plane_.reconfigurations()}) {
        if (!call.reply.empty()) call.reply += ',';
        call.reply += std::to_string(n);
    }
}

// [keep|lose[,MS]]: all sessions end, new ones are closed for MS. Without an argument the boot mode says
// what becomes of the circuits.
void Instrument::emulator_reboot(Call& call) {
    const auto words = scpi::split(call.arguments, ',');
    const auto down_ms = words.size() == 2 ? scpi::parse_number(words[1]) : std::optional<std::uint32_t>{0};
    if (words.size() > 2 || !down_ms || (!words[0].empty() && words[0] != "keep" && words[0] != "lose"))
        return error(call, kNotAllowed, "Parameter not allowed; [keep|lose[,MS]]");
    if (words[0] == "lose" || (words[0].empty() && options_.boot == BootMode::dark))
        optical_plane_.disconnect_all(call.now);
    if (words[0].empty() && options_.boot == BootMode::restore) optical_plane_.relight(call.now);
    booted_ns_ = call.now + TimeNs(*down_ms) * 1'000'000;
    drop_all_ = true;
    delayed_.clear();
}

bool Instrument::set_count(Call& call, std::uint32_t& fault) {
    const auto count = scpi::parse_number(call.arguments);
    if (!count) {
        error(call, kSyntax, "Syntax error; a count wanted");
        return false;
    }
    fault = *count;
    return true;
}

void Instrument::fault_slow(Call& call) {
    std::uint32_t ms = 0;
    if (set_count(call, ms)) faults_.slow_ns = TimeNs(ms) * 1'000'000;
}

void Instrument::fault_late(Call& call) {
    std::uint32_t ms = 0;
    if (set_count(call, ms)) faults_.late_ns = TimeNs(ms) * 1'000'000;
}

void Instrument::fault_refuse(Call& call) { set_count(call, faults_.refuse); }
void Instrument::fault_drop(Call& call) { set_count(call, faults_.drop); }
void Instrument::fault_drop_now(Call&) { drop_others_ = true; }
void Instrument::fault_readback(Call& call) { set_count(call, faults_.readback); }
void Instrument::fault_garbage(Call& call) { set_count(call, faults_.garbage); }
void Instrument::fault_mute(Call& call) { set_count(call, faults_.mute); }

void Instrument::fault_stuck(Call& call) {
    const auto ports = scpi::parse_list(call.arguments);
    finish(call, ports ? optical_plane_.set_stuck(*ports, call.now) : kBadList);
}

void Instrument::fault_partial(Call& call) {
    std::uint32_t on = 0;
    if (set_count(call, on)) optical_plane_.set_partial(on != 0);
}

void Instrument::fault_clear(Call& call) {
    faults_ = {};
    optical_plane_.set_partial(false);
    optical_plane_.set_stuck({}, call.now);
}

}  // namespace opus::emulator
