// The codec of the control protocol: what goes in comes out, and no bytes whatever can hurt.
#include <doctest/doctest.h>

#include <msgpack.hpp>
#include <set>
#include <sstream>

#include "impl/wire_members.h"
#include "opus/wire_codec.h"
#include "wire_samples.h"

namespace opus::wire {
namespace {

// Every member, by name, as text: two messages are the same when their texts are.
template <class T>
void describe(std::ostream& out, const T& x) {
    if constexpr (std::is_enum_v<T>)
        out << static_cast<int>(x);
    else if constexpr (requires { out << x; })
        out << x;
    else if constexpr (std::is_empty_v<T>)
        out << '-';
    else if constexpr (requires { x.begin(); }) {
        out << '[';
        for (const auto& element : x) describe(out, element), out << ' ';
        out << ']';
    } else {
        out << '{';
        members(x, [&](const char* name, const auto& member) {
            return out << name << '=', describe(out, member), out << ' ', true;
        });
        out << '}';
    }
}
std::string text_of(const Message& message) {
    std::ostringstream out;
    out << message_name(message);
    std::visit([&](const auto& body) { describe(out, body); }, message);
    return out.str();
}

std::string bytes_of(const Frame& frame) {
    std::string bytes;
    encode(frame, bytes);
    return bytes;
}
std::string error_of(const std::string& bytes) {
    const auto result = decode(bytes);
    const auto* error = std::get_if<DecodeError>(&result);
    return error ? error->text : "";
}
std::string error_of(Message message) { return error_of(bytes_of({1, 2, 3, {std::move(message)}})); }

using Packer = msgpack::packer<std::stringstream>;
// A frame written by msgpack itself, so that reader and writer are not only checked against each other.
template <class WriteMessages>
std::string hand_made(std::uint32_t major, std::uint32_t count, WriteMessages&& write, int extra = 0) {
    std::stringstream out;
    Packer pack(out);
    pack.pack_array(7 + extra);
    pack.pack(kMagic).pack(major).pack(kMinor).pack(1).pack(2).pack(3);
    pack.pack_array(count);
    write(pack);
    for (int i = 0; i < extra; ++i) pack.pack(std::map<std::string, std::vector<double>>{{"later", {1.5, 2.5}}});
    return out.str();
}

}  // namespace

TEST_CASE("every message comes out as it went in") {
    std::set<std::size_t> kinds;
    for (const Message& message : samples::all()) {
        kinds.insert(message.index());
        const auto result = decode(bytes_of({11, 22, 33, {message}}));
        REQUIRE_MESSAGE(std::holds_alternative<Frame>(result), text_of(message), ": ", std::get<DecodeError>(result).text);
        const Frame& frame = std::get<Frame>(result);
        CHECK(frame.epoch == 11);
        CHECK(frame.session == 22);
        CHECK(frame.sequence == 33);
        REQUIRE(frame.messages.size() == 1);
        CHECK(text_of(frame.messages[0]) == text_of(message));
    }
    CHECK(kinds.size() == std::variant_size_v<Message>);
}

TEST_CASE("a frame keeps its messages in order") {
    const auto result = decode(bytes_of({1, 2, 3, samples::all()}));
    const auto all = samples::all();
    const Frame& frame = std::get<Frame>(result);
    REQUIRE(frame.messages.size() == all.size());
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(text_of(frame.messages[i]) == text_of(all[i]));
}

TEST_CASE("the bytes of the protocol do not drift") {
    const std::string bytes = bytes_of({1, 2, 3, {Demand{{samples::demand()}}, Expired{{samples::launch(3)}}}});
    std::string hex;
    for (const unsigned char c : bytes) hex += "0123456789abcdef"[c >> 4], hex += "0123456789abcdef"[c & 15];
    CHECK(hex ==
          "97ce4f5055530105010203929205919198920729929395"
          "92cf1122334455667788cf99aabbccddeeff00000000cd012c01c29395920102010506ce0001117004"
          "c203cf0000000200000000cf17979cfe362a0000"
          "90"
          "c3c2"
          "92089191"
          "920703");
}

TEST_CASE("msgpack itself reads what is written") {
    const std::string bytes = bytes_of({1, 2, 3, samples::all()});
    std::size_t end = 0;
    const auto handle = msgpack::unpack(bytes.data(), bytes.size(), end);
    CHECK(end == bytes.size());
    REQUIRE(handle.get().type == msgpack::type::ARRAY);
    CHECK(handle.get().via.array.size == 7);
    CHECK(handle.get().via.array.ptr[6].via.array.size == samples::all().size());
}

TEST_CASE("a frame cut short anywhere is refused") {
    const std::string bytes = bytes_of({1, 2, 3, samples::all()});
    for (std::size_t size = 0; size < bytes.size(); ++size) REQUIRE(error_of(bytes.substr(0, size)) != "");
    CHECK(error_of(bytes + '\0') == "frame: bytes after its end");
}

TEST_CASE("a flipped bit is refused or makes another whole message") {
    const std::string bytes = bytes_of({1, 2, 3, samples::all()});
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        std::string flipped = bytes;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        const auto result = decode(flipped);
        if (const auto* frame = std::get_if<Frame>(&result))
            CHECK(error_of(bytes_of(*frame)) == "");
        else
            ++refused;
    }
    CHECK(refused > 0);
}

