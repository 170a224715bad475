/* What `bench/run checkpoint` saves and loads: matrices of which each rank has some rows. */
#ifndef TT_CHECKPOINT_BENCH_H
#define TT_CHECKPOINT_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/checkpoint.h>
#include <tutti/collectives.h>

enum { NAME_BYTES = 32, WIDTH = 2048 };

typedef struct {
    tutti_group_t *world;
    int rank, ranks;
    char (*names)[NAME_BYTES]; /* [count] */
    tutti_slice_t *slices;     /* [count] */
    size_t count;
    tutti_checkpoint_t checkpoint; /* of these */
} state_t;

/* Matrices [rows, width] in f32, cut into as many parts as `parts` by rows, or by columns. A rank
 * behind them has nothing; with one part every rank has all. */
typedef struct {
    size_t count;
    int64_t rows, width;
    int parts;
    bool is_by_columns;
} layout_t;

tutti_status_t state_create(tutti_group_t *world, const char *folder, const layout_t *layout,
                            state_t *out);
void state_release(state_t *state);

/* Values that tell the element in the whole matrix, or zeros. */
void state_fill(const state_t *state, bool is_zero);
tutti_status_t state_check(const state_t *state);

double seconds_now(void);

/* The same files with nothing but system calls, beside those of step `like` in the state's folder,
 * from which it has their sizes. -1: errno. */
int limit_save(const state_t *state, const char *folder, int64_t like, int64_t step);
int limit_load(const state_t *state, const char *folder, int64_t step);

/* Parts of the program, each prints its JSON lines on rank 0. */
tutti_status_t bench_save(const state_t *state, int rounds, bool has_limit);
tutti_status_t bench_load(const state_t *state, int rounds, bool has_limit, bool is_cold);
tutti_status_t bench_steps(const state_t *state, int rounds);
tutti_status_t bench_bytes(tutti_group_t *world, const char *folder, size_t count);
tutti_status_t bench_memory(const state_t *state);
tutti_status_t bench_many(tutti_group_t *world, const char *folder, int rounds);

#endif
