#include <doctest/doctest.h>

#include <string>

#include "drivers/line_buffer.h"
#include "drivers/scpi_text.h"

using namespace opus;
namespace scpi = opus::drivers::scpi;
using Ports = std::vector<SwitchPort>;
using Pairs = std::vector<CrossConnect>;

TEST_CASE("a port list is read as Polatis writes it") {
    CHECK(scpi::parse_list("(@1,2,3)") == Ports{1, 2, 3});
    CHECK(scpi::parse_list(" ( @ 1 , 2 ) ") == Ports{1, 2});
    CHECK(scpi::parse_list("(@)") == Ports{});
    CHECK(scpi::parse_list("(@3:5,9)") == Ports{3, 4, 5, 9});
    CHECK(scpi::parse_list("(@5:3)") == Ports{5, 4, 3});
}

TEST_CASE("what is no port list is none") {
    for (const char* text : {"",
                             "(",
                             "()",
                             "(1,2)",
                             "(@1,2",
                             "@1,2",
                             "(@1,,2)",
                             "(@1,)",
                             "(@,)",
                             "(@0)",
                             "(@-1)",
                             "(@1 2)",
                             "(@a)",
                             "(@1.5)",
                             "(@99999999999)",
                             "(@1:)",
                             "(@:2)",
                             "(@1:2:3)",
                             "(@1:4294967295)",
                             "(@1)x"})
        CHECK_MESSAGE(!scpi::parse_list(text).has_value(), text);
}

TEST_CASE("a map is two lists of equal length, taken pairwise") {
    CHECK(scpi::parse_map("(@1,2,3),(@19,18,22)") == Pairs{{1, 19}, {2, 18}, {3, 22}});
    CHECK(scpi::parse_map("(@),(@)") == Pairs{});
    for (const char* text : {"(@1,2)", "(@1,2),(@3)", "(@1),(@2),(@3)", "(@1)(@2)", "1,2", "(@1),\"2\"", "(-3.0,-4.0)"})
        CHECK_MESSAGE(!scpi::parse_map(text).has_value(), text);
    const Pairs pairs{{1, 17}, {2, 18}};
    CHECK(scpi::format_map(pairs) == "(@1,2),(@17,18)");
    CHECK(scpi::parse_map(scpi::format_map(pairs)) == pairs);
    CHECK(scpi::format_map({}) == "(@),(@)");
}

TEST_CASE("an error has a code and a quoted text") {
    const auto error = scpi::parse_error("-222, \"Data out of range; port 99, of 32\"");
    REQUIRE(error);
    CHECK(error->code == -222);
    CHECK(error->text == "Data out of range; port 99, of 32");
    CHECK(scpi::parse_error("0,\"No error\"")->code == 0);
    CHECK(scpi::parse_error("+0, \"No error\"")->code == 0);
    for (const char* text :
         {"", "0", "-222", "\"x\"", "-222, x", "-222, \"x", "x, \"y\"", "-222, \"x\", 3", "99999999999, \"x\""})
        CHECK_MESSAGE(!scpi::parse_error(text).has_value(), text);
}

TEST_CASE("identity and size are read as the switch says them") {
    const auto identity = scpi::parse_identity("Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18");
    REQUIRE(identity);
    CHECK(identity->vendor == "Polatis");
    CHECK(identity->model == "I-OST-24x24-LU1-DMHNS");
    CHECK(identity->serial == "002414");
    CHECK(identity->firmware == "6.5.2.18");
    CHECK(!scpi::parse_identity("Polatis,x,y"));
    CHECK(!scpi::parse_identity(std::string("Polatis,x\x01,y,z")));
    CHECK(scpi::parse_size("16,16") == scpi::Size{16, 16});
    CHECK(scpi::parse_size("32,0") == scpi::Size{32, 0});
    CHECK(scpi::parse_size("32") == scpi::Size{32, 0});
    for (const char* text : {"", "0,16", "16,", "16,16,16", "-1,4", "16x16"})
        CHECK_MESSAGE(!scpi::parse_size(text).has_value(), text);
}

TEST_CASE("powers are finite numbers in parentheses, and no port list") {
    CHECK(scpi::parse_powers("(-3.10,-60.0)") == std::vector<double>{-3.10, -60.0});
    CHECK(scpi::parse_powers("()") == std::vector<double>{});
    for (const char* text : {"(@1,2)", "-3.1", "(nan)", "(inf)", "(-3.1,)", "(1e999)", "(-3.1 -4)"})
        CHECK_MESSAGE(!scpi::parse_powers(text).has_value(), text);
    const std::vector<double> dbm{-3.1, -60};
    CHECK(scpi::format_powers(dbm) == "(-3.10,-60.00)");
}

TEST_CASE("lines come out whole however the reads split and join them") {
    const std::string stream = "first\r\n\r\nsecond\nthird\n";
    for (std::size_t step = 1; step <= stream.size(); ++step) {
        drivers::LineBuffer lines(100);
        std::vector<std::string> got;
        for (std::size_t i = 0; i < stream.size(); i += step) {
            lines.append(std::string_view(stream).substr(i, step));
            while (auto line = lines.next()) got.push_back(*line);
        }
        CHECK(got == std::vector<std::string>{"first", "second", "third"});
    }
}

TEST_CASE("a line without an end is noticed") {
    drivers::LineBuffer lines(10);
    lines.append("0123456789");
    CHECK(!lines.next());
    CHECK(!lines.overlong());
    lines.append("x");
    CHECK(!lines.next());
    CHECK(lines.overlong());
}