TEST_CASE("another major version is refused with both versions named") {
    const auto result = decode(hand_made(2, 0, [](Packer&) {}));
    const auto& error = std::get<DecodeError>(result);
    CHECK(error.other_version);
    CHECK(error.text.find("protocol 2.5, this program 1.5") != std::string::npos);
}

TEST_CASE("what a newer minor version adds is ignored") {
    const std::string bytes = hand_made(
        kMajor, 3,
        [](Packer& pack) {
            pack.pack_array(2).pack(999).pack(std::map<int, std::string>{{1, "unknown message"}});
            pack.pack_array(3).pack(9);  // Heartbeat with a member and a part too many
            pack.pack_array(5).pack(77);
            for (int list = 0; list < 3; ++list) pack.pack(std::vector<int>{});
            pack.pack(std::vector<std::string>{"new", "member"});
            pack.pack(std::string("new part"));
            pack.pack_array(2).pack(19).pack_nil();
        },
        2);
    const auto result = decode(bytes);
    REQUIRE_MESSAGE(std::holds_alternative<Frame>(result), error_of(bytes));
    const auto& messages = std::get<Frame>(result).messages;
    REQUIRE(messages.size() == 1);
    CHECK(std::get<Heartbeat>(messages[0]).sent_ns == 77);
}

TEST_CASE("what older minor versions say and nobody reads any more is stepped over") {
    const std::string bytes = hand_made(kMajor, 2, [](Packer& pack) {
        pack.pack_array(2).pack(10).pack(std::vector<std::vector<int>>{{1, 2}});  // Next
        pack.pack_array(2).pack(9);
        pack.pack_array(4).pack(77).pack(std::vector<std::vector<int>>{{7, 40, 6}}).pack(std::vector<std::string>{"withheld"}).pack_array(0);
    });
    const auto result = decode(bytes);
    REQUIRE_MESSAGE(std::holds_alternative<Frame>(result), error_of(bytes));
    const auto& messages = std::get<Frame>(result).messages;
    REQUIRE(messages.size() == 1);
    CHECK(std::get<Heartbeat>(messages[0]).sent_ns == 77);
}

TEST_CASE("members that an older minor version lacks keep their defaults") {
    const auto result = decode(hand_made(kMajor, 1, [](Packer& pack) {
        pack.pack_array(2).pack(1);
        pack.pack_array(2).pack(std::string("n0")).pack(5);
    }));
    const auto& hello = std::get<Hello>(std::get<Frame>(result).messages.at(0));
    CHECK(hello.node == "n0");
    CHECK(hello.session == 5);
    CHECK(hello.known_epoch == 0);
    CHECK(hello.version == "");
    const auto welcomed = decode(hand_made(kMajor, 1, [](Packer& pack) {
        pack.pack_array(2).pack(20);
        pack.pack_array(6).pack(5).pack(7).pack(0).pack_array(0).pack(true).pack(true);
    }));
    const auto& welcome = std::get<Welcome>(std::get<Frame>(welcomed).messages.at(0));
    CHECK(welcome.grace_ms == 0);
    CHECK(welcome.silence_ms == 0);
}

