/* What the native engine tells of its groups in a dump. */
#include "comm/diagnose/diagnosis.h"
#include "comm/diagnose/dump.h"
#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p_impl.h"

static bool awaits(void *user, int rank)
{
    const tt_coll_t *coll = user;
    return coll->queue.head != NULL && tt_coll_waits_for(coll, coll->queue.head, rank);
}

static int64_t waited_since_ns(void *user, uint64_t record)
{
    const tt_coll_t *coll = user;
    const tt_message_op_t *message = coll->p2p != NULL ? TAILQ_FIRST(&coll->p2p->ops) : NULL;
    for (const tt_run_t *run = coll->queue.head; run != NULL; run = run->next) {
        if (run->op.record == record) {
            return run->op.waited_since_ns;
        }
    }
    while (message != NULL && message->op.record != record) {
        message = TAILQ_NEXT(message, under_way);
    }
    return message != NULL ? message->op.waited_since_ns : 0;
}

/* Ranks of this host, by their shared memory. */
static bool see(void *user, int rank, tt_dump_seen_t *out)
{
    tt_coll_t *coll = user;
    if (coll->node_peer_ranks[rank] < 0 || coll->blocks[rank] == NULL) {
        return false;
    }
    *out = (tt_dump_seen_t){
        .pid = tt_node_peers_pid(coll->node_peers, coll->node_peer_ranks[rank]),
        .last = tt_records_last_call(&coll->blocks[rank]->records),
        .where = tt_coll_wait_state(coll, rank),
    };
    return true;
}

static void add(const tt_dump_t *dump, tt_coll_t *coll)
{
    tt_dump_add(dump, &(tt_dump_group_t){.name = coll->options.name,
                                         .error = coll->error,
                                         .rank = coll->rank,
                                         .size = coll->size,
                                         .epoch = coll->options.epoch,
                                         .ranks = coll->peer_ranks,
                                         .records = &coll->block->records,
                                         .user = coll,
                                         .awaits = awaits,
                                         .waited_since_ns = waited_since_ns,
                                         .see = see});
}

tutti_status_t tt_coll_dump(tt_coll_t *coll, const char *path)
{
    tt_coll_t *world = tt_coll_world(coll);
    const tt_dump_t dump = tt_dump_begin(world->rank);
    add(&dump, world);
    tt_coll_t *each;
    LIST_FOREACH(each, &world->parts, of_world)
    {
        add(&dump, each);
    }
    return tt_dump_end(&dump, path);
}

static tutti_status_t write_dump(void *group, const char *path)
{
    return tt_coll_dump(group, path);
}

void tt_coll_dump_failure(tt_coll_t *coll)
{
    const tt_coll_t *world = tt_coll_world(coll);
    if (coll->status == TUTTI_ERR_PEER || coll->status == TUTTI_ERR_TIMEOUT ||
        coll->status == TUTTI_ERR_MISMATCH) {
        tt_dump_failure(&(tt_dump_failure_t){.world = world->options.name,
                                             .rank = world->rank,
                                             .status = coll->status,
                                             .error = coll->error,
                                             .write = write_dump,
                                             .group = coll});
    }
}
