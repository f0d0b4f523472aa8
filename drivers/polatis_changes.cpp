#include "drivers/polatis_changes.h"

#include <map>
#include <utility>
#include <vector>

#include "drivers/scpi_text.h"

namespace opus::drivers {

namespace {

std::string port_text(SwitchPort port) { return "port " + std::to_string(port); }
std::string pair_text(SwitchPort a, SwitchPort b) { return std::to_string(a) + "-" + std::to_string(b); }

}  // namespace

void order_ends(ChangeSet& changes, const Switch& description) {
    if (description.sidedness != Sidedness::two_sided) return;
    for (auto& [a, b] : changes.connect)
        if (a > description.ingress && b <= description.ingress) std::swap(a, b);
}

std::string change_line(const ChangeSet& changes, const Switch& description) {
    // One end of a circuit suffices; ends on the egress side go into the second list.
    std::vector<SwitchPort> first, second;
    for (SwitchPort p : changes.disconnect)
        (description.sidedness == Sidedness::two_sided && p > description.ingress ? second : first).push_back(p);
    std::string line;
    if (!first.empty()) line += ":oxc:swit:conn:sub " + scpi::format_list(first) + ",(@);";
    if (!second.empty()) line += ":oxc:swit:conn:sub (@)," + scpi::format_list(second) + ";";
    if (!changes.connect.empty()) line += ":oxc:swit:conn:add " + scpi::format_map(changes.connect) + ";";
    return line + ":system:error?";
}

std::string difference(const ChangeSet& changes, std::span<const CrossConnect> circuits) {
    std::map<SwitchPort, SwitchPort> peer, wanted;  // wanted 0: no circuit
    for (const auto& [a, b] : circuits) {
        peer[a] = b;
        peer[b] = a;
    }
    for (SwitchPort p : changes.disconnect) wanted[p] = 0;
    for (const auto& [a, b] : changes.connect) {
        wanted[a] = b;
        wanted.erase(b);  // said once, from its first end
    }
    for (const auto& [port, other] : wanted) {
        const auto it = peer.find(port);
        const SwitchPort found = it == peer.end() ? 0 : it->second;
        if (found == other) continue;
        std::string text = "read-back differs: ";
        text += other ? pair_text(port, other) + " connected" : port_text(port) + " disconnected";
        text += " was asked, the switch says ";
        text += found ? pair_text(port, found) : port_text(port) + " has no circuit";
        return text;
    }
    return {};
}

}  // namespace opus::drivers
