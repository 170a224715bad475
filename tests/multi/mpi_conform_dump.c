/* What is reported of ranks that wait for each other: dumps, and reports in the log. mpi_test.py
 * reads them. */
#include "mpi_conform.h"

#include <tutti/diagnose.h>
#include <tutti/messages.h>

enum { COUNT = 1000, TAG = 7, STEP = 77, PEEK_MS = 300, LATE_MS = 300, GUARD_MS = 5000 };

static void dump(tutti_group_t *world, const char *folder)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/waiting-rank%d.json", folder, world->rank);
    CHECK(tutti_group_dump(world, path) == TUTTI_OK, "dump");
}

/* Rank 1 is in a sum, rank 0 waits for a message that rank 1 sends when both have told so. */
static void try_waiting(tutti_group_t *world, const char *folder)
{
    tutti_tensor_t *x, *word;
    tutti_work_t *work;
    CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(COUNT), &x) == TUTTI_OK, "tensor");
    CHECK(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(1), &word) == TUTTI_OK, "tensor");
    if (world->rank == 0) {
        CHECK(tutti_recv(world, word, 1, TAG, &work) == TUTTI_OK, "recv");
        CHECK(tutti_work_wait(work, PEEK_MS) == TUTTI_PENDING,
              "the message came before it was sent");
        dump(world, folder);
        CHECK(tutti_work_wait(work, 0) == TUTTI_OK, "recv");
        CHECK(tutti_all_reduce(world, x, TUTTI_SUM, NULL) == TUTTI_OK, "all_reduce");
    } else {
        tutti_group_set_tag(world, STEP);
        CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work) == TUTTI_OK, "all_reduce");
        CHECK(tutti_work_wait(work, 2 * PEEK_MS) == TUTTI_PENDING, "a sum without rank 0");
        dump(world, folder);
        CHECK(tutti_send(world, word, 0, TAG, NULL) == TUTTI_OK, "send");
        CHECK(tutti_work_wait(work, 0) == TUTTI_OK, "all_reduce");
    }
    tutti_work_release(work);
    tutti_tensor_release(x);
    tutti_tensor_release(word);
}

/* Rank 0 does not come to a call. TUTTI_DUMP has the file of rank 1, and that of rank 0, which
 * hears of it. */
static void try_failure(tutti_group_t *world)
{
    tutti_group_t *part;
    const tutti_group_options_t options = {.name = "late", .timeout_ms = LATE_MS};
    CHECK(tutti_group_new(world, NULL, 0, &options, &part) == TUTTI_OK, "group");
    if (world->rank == 1) {
        CHECK(tutti_barrier(part, NULL) == TUTTI_ERR_TIMEOUT, "rank 0 was there");
    }
    CHECK(tutti_barrier(world, NULL) == TUTTI_OK, "barrier");
    const tt_deadline_t deadline = tt_deadline_in_ms(GUARD_MS);
    tutti_status_t status = TUTTI_PENDING;
    while (world->rank == 0 && status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
        tutti_message_info_t info;
        status = tutti_iprobe(part, 1, TAG, &info);
    }
    CHECK(world->rank == 1 || status == TUTTI_ERR_ABORTED, "it has not heard");
    tutti_group_release(part);
}

void try_dump(tutti_group_t *world, const char *folder)
{
    CHECK(world->size == 2, "two ranks");
    try_waiting(world, folder);
    try_failure(world);
}
