// What the fakes were asked to do, in order: one line each. Lives in the fake NCCL; the fake driver and
// the programs find it there.
#pragma once

extern "C" {
void fake_log(const char* format, ...) __attribute__((format(printf, 1, 2)));
const char* fake_log_text(void);
void fake_log_clear(void);
// Rank and size that the next split or shrink gives; the fake does not talk to other processes.
void fake_set_child(int rank, int size);
// The next calls on non-blocking communicators stay in progress for so many ncclCommGetAsyncError.
void fake_set_in_progress(int looks);
// The next ncclCommGetAsyncError has its answer, and does not return before it is released.
void fake_hold_poll(void);
int fake_poll_is_held(void);
void fake_release_poll(void);
// The next launching call returns this.
void fake_fail_next(int result);
// Calls that NCCL would have put on a stream.
int fake_launches(void);
}
