// The fabric file: every mistake is found, all in one pass, each with its line.
#include <doctest/doctest.h>

#include "controller/fabric/fabric_file.h"
#include "controller/fabric/fabric_make.h"
#include "controller/fabric/fabric_names.h"
#include "controller/fabric/spelling.h"

namespace opus::fabric {
namespace {

const std::vector<std::string> kDrivers = {"polatis-scpi", "none"};

const char* const kGood = R"(version = 1
name = "demo"
[[switch]]
name = "ocs-r0"
driver = "polatis-scpi"
address = "127.0.0.1:5025"
size = 8
technology = "piezo"
[[switch]]
name = "ocs-r1"
driver = "polatis-scpi"
address = "[::1]:5026"
size = "4x4"
technology = "mems"
dark_ms = 12.5
settle = "time"
guard_ms = 3
[[rail]]
name = "r0"
switches = ["ocs-r0"]
[[rail]]
name = "r1"
switches = ["ocs-r1"]
[[node]]
name = "n0"
[[node.gpu]]
rail = "r0"
ports = ["ocs-r0:1", "ocs-r0:2"]
pci = "0000:17:00.0"
[[node.gpu]]
rail = "r1"
ports = ["ocs-r1:1", "ocs-r1:5"]
[[node]]
name = "n1"
[[node.gpu]]
rail = "r0"
ports = ["ocs-r0:3", "ocs-r0:4"]
[[node.gpu]]
rail = "r1"
ports = ["ocs-r1:2", "ocs-r1:6"]
uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
)";

// kGood with its line `number` (from 1) replaced; empty: dropped but for its line feed.
std::string with_line(int number, const std::string& line) {
    std::string text = kGood, out;
    for (int n = 1; !text.empty(); ++n) {
        const auto end = text.find('\n') + 1;
        out += n == number ? line + "\n" : text.substr(0, end);
        text.erase(0, end);
    }
    return out;
}
std::string lines(const std::vector<FabricError>& errors) {
    std::string text;
    for (const auto& error : errors) text += (text.empty() ? "" : " | ") + error_line("f", error);
    return text;
}
std::string errors_of(const std::string& toml) {
    const FabricLoad load = parse_fabric(toml, kDrivers);
    CHECK(load.fabric.has_value() == load.errors.empty());
    return lines(load.errors);
}
std::string warnings_of(const std::string& toml) { return lines(parse_fabric(toml, kDrivers).warnings); }

}  // namespace

