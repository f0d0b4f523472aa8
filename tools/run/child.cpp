#include "tools/run/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace opus::run {

namespace {

constexpr int kSentOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};

[[noreturn]] void become(const std::vector<std::string>& command, const sigset_t& mask, int failure) {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvp(words[0], words.data());
    const int error = errno;
    const ssize_t written = write(failure, &error, sizeof error);
    _exit(written == ssize_t(sizeof error) ? 127 : 126);
}

// Of the child: 0 where it runs now, errno where exec failed.
int exec_error(int failure) {
    int error = 0;
    ssize_t n;
    do n = read(failure, &error, sizeof error);
    while (n < 0 && errno == EINTR);
    close(failure);
    return n == ssize_t(sizeof error) ? error : 0;
}

// False: not yet.
bool has_ended(pid_t child, int& status) {
    const pid_t found = waitpid(child, &status, WNOHANG);
    return found == child || (found < 0 && errno != EINTR);
}

}  // namespace

Ending run_child(const std::vector<std::string>& command) {
    sigset_t watched, before;
    sigemptyset(&watched);
    for (const int number : kSentOn) sigaddset(&watched, number);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &before);
    // Ignored by who started us, SIGCHLD would leave no status behind. The child gets it back as it was.
    struct sigaction standard {};
    struct sigaction inherited {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &inherited);
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) return {0, errno};
    const pid_t child = fork();
    if (child < 0) return {0, errno};
    if (child == 0) {
        sigaction(SIGCHLD, &inherited, nullptr);
        become(command, before, failure[1]);
    }
    close(failure[1]);
    const int error = exec_error(failure[0]);
    Ending ending{0, error};
    while (!has_ended(child, ending.status)) {
        siginfo_t told{};
        const int number = sigwaitinfo(&watched, &told);
        // The terminal's own (SI_KERNEL) goes to the whole group.
        if (number > 0 && number != SIGCHLD && told.si_code != SI_KERNEL) kill(child, number);
    }
    return ending;
}

void end_as(const Ending& ending) {
    if (ending.error != 0) _exit(ending.error == ENOENT ? 127 : 126);
    if (!WIFSIGNALED(ending.status)) _exit(WEXITSTATUS(ending.status));
    const int number = WTERMSIG(ending.status);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);  // the child's is the one to look at
    signal(number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    raise(number);
    _exit(128 + number);
}

}  // namespace opus::run
