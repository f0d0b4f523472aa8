// What a daemon's thread sleeps on: an epoll descriptor, the doorbell that ranks ring, signals.
#pragma once

#include <sys/epoll.h>

#include <initializer_list>
#include <span>
#include <string>

#include "manager/shell/descriptor.h"
#include "opus/types.h"

namespace opus::manager {

Descriptor open_doorbell(const std::string& path);  // makes it; throws std::runtime_error
// They are blocked for the process, and can be read from the descriptor.
Descriptor catch_signals(std::initializer_list<int> numbers);
// Readable: `poller` says so, with the descriptor.
void watch(int poller, int fd);
// Until one of them is readable, or `timeout_ns` is over. How many of `ready` are filled in; below 0: it was interrupted.
int await(int poller, std::span<epoll_event> ready, TimeNs timeout_ns);
void drain(int fd);  // of what has been rung

}  // namespace opus::manager
