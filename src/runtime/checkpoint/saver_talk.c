/* Talk through the store. What is longer than a value of a store is told in parts, the first one
 * last: where that is, all are.
 *
 * No call of the store lasts longer than some seconds, for the store may have gone with the rank
 * that has it, and who waits for the thread tells it so by leave_by. A call that ends before it is
 * done is made again, with more time. */
#include "runtime/checkpoint/saver_talk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/printable.h"

enum { LISTEN_MS = 200, LOOK_MS = 1, TRY_MS = 250, TRY_MS_MAX = 8000 };

/* Values of stores are bounded. */
enum { HEAD_BYTES = 32, PART_BYTES = 4 << 20 };
_Static_assert(PART_BYTES + HEAD_BYTES <= TUTTI_STORE_VALUE_BYTES_MAX, "a part is a value");

/* ---- keys ------------------------------------------------------------------------------------ */

tutti_bytes_t tt_talk_report(const tt_talk_t *talk, int rank, char key[TT_TALK_KEY_BYTES])
{
    snprintf(key, TT_TALK_KEY_BYTES, "%" PRId64 "/report/%d", talk->number, rank);
    return tutti_text(key);
}

tutti_bytes_t tt_talk_phase(const tt_talk_t *talk, const char *phase, int rank,
                            char key[TT_TALK_KEY_BYTES])
{
    if (rank == 0) {
        snprintf(key, TT_TALK_KEY_BYTES, "%" PRId64 "/%s", talk->number, phase);
    } else {
        snprintf(key, TT_TALK_KEY_BYTES, "%" PRId64 "/%s/%d", talk->number, phase, rank);
    }
    return tutti_text(key);
}

tutti_bytes_t tt_talk_outcome(const tt_talk_t *talk, char key[TT_TALK_KEY_BYTES])
{
    snprintf(key, TT_TALK_KEY_BYTES, "%" PRId64 "/outcome", talk->number);
    return tutti_text(key);
}

/* Of what is told under a key, from 1 on. */
static tutti_bytes_t part_key(tutti_bytes_t key, int64_t part, char text[TT_TALK_KEY_BYTES])
{
    snprintf(text, TT_TALK_KEY_BYTES, "%.*s+%" PRId64, (int)key.bytes, (const char *)key.data,
             part);
    return tutti_text(text);
}

/* ---- tries ----------------------------------------------------------------------------------- */

static bool is_over(const tt_talk_t *talk, tt_deadline_t deadline)
{
    const int64_t leave_by = atomic_load(&talk->leave_by);
    return tt_deadline_is_past(leave_by != 0 && leave_by < deadline ? leave_by : deadline);
}

/* Of a call that others do not hold up: the group's timeout is enough for all of them. */
typedef struct {
    const tt_talk_t *talk;
    tt_deadline_t deadline;
    int64_t ms;
    bool is_last;
} tries_t;

static tries_t begin_tries(const tt_talk_t *talk)
{
    return (tries_t){.talk = talk, .deadline = tt_deadline_in_ms(talk->group->timeout_ms)};
}

/* How long the next one may take. */
static int64_t next_try(tries_t *tries)
{
    tries->is_last = is_over(tries->talk, tries->deadline);
    tries->ms = tries->ms == 0 ? TRY_MS : 2 * tries->ms < TRY_MS_MAX ? 2 * tries->ms : TRY_MS_MAX;
    return tries->is_last ? LOOK_MS : tries->ms;
}

static bool is_to_be_tried(const tries_t *tries, tutti_status_t status)
{
    return status == TUTTI_ERR_TIMEOUT && !tries->is_last;
}

static tutti_status_t set(const tt_talk_t *talk, tutti_bytes_t key, tutti_bytes_t value)
{
    tries_t tries = begin_tries(talk);
    tutti_status_t status;
    do {
        (void)tutti_store_set_timeout(talk->group->store, next_try(&tries));
        status = tutti_store_set(talk->group->store, key, value);
    } while (is_to_be_tried(&tries, status));
    return status;
}

/* What is there. */
static tutti_status_t get(const tt_talk_t *talk, tutti_bytes_t key, tutti_buffer_t *out)
{
    tries_t tries = begin_tries(talk);
    tutti_status_t status;
    do {
        status = tutti_store_get(talk->group->store, key, next_try(&tries), out);
    } while (is_to_be_tried(&tries, status));
    return status;
}

/* ---- telling --------------------------------------------------------------------------------- */

static size_t part_bytes(tutti_bytes_t said, size_t at)
{
    return said.bytes - at < PART_BYTES ? said.bytes - at : PART_BYTES;
}

/* All but the first; how many in *count. */
static tutti_status_t tell_parts(const tt_talk_t *talk, tutti_bytes_t key, tutti_bytes_t said,
                                 int64_t *count)
{
    char name[TT_TALK_KEY_BYTES];
    *count = 0;
    for (size_t at = PART_BYTES; at < said.bytes; at += PART_BYTES) {
        const tutti_bytes_t part =
            tutti_bytes_of((const char *)said.data + at, part_bytes(said, at));
        TT_TRY(set(talk, part_key(key, ++*count, name), part));
    }
    return TUTTI_OK;
}

