/* What the files of the program mpi_conform share; see mpi_conform.c. */
#ifndef TT_MPI_CONFORM_H
#define TT_MPI_CONFORM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/collectives.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/combine.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s: ", my_rank, __FILE__, __LINE__, #condition);      \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, " (last error: %s)\n", tutti_last_error());                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { ROOM = 1 << 20, LEAVES_MAX = 64, GUARD = 64 };

extern int my_rank;
extern size_t checked;
extern char *buffers[4]; /* ROOM bytes each and a guard behind */

typedef struct {
    const tt_backend_ops_t *ops;
    void *state;
    int rank, size;
} group_t;

/* ---- mpi_conform.c ---- */

size_t bytes_of(tutti_dtype_t dtype);
void set(tutti_dtype_t dtype, void *base, size_t i, double value);
void wait_for(const group_t *group, tt_op_t *op);
void perform(const group_t *group, const tt_call_t *call);
void poison(void);
void expect(const char *what, tutti_dtype_t dtype, const void *got, size_t i, double want);
void expect_untouched(const char *what, tutti_dtype_t dtype, const char *buffer, size_t i);

/* ---- mpi_conform_reduce.c ---- */

void try_reductions(const group_t *group, bool is_short);
void try_widened(const group_t *group);
void try_canonical(const group_t *group);

/* ---- mpi_conform_move.c ---- */

void try_moves(const group_t *group);

/* ---- mpi_conform_message.c ---- */

void post(const group_t *group, tt_message_op_t *op, bool is_send, int peer, int tag,
          tt_slice_t elements);
void try_ring(const group_t *group, size_t count);
void try_any(const group_t *group);
void try_bad_messages(const group_t *group);

/* ---- mpi_conform_group.c: subgroups and faults ---- */

group_t open_part(const group_t *world, const char *name, const int *ranks, int size,
                  int64_t timeout_ms);
void close_part(group_t *group);
void check_scratch_is_kept(void);

void try_subgroup(const group_t *world);
void try_faults(const group_t *world);
void try_new(tutti_group_t *world);
void try_mismatches(const group_t *world);
void try_pair(const group_t *world);
int try_absent(void);

/* ---- mpi_conform_held.c ---- */

void try_held(tutti_group_t *world);

/* ---- mpi_conform_dump.c ---- */

void try_dump(tutti_group_t *world, const char *folder);

#endif
