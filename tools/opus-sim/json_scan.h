// JSON, scanned once from front to back: what nobody asks for is passed over at the speed of memory, and nothing is built. A mistake
// throws BadFile with its byte. No recursion of its own: whoever calls object() in object() decides how deep it goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

class JsonScan {
public:
    explicit JsonScan(const NamedText& file)
        : name_(file.name), begin_(file.text.data()), at_(begin_), end_(begin_ + file.text.size()) {}

    // `member(key)` must take the value. Keys are as they stand, escapes and all.
    template <class F>
    void object(F&& member) {
        expect('{');
        if (peek() == '}') return void(++at_);
        while (true) {
            const std::string_view key = string();
            expect(':');
            member(key);
            if (peek() == '}') return void(++at_);
            expect(',');
            peek();
        }
    }
    template <class F>
    void array(F&& element) {
        expect('[');
        if (peek() == ']') return void(++at_);
        while (true) {
            element();
            if (peek() == ']') return void(++at_);
            expect(',');
        }
    }
    std::string_view string();   // as it stands between its quotes
    std::uint64_t whole();       // a number without sign or fraction
    std::int64_t thousandths();  // of a number, so that microseconds with fractions are nanoseconds
    std::string_view value();    // any value, passed over; as it stands
    // The next character that is not white; fails at the end.
    char peek() { return at_ != end_ && *at_ > ' ' ? *at_ : behind_white(); }
    void finish();               // nothing may follow
    [[noreturn]] void fail(const std::string& text) const;

private:
    void expect(char c) {
        if (peek() != c) fail_other(c);
        ++at_;
    }
    char behind_white();
    [[noreturn]] void fail_other(char wanted) const;

    std::string name_;
    const char *begin_, *at_, *end_;
};

}  // namespace opus::job