TEST_CASE("a good file becomes the fabric it describes") {
    const FabricLoad load = parse_fabric(kGood, kDrivers);
    REQUIRE_MESSAGE(load.fabric, lines(load.errors));
    CHECK(lines(load.warnings) == "");
    const Fabric& f = *load.fabric;
    CHECK(f.name == "demo");
    REQUIRE(f.switches.size() == 2);
    CHECK(f.switches[0].size() == 8);
    CHECK(f.switches[0].sidedness == Sidedness::any_to_any);
    CHECK(f.switches[0].dark_ns == 25'000'000);
    CHECK(f.switches[0].settle == Settle::power);
    CHECK(f.switches[1].sidedness == Sidedness::two_sided);
    CHECK(f.switches[1].ingress == 4);
    CHECK(f.switches[1].egress == 4);
    CHECK(f.switches[1].dark_ns == 12'500'000);
    CHECK(f.switches[1].guard_ns == 3'000'000);
    CHECK(f.switches[1].settle == Settle::time);
    REQUIRE(f.ports.size() == 8);
    CHECK(f.ports[find_port(f, "n1.g1.p1")].sw == 1);
    CHECK(f.ports[find_port(f, "n1.g1.p1")].sw_port == 6);
    CHECK(find_port(f, "ocs-r1:6") == find_port(f, "n1.g1.p1"));
    CHECK(find_port(f, "n2.g0.p0") == kNone);
    CHECK(f.gpus[find_gpu(f, "n0.g0")].pci == "0000:17:00.0");
    CHECK(f.gpus[find_gpu(f, "n1.g1")].uuid == "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
    CHECK(f.rails[1].gpus == std::vector<GpuId>{1, 3});
    CHECK(f.rails[0].gbps == 400);
    const FabricLoad slower = parse_fabric(with_line(20, "switches = [\"ocs-r0\"]\ngbps = 100"), kDrivers);
    REQUIRE(slower.fabric);
    CHECK(slower.fabric->rails[0].gbps == 100);
    CHECK(f.can_join(find_port(f, "n0.g1.p0"), find_port(f, "n1.g1.p1")));
    CHECK_FALSE(f.can_join(find_port(f, "n0.g1.p0"), find_port(f, "n1.g1.p0")));
}

TEST_CASE("each mistake is named with its line") {
    const struct {
        int line;
        const char* text;
        const char* says;
    } cases[] = {
        {1, "", "f:1: the file has no version: add version = 1"},
        {1, "version = 2", "f:1: version must be 1: this program reads fabric files of version 1"},
        {2, "nmae = \"demo\"", "f:2: the file: unknown key 'nmae'; did you mean 'name'?"},
        {2, "name = 3", "f:2: the file: name is a whole number, must be text"},
        {4, "", "f:3: [[switch]] has no name: add a name | f:20: r0: unknown switch 'ocs-r0'; did you mean 'ocs-r1'?"},
        {4, "name = \"a b\"", "f:4: [[switch]]: name 'a b' must be 1 to 64 letters, digits, '-', '_' or '.'"},
        {10, "name = \"ocs-r0\"", "f:10: the name 'ocs-r0' is taken already (line 4)"},
        {5, "driver = \"polatis-scp\"", "f:5: ocs-r0: unknown driver 'polatis-scp'; did you mean 'polatis-scpi'?"},
        {5, "driver = \"telescent\"", "f:5: ocs-r0: unknown driver 'telescent'; known: polatis-scpi, none"},
        {6, "address = \"127.0.0.1\"", "f:6: ocs-r0: address '127.0.0.1' must be host:port"},
        {6, "address = \"host:0\"", "f:6: ocs-r0: address 'host:0' must be host:port"},
        {6, "address = \"::1:5025\"", "f:6: ocs-r0: address '::1:5025' must be host:port"},
        {12, "address = \"127.0.0.1:5025\"", "f:12: ocs-r1: address 127.0.0.1:5025 is that of ocs-r0 already"},
        {7, "", "f:3: ocs-r0 has no size"},
        {7, "size = 1", "f:7: ocs-r0: size 1 must be 2 to 65536 ports"},
        {7, "size = \"4x\"", "f:7: ocs-r0: size '4x' must be like 32"},
        {7, "size = 4.5", "f:7: ocs-r0: size is a number, must be a whole number or \"16x16\""},
        {8, "technology = \"peizo\"", "f:8: ocs-r0: unknown technology 'peizo'; did you mean 'piezo'?"},
        {8, "", "f:3: ocs-r0 has neither technology nor dark_ms"},
        {15, "dark_ms = -1", "f:15: ocs-r1: dark_ms must be 0 to 3600000 milliseconds"},
        {15, "dark_ms = \"25\"", "f:15: ocs-r1: dark_ms is text, must be a number of milliseconds"},
        {15, "dark_ms = nan", "f:15: ocs-r1: dark_ms must be 0"},
        {16, "settle = \"never\"", "f:16: ocs-r1: settle 'never' must be \"power\" or \"time\""},
        {20, "switches = [\"ocs-x0\"]", "f:20: r0: unknown switch 'ocs-x0'; did you mean 'ocs-r0'?"},
        {20, "switches = [\"ocs-r0\"]\ngbps = 0", "f:21: r0: gbps must be what one port carries, more than 0"},
        {20, "switches = [\"ocs-r0\"]\ngbps = \"fast\"", "f:21: r0: gbps must be what one port carries"},
        {20, "switches = []", "f:20: r0: switches is empty"},
        {20, "switches = \"ocs-r0\"", "f:20: r0: switches is text, must be a list of switch names"},
        {20, "switches = [\"ocs-r0\", \"ocs-r0\"]", "f:20: r0: switch ocs-r0 is listed twice"},
        {22, "name = \"r0\"", "f:22: the name 'r0' is taken already (line 19)"},
        {27, "rail = \"r2\"", "f:27: n0.g0: unknown rail 'r2'; known: r0, r1"},
        {27, "rail = [\"r0\", \"r1\"]", "f:27: n0.g0 is on 2 rails: a GPU is on one"},
        {27, "", "f:26: n0.g0 has no rail"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-r0:9\"]", "f:28: n0.g0.p1: ocs-r0 has ports 1 to 8, not 9"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-r0:0\"]", "f:28: n0.g0.p1: ocs-r0 has ports 1 to 8, not 0"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-r0:7\", \"ocs-r0:8\"]", "f:28: n0.g0 has 3 ports: a GPU has 1, 2 or 4"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-q0:2\"]", "f:28: n0.g0.p1: unknown switch 'ocs-q0'; did you mean 'ocs-r0'?"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-r1:3\"]",
         "f:28: n0.g0.p1 is cabled to ocs-r1, which is not a switch of its rail r0"},
        {28, "ports = [\"ocs-r0:1\", \"ocs-r0\"]", "f:28: n0.g0.p1: cable 'ocs-r0' must be \"switch:port\""},
        {28, "ports = [\"ocs-r0:1\", 2]", "f:28: n0.g0.p1 is a whole number, must be \"switch:port\""},
        {28, "ports = \"ocs-r0:1\"", "f:28: n0.g0: ports is text, must be a list"},
        {29, "pci = \"17:00\"", "f:29: n0.g0: pci '17:00' must be like 0000:17:00.0"},
        {32, "ports = [\"ocs-r1:1\", \"ocs-r1:5\"]\npci = \"00000000:17:00.0\"",
         "f:33: n0.g1: pci 00000000:17:00.0 is that of n0.g0 already"},
        {29, "uuid = \"GPU-1\"", "f:29: n0.g0: uuid 'GPU-1' must be as nvidia-smi -L prints it"},
        {29, "uuid = \"GPU-8932F937-d72c-4106-c12f-20bd9faed9f6\"",
         "f:41: n1.g1: uuid GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 is that of n0.g0 already"},
        {34, "name = \"n0\"", "f:34: the name 'n0' is taken already (line 25)"},
        {37, "ports = [\"ocs-r0:3\", \"ocs-r0:1\"]", "f:37: port 1 of ocs-r0 is cabled twice (n0.g0.p0 and n1.g0.p1)"},
        {36, "rail = \"r1\"", "f:36: n1.g0 is on rail r1 but n0.g0 on rail r0: GPUs of one local index share a rail"},
        {35, "[[node.gpus]]", "f:35: n1: unknown key 'gpus'; did you mean 'gpu'?"},
    };
    for (const auto& c : cases) {
        const std::string says = errors_of(with_line(c.line, c.text));
        CHECK_MESSAGE(says.find(c.says) == 0, "line ", c.line, " = ", c.text, "\n  says ", says, "\n  want ", c.says);
    }
}

TEST_CASE("several mistakes are all found in one pass, in the order of the file") {
    std::string toml = with_line(8, "technology = \"peizo\"");
    toml.replace(toml.find("\"ocs-r0:3\""), 10, "\"ocs-r0:1\"");
    toml.replace(toml.find("[::1]:5026"), 10, "[::1]:xxxx");
    toml += "colour = \"blue\"\n";
    const FabricLoad load = parse_fabric(toml, kDrivers);
    REQUIRE(load.errors.size() == 4);
    CHECK(load.errors[0].line == 8);
    CHECK(load.errors[1].line == 12);
    CHECK(load.errors[2].line == 37);
    CHECK(load.errors[3].line == 42);
    CHECK_FALSE(load.fabric);
}

TEST_CASE("broken TOML is refused with its line") {
    CHECK(errors_of("version = 1\nname = \"x\nsize=").substr(0, 4) == "f:2:");
    CHECK(errors_of("version = 1\nversion = 1\n").substr(0, 4) == "f:2:");
    CHECK(errors_of("") != "");
    CHECK(errors_of("[ #o") != "");
    CHECK(errors_of("version = 1 # \u00fc\nname = \"#\"\nx = \"\u00fc\"\n") ==
          "f:3: a character outside ASCII: only comments may hold one");
    CHECK(errors_of("switch = 3\nrail = [1]\nnode = []\nversion = 1")
              .find("f:1: switch is a whole number: write [[switch]], with two brackets | "
                    "f:2: rail holds a whole number: write [[rail]] tables | "
                    "f:3: the file has no [[node]]") == 0);
}

TEST_CASE("hosts of one NVLink domain are known by the first of them") {
    std::string text = with_line(25, "name = \"n0\"\ndomain = \"a\"");
    text.insert(text.find("name = \"n1\""), "domain = \"a\"\n");
    const std::string third =
        "[[node]]\nname = \"n2\"\ndomain = \"b\"\n[[node.gpu]]\nrail = \"r0\"\nports = [\"ocs-r0:5\", \"ocs-r0:6\"]\n"
        "[[node.gpu]]\nrail = \"r1\"\nports = [\"ocs-r1:3\", \"ocs-r1:7\"]\n";
    const FabricLoad load = parse_fabric(text + third, kDrivers);
    REQUIRE_MESSAGE(load.fabric, lines(load.errors));
    CHECK(lines(load.warnings) == "");
    CHECK(load.fabric->nodes[0].domain == 0);
    CHECK(load.fabric->nodes[1].domain == 0);
    CHECK(load.fabric->nodes[2].domain == 2);
    CHECK(parse_fabric(kGood, kDrivers).fabric->nodes[1].domain == kNone);
    CHECK(warnings_of(with_line(25, "name = \"n0\"\ndomain = \"a\"")) ==
          "f:34: n1 has no domain, n0 has: in communicators of both NCCL counts hosts, not domains");
    CHECK(errors_of(with_line(25, "name = \"n0\"\ndomain = 3")) ==
          "f:26: n0: domain is a whole number, must be the name of an NVLink domain");
    CHECK(errors_of(with_line(25, "name = \"n0\"\ndomain = \"\"")) ==
          "f:26: n0: domain '' must be 1 to 64 letters, digits, '-', '_' or '.'");
    CHECK(errors_of(text + "[[node]]\nname = \"n2\"\ndomain = \"a\"\n[[node.gpu]]\nrail = \"r0\"\nports = [\"ocs-r0:8\"]\n") ==
          "f:44: n2 has 1 GPUs, n0 has 2: hosts of one NVLink domain have equally many");
}

TEST_CASE("what is odd but works is a warning") {
    CHECK(warnings_of(with_line(8, "technology = \"plzt\"")) == "");
    CHECK(warnings_of(with_line(7, "size = 600")).find("f:8: ocs-r0: 600 ports, and the largest known piezo switch has 576") ==
          0);
    CHECK(warnings_of(std::string(kGood) +
                      "[[node]]\nname = \"n2\"\n[[node.gpu]]\nrail = \"r0\"\nports = [\"ocs-r0:8\"]\n") ==
          "f:42: n2 has 1 GPUs, n0 has 2");
    CHECK(warnings_of(std::string(kGood) +
                      "[[switch]]\nname = \"spare\"\ndriver = \"none\"\naddress = \"h:1\"\nsize = 4\ndark_ms = 1\n") ==
          "f:43: spare belongs to no rail");
    std::string one_side = kGood;
    one_side.replace(one_side.find("ocs-r1:5"), 8, "ocs-r1:3");
    one_side.replace(one_side.find("ocs-r1:6"), 8, "ocs-r1:4");
    CHECK(warnings_of(one_side) == "f:10: ocs-r1 is cabled on its ingress side only: it can make no circuit");
}

TEST_CASE("a file that cannot be read is said to be so") {
    CHECK(lines(read_fabric("/nonexistent/fabric.toml", {}).errors) == "f: cannot be read: No such file or directory");
    CHECK(lines(read_fabric("/", {}).errors) == "f: cannot be read: Is a directory");
}

TEST_CASE("what fabric make writes passes fabric check, and rings can be made of it") {
    for (const std::uint32_t nodes : {2u, 3u, 4u, 16u})
        for (const std::uint32_t ports : {1u, 2u, 4u})
            for (const bool two_sided : {false, true}) {
                FabricPlan plan;
                plan.nodes = nodes, plan.gpus = 3, plan.ports = ports, plan.two_sided = two_sided;
                const auto made = make_fabric(plan);
                REQUIRE(std::holds_alternative<FabricText>(made));
                const FabricLoad load = parse_fabric(std::get<FabricText>(made).toml, kDrivers);
                REQUIRE_MESSAGE(load.fabric, lines(load.errors));
                CHECK(lines(load.warnings) == "");
                const Fabric& f = *load.fabric;
                CHECK(f.nodes.size() == nodes);
                CHECK(f.ports.size() == nodes * 3 * ports);
                if (ports == 1) {
                    CHECK(f.can_join(f.gpus[0].ports[0], f.gpus[3].ports[0]));
                    continue;
                }
                for (const Rail& rail : f.rails)
                    for (std::size_t n = 0; n < nodes; ++n)
                        for (std::uint32_t p = 0; p < ports; p += 2)
                            CHECK(f.can_join(f.gpus[rail.gpus[n]].ports[p], f.gpus[rail.gpus[(n + 1) % nodes]].ports[p + 1]));
            }
}

TEST_CASE("fabric make names NVLink domains") {
    FabricPlan plan;
    plan.domain = 2;
    const FabricLoad load = parse_fabric(std::get<FabricText>(make_fabric(plan)).toml, kDrivers);
    REQUIRE_MESSAGE(load.fabric, lines(load.errors));
    for (NodeIndex n = 0; n < 4; ++n) CHECK(load.fabric->nodes[n].domain == n / 2 * 2);
}

TEST_CASE("fabric make takes addresses one a rail or counts one up") {
    FabricPlan plan;
    plan.gpus = 2;
    plan.addresses = {"10.0.0.1:5025"};
    const auto counted = std::get<FabricText>(make_fabric(plan)).toml;
    CHECK(counted.find("\"10.0.0.1:5025\"") != std::string::npos);
    CHECK(counted.find("\"10.0.0.1:5026\"") != std::string::npos);
    plan.addresses = {"a:1", "b:2"};
    CHECK(std::get<FabricText>(make_fabric(plan)).toml.find("\"b:2\"") != std::string::npos);
    plan.addresses = {"a:1", "b:2", "c:3"};
    CHECK(std::get<std::string>(make_fabric(plan)).find("3 addresses for 2 rails") == 0);
}

TEST_CASE("fabric make refuses what cannot be built") {
    const auto says = [](auto change) {
        FabricPlan plan;
        change(plan);
        const auto made = make_fabric(plan);
        const auto* text = std::get_if<std::string>(&made);
        return text ? *text : "";
    };
    CHECK(says([](FabricPlan& p) { p.nodes = 1; }).find("--nodes") == 0);
    CHECK(says([](FabricPlan& p) { p.ports = 3; }).find("--ports") == 0);
    CHECK(says([](FabricPlan& p) { p.gpus = 17; }).find("--gpus") == 0);
    CHECK(says([](FabricPlan& p) { p.size = 4; }).find("--size 4: the switch of a rail needs 8 ports") == 0);
    CHECK(says([](FabricPlan& p) { p.technology = "magic"; }).find("unknown technology") == 0);
    CHECK(says([](FabricPlan& p) { p.addresses = {"nowhere"}; }).find("address 'nowhere'") == 0);
}

TEST_CASE("did you mean: only what is near") {
    CHECK(nearest("swtich", {"switch", "rail"}) == "switch");
    CHECK(nearest("colour", {"switch", "rail"}) == "");
    CHECK(nearest("x", {"y"}) == "");
    CHECK(nearest("", {"y"}) == "");
}

}  // namespace opus::fabric