TEST_CASE("an error names the message, the field and what is wrong") {
    auto launches = std::vector{samples::demand(), samples::demand(), samples::demand()};
    launches[2].keys[1].count = 70'000;
    CHECK(error_of(Demand{launches}) == "message 5 (Demand): launches[2].keys[1].count: more than 65536");
    launches[2] = samples::demand();
    launches[0].keys[0].first.comm = {};
    CHECK(error_of(Demand{launches}) == "message 5 (Demand): launches[0].keys[0].first.comm: zero");
    launches[0] = samples::demand();
    launches[1].op = static_cast<OpKind>(kOpKinds);
    CHECK(error_of(Demand{launches}) == "message 5 (Demand): launches[1].op: out of range");
}

TEST_CASE("fields out of their range are refused") {
    auto member = samples::member();
    member.rank_in_comm = member.size;
    CHECK(error_of(Register{{}, {member}}) == "message 3 (Register): comms[0].rank_in_comm: not below size");
    auto steering = samples::lit();
    steering.peer_port = kNone;
    CHECK(error_of(Grant{1, {}, {}, {steering}}) ==
          "message 23 (Grant): steering[0].peer_gpu: a peer is whole or none");
    auto info = samples::rank_info();
    info.job = "two\nlines";
    CHECK(error_of(Register{{info}, {}}) == "message 3 (Register): ranks[0].job: holds a control character");
    CHECK(error_of(Hello{"", 1, 0, ""}) == "message 1 (Hello): node: empty");
    CHECK(error_of(Hello{std::string(256, 'x'), 1, 0, ""}) == "message 1 (Hello): node: longer than 255 bytes");
    CHECK(error_of(Verdicts{{{{1, 2}, static_cast<Verdict>(5)}}}) ==
          "message 22 (Verdicts): comms[0].verdict: out of range");
    CHECK(error_of(Expired{{{kNone, 3}}}) == "message 8 (Expired): launches[0].rank: missing");
    auto demand = samples::demand();
    demand.keys.clear();
    CHECK(error_of(Demand{{demand}}) ==
          "message 5 (Demand): launches[0].keys: empty: a launch without a key never asks");
    demand.keys = {{samples::coll(), 40'000}, {samples::coll(), 40'000}};
    CHECK(error_of(Demand{{demand}}) == "message 5 (Demand): launches[0].keys: more than 65536");
    demand.keys = {{samples::coll(), 0}};
    CHECK(error_of(Demand{{demand}}) == "message 5 (Demand): launches[0].keys[0].count: must be at least 1");
}

TEST_CASE("sizes that the bytes cannot hold cost nothing") {
    // An array of 2^32 - 1 launches, nested arrays without end, a string of 4 GiB.
    const std::string head = hand_made(kMajor, 1, [](Packer& pack) { pack.pack_array(2).pack(5); });
    CHECK(error_of(head + "\x91\xdd\xff\xff\xff\xff") == "message 5 (Demand): launches: too many elements");
    CHECK(error_of(head + "\x91" + std::string("\xdd\x00\x03\xff\xff", 5)) ==
          "message 5 (Demand): launches[0]: cut short");
    CHECK(error_of(head + "\x92\x90" + std::string(1 << 20, '\xdd')) == "message 5 (Demand): cut short");
    const std::string refused = hand_made(kMajor, 1, [](Packer& pack) { pack.pack_array(2).pack(21); });
    CHECK(error_of(refused + "\x92\x01\xdb\xff\xff\xff\xff") == "message 21 (Refused): reason: too long");
    CHECK(error_of(std::string(kMaxFrameBytes + 1, '\x90')) == "frame: longer than 16 MiB");
}

TEST_CASE("bytes of another program are refused as such") {
    CHECK(error_of(std::string()) == "frame: not a message of Opus");
    CHECK(error_of(std::string("GET / HTTP/1.1\r\n\r\n")) == "frame: not a message of Opus");
    CHECK(error_of(std::string("\x97\x01\x02\x03", 4)) == "frame: not a message of Opus");
}

}  // namespace opus::wire
