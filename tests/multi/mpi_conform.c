/* Every collective of a backend against a serial reference, on the ranks of the world that its
 * launcher started: dtypes, reductions, counts (0, 1, odd, above the limits of the mpi engine),
 * uneven parts, leaves, in place and not; messages; subgroups; nothing allocated when warm. Run by
 * mpi_test.py under each MPI. `mpi_conform faults`: ranks that do not come, mismatches, aborts;
 * `held`: memory that MPI is not done with; `absent`: a rank that does not join;
 * `pair`: a failure that only two ranks know of; `dump FOLDER`: what is reported of ranks that
 * wait; `mismatches`, under TUTTI_MPI_CHECK=1: ranks in different calls; `theirs HOW`: a program
 * that starts MPI itself. `short` behind `canonical`, or alone: not every reduction.
 *
 * Contributions are small integers, so that every order of a sum gives the same bits; sums of
 * others are compared with the canonical tree, where the engine promises it (`canonical`).
 */
#include "mpi_conform.h"

#include <dlfcn.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "comm/backend/mpi/mpi_load.h"

int my_rank;
size_t checked;
char *buffers[4];

size_t bytes_of(tutti_dtype_t dtype)
{
    return tutti_dtype_bytes(dtype);
}

void set(tutti_dtype_t dtype, void *base, size_t i, double value)
{
    char *at = (char *)base + i * bytes_of(dtype);
    const float f = (float)value;
    const int64_t whole = (int64_t)value;
    switch (dtype) {
    case TUTTI_F32:
        memcpy(at, &f, 4);
        break;
    case TUTTI_F64:
        memcpy(at, &value, 8);
        break;
    case TUTTI_BF16:
    case TUTTI_F16:
        tt_combine_kernels()->narrow(at, &f, dtype, 1);
        break;
    default: /* little endian, two's complement: the low bytes */
        memcpy(at, &whole, bytes_of(dtype));
    }
}

void wait_for(const group_t *group, tt_op_t *op)
{
    CHECK(group->ops->wait(group->state, op, TT_NEVER) == TUTTI_OK, "wait");
}

void perform(const group_t *group, const tt_call_t *call)
{
    static tt_run_t run;
    CHECK(group->ops->start(group->state, call, &run) == TUTTI_OK, "%s of %zu %s",
          tt_collective_name(call->collective), call->count, tutti_dtype_name(call->dtype));
    wait_for(group, &run.op);
}

void poison(void)
{
    for (int k = 0; k < 4; k++) {
        memset(buffers[k], 0x5a, ROOM + GUARD);
    }
}

void expect(const char *what, tutti_dtype_t dtype, const void *got, size_t i, double want)
{
    char room[8];
    set(dtype, room, 0, want);
    CHECK(memcmp((const char *)got + i * bytes_of(dtype), room, bytes_of(dtype)) == 0,
          "%s %s: element %zu is not %g", what, tutti_dtype_name(dtype), i, want);
    checked++;
}

void expect_untouched(const char *what, tutti_dtype_t dtype, const char *buffer, size_t i)
{
    for (size_t k = 0; k < GUARD; k++) {
        CHECK(buffer[i * bytes_of(dtype) + k] == 0x5a, "%s wrote behind its result", what);
    }
}

/* ---- several under way, and what they cost ---- */

static void try_many(const group_t *group)
{
    enum { CALLS = 20, COUNT = 3000 };
    static tt_run_t runs[CALLS];
    float *data = (float *)(void *)buffers[0];
    CHECK(CALLS * COUNT * 4 <= ROOM, "room");
    for (int k = 0; k < CALLS; k++) {
        float *x = data + (size_t)k * COUNT;
        for (size_t i = 0; i < COUNT; i++) {
            x[i] = (float)(group->rank + k);
        }
        const tt_call_t call = {.collective = TT_ALL_REDUCE,
                                .count = k % 3 == 0 ? 5 : COUNT,
                                .pieces = (const void *[]){x},
                                .piece_count = 1,
                                .out = x};
        CHECK(group->ops->start(group->state, &call, &runs[k]) == TUTTI_OK, "start");
    }
    for (int k = CALLS; k-- > 0;) { /* the last one first */
        wait_for(group, &runs[k].op);
        const size_t last = (size_t)k * COUNT + (k % 3 == 0 ? 4 : COUNT - 1);
        expect("one of many", TUTTI_F32, data, last,
               group->size * k + group->size * (group->size - 1) / 2);
    }
}

static void try_allocations(const group_t *group)
{
    static const size_t counts[] = {1, 500, 5000, 100000};
    for (size_t c = 0; c < 4; c++) {
        const tt_call_t call = {.collective = TT_ALL_REDUCE,
                                .count = counts[c],
                                .pieces = (const void *[]){buffers[0]},
                                .piece_count = 1,
                                .out = buffers[0]};
        memset(buffers[0], 0, ROOM);
        perform(group, &call);
        const size_t before = tt_alloc_stats().allocations;
        for (int i = 0; i < 20; i++) {
            perform(group, &call);
        }
        CHECK(tt_alloc_stats().allocations == before, "a warm call of %zu allocates", counts[c]);
    }
}

