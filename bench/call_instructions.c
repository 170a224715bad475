/* The instructions of one rank in small calls, for callgrind to count:
 *
 *     valgrind --tool=callgrind --toggle-collect=measured --callgrind-out-file=/dev/null \
 *         build/bench/call_instructions KIND CALLS        KIND: see below
 *
 * Both ranks are in this thread, so that the count does not depend on a scheduler: rank 1 starts
 * its call before rank 0 makes the one that is measured, and ends it afterwards. The instructions
 * collected, divided by CALLS, are those of a call whose peers are there already.
 *
 *     call   an all_reduce of 8 bytes that waits
 *     start  the same, started and then waited for
 *     tag    as call, with another tag each time
 *     prepared, prepared_start
 *            as call and start, of a prepared all_reduce
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { RANKS = 2, WARM = 64, COUNT = 2 };

typedef struct {
    tutti_store_t *store;
    tutti_group_t *group;
    tutti_tensor_t *x;
    tutti_prepared_t *prepared;
    int rank;
    tutti_status_t status;
} rank_t;

typedef tutti_status_t (*kind_fn_t)(const rank_t *rank);

static tutti_status_t call(const rank_t *rank)
{
    return tutti_all_reduce(rank->group, rank->x, TUTTI_SUM, NULL);
}

static tutti_status_t start(const rank_t *rank)
{
    tutti_work_t *work;
    TUTTI_CHECK(tutti_all_reduce(rank->group, rank->x, TUTTI_SUM, &work));
    const tutti_status_t status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    return status;
}

static tutti_status_t call_prepared(const rank_t *rank)
{
    return tutti_prepared_start(rank->prepared, NULL);
}

static tutti_status_t start_prepared(const rank_t *rank)
{
    tutti_work_t *work;
    TUTTI_CHECK(tutti_prepared_start(rank->prepared, &work));
    const tutti_status_t status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    return status;
}

static kind_fn_t find_kind(const char *name)
{
    static const struct {
        const char *name;
        kind_fn_t function;
    } kinds[] = {{"call", call},
                 {"start", start},
                 {"tag", call},
                 {"prepared", call_prepared},
                 {"prepared_start", start_prepared}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            return kinds[i].function;
        }
    }
    return NULL;
}

/* Its name is what callgrind is told. */
__attribute__((noinline)) tutti_status_t measured(kind_fn_t kind, const rank_t *rank);

tutti_status_t measured(kind_fn_t kind, const rank_t *rank)
{
    return kind(rank);
}

static tutti_status_t unmeasured(kind_fn_t kind, const rank_t *rank)
{
    return kind(rank);
}

static tutti_status_t repeat(const rank_t *ranks, const char *kind, int calls, bool is_measured)
{
    const kind_fn_t function = find_kind(kind);
    for (int i = 0; i < calls; i++) {
        tutti_work_t *other;
        for (int rank = 0; strcmp(kind, "tag") == 0 && rank < RANKS; rank++) {
            tutti_group_set_tag(ranks[rank].group, (uint64_t)i);
        }
        TUTTI_CHECK(tutti_all_reduce(ranks[1].group, ranks[1].x, TUTTI_SUM, &other));
        TUTTI_CHECK((is_measured ? measured : unmeasured)(function, &ranks[0]));
        TUTTI_CHECK(tutti_work_wait(other, 0));
        tutti_work_release(other);
    }
    return TUTTI_OK;
}

static tutti_status_t open_rank(rank_t *rank)
{
    const tutti_init_options_t options = {
        .store = rank->store, .rank = rank->rank, .world_size = RANKS};
    TUTTI_CHECK(tutti_init(&options, &rank->group));
    TUTTI_CHECK(tutti_group_tensor(rank->group, TUTTI_F32, TUTTI_SHAPE(COUNT), &rank->x));
    TUTTI_CHECK(tutti_prepare_all_reduce(rank->group, rank->x, TUTTI_SUM, &rank->prepared));
    return tutti_tensor_fill(rank->x, 0);
}

static void *join(void *user)
{
    rank_t *rank = user;
    rank->status = open_rank(rank);
    if (rank->status < 0) {
        fprintf(stderr, "rank %d: %s\n", rank->rank, tutti_last_error());
    }
    return NULL;
}

static int open_ranks(rank_t *ranks)
{
    pthread_t threads[RANKS];
    tutti_store_t *store;
    if (tutti_store_hash_create(&store) < 0) {
        return -1;
    }
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank_t){.store = store, .rank = i};
        pthread_create(&threads[i], NULL, join, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    tutti_store_release(store);
    return ranks[0].status < 0 || ranks[1].status < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    rank_t ranks[RANKS];
    const int calls = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    if (calls < 1 || find_kind(argv[1]) == NULL) {
        fprintf(stderr, "usage: call_instructions KIND CALLS\n");
        return 2;
    }
    if (open_ranks(ranks) < 0) {
        return 1;
    }
    if (repeat(ranks, argv[1], WARM, false) < 0 || repeat(ranks, argv[1], calls, true) < 0) {
        fprintf(stderr, "call_instructions: %s\n", tutti_last_error());
        return 1;
    }
    for (int i = 0; i < RANKS; i++) {
        tutti_prepared_release(ranks[i].prepared);
        tutti_tensor_release(ranks[i].x);
        tutti_group_release(ranks[i].group);
    }
    return 0;
}
