/* Time. A thread may have a clock of its own, which a simulator moves. */
#include "core/base/clock.h"

#include <limits.h>
#include <stddef.h>
#include <time.h>

static _Thread_local struct {
    int64_t (*source)(void *user);
    void *user;
} own_clock;

void tt_clock_set_source(int64_t (*source)(void *user), void *user)
{
    own_clock.source = source;
    own_clock.user = user;
}

int64_t tt_clock_ns(void)
{
    if (own_clock.source != NULL) {
        return own_clock.source(own_clock.user);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * TT_NS_PER_S + now.tv_nsec;
}

int64_t tt_ms_in_ns(int64_t ms)
{
    return ms < 0 || ms > INT64_MAX / TT_NS_PER_MS ? INT64_MAX : ms * TT_NS_PER_MS;
}

tt_deadline_t tt_deadline_after(int64_t start_ns, int64_t timeout_ms)
{
    const int64_t timeout_ns = tt_ms_in_ns(timeout_ms);
    return start_ns > 0 && timeout_ns > TT_NEVER - start_ns ? TT_NEVER : start_ns + timeout_ns;
}

tt_deadline_t tt_deadline_in_ms(int64_t timeout_ms)
{
    return tt_deadline_after(tt_clock_ns(), timeout_ms);
}

bool tt_deadline_is_past(tt_deadline_t deadline)
{
    return deadline != TT_NEVER && tt_clock_ns() >= deadline;
}

int tt_deadline_left_ms(tt_deadline_t deadline)
{
    if (deadline == TT_NEVER) {
        return -1;
    }
    const int64_t left_ms = (deadline - tt_clock_ns() + TT_NS_PER_MS - 1) / TT_NS_PER_MS;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int64_t tt_deadline_timeout_ms(tt_deadline_t deadline)
{
    const int left_ms = tt_deadline_left_ms(deadline);
    return left_ms < 0 ? INT64_MAX : left_ms > 0 ? left_ms : 1;
}

void tt_clock_sleep(int64_t ns, tt_deadline_t deadline)
{
    const int64_t left_ns = deadline - tt_clock_ns();
    const int64_t time_ns = ns < left_ns ? ns : left_ns;
    if (time_ns > 0) {
        nanosleep(&(struct timespec){time_ns / TT_NS_PER_S, time_ns % TT_NS_PER_S}, NULL);
    }
}
