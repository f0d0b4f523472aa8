// Cost and power: the published figures, terms that add up, inputs and price files that are wrong.
#include <doctest/doctest.h>

#include <cmath>

#include "tools/opus-sim/price_file.h"

using namespace opus;
using namespace opus::cost;

namespace {

Inputs of(Generation generation, std::uint32_t servers, std::uint32_t gpus) {
    Inputs in = published_inputs(generation);
    in.servers = servers, in.gpus = gpus;
    return in;
}
double cost_ratio(const Inputs& in, Baseline b) { return packet_network(in, b).usd() / circuit_network(in).usd(); }
double power_ratio(const Inputs& in, Baseline b) { return packet_network(in, b).watts() / circuit_network(in).watts(); }

}  // namespace

TEST_CASE(
    "published: H200, 256 to 2,048 GPUs, 4.18 to 4.54 times the cost of circuits and 23.3 to 25.5 times the power") {
    double least[2] = {1e9, 1e9}, most[2] = {0, 0};
    for (const std::uint32_t servers : {32u, 64u, 128u, 256u}) {
        const Inputs in = of(Generation::h200, servers, 8);
        const double ratio[2] = {cost_ratio(in, Baseline::fat_tree), power_ratio(in, Baseline::fat_tree)};
        for (int i = 0; i < 2; ++i) least[i] = std::fmin(least[i], ratio[i]), most[i] = std::fmax(most[i], ratio[i]);
    }
    CHECK(std::round(least[0] * 100) == 418);
    CHECK(std::round(most[0] * 100) == 454);
    CHECK(std::round(least[1] * 10) == 233);
    CHECK(std::round(most[1] * 10) == 255);
}

TEST_CASE(
    "published: H200, 4,096 GPUs, circuits save 76.7 % of the cost and 95.84 % of the power of electrical rails") {
    const Inputs in = of(Generation::h200, 512, 8);
    CHECK(std::round((1 - 1 / cost_ratio(in, Baseline::rail)) * 1e3) == 767);
    CHECK(std::round((1 - 1 / power_ratio(in, Baseline::rail)) * 1e4) == 9584);
}

TEST_CASE("published: rail-only costs 1.22 times as much and takes 5.5 times the power, whatever the size") {
    for (const std::uint32_t servers : {1u, 32u, 512u}) {
        const Inputs in = of(Generation::h200, servers, 8);
        CHECK(std::round(cost_ratio(in, Baseline::rail_only) * 100) == 122);
        CHECK(std::round(power_ratio(in, Baseline::rail_only) * 10) == 55);
    }
}