static tutti_status_t tell(const tt_talk_t *talk, tutti_bytes_t key, tutti_status_t status,
                           tutti_bytes_t said)
{
    int64_t parts;
    const size_t first = part_bytes(said, 0);
    TT_TRY(tell_parts(talk, key, said, &parts));
    char *text = tt_alloc_raw(first + HEAD_BYTES, "saver");
    TT_TRY_ALLOC(text);
    const int head = snprintf(text, HEAD_BYTES, "%d %" PRId64 "\n", (int)status, parts);
    memcpy(text + head, said.data, first);
    const tutti_status_t told = set(talk, key, tutti_bytes_of(text, (size_t)head + first));
    tt_free(text);
    return told;
}

tutti_status_t tt_talk_tell(const tt_talk_t *talk, tutti_bytes_t key, tutti_bytes_t said)
{
    return tell(talk, key, TUTTI_OK, said);
}

bool tt_talk_tell_failure(const tt_talk_t *talk, tutti_bytes_t key, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    const bool is_told = tell(talk, key, status, tutti_text(text)) >= 0;
    (void)tt_fail_again(status, text);
    return is_told;
}

void tt_talk_forget(const tt_talk_t *talk, tutti_bytes_t key)
{
    char name[TT_TALK_KEY_BYTES], text[TT_ERROR_TEXT_BYTES];
    tries_t tries = begin_tries(talk);
    snprintf(text, sizeof text, "%s", tutti_last_error());
    (void)tutti_store_set_timeout(talk->group->store, next_try(&tries));
    bool existed = tutti_store_delete(talk->group->store, key, NULL) >= 0;
    for (int64_t i = 1; existed; i++) {
        existed = tutti_store_delete(talk->group->store, part_key(key, i, name), &existed) >= 0 &&
                  existed;
    }
    (void)tt_fail_again(TUTTI_ERR_IO, text);
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* The parts are there: they were told before the first. */
static tutti_status_t hear_parts(const tt_talk_t *talk, tutti_bytes_t key, int64_t count,
                                 tutti_buffer_t *out)
{
    char name[TT_TALK_KEY_BYTES];
    for (int64_t i = 1; i <= count; i++) {
        tutti_buffer_t part;
        TT_TRY(get(talk, part_key(key, i, name), &part));
        char *text = tt_realloc(out->data, out->bytes + part.bytes + 1, "buffer");
        if (text != NULL) {
            memcpy(text + out->bytes, part.data, part.bytes);
            text[out->bytes + part.bytes] = 0;
            *out = (tutti_buffer_t){text, out->bytes + part.bytes};
        }
        tutti_buffer_release(&part);
        TT_TRY_ALLOC(text);
    }
    return TUTTI_OK;
}

/* Rank 0 may write for longer than this rank, and hears one rank after another. */
static tt_deadline_t give_up_at(const tutti_group_t *group, int rank)
{
    const int64_t turns = rank == 0 ? (int64_t)group->size + 1 : 1;
    const int64_t longest = INT64_MAX / turns;
    return tt_deadline_in_ms(turns * (group->timeout_ms < longest ? group->timeout_ms : longest));
}

/* Until the first part is there; what is there is heard, however late it is. */
static tutti_status_t wait_for(const tt_talk_t *talk, tutti_bytes_t key, int rank, const char *late)
{
    const tt_deadline_t deadline = give_up_at(talk->group, rank);
    for (;;) {
        const bool is_last = is_over(talk, deadline);
        const tutti_status_t status =
            tutti_store_wait(talk->group->store, &key, 1, is_last ? LOOK_MS : LISTEN_MS);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        if (is_last) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "checkpoint of step %" PRId64 ": rank %d has not %s in time", talk->step,
                           rank, late);
        }
    }
}

/* Of the first part the head, which goes. */
static tutti_status_t read_head(int rank, tutti_buffer_t *said, tutti_status_t *told,
                                int64_t *parts)
{
    char *text = said->data, *space, *newline = strchr(text, '\n');
    if (newline == NULL) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "checkpoint: rank %d told nothing", rank);
    }
    *told = (tutti_status_t)strtol(text, &space, 10);
    *parts = strtoll(space, NULL, 10);
    said->bytes -= (size_t)(newline + 1 - text);
    memmove(text, newline + 1, said->bytes + 1);
    return TUTTI_OK;
}

tutti_status_t tt_talk_hear(const tt_talk_t *talk, tutti_bytes_t key, int rank, const char *late,
                            tutti_status_t *told, tutti_buffer_t *out)
{
    int64_t parts;
    tutti_buffer_t said;
    TT_TRY(wait_for(talk, key, rank, late));
    TT_TRY(get(talk, key, &said));
    tutti_status_t status = read_head(rank, &said, told, &parts);
    status = status < 0 ? status : hear_parts(talk, key, parts, &said);
    if (status < 0) {
        tutti_buffer_release(&said);
        return status;
    }
    if (*told < 0) {
        tt_make_printable(said.data);
    }
    *out = said;
    return TUTTI_OK;
}
