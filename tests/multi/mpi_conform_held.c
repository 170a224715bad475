/* Memory that MPI is not done with when a call fails: nobody else gets it before MPI is, whatever
 * it is (tensors, packs, bytes, colours), and then it is free.
 *
 * Rank 0 has an MPI that cannot cancel receives, and that fails where a test says so: its table of
 * functions is replaced by one that leaves these out.
 */
#include "mpi_conform.h"

#include <tutti/messages.h>
#include <tutti/objects.h>

#include "comm/backend/mpi/mpi_impl.h"

enum { HELD_BYTES = 256 << 10, COPIES = 8, SHORT_MS = 100, LONG_MS = 20000 };

/* ---- an MPI with faults ---- */

static tt_mpi_t faulty;
static const tt_mpi_t *sound;
static int sends_left; /* until one fails */

static void cancel_nothing(void *request)
{
    (void)request;
}

static int send_or_fail(tt_mpi_comm_t comm, const void *data, size_t bytes, int peer, int tag,
                        void *request)
{
    const bool fails = bytes > 0 && sends_left-- == 0;
    return fails ? 1 : sound->send(comm, data, bytes, peer, tag, request);
}

static tutti_group_t *open_pair(tutti_group_t *world, int sends)
{
    tutti_group_t *pair = NULL;
    const tutti_group_options_t options = {.timeout_ms = LONG_MS};
    CHECK(tutti_group_new(world, (const int[]){0, 1}, 2, &options, &pair) == TUTTI_OK, "pair");
    tt_mpi_group_t *engine = (tt_mpi_group_t *)(void *)pair->state;
    sound = engine->mpi;
    faulty = *sound;
    faulty.cancel = cancel_nothing;
    faulty.send = send_or_fail;
    sends_left = sends;
    if (world->rank == 0) {
        engine->mpi = &faulty;
        engine->timeout_ms = SHORT_MS;
    }
    return pair;
}

/* ---- the memory that comes next ---- */

/* Blocks as large as what was freed, so that one of them is what was freed. */
typedef struct {
    unsigned char *blocks[COPIES];
    size_t bytes;
} copies_t;

static copies_t fill_copies(size_t bytes)
{
    copies_t copies = {.bytes = bytes};
    for (int i = 0; i < COPIES; i++) {
        copies.blocks[i] = tt_alloc_raw(bytes, "what comes next");
        CHECK(copies.blocks[i] != NULL, "room");
        memset(copies.blocks[i], 0x77, bytes);
    }
    return copies;
}

static void check_copies(const char *what, copies_t *copies)
{
    for (int i = 0; i < COPIES; i++) {
        for (size_t k = 0; k < copies->bytes; k++) {
            CHECK(copies->blocks[i][k] == 0x77, "%s: byte %zu of another block was overwritten",
                  what, k);
        }
        tt_free(copies->blocks[i]);
    }
}

/* ---- calls of rank 0 that fail, and what rank 1 sends before and after ---- */

typedef struct {
    const char *name;
    size_t bytes;                            /* of the block that rank 0 gives back */
    int sends;                               /* of rank 0 that go well */
    void (*come_early)(tutti_group_t *pair); /* rank 1; NULL: it does not */
    tutti_status_t (*fail)(tutti_group_t *pair);
    void (*come_late)(tutti_group_t *pair);
} held_t;

static tutti_tensor_t *new_tensor(tutti_dtype_t dtype, int64_t count)
{
    tutti_tensor_t *x;
    CHECK(tutti_tensor_create(dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK, "tensor");
    return x;
}

static tutti_tensor_t *new_length(void)
{
    tutti_tensor_t *x = new_tensor(TUTTI_I64, 1);
    const int64_t length = HELD_BYTES;
    memcpy(tutti_tensor_data(x), &length, sizeof length);
    return x;
}

static void send_length(tutti_group_t *pair)
{
    tutti_tensor_t *length = new_length();
    CHECK(tutti_send(pair, length, 0, 5, NULL) == TUTTI_OK, "length");
    tutti_tensor_release(length);
}

static tutti_status_t recv_bytes(tutti_group_t *pair)
{
    tutti_buffer_t got;
    return tutti_recv_bytes(pair, 1, 5, NULL, &got);
}

static tutti_status_t recv_tensor(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, HELD_BYTES);
    const tutti_status_t status = tutti_recv(pair, x, 1, 5, NULL);
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t recv_with_work(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, HELD_BYTES);
    tutti_work_t *work;
    CHECK(tutti_recv(pair, x, 1, 5, &work) == TUTTI_OK, "recv");
    tutti_tensor_release(x);
    const tutti_status_t status = tutti_work_wait(work, 0);
    CHECK(strstr(tutti_work_error(work), "gave up after 100 ms") != NULL, "its text");
    tutti_work_release(work);
    return status;
}

static void send_payload(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, HELD_BYTES);
    (void)tutti_send(pair, x, 0, 5, NULL);
    tutti_tensor_release(x);
}

static void broadcast_length(tutti_group_t *pair)
{
    tutti_tensor_t *length = new_length();
    CHECK(tutti_broadcast(pair, length, 1, NULL) == TUTTI_OK, "length");
    tutti_tensor_release(length);
}

static tutti_status_t broadcast_bytes(tutti_group_t *pair)
{
    tutti_buffer_t got;
    return tutti_broadcast_bytes(pair, (tutti_bytes_t){0}, 1, &got);
}

static void broadcast_payload(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, HELD_BYTES);
    (void)tutti_broadcast(pair, x, 1, NULL);
    tutti_tensor_release(x);
}