static void try_all(const group_t *group, bool is_canonical, bool is_short)
{
    try_reductions(group, is_short);
    try_widened(group);
    const int64_t uncanonical = group->ops->uncanonical_sums(group->state);
    CHECK(is_canonical || group->size == 1 ? uncanonical == 0 : uncanonical > 0,
          "%lld sums are not canonical", (long long)uncanonical);
    if (is_canonical) {
        try_canonical(group);
    }
    try_moves(group);
    try_many(group);
    try_allocations(group);
    try_ring(group, 1);
    try_ring(group, 100000);
    try_any(group);
    try_bad_messages(group);
    try_subgroup(group);
}

/* ---- programs that use MPI themselves ---- */

/* Of the MPI that the plug-in has loaded. */
static void *symbol_of(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    CHECK(symbol != NULL, "%s", name);
    return symbol;
}

static void end_mpi(void)
{
    int (*finalize)(void);
    void *symbol = symbol_of("MPI_Finalize");
    memcpy(&finalize, &symbol, sizeof finalize);
    CHECK(finalize() == 0, "MPI_Finalize");
    tt_mpi_free_left();
}

/* The program starts MPI. It ends it before its own end, or not at all, or is refused since it has
 * started it without threads: nobody does it in its place. */
static int try_theirs(const char *how)
{
    enum { THREAD_SINGLE, THREAD_SERIALIZED = 2 };
    const bool is_single = strcmp(how, "single") == 0;
    const tt_mpi_t *mpi;
    tutti_group_t *world;
    int (*init)(int *, char ***, int, int *), level;
    CHECK(tt_mpi_load(&mpi) == TUTTI_OK, "plug-in");
    void *symbol = symbol_of("MPI_Init_thread");
    memcpy(&init, &symbol, sizeof init);
    CHECK(init(NULL, NULL, is_single ? THREAD_SINGLE : THREAD_SERIALIZED, &level) == 0, "MPI_Init");
    const tutti_status_t status = tutti_init(NULL, &world);
    if (is_single) {
        CHECK(status == TUTTI_ERR_STATE, "init: %s", tutti_status_name(status));
        CHECK(strstr(tutti_last_error(), "MPI was initialised without threads (level 0)") != NULL,
              "text");
        end_mpi();
        return 0;
    }
    CHECK(status == TUTTI_OK && tutti_barrier(world, NULL) == TUTTI_OK, "world");
    printf("rank %d of %d: MPI is its own\n", tutti_group_rank(world), tutti_group_size(world));
    tutti_group_release(world);
    if (strcmp(how, "ends") == 0) {
        end_mpi();
    }
    return 0;
}

static void check_what_is_left(void)
{
    char left[1000];
    CHECK(tt_alloc_report(left, sizeof left) == 0, "%s are left", left);
}

int main(int argc, char **argv)
{
    tutti_group_t *world;
    if (argc > 1 && strcmp(argv[1], "absent") == 0) {
        return try_absent();
    }
    if (argc > 2 && strcmp(argv[1], "theirs") == 0) {
        return try_theirs(argv[2]);
    }
    if (tutti_init(NULL, &world) < 0) {
        fprintf(stderr, "init: %s\n", tutti_last_error());
        return 3;
    }
    const group_t group = {world->backend, world->state, world->rank, world->size};
    my_rank = world->rank;
    for (int k = 0; k < 4; k++) {
        buffers[k] = malloc(ROOM + GUARD);
        CHECK(buffers[k] != NULL, "room");
    }
    const bool tries_faults = argc > 1 && strcmp(argv[1], "faults") == 0;
    if (tries_faults) {
        try_faults(&group);
        try_new(world);
    } else if (argc > 1 && strcmp(argv[1], "held") == 0) {
        try_held(world);
    } else if (argc > 2 && strcmp(argv[1], "dump") == 0) {
        try_dump(world, argv[2]);
    } else if (argc > 1 && strcmp(argv[1], "pair") == 0) {
        try_pair(&group);
    } else if (argc > 1 && strcmp(argv[1], "mismatches") == 0) {
        try_mismatches(&group);
    } else {
        try_all(&group, argc > 1 && strcmp(argv[1], "canonical") == 0,
                strcmp(argv[argc - 1], "short") == 0);
    }
    const int size = world->size;
    tutti_group_release(world);
    for (int k = 0; k < 4; k++) {
        free(buffers[k]);
    }
    if (tries_faults) {
        end_mpi(); /* which is not done with what rank 0 never took */
    }
    check_what_is_left();
    printf("rank %d of %d: %zu elements right, nothing left\n", my_rank, size, checked);
    return 0;
}
