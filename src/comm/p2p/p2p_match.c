/* The posted queue and the queue of messages that have arrived. Cost: a search through one of them
 * for each message and each recv; both are empty when ranks exchange in turn. */
#include "comm/p2p/p2p_match.h"

#include "core/base/alloc.h"

void tt_message_queue_add(tt_message_queue_t *queue, tt_message_op_t *op)
{
    op->queued = NULL;
    if (queue->first == NULL) {
        queue->first = op;
    } else {
        queue->last->queued = op;
    }
    queue->last = op;
}

/* Takes out what stands behind `before` (NULL: the first). */
static tt_message_op_t *unlink_after(tt_message_queue_t *queue, tt_message_op_t *before)
{
    tt_message_op_t *op = before != NULL ? before->queued : queue->first;
    if (before != NULL) {
        before->queued = op->queued;
    } else {
        queue->first = op->queued;
    }
    if (queue->last == op) {
        queue->last = before;
    }
    op->queued = NULL;
    return op;
}

tt_message_op_t *tt_message_queue_take(tt_message_queue_t *queue, uint64_t id)
{
    tt_message_op_t *before = NULL;
    for (tt_message_op_t *op = queue->first; op != NULL; before = op, op = op->queued) {
        if (op->id == id) {
            return unlink_after(queue, before);
        }
    }
    return NULL;
}

static bool is_for(const tt_message_t *message, int source, int tag)
{
    return (message->peer == TT_ANY_RANK || message->peer == source) &&
           (message->tag == TT_ANY_TAG || message->tag == tag);
}

static tt_message_op_t *take_first(tt_match_t *match, tt_message_queue_t *queue, int source,
                                   int tag)
{
    tt_message_op_t *before = NULL;
    for (tt_message_op_t *op = queue->first; op != NULL; before = op, op = op->queued) {
        if (is_for(&op->message, source, tag)) {
            match->any_count -= op->message.peer == TT_ANY_RANK;
            op->source = source;
            op->tag = tag;
            return unlink_after(queue, before);
        }
    }
    return NULL;
}

void tt_match_init(tt_match_t *match)
{
    *match = (tt_match_t){.arrived_end = &match->arrived};
}

static void free_list(tt_arrived_t *arrived)
{
    while (arrived != NULL) {
        tt_arrived_t *next = arrived->next;
        tt_free(arrived);
        arrived = next;
    }
}

void tt_match_fini(tt_match_t *match)
{
    free_list(match->arrived);
    free_list(match->free_arrived);
    tt_match_init(match);
}

void tt_match_post(tt_match_t *match, tt_message_op_t *op)
{
    const bool is_probe = op->message.kind == TT_MESSAGE_PROBE;
    match->any_count += op->message.peer == TT_ANY_RANK;
    tt_message_queue_add(is_probe ? &match->probes : &match->posted, op);
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
    match->posted = match->probes = (tt_message_queue_t){NULL, NULL};
    match->any_count = 0;
}

tt_arrived_t *tt_match_find(const tt_match_t *match, const tt_message_t *message)
{
    tt_arrived_t *arrived = match->arrived;
    while (arrived != NULL && !is_for(message, arrived->source, arrived->header.tag)) {
        arrived = arrived->next;
    }
    return arrived;
}

tt_arrived_t *tt_match_new(tt_match_t *match, int source, const tt_p2p_header_t *header)
{
    tt_arrived_t *arrived = match->free_arrived;
    if (arrived != NULL) {
        match->free_arrived = arrived->next;
    } else {
        arrived = tt_alloc_raw(sizeof *arrived, "message nobody waits for");
    }
    if (arrived != NULL) {
        arrived->next = NULL;
        arrived->source = source;
        arrived->header = *header;
    }
    return arrived;
}

void tt_match_keep(tt_match_t *match, tt_arrived_t *arrived)
{
    *match->arrived_end = arrived;
    match->arrived_end = &arrived->next;
    match->arrived_count++;
}

void tt_match_take(tt_match_t *match, tt_arrived_t *arrived)
{
    tt_arrived_t **at = &match->arrived;
    while (*at != arrived) {
        at = &(*at)->next;
    }
    *at = arrived->next;
    if (arrived->next == NULL) {
        match->arrived_end = at;
    }
    arrived->next = NULL;
    match->arrived_count--;
}

void tt_match_free(tt_match_t *match, tt_arrived_t *arrived)
{
    arrived->next = match->free_arrived;
    match->free_arrived = arrived;
}