static tutti_status_t split(tutti_group_t *pair)
{
    tutti_group_t *half;
    return tutti_group_split(pair, 0, 0, &half);
}

static tutti_status_t gather_some(tutti_group_t *pair, tutti_dtype_t dtype, int64_t count)
{
    tutti_tensor_t *all = new_tensor(dtype, 2 * count);
    tutti_tensor_t *mine = new_tensor(dtype, count);
    const tutti_status_t status = tutti_all_gather(pair, all, mine, NULL);
    tutti_tensor_release(mine);
    tutti_tensor_release(all);
    return status;
}

/* What a split sends. */
static void gather_colours(tutti_group_t *pair)
{
    (void)gather_some(pair, TUTTI_I64, 3);
}

static tutti_status_t gather(tutti_group_t *pair)
{
    return gather_some(pair, TUTTI_U8, HELD_BYTES);
}

static void gather_late(tutti_group_t *pair)
{
    (void)gather(pair);
}

/* With a receive under way, so that the call has requests of its own that none had before. */
static tutti_status_t gather_beside(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, 1);
    tutti_work_t *work;
    CHECK(tutti_recv(pair, x, 1, 6, &work) == TUTTI_OK, "recv");
    const tutti_status_t status = gather(pair);
    tutti_work_release(work);
    tutti_tensor_release(x);
    return status;
}

static void send_and_gather(tutti_group_t *pair)
{
    tutti_tensor_t *x = new_tensor(TUTTI_U8, 1);
    CHECK(tutti_send(pair, x, 0, 6, NULL) == TUTTI_OK, "send");
    tutti_tensor_release(x);
    gather_late(pair);
}

static void meet(tutti_group_t *world)
{
    CHECK(tutti_barrier(world, NULL) == TUTTI_OK, "barrier");
}

static void try_one(tutti_group_t *world, const held_t *held)
{
    enum { ROUNDS = 50 };
    tutti_group_t *pair = open_pair(world, held->sends);
    copies_t copies = {.bytes = 0};
    if (world->rank == 0) {
        const tutti_status_t status = held->fail(pair);
        CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER, "%s: it did not fail: %s",
              held->name, tutti_status_name(status));
        copies = fill_copies(held->bytes);
        CHECK(pair->first != NULL, "%s: nothing is held", held->name);
    } else if (held->come_early != NULL) {
        held->come_early(pair);
    }
    meet(world);
    if (world->rank == 1) {
        held->come_late(pair);
    }
    for (int i = 0; i < ROUNDS; i++) { /* MPI moves what is under way */
        meet(world);
        tutti_group_progress(world);
    }
    if (world->rank == 0) {
        check_copies(held->name, &copies);
        CHECK(pair->first == NULL, "%s: it is held although all has come", held->name);
    }
    tutti_group_release(pair);
}

/* ---- scratch of a group that has closed ---- */

/* Rank 0 gives a sum up and closes the group while MPI waits for what rank 1 has to send. */
static void try_left(tutti_group_t *world)
{
    enum { COUNT = 32768, ROUNDS = 50 };
    static tt_run_t run;
    const group_t all = {world->backend, world->state, world->rank, world->size};
    const tt_call_t call = {.collective = TT_REDUCE_SCATTER,
                            .count = COUNT,
                            .pieces = (const void *[]){buffers[0]},
                            .piece_count = 1,
                            .out = buffers[1]};
    const size_t before = tt_alloc_stats().blocks;
    group_t two = open_part(&all, "left", (const int[]){0, 1}, 2, LONG_MS);
    tt_mpi_group_t *engine = two.state;
    sound = engine->mpi;
    faulty = *sound;
    faulty.cancel = cancel_nothing;
    if (world->rank == 0) {
        engine->mpi = &faulty;
        engine->timeout_ms = SHORT_MS;
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        CHECK(two.ops->wait(two.state, &run.op, tt_deadline_in_ms(LONG_MS)) == TUTTI_ERR_TIMEOUT,
              "rank 1 was there");
        close_part(&two);
        check_scratch_is_kept();
    }
    meet(world);
    if (world->rank == 1) {
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        (void)two.ops->wait(two.state, &run.op, tt_deadline_in_ms(LONG_MS));
        close_part(&two);
    }
    for (int i = 0; i < ROUNDS; i++) { /* MPI moves what is under way */
        meet(world);
    }
    group_t next = open_part(&all, "next", (const int[]){0, 1}, 2, LONG_MS);
    close_part(&next);
    CHECK(tt_alloc_stats().blocks == before, "%zu blocks instead of %zu: it is not freed",
          tt_alloc_stats().blocks, before);
}

void try_held(tutti_group_t *world)
{
    static const held_t all[] = {
        {"recv_bytes", HELD_BYTES + 1, 100, send_length, recv_bytes, send_payload},
        {"broadcast_bytes", HELD_BYTES + 1, 100, broadcast_length, broadcast_bytes,
         broadcast_payload},
        {"group_split", 48, 100, NULL, split, gather_colours},
        {"recv", HELD_BYTES, 100, NULL, recv_tensor, send_payload},
        {"irecv", HELD_BYTES, 100, NULL, recv_with_work, send_payload},
        {"a start that fails half-way", 2 * HELD_BYTES, 0, NULL, gather, gather_late},
        {"one beside another call", 2 * HELD_BYTES, 0, NULL, gather_beside, send_and_gather},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0] && world->rank < 2; i++) {
        try_one(world, &all[i]);
    }
    if (world->rank < 2) {
        try_left(world);
    }
}
