/* Why a rank gave the group up, in words: in its flag block for the ranks of its host, on the board
 * for others. What it wrote is bytes to those who read it: they are cut, and go into a line.
 *
 * On the board stands also that it did. A connection says it sooner, but there may be none: they
 * are made when they are needed, and one that has given up may do nothing more, or be gone.
 */
#include <stdio.h>
#include <string.h>

#include "comm/diagnose/stragglers.h"
#include "core/base/printable.h"

typedef struct {
    char text[TT_CAUSE_BYTES];
} cause_t;

typedef struct {
    uint64_t failure;
    int32_t rank, reserved;
} end_t;

/* It stands there once the rank's failure does. */
static void read_block(const tt_flag_block_t *block, cause_t *cause)
{
    if (block != NULL && atomic_load_explicit(&block->failure, memory_order_acquire) != 0) {
        memcpy(cause->text, block->cause, sizeof cause->text - 1);
    }
}

static void read_board(const tt_wait_board_t *board, int rank, cause_t *cause)
{
    size_t bytes = 0;
    if (board->get != NULL && board->get(board->user, "cause", rank, cause->text,
                                         sizeof cause->text - 1, &bytes) != TUTTI_OK) {
        bytes = 0;
    }
    cause->text[bytes] = 0;
}

static cause_t find_cause(const tt_coll_t *coll, int rank)
{
    cause_t cause = {""};
    if (rank < 0 || rank >= coll->size) {
        return cause;
    }
    if (coll->node_peer_ranks[rank] >= 0) {
        read_block(coll->blocks[rank], &cause);
    } else {
        read_board(&coll->options.wait_board, rank, &cause);
    }
    tt_make_printable(cause.text);
    return cause;
}

tt_why_t tt_coll_why(const tt_coll_t *coll, int rank, tutti_status_t status)
{
    tt_why_t out;
    const cause_t cause = find_cause(coll, rank);
    const bool has_cause = cause.text[0] != 0, says_status = status != TUTTI_ERR_ABORTED;
    snprintf(out.text, sizeof out.text, "%s%s%s%s%s", says_status || !has_cause ? " (" : "",
             says_status || !has_cause ? tutti_status_text(status) : "",
             says_status || !has_cause ? ")" : "", has_cause ? ": " : "", cause.text);
    return out;
}

/* ---- that it did ----------------------------------------------------------------------------- */

void tt_coll_post_end(const tt_coll_t *coll, uint64_t failure)
{
    const tt_wait_board_t *board = &coll->options.wait_board;
    const end_t end = {.failure = failure, .rank = coll->rank};
    if (board->put != NULL) {
        (void)board->put(board->user, "end", 0, &end, sizeof end);
    }
}

uint64_t tt_coll_find_end(const tt_coll_t *coll, int *rank)
{
    const tt_wait_board_t *board = &coll->options.wait_board;
    end_t end;
    size_t bytes = 0;
    if (board->get == NULL ||
        board->get(board->user, "end", 0, &end, sizeof end, &bytes) != TUTTI_OK ||
        bytes != sizeof end || end.rank < 0 || end.rank >= coll->size || end.rank == coll->rank ||
        tt_failure_status(end.failure) >= 0) {
        return 0;
    }
    *rank = end.rank;
    return end.failure;
}
