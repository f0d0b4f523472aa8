#include "controller/fabric/spelling.h"

#include <algorithm>
#include <numeric>

namespace opus::fabric {
namespace {

// Letters to insert, drop, replace or swap with their neighbour (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);
    std::iota(above.begin(), above.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({row[j - 1] + 1, above[j] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        before = above;
        above = row;
    }
    return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    constexpr std::size_t kLongestWord = 64;
    std::size_t best = std::min<std::size_t>(2, (word.size() - (word.empty() ? 0 : 1)) / 2);
    std::string found;
    if (word.size() > kLongestWord) return found;
    for (const std::string& candidate : known) {
        if (candidate.size() > kLongestWord) continue;
        const std::size_t d = distance(word, candidate);
        if (d < best || (d == best && found.empty())) best = d, found = candidate;
    }
    return found;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
    constexpr std::size_t kShortList = 12;
    if (const std::string near = nearest(word, known); !near.empty()) return "; did you mean '" + near + "'?";
    if (known.empty() || known.size() > kShortList) return "";
    std::string text = "; known: ";
    for (std::size_t i = 0; i < known.size(); ++i) text += (i > 0 ? ", " : "") + known[i];
    return text;
}

}  // namespace opus::fabric
