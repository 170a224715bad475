/* Time: a monotonic clock in nanoseconds, and deadlines on it. */
#ifndef TT_CLOCK_H
#define TT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define TT_NS_PER_MS INT64_C(1000000)
#define TT_NS_PER_S INT64_C(1000000000)

/* A point on the monotonic clock after which a wait ends; TT_NEVER for none. */
typedef int64_t tt_deadline_t;
#define TT_NEVER INT64_MAX

int64_t tt_clock_ns(void);

/* For simulated ranks: the calling thread's clock is this function from now on; NULL: the real one
 * again. */
void tt_clock_set_source(int64_t (*source)(void *user), void *user);

/* Negative timeouts mean "never", and so do those that are too long for the clock. */
tt_deadline_t tt_deadline_in_ms(int64_t timeout_ms);
tt_deadline_t tt_deadline_after(int64_t start_ns, int64_t timeout_ms);

/* Saturates: INT64_MAX for what is longer, or negative. */
int64_t tt_ms_in_ns(int64_t ms);
bool tt_deadline_is_past(tt_deadline_t deadline);

/* What is left, at least 0, capped to what poll(2) takes; -1 for never. */
int tt_deadline_left_ms(tt_deadline_t deadline);

/* What is left, for a call that takes a timeout of which 0 and less mean something else: at least
 * 1, INT64_MAX for never. */
int64_t tt_deadline_timeout_ms(tt_deadline_t deadline);

/* Sleeps, at most until the deadline: between looks at something that gives no notice. */
void tt_clock_sleep(int64_t ns, tt_deadline_t deadline);

#endif
