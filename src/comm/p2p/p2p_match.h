/* Matching: which message goes to which recv. Two queues: recvs that were posted and have got
 * nothing yet, and messages that have arrived and were not received yet. A message that arrives
 * looks through the first, a recv that is posted through the second, each from the oldest on; so no
 * recv of one queue ever matches a message of the other.
 */
#ifndef TT_P2P_MATCH_H
#define TT_P2P_MATCH_H

#include "comm/exec/operation.h"

enum { TT_P2P_EAGER_BYTES = 4096, TT_P2P_ARRIVED_MAX = 16384, TT_P2P_MAGIC = 0x4c545454 };

typedef enum { TT_P2P_RTS = 1, TT_P2P_CTS, TT_P2P_DATA, TT_P2P_FIN } tt_p2p_kind_t;

/* docs/formats/frame.md has the bytes. */
typedef struct {
    uint32_t magic, epoch;
    uint8_t kind, dtype, reserved[2];
    int32_t tag;
    uint64_t group, id, bytes;
    tt_heap_address_t address;
    uint8_t more[16];
} tt_p2p_header_t;

_Static_assert(sizeof(tt_p2p_header_t) == 64, "docs/formats/frame.md says 64");

/* A message that was not received yet. */
typedef struct tt_arrived {
    STAILQ_ENTRY(tt_arrived) next;
    int source;
    tt_p2p_header_t header;
    unsigned char payload[TT_P2P_EAGER_BYTES];
} tt_arrived_t;

typedef STAILQ_HEAD(tt_arrived_list, tt_arrived) tt_arrived_list_t;
typedef STAILQ_HEAD(tt_message_queue, tt_message_op) tt_message_queue_t;

/* Takes the operation with this id out; NULL: there is none. */
tt_message_op_t *tt_message_queue_take(tt_message_queue_t *queue, uint64_t id);

typedef struct {
    tt_message_queue_t posted, probes;
    int any_count; /* of both, those of any source */
    tt_arrived_list_t arrived, free_arrived;
    int arrived_count;
} tt_match_t;

void tt_match_init(tt_match_t *match);
void tt_match_fini(tt_match_t *match);

/* A recv or a probe that nothing has arrived for. */
void tt_match_post(tt_match_t *match, tt_message_op_t *op);

/* Takes the first recv out that this message is for, with source and tag set; NULL: none is. */
tt_message_op_t *tt_match_recv(tt_match_t *match, int source, int tag);

/* The same of probes. */
tt_message_op_t *tt_match_probe(tt_match_t *match, int source, int tag);

/* Nothing is posted any more. */
void tt_match_clear(tt_match_t *match);

/* The first message that a recv or a probe is for; NULL: there is none. */
tt_arrived_t *tt_match_find(const tt_match_t *match, const tt_message_t *message);

/* Memory for a message that arrives; in no queue yet. NULL: there is none. */
tt_arrived_t *tt_match_new(tt_match_t *match, int source, const tt_p2p_header_t *header);
void tt_match_keep(tt_match_t *match, tt_arrived_t *arrived);

/* Out of the queue of those that arrived. */
void tt_match_take(tt_match_t *match, tt_arrived_t *arrived);
void tt_match_free(tt_match_t *match, tt_arrived_t *arrived);

#endif
