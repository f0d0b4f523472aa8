// What is to happen in virtual time, in order; what happens at the same time, in the order in which it was entered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace opus::virtual_time {

inline constexpr std::int64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

template <class What>
class Calendar {
public:
    struct Entry {
        std::int64_t at_ns = 0;
        std::uint64_t number = 0;  // of those entered
        What what;
    };

    void add(std::int64_t at_ns, What what) {
        heap_.push_back({at_ns, next_++, std::move(what)});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    bool empty() const { return heap_.empty(); }
    std::int64_t next_ns() const { return heap_.front().at_ns; }  // not of an empty one
    bool is_due(std::int64_t at_ns) const { return !empty() && next_ns() <= at_ns; }
    Entry take() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        Entry entry = std::move(heap_.back());
        heap_.pop_back();
        return entry;
    }

private:
    static bool later(const Entry& x, const Entry& y) {
        return x.at_ns != y.at_ns ? x.at_ns > y.at_ns : x.number > y.number;
    }
    std::vector<Entry> heap_;
    std::uint64_t next_ = 0;
};

}  // namespace opus::virtual_time
