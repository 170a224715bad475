/* Conformance of a backend, on a group that is open: every collective in all its forms, messages,
 * bytes and coalesced calls, against a serial reference in this process. Threads as ranks run it in
 * backend_conform_test.c and backend_conform_full_test.c; the same program is a rank of a job when
 * it is started with --world:
 *
 *     tutti run -n 3 -- build/tests/backend_conform_test --world
 *     TUTTI_BACKEND=mpi mpirun -n 3 build/tests/backend_conform_full_test --world
 *
 * --integers after it leaves floats out.
 */
#ifndef TT_BACKEND_CONFORM_H
#define TT_BACKEND_CONFORM_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/group.h>

typedef struct {
    long checks, wrong;
    uint64_t digest;  /* of all results that this rank saw */
    char text[600];   /* of the first that was wrong */
    bool no_messages; /* the backend has none */
} tt_conform_t;

/* Every root and memory; integers alone, whose sums have the same bits in any order; long
 * vectors, and half of the ranks with other memory than the rest; tensors of devices alone, of
 * the kind that TUTTI_TEST_DEVICE names. */
enum { TT_CONFORM_FULL = 1, TT_CONFORM_INTEGERS = 2, TT_CONFORM_HOSTS = 4, TT_CONFORM_DEVICE = 8 };

/* Before ranks run that are threads: which of the cases (core/base/draw_testing.h). */
void tt_conform_choose(void);

/* Collective: all ranks of the group, in the same way. */
void tt_conform_run(tutti_group_t *group, int flags, tt_conform_t *out);

/* main of a rank of a job, if the arguments say that it is one: prints one line on rank 0. Returns
 * what main returns; -1: it is none. */
int tt_conform_main(int argc, char **argv, int flags);

#endif
