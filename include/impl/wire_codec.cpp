// See wire_codec.h. Members come from wire_members.h, rules from wire_rules.h; nothing here knows a
// particular message.
#include "opus/wire_codec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <msgpack/pack.hpp>
#include <new>
#include <type_traits>
#include <utility>

#include "impl/msgpack_reader.h"
#include "impl/wire_members.h"
#include "impl/wire_rules.h"

namespace opus::wire {
namespace {

struct StringSink {
    std::string& out;
    void write(const char* data, std::size_t size) { out.append(data, size); }
};

class Writer {
public:
    explicit Writer(StringSink& sink) : packer_(sink) {}

    void array(std::size_t count) { packer_.pack_array(static_cast<std::uint32_t>(count)); }
    void value(bool x) { x ? packer_.pack_true() : packer_.pack_false(); }
    void value(std::uint32_t x) { packer_.pack_uint32(x); }
    void value(std::uint64_t x) { packer_.pack_uint64(x); }
    void value(std::int64_t x) { packer_.pack_int64(x); }
    void value(const std::string& x) {
        packer_.pack_str(static_cast<std::uint32_t>(x.size()));
        packer_.pack_str_body(x.data(), static_cast<std::uint32_t>(x.size()));
    }
    template <class T>
    requires std::is_enum_v<T>
    void value(T x) { value(static_cast<std::uint32_t>(x)); }
    template <class T>
    void value(const Reserved<T>&) { value(T{}); }
    template <class T>
    void value(const std::vector<T>& list) {
        array(list.size());
        for (const auto& x : list) value(x);
    }
    template <WireStruct T>
    void value(const T& x) {
#ifndef __clang__  // clang 14 takes one value too many for CommMember
        static_assert(member_count<T> == aggregate_size<T>(), "a member is missing in wire_members.h");
#endif
        array(member_count<T>);
        members(x, [&](const char*, const auto& member) { return value(member), true; });
    }

private:
    msgpack::packer<StringSink> packer_;
};

constexpr std::uint64_t last_of(KeyKind) { return kKeyKinds - 1; }
constexpr std::uint64_t last_of(OpKind) { return kOpKinds - 1; }
constexpr std::uint64_t last_of(Mode) { return 2; }
constexpr std::uint64_t last_of(Verdict) { return kVerdicts - 1; }
constexpr std::uint64_t last_of(Reason) { return kReasons - 1; }
constexpr std::uint64_t last_of(CreationState) { return kCreationStates - 1; }
constexpr std::uint64_t last_of(Policy) { return 1; }
constexpr std::uint64_t last_of(LaunchState) { return 3; }

class Reader {
public:
    explicit Reader(std::string_view bytes) : raw_(bytes) {}

    MsgpackReader& raw() { return raw_; }

    bool value(bool& x) { return raw_.boolean(x); }
    bool value(std::uint64_t& x) { return raw_.unsigned_integer(x, std::numeric_limits<std::uint64_t>::max()); }
    bool value(std::int64_t& x) { return raw_.signed_integer(x); }
    bool value(std::uint32_t& x) { return narrow(x, std::numeric_limits<std::uint32_t>::max()); }
    bool value(std::string& x) { return raw_.text(x, kMaxBody); }
    template <class T>
    requires std::is_enum_v<T>
    bool value(T& x) { return narrow(x, last_of(T{})); }

    template <class T>
    bool value(Reserved<T>&) { return raw_.skip(); }
    template <class T>
    bool value(std::vector<T>& list) {
        std::uint32_t count = 0;
        if (!raw_.array(count)) return false;
        if (count > kMaxList) return fail("too many elements");
        list.clear();
        list.reserve(std::min(count, kLikely));
        for (std::uint32_t i = 0; i < count; ++i)
            if (!value(list.emplace_back())) return at({nullptr, i});
        return true;
    }

    // Members that a newer peer appended are stepped over; those that an older one lacks keep defaults.
    template <WireStruct T>
    bool value(T& x) {
        std::uint32_t given = 0;
        if (!raw_.array(given)) return false;
        const auto read = [&](const char* name, auto& member) {
            if (given == 0) return true;
            --given;
            return value(member) || at({name, 0});
        };
        if (!members(x, read)) return false;
        for (; given > 0; --given)
            if (!raw_.skip()) return false;
        if (const Fault fault = rule(x)) return fail(fault.text), at({fault.member, 0});
        return true;
    }

    // "launches[2].keys: more than 65536"
    std::string trouble() const {
        std::string text;
        for (std::size_t i = depth_; i-- > 0;) {
            const Step& step = path_[i];
            if (step.member == nullptr)
                text += "[" + std::to_string(step.index) + "]";
            else
                text += (text.empty() ? "" : ".") + std::string(step.member);
        }
        return (text.empty() ? "" : text + ": ") + (own_fault_ ? own_fault_ : raw_.fault());
    }

private:
    static constexpr std::uint32_t kLikely = 16;  // elements; a peer that says more has yet to send them
    struct Step {
        const char* member = nullptr;  // or the element of a list
        std::uint32_t index = 0;
    };
    MsgpackReader raw_;
    // Where the trouble is, innermost first: noted on the way out. Structs nest 6 deep at most, in 4 lists
    // (Snapshot.launches.demand.keys.first.comm.hi).
    std::array<Step, 12> path_;
    std::size_t depth_ = 0;
    const char* own_fault_ = nullptr;

