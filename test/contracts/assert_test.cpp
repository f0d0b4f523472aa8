#include "opus/assert.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>

namespace {

// What a process says that does this, and the signal by which it ends; 0: none.
struct End {
    std::string said;
    int signal = 0;
};

template <class Action>
End end_of(Action action) {
    int both[2];
    REQUIRE(::pipe(both) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(both[1], STDERR_FILENO);
        ::signal(SIGABRT, SIG_DFL);  // not doctest's
        action();
        ::_exit(0);
    }
    ::close(both[1]);
    End end;
    char text[256];
    for (ssize_t n; (n = ::read(both[0], text, sizeof text)) > 0;) end.said.append(text, static_cast<std::size_t>(n));
    ::close(both[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    return end;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what holds is no matter; what does not ends the process, with the condition, its place and the last words") {
    const int one = 1;
    CHECK(end_of([&] { OPUS_ASSERT(one == 1); }).signal == 0);
    const End end = end_of([&] {
        opus::last_words = [](const char* what) { std::fprintf(stderr, "[%s] all that it knew\n", what); };
        OPUS_ASSERT(one == 2);
    });
    CHECK(end.signal == SIGABRT);
    for (const char* part : {"cannot be: not one == 2", "assert_test.cpp", "[cannot be", "all that it knew"})
        CHECK(has(end.said, part));
}

TEST_CASE("what fails while last words are said ends the process at once") {
    const End end = end_of([] {
        opus::last_words = [](const char*) { OPUS_ASSERT(false && "again"); };
        OPUS_ASSERT(false);
    });
    CHECK(end.signal == SIGABRT);
    CHECK(has(end.said, "again"));
}

TEST_CASE("a key that a map must have is found, or the process ends where it was looked for") {
    std::map<int, std::string> map{{1, "one"}};
    opus::must_find(map, 1) = "uno";
    CHECK(std::as_const(map).at(1) == "uno");
    CHECK(opus::must_find(std::as_const(map), 1) == "uno");
    const End end = end_of([&] { opus::must_find(map, 2) = "two"; });
    CHECK(end.signal == SIGABRT);
    CHECK(has(end.said, "assert_test.cpp"));
}
