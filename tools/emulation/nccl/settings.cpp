#include "settings.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace opus::standin {

namespace {

std::string text_of(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::int64_t number_of(const char* name, std::int64_t otherwise) {
    const std::string value = text_of(name);
    return value.empty() ? otherwise : std::strtoll(value.c_str(), nullptr, 10);
}

void read_ports(const std::string& path, Settings& s) {
    std::ifstream file(path);
    if (!file) s.error = "STANDIN_PORTS: cannot read " + path;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line.substr(0, line.find('#')));
        PortLine p;
        std::string address;
        if (!(words >> p.node)) continue;
        if (words >> p.gpu >> p.port >> address >> p.switch_port) {
            const auto colon = address.rfind(':');
            if (colon != std::string::npos) {
                p.host = address.substr(0, colon);
                p.tcp_port = static_cast<std::uint16_t>(std::strtoul(address.c_str() + colon + 1, nullptr, 10));
                if (p.node == s.node) s.ports.push_back(p);
                continue;
            }
        }
        s.error = path + ":" + std::to_string(number) + ": not 'node gpu port host:dataport switchport'";
    }
    if (s.error.empty() && s.ports.empty()) s.error = path + ": no port of node " + std::to_string(s.node);
}

Settings read() {
    Settings s;
    s.node = static_cast<std::uint32_t>(number_of("STANDIN_NODE", 0));
    s.gpu = static_cast<int>(number_of("STANDIN_GPU", -1));
    s.steering = text_of("STANDIN_STEERING");
    s.rto_ns = number_of("STANDIN_RTO_MS", 200) * 1'000'000;
    s.attach_ns = number_of("STANDIN_ATTACH_MS", 10'000) * 1'000'000;
    s.window = static_cast<std::uint32_t>(number_of("STANDIN_WINDOW", 16));
    s.stats = text_of("STANDIN_STATS");
    s.drains = number_of("STANDIN_DRAINS", 0) != 0;
    s.in_order = number_of("STANDIN_IN_ORDER", 0) != 0;
    // search.cc, ncclTopoGetNetDev: with NCCL_CROSS_NIC=0 the receiver's index is looked for without PXN, too.
    s.own_nic = number_of("NCCL_CROSS_NIC", 2) != 0 &&
                (number_of("NCCL_PXN_DISABLE", 0) == 1 || number_of("NCCL_P2P_PXN_LEVEL", 2) == 0);
    // init.cc, initTransportsRank: what makes the hosts of an NVLink domain one node.
    const std::int64_t joins = number_of("NCCL_MNNVL_ENABLE", 2);
    const std::int64_t hosts = number_of("STANDIN_DOMAIN", 0);
    if (hosts > 0 && (joins == 1 || (joins != 0 && number_of("NCCL_P2P_DISABLE", 0) != 1)))
        s.domain = static_cast<std::uint8_t>(s.node / hosts + 1);
    const std::string ports = text_of("STANDIN_PORTS");
    s.fabric = !ports.empty();
    if (s.fabric) read_ports(ports, s);
    return s;
}

}  // namespace

const Settings& Settings::get() {
    static const auto* settings = new Settings(read());
    return *settings;
}

}  // namespace opus::standin
