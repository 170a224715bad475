/* The posted queue and the queue of messages that have arrived. Cost: a search through one of them
 * for each message and each recv; both are empty when ranks exchange in turn. */
#include "comm/p2p/p2p_match.h"

#include "core/base/alloc.h"

tt_message_op_t *tt_message_queue_take(tt_message_queue_t *queue, uint64_t id)
{
    tt_message_op_t *op;
    STAILQ_FOREACH(op, queue, queued)
    {
        if (op->id == id) {
            STAILQ_REMOVE(queue, op, tt_message_op, queued);
            break;
        }
    }
    return op;
}

static bool is_for(const tt_message_t *message, int source, int tag)
{
    return (message->peer == TT_ANY_RANK || message->peer == source) &&
           (message->tag == TT_ANY_TAG || message->tag == tag);
}

static tt_message_op_t *take_first(tt_match_t *match, tt_message_queue_t *queue, int source,
                                   int tag)
{
    tt_message_op_t *op;
    STAILQ_FOREACH(op, queue, queued)
    {
        if (is_for(&op->message, source, tag)) {
            match->any_count -= op->message.peer == TT_ANY_RANK;
            op->source = source;
            op->tag = tag;
            STAILQ_REMOVE(queue, op, tt_message_op, queued);
            break;
        }
    }
    return op;
}

void tt_match_init(tt_match_t *match)
{
    *match = (tt_match_t){0};
    tt_match_clear(match);
    STAILQ_INIT(&match->arrived);
    STAILQ_INIT(&match->free_arrived);
}

static void free_list(tt_arrived_list_t *list)
{
    while (!STAILQ_EMPTY(list)) {
        tt_arrived_t *first = STAILQ_FIRST(list);
        STAILQ_REMOVE_HEAD(list, next);
        tt_free(first);
    }
}

void tt_match_fini(tt_match_t *match)
{
    free_list(&match->arrived);
    free_list(&match->free_arrived);
}

void tt_match_post(tt_match_t *match, tt_message_op_t *op)
{
    const bool is_probe = op->message.kind == TT_MESSAGE_PROBE;
    match->any_count += op->message.peer == TT_ANY_RANK;
    STAILQ_INSERT_TAIL(is_probe ? &match->probes : &match->posted, op, queued);
}

tt_message_op_t *tt_match_recv(tt_match_t *match, int source, int tag)
{
    return take_first(match, &match->posted, source, tag);
}

tt_message_op_t *tt_match_probe(tt_match_t *match, int source, int tag)
{
    return take_first(match, &match->probes, source, tag);
}

void tt_match_clear(tt_match_t *match)
{
    STAILQ_INIT(&match->posted);
    STAILQ_INIT(&match->probes);
    match->any_count = 0;
}

tt_arrived_t *tt_match_find(const tt_match_t *match, const tt_message_t *message)
{
    tt_arrived_t *arrived;
    STAILQ_FOREACH(arrived, &match->arrived, next)
    {
        if (is_for(message, arrived->source, arrived->header.tag)) {
            break;
        }
    }
    return arrived;
}

tt_arrived_t *tt_match_new(tt_match_t *match, int source, const tt_p2p_header_t *header)
{
    tt_arrived_t *arrived = STAILQ_FIRST(&match->free_arrived);
    if (arrived != NULL) {
        STAILQ_REMOVE_HEAD(&match->free_arrived, next);
    } else {
        arrived = tt_alloc_raw(sizeof *arrived, "message nobody waits for");
    }
    if (arrived != NULL) {
        arrived->source = source;
        arrived->header = *header;
    }
    return arrived;
}

void tt_match_keep(tt_match_t *match, tt_arrived_t *arrived)
{
    STAILQ_INSERT_TAIL(&match->arrived, arrived, next);
    match->arrived_count++;
}

void tt_match_take(tt_match_t *match, tt_arrived_t *arrived)
{
    STAILQ_REMOVE(&match->arrived, arrived, tt_arrived, next);
    match->arrived_count--;
}

void tt_match_free(tt_match_t *match, tt_arrived_t *arrived)
{
    STAILQ_INSERT_HEAD(&match->free_arrived, arrived, next);
}
