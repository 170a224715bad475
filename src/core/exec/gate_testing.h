/* A kernel that holds up what is launched behind it, until the test lets it go on.
 *
 *     tt_gate_close(tt_device_exec(device), TT_GATE_FAILS);
 *     …
 *     tt_gate_open();
 *
 * All gates of a program open at once. For *_test.c only.
 */
#ifndef TT_GATE_TESTING_H
#define TT_GATE_TESTING_H

#include <stdatomic.h>
#include <unistd.h>

#include "core/base/testing.h"
#include "core/exec/exec.h"

/* What comes of it when it opens: "gate: it fails", or nothing. */
typedef enum { TT_GATE_PASSES, TT_GATE_FAILS } tt_gate_end_t;

typedef struct {
    tt_gate_end_t end;
} tt_gate_t;

static atomic_bool tt_gate_is_open;

static inline void tt_gate_open(void)
{
    atomic_store(&tt_gate_is_open, true);
}

static inline tutti_status_t tt_gate_run(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    while (!atomic_load(&tt_gate_is_open)) {
        usleep(100);
    }
    return ((const tt_gate_t *)arguments)->end == TT_GATE_FAILS ? TT_FAIL(TUTTI_ERR_ARG, "it fails")
                                                                : TUTTI_OK;
}

static inline void tt_gate_close(tt_exec_t *exec, tt_gate_end_t end)
{
    static const tt_pointer_t no_pointers[] = {TT_NO_POINTER};
    static const tt_kernel_t gate = TT_KERNEL("gate", tt_gate_t, tt_gate_run, no_pointers);
    atomic_store(&tt_gate_is_open, false);
    assert_int_equal(tt_launch(exec, &gate, &(tt_gate_t){end}), TUTTI_OK);
}

#endif