TEST_CASE("published: a piezo switch for each rail joins 20,736 GPUs in domains of 72, 2,304 in domains of 8") {
    const Technology& piezo = *find_technology("piezo");
    CHECK(gpus_of_fabric(piezo, 72, 2, 1) == 20'736);
    CHECK(gpus_of_fabric(piezo, 8, 2, 1) == 2'304);
    CHECK(gpus_of_fabric(piezo, 8, 4, 1) == 1'152);
    CHECK(gpus_of_fabric(*find_technology("transceiver"), 8, 2, 1) == 0);
}

TEST_CASE("levels of optical switches multiply what is offered by half a radix, and each two more ports are paid for") {
    CHECK(offered_ports(16, 1) == 16);
    CHECK(offered_ports(16, 2) == 128);
    CHECK(offered_ports(16, 3) == 1'024);
    CHECK(offered_ports(0, 1) == 0);
    CHECK(levels_for(16, 16) == 1);
    CHECK(levels_for(17, 16) == 2);
    CHECK(levels_for(129, 16) == 3);
    CHECK(levels_for(3, 2) == 0);
    Inputs in = of(Generation::h200, 256, 8);
    in.technology = "mems";  // 512 ports a rail, 320 a switch
    const Network one = circuit_network(in);
    REQUIRE(one.notes.size() == 2);
    CHECK(one.notes[0].find("a rail needs 512 ports") != std::string::npos);
    CHECK(one.notes[0].find("2 levels, which are not counted") != std::string::npos);
    in.levels = 0;
    const Network all = circuit_network(in);
    CHECK(all.terms[0].count == 3 * one.terms[0].count);
    CHECK(all.terms[1].count == one.terms[1].count);
    CHECK(all.notes.size() == 1);
}

TEST_CASE("each term is a count times a price, and the optics are the caller's") {
    Inputs in = of(Generation::h200, 32, 8);
    const Network tree = packet_network(in, Baseline::fat_tree);
    REQUIRE(tree.terms.size() == 3);
    CHECK(tree.terms[0].count == 1'250);  // k = 10
    CHECK(tree.terms[1].count == 256);
    CHECK(tree.terms[2].count == 1'250);
    CHECK(tree.usd() == doctest::Approx(1'250 * (37'299.0 / 64 + 879) + 256 * 879));
    REQUIRE(tree.notes.size() == 1);
    CHECK(tree.notes[0].find("holds 250 GPUs") != std::string::npos);
    const Network circuits = circuit_network(in);
    CHECK(circuits.usd() == doctest::Approx(512 * 520 + 256 * 879));
    CHECK(circuits.watts() == doctest::Approx(512 * 75.0 / 192 + 2'560));
    in.bidirectional = false, in.circuit_transceivers = 2;
    CHECK(circuit_network(in).usd() == doctest::Approx(2 * circuits.usd()));
    in.prices.circuit_transceiver.usd = 0, in.nic_ports = 1;
    CHECK(circuit_network(in).usd() == doctest::Approx(512 * 520));
    in.prices.optical_switches["mems"] = {100, 1'000, 10};
    in.technology = "mems", in.servers = 4;
    CHECK(circuit_network(in).terms[0].usd() == doctest::Approx(64 * 10));
    CHECK(circuit_network(in).notes.empty());
}

TEST_CASE("two tiers of whole switches take three ports a GPU where they are full, and say when they are too small") {
    const Inputs full = of(Generation::h200, 256, 8);
    CHECK(packet_network(full, Baseline::leaf_spine).terms[0].count == 3 * 2'048);
    CHECK(packet_network(full, Baseline::leaf_spine).notes.empty());
    const Network less = packet_network(of(Generation::h200, 5, 8), Baseline::leaf_spine);
    CHECK(less.terms[0].count == 64 * 3);  // 40 GPUs: two leaves, a spine
    CHECK(packet_network(of(Generation::h200, 257, 8), Baseline::leaf_spine).notes.size() == 1);
}

TEST_CASE("GB200: packet switches have no transceivers of their own, as published") {
    const Inputs in = of(Generation::gb200, 32, 72);
    CHECK(packet_network(in, Baseline::fat_tree).terms.size() == 2);
    CHECK(packet_network(in, Baseline::rail).terms[0].usd_each == doctest::Approx(149'939.0 / 144));
    CHECK(circuit_network(in).terms[1].watts_each == 16);
}

TEST_CASE("inputs that cannot be are refused in words") {
    CHECK(problem_of(published_inputs(Generation::h200)).empty());
    CHECK(problem_of(published_inputs(Generation::gb200)).empty());
    const auto says = [](auto change) {
        Inputs in = published_inputs(Generation::h200);
        change(in);
        return problem_of(in);
    };
    CHECK(says([](Inputs& in) { in.servers = 0; }) == "servers: 0 is not between 1 and 1000000");
    CHECK(says([](Inputs& in) { in.nic_ports = 65; }).find("ports of a NIC: 65") == 0);
    CHECK(says([](Inputs& in) { in.circuit_transceivers = -1; }).find("transceivers of a GPU: -1") == 0);
    CHECK(says([](Inputs& in) { in.circuit_transceivers = NAN; }).find("transceivers of a GPU: ") == 0);
    CHECK(says([](Inputs& in) { in.technology = "magic"; }) == "no switch technology is called magic");
    CHECK(says([](Inputs& in) { in.technology = "transceiver"; }).find("not a switch of its own") != std::string::npos);
    CHECK(says([](Inputs& in) { in.prices.packet_switch.ports = 0; }) != "");
}

namespace {

Prices priced(std::string_view toml) { return read_prices({"prices.toml", toml}, published_prices(Generation::h200)); }
std::string refused(std::string_view toml) {
    try {
        priced(toml);
    } catch (const job::BadFile& error) { return error.what(); }
    return "";
}

}  // namespace

TEST_CASE("a price file changes what it says and nothing else") {
    const Prices was = published_prices(Generation::h200);
    const Prices p = priced(
        "name = 'quote'\n[circuit_transceiver]\nusd = 1500\n[transceiver]\nusd = 700.5\nwatts = 12\n"
        "[optical_switch.mems]\nwatts = 45\n[optical_switch]\nports = 100\nusd = 5e4\n");
    CHECK(p.source == "quote (prices.toml)");
    CHECK(p.packet_switch.usd == was.packet_switch.usd);
    CHECK(p.transceiver.usd == 700.5);
    CHECK(p.circuit_transceiver.usd == 1'500);
    CHECK(p.circuit_transceiver.watts == 12);
    CHECK(p.optical("piezo").port_usd() == 500);
    CHECK(p.optical("piezo").watts == was.optical_switch.watts);
    CHECK(p.optical("mems").port_usd() == 500);
    CHECK(p.optical("mems").watts == 45);
    CHECK(priced("# caf\xc3\xa9\n[transceiver]\nusd = 0\n").circuit_transceiver.usd == 0);
}

TEST_CASE("a price file that is wrong is refused with line, value and remedy") {
    CHECK(refused("[packet_switch]\nports = 64\nusb = 1\n") ==
          "prices.toml: line 3: packet_switch: unknown key 'usb'; did you mean 'usd'?");
    CHECK(refused("[transciever]\nusd = 1\n") ==
          "prices.toml: line 1: unknown key 'transciever'; did you mean 'transceiver'?");
    CHECK(refused("[transceiver]\nusd = '879'\n") == "prices.toml: line 2: transceiver: usd must be a number");
    CHECK(refused("[transceiver]\n\nusd = -1\n") ==
          "prices.toml: line 3: transceiver: usd: -1 must be a number from 0 to 1e+09");
    CHECK(refused("[optical_switch.piezo]\nports = 0.5\n") ==
          "prices.toml: line 2: optical_switch.piezo: ports: 0.5 must be a whole number from 1 to 1e+09");
    CHECK(refused("[optical_switch.peizo]\nusd = 1\n").find("line 1: optical_switch: unknown key 'peizo'; did you mean 'piezo'?") !=
          std::string::npos);
    CHECK(refused("[optical_switch.transceiver]\nusd = 1\n").find("unknown key 'transceiver'") != std::string::npos);
    CHECK(refused("transceiver = 879\n").find("line 1: transceiver must be a table") != std::string::npos);
    CHECK(refused("name = 1\n").find("line 1: name must be text") != std::string::npos);
    CHECK(refused("[transceiver]\nusd = nan\n").find("usd: nan must be") != std::string::npos);
    CHECK(refused("[transceiver\nusd = 1\n").find("prices.toml: line 1: ") == 0);
    CHECK(refused("[ #").find("prices.toml: ") == 0);
}
