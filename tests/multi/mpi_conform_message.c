/* Messages of mpi_conform. */
#include "mpi_conform.h"

void post(const group_t *group, tt_message_op_t *run, bool is_send, int peer, int tag,
          tt_slice_t elements)
{
    const tt_message_t message = {.kind = is_send ? TT_MESSAGE_SEND : TT_MESSAGE_RECV,
                                  .peer = peer,
                                  .tag = tag,
                                  .dtype = TUTTI_I32,
                                  .count = elements.count,
                                  .data = buffers[is_send ? 0 : 1] + elements.begin * 4};
    CHECK(group->ops->start_message(group->state, &message, run) == TUTTI_OK, "message");
}

/* Around the ring, two tags whose order is not that of the receives, and one of nothing. */
void try_ring(const group_t *group, size_t count)
{
    static tt_message_op_t runs[6];
    const int next = (group->rank + 1) % group->size;
    const int before = (group->rank + group->size - 1) % group->size;
    poison();
    for (size_t i = 0; i < 2 * count; i++) {
        set(TUTTI_I32, buffers[0], i, (double)(group->rank * 100000 + (int)i));
    }
    post(group, &runs[0], false, before, 8, (tt_slice_t){0, count});
    post(group, &runs[1], false, before, 7, (tt_slice_t){count, count});
    post(group, &runs[2], false, TT_ANY_RANK, 9, (tt_slice_t){0, 0});
    post(group, &runs[3], true, next, 7, (tt_slice_t){0, count});
    post(group, &runs[4], true, next, 8, (tt_slice_t){count, count});
    post(group, &runs[5], true, next, 9, (tt_slice_t){0, 0});
    for (int i = 0; i < 6; i++) {
        wait_for(group, &runs[i].op);
    }
    CHECK(runs[0].source == before && runs[0].tag == 8, "source and tag");
    CHECK(runs[2].source == before && runs[2].tag == 9, "source and tag of any");
    for (size_t i = 0; i < count; i++) {
        expect("ring", TUTTI_I32, buffers[1], i, before * 100000 + (int)(count + i));
        expect("ring", TUTTI_I32, buffers[1], count + i, before * 100000 + (int)i);
    }
}

/* Rank 0 takes what comes, from whom it comes; messages of one rank and tag keep their order. */
void try_any(const group_t *group)
{
    enum { EACH = 5 };
    static tt_message_op_t runs[EACH];
    int next_of[LEAVES_MAX] = {0};
    static tt_message_op_t run;
    for (int k = 0; k < EACH && group->rank != 0; k++) {
        set(TUTTI_I32, buffers[0], (size_t)k, k);
        post(group, &runs[k], true, 0, 3, (tt_slice_t){(size_t)k, 1});
    }
    for (int n = 0; group->rank == 0 && n < EACH * (group->size - 1); n++) {
        int32_t got;
        post(group, &run, false, TT_ANY_RANK, TT_ANY_TAG, (tt_slice_t){0, 1});
        wait_for(group, &run.op);
        memcpy(&got, buffers[1], 4);
        CHECK(run.source > 0 && run.source < group->size && run.tag == 3, "any");
        CHECK(got == next_of[run.source]++, "message %d of rank %d out of order", got, run.source);
    }
    for (int k = 0; k < EACH && group->rank != 0; k++) {
        wait_for(group, &runs[k].op);
    }
}

void try_bad_messages(const group_t *group)
{
    static tt_message_op_t run;
    tt_message_t message = {.kind = TT_MESSAGE_SEND, .peer = group->size, .data = buffers[0]};
    CHECK(group->ops->start_message(group->state, &message, &run) == TUTTI_ERR_ARG, "peer");
    message = (tt_message_t){.kind = TT_MESSAGE_SEND, .tag = -5, .data = buffers[0]};
    CHECK(group->ops->start_message(group->state, &message, &run) == TUTTI_ERR_ARG, "tag");
}