    bool fail(const char* fault) { return own_fault_ = fault, false; }
    bool at(Step step) { return path_[depth_++] = step, false; }
    template <class T>
    bool narrow(T& x, std::uint64_t most) {
        std::uint64_t wide = 0;
        if (!raw_.unsigned_integer(wide, most)) return false;
        return x = static_cast<T>(wide), true;
    }
};

DecodeError error(std::string text) { return {std::move(text), false}; }

// The variant holds an empty message of that number afterwards; false for a number nobody here knows.
bool select(std::uint64_t number, Message& message) {
    switch (number) {
#define OPUS_CASE(n, T) \
    case n: message.emplace<T>(); return true;
        OPUS_WIRE_MESSAGES(OPUS_CASE)
#undef OPUS_CASE
        default: return false;
    }
}

std::uint32_t number_of(const Message& message) {
    static constexpr std::uint32_t numbers[] = {
#define OPUS_NUMBER(n, T) n,
        OPUS_WIRE_MESSAGES(OPUS_NUMBER)
#undef OPUS_NUMBER
    };
    static_assert(std::size(numbers) == std::variant_size_v<Message>);
    return numbers[message.index()];
}

std::variant<Frame, DecodeError> decode_checked(std::string_view bytes) {
    if (bytes.size() > kMaxFrameBytes) return error("frame: longer than 16 MiB");
    Reader reader(bytes);
    MsgpackReader& raw = reader.raw();
    const auto broken = [&](const char* where) { return error(std::string("frame: ") + where + ": " + raw.fault()); };

    std::uint32_t members = 0;
    std::uint64_t magic = 0, major = 0, minor = 0;
    if (!raw.array(members) || members < 3 || !reader.value(magic) || magic != kMagic)
        return error("frame: not a message of Opus");
    if (!reader.value(major) || !reader.value(minor)) return broken("version");
    if (major != kMajor)
        return DecodeError{"the peer speaks protocol " + std::to_string(major) + "." + std::to_string(minor) +
                               ", this program " + std::to_string(kMajor) + "." + std::to_string(kMinor) +
                               ": run the same major version of Opus on both sides",
                           true};
    if (members < 7) return error("frame: cut short");

    Frame frame;
    std::uint32_t count = 0;
    if (!reader.value(frame.epoch)) return broken("epoch");
    if (!reader.value(frame.session)) return broken("session");
    if (!reader.value(frame.sequence)) return broken("sequence");
    if (!raw.array(count)) return broken("messages");
    if (count > kMaxList) return error("frame: messages: too many elements");
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint32_t parts = 0;
        std::uint64_t number = 0;
        if (!raw.array(parts)) return broken("message");
        if (parts < 2) return error("frame: message: needs a number and a body");
        if (!reader.value(number)) return broken("message number");
        Message& message = frame.messages.emplace_back();
        if (!select(number, message)) {  // of a newer minor version
            for (; parts > 1; --parts)
                if (!raw.skip()) return broken("unknown message");
            frame.messages.pop_back();
            continue;
        }
        if (!std::visit([&](auto& body) { return reader.value(body); }, message))
            return error("message " + std::to_string(number) + " (" + message_name(message) + "): " + reader.trouble());
        for (; parts > 2; --parts)
            if (!raw.skip()) return broken("message");
    }
    for (; members > 7; --members)
        if (!raw.skip()) return broken("unknown member");
    if (raw.left() != 0) return error("frame: bytes after its end");
    return frame;
}

}  // namespace

void encode(const Frame& frame, std::string& out) {
    out.clear();
    StringSink sink{out};
    Writer writer(sink);
    writer.array(7);
    writer.value(kMagic);
    writer.value(kMajor);
    writer.value(kMinor);
    writer.value(frame.epoch);
    writer.value(frame.session);
    writer.value(frame.sequence);
    writer.array(frame.messages.size());
    for (const Message& message : frame.messages) {
        writer.array(2);
        writer.value(number_of(message));
        std::visit([&](const auto& body) { writer.value(body); }, message);
    }
}

std::variant<Frame, DecodeError> decode(std::string_view bytes) {
    try {
        return decode_checked(bytes);
    } catch (const std::bad_alloc&) { return error("frame: not enough memory for it"); }
}

const char* message_name(const Message& message) {
    static constexpr const char* names[] = {
#define OPUS_NAME(n, T) #T,
        OPUS_WIRE_MESSAGES(OPUS_NAME)
#undef OPUS_NAME
    };
    static_assert(std::size(names) == std::variant_size_v<Message>);
    return names[message.index()];
}

}  // namespace opus::wire
