/* Saves in the background. The plan and a copy are made by the caller; a thread writes them.
 *
 *     caller        | plan, copy |  steps …                             | join | plan, copy |
 *     thread                     | write | report | hear the outcome |
 *     root's thread              | write | hear the reports | publish | tell the outcome |
 *
 * The groups of a world belong to one thread, so the threads speak through the store, which any
 * thread may use, under a prefix of the saver's own:
 *
 *     <number of the save>/report/<rank>    "0 0\n" and the rank's manifest, or a failure
 *     <number of the save>/complete         "0 0\n" and the manifest of all, or a failure
 *     <number of the save>/complete/<rank>  "0 0\n", or a failure
 *     <number of the save>/rename …         as complete, without a manifest
 *     <number of the save>/outcome          "0 0\n", or a failure
 *     <any of these>+<number>               the next part of what is longer than PART_BYTES
 *
 * of which complete and rename are for the first ranks of hosts that have a disk each
 * (saving_hosts.c), and the second number is that of the parts which follow; a failure is its
 * number, that of no parts, a newline and its text.
 */
#include <tutti/checkpoint.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "runtime/checkpoint/saving.h"

/* Values of stores are bounded. */
enum { LISTEN_MS = 200, LEAVE_MS = 10000, KEY_BYTES = 64, HEAD_BYTES = 32, PART_BYTES = 4 << 20 };
_Static_assert(PART_BYTES + HEAD_BYTES <= TUTTI_STORE_VALUE_BYTES_MAX, "a part is a value");

struct tutti_saver {
    tutti_checkpoint_t checkpoint;
    tutti_group_t *group; /* for its store alone; NULL: one rank */
    int64_t number;       /* of saves begun */
    tt_saving_t saving;
    bool is_under_way; /* `saving` is to be ended */
    bool has_thread;   /* which is to be joined */
    pthread_t thread;
    _Atomic int64_t leave_by; /* the others are not waited for any longer than that; 0: they are */

    /* Of the save under way, or of the last one. */
    int64_t step, begin_ns, held_ns;
    uint64_t all;             /* bytes that this rank writes */
    _Atomic uint64_t written; /* of them */
    _Atomic int64_t end_ns;   /* by the thread, before the state */
    _Atomic int state;        /* a tutti_save_state_t */

    /* Of the thread. */
    tutti_status_t status;
    bool is_shared; /* all ranks know that it ended so */
    char error[TT_ERROR_TEXT_BYTES];
};

/* ---- through the store ----------------------------------------------------------------------- */

static tutti_bytes_t report_key(const tutti_saver_t *saver, int rank, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%" PRId64 "/report/%d", saver->number, rank);
    return tutti_text(key);
}

/* Of hosts with disks of their own. */
typedef enum { COMPLETE, RENAME } phase_t;

static const char *const phases[] = {"complete", "rename"};

/* `rank`: who did it; 0: the root, which wants it done. */
static tutti_bytes_t phase_key(const tutti_saver_t *saver, phase_t phase, int rank,
                               char key[KEY_BYTES])
{
    if (rank == 0) {
        snprintf(key, KEY_BYTES, "%" PRId64 "/%s", saver->number, phases[phase]);
    } else {
        snprintf(key, KEY_BYTES, "%" PRId64 "/%s/%d", saver->number, phases[phase], rank);
    }
    return tutti_text(key);
}

static tutti_bytes_t outcome_key(const tutti_saver_t *saver, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%" PRId64 "/outcome", saver->number);
    return tutti_text(key);
}

/* Of what is told under a key, from 1 on. */
static tutti_bytes_t part_key(tutti_bytes_t key, int64_t part, char text[KEY_BYTES])
{
    snprintf(text, KEY_BYTES, "%.*s+%" PRId64, (int)key.bytes, (const char *)key.data, part);
    return tutti_text(text);
}

static size_t part_bytes(tutti_bytes_t said, size_t at)
{
    return said.bytes - at < PART_BYTES ? said.bytes - at : PART_BYTES;
}

/* All but the first; how many in *count. */
static tutti_status_t tell_parts(const tutti_saver_t *saver, tutti_bytes_t key, tutti_bytes_t said,
                                 int64_t *count)
{
    char name[KEY_BYTES];
    *count = 0;
    for (size_t at = PART_BYTES; at < said.bytes; at += PART_BYTES) {
        const tutti_bytes_t part =
            tutti_bytes_of((const char *)said.data + at, part_bytes(said, at));
        TT_TRY(tutti_store_set(saver->group->store, part_key(key, ++*count, name), part));
    }
    return TUTTI_OK;
}

/* How it went, with the text of the failure, or what there is to say. */
static tutti_status_t tell(const tutti_saver_t *saver, tutti_bytes_t key, tutti_status_t status,
                           tutti_bytes_t said)
{
    int64_t parts;
    const size_t first = part_bytes(said, 0);
    TT_TRY(tell_parts(saver, key, said, &parts));
    char *text = tt_alloc_raw(first + HEAD_BYTES, "saver");
    TT_TRY_ALLOC(text);
    const int head = snprintf(text, HEAD_BYTES, "%d %" PRId64 "\n", (int)status, parts);
    memcpy(text + head, said.data, first);
    const tutti_status_t told =
        tutti_store_set(saver->group->store, key, tutti_bytes_of(text, (size_t)head + first));
    tt_free(text);
    return told;
}

/* What was told, and has been heard. */
static void forget(const tutti_saver_t *saver, tutti_bytes_t key)
{
    char name[KEY_BYTES];
    bool existed = tutti_store_delete(saver->group->store, key, NULL) >= 0;
    for (int64_t i = 1; existed; i++) {
        existed = tutti_store_delete(saver->group->store, part_key(key, i, name), &existed) >= 0 &&
                  existed;
    }
}

static tutti_status_t tell_failure(tutti_saver_t *saver, tutti_bytes_t key, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    saver->is_shared = tell(saver, key, status, tutti_text(text)) >= 0;
    return tt_fail_again(status, text);
}

/* The parts are there: they were told before the first. */
static tutti_status_t hear_parts(const tutti_saver_t *saver, tutti_bytes_t key, int64_t count,
                                 tutti_buffer_t *out)
{
    char name[KEY_BYTES];
    for (int64_t i = 1; i <= count; i++) {
        tutti_buffer_t part;
        TT_TRY(tutti_store_get(saver->group->store, part_key(key, i, name),
                               saver->group->timeout_ms, &part));
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

/* What a rank told: *told is how it went there, with its text if that was a failure. Errors:
 * TIMEOUT, those of the store. */
static tutti_status_t hear(const tutti_saver_t *saver, tutti_bytes_t key, int rank,
                           tutti_status_t *told, tutti_buffer_t *out)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(saver->group->timeout_ms);
    tutti_status_t status;
    do {
        const int64_t leave_by = atomic_load(&saver->leave_by), now = tt_clock_ns();
        if (now >= deadline || (leave_by != 0 && now >= leave_by)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "checkpoint of step %" PRId64 ": rank %d has not %s in time",
                           saver->saving.step, rank,
                           saver->saving.rank == 0 ? "written its files" : "published it");
        }
        status = tutti_store_get(saver->group->store, key, LISTEN_MS, out);
    } while (status == TUTTI_ERR_TIMEOUT);
    TT_TRY(status);
    char *text = out->data, *newline = strchr(text, '\n');
    if (newline == NULL) {
        tutti_buffer_release(out);
        return TT_FAIL(TUTTI_ERR_FORMAT, "checkpoint: rank %d told nothing", rank);
    }
    char *space;
    *told = (tutti_status_t)strtol(text, &space, 10);
    const int64_t parts = strtoll(space, NULL, 10);
    out->bytes -= (size_t)(newline + 1 - text);
    memmove(text, newline + 1, out->bytes + 1);
    status = hear_parts(saver, key, parts, out);
    if (status < 0) {
        tutti_buffer_release(out);
    }
    return status;
}

/* ---- hosts with disks of their own ----------------------------------------------------------- */

/* This rank's part of a phase. */
static tutti_status_t do_phase(const tutti_saver_t *saver, phase_t phase)
{
    return phase == COMPLETE ? tt_saving_complete(&saver->saving)
                             : tt_steps_publish(saver->checkpoint.folder, saver->saving.step);
}

/* The failure of the lowest rank that has one is that of all; `status`: rank 0's own. */
static tutti_status_t hear_phase(const tutti_saver_t *saver, phase_t phase, tutti_status_t status)
{
    char key[KEY_BYTES], text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    for (int disk = 1; disk < saver->saving.disks.count; disk++) {
        const int rank = tt_disks_rank(&saver->saving.disks, disk, 0);
        tutti_buffer_t said = {0};
        tutti_status_t told;
        tutti_status_t heard = hear(saver, phase_key(saver, phase, rank, key), rank, &told, &said);
        if (heard >= 0 && told < 0) {
            heard = TT_FAIL(told, "rank %d: %s", rank, (const char *)said.data);
        }
        if (heard < 0 && status >= 0) {
            status = heard;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
        tutti_buffer_release(&said);
        forget(saver, phase_key(saver, phase, rank, key));
    }
    return status < 0 ? tt_fail_again(status, text) : TUTTI_OK;
}

/* A phase on all hosts; `status` is how it went until now. */
static tutti_status_t lead_phase(tutti_saver_t *saver, phase_t phase, tutti_status_t status,
                                 tutti_bytes_t said)
{
    char key[KEY_BYTES];
    const tutti_bytes_t all = phase_key(saver, phase, 0, key);
    if (status < 0) {
        return tell_failure(saver, all, status);
    }
    TT_TRY(tell(saver, all, TUTTI_OK, said));
    return hear_phase(saver, phase, do_phase(saver, phase));
}

static tutti_status_t lead_hosts(tutti_saver_t *saver, tutti_status_t status)
{
    tutti_buffer_t text = {0};
    if (status >= 0) {
        status = tt_manifest_print(saver->saving.plan, &text);
    }
    status = lead_phase(saver, COMPLETE, status, tt_buffer_view(&text));
    tutti_buffer_release(&text);
    return lead_phase(saver, RENAME, status, tutti_text(""));
}

/* Of rank 0, which knows where all slices are. */
static tutti_status_t take_plan(tutti_saver_t *saver, const tutti_buffer_t *text)
{
    tt_manifest_t *plan;
    TT_TRY(tt_manifest_parse("the manifest of rank 0", tt_buffer_view(text), &plan));
    tt_manifest_release(saver->saving.plan);
    saver->saving.plan = plan;
    return TUTTI_OK;
}

/* What rank 0 wants to be done, unless it failed elsewhere: END. */
static tutti_status_t follow_phase(tutti_saver_t *saver, phase_t phase)
{
    char key[KEY_BYTES];
    tutti_buffer_t text;
    tutti_status_t status;
    TT_TRY(hear(saver, phase_key(saver, phase, 0, key), 0, &status, &text));
    if (status < 0) {
        tutti_buffer_release(&text);
        return TUTTI_END;
    }
    status = phase == COMPLETE ? take_plan(saver, &text) : TUTTI_OK;
    tutti_buffer_release(&text);
    status = status < 0 ? status : do_phase(saver, phase);
    const tutti_bytes_t own = phase_key(saver, phase, saver->saving.rank, key);
    return status < 0 ? tell_failure(saver, own, status)
                      : tell(saver, own, TUTTI_OK, tutti_text(""));
}

/* On the first rank of a host; how it went is told to rank 0, and comes back as the outcome. */
static void follow_host(tutti_saver_t *saver)
{
    if (follow_phase(saver, COMPLETE) == TUTTI_OK) {
        (void)follow_phase(saver, RENAME);
    }
}

/* What has failed on this rank, and told, goes when all have ended: others of the host may still be
 * writing. */
static tutti_status_t fail_host(tutti_saver_t *saver, tutti_status_t status)
{
    char key[KEY_BYTES], text[TT_ERROR_TEXT_BYTES];
    tutti_buffer_t outcome = {0};
    tutti_status_t told;
    if (!saver->saving.disks.is_first) {
        return status;
    }
    snprintf(text, sizeof text, "%s", tutti_last_error());
    (void)hear(saver, outcome_key(saver, key), 0, &told, &outcome);
    tutti_buffer_release(&outcome);
    return tt_saving_abandon(&saver->saving, tt_fail_again(status, text));
}

/* The outcome on a host's disk. */
static tutti_status_t end_host(const tutti_saver_t *saver, tutti_status_t status)
{
    if (status < 0) {
        return tt_saving_abandon(&saver->saving, status);
    }
    if (saver->saving.disks.count > 1 && saver->saving.disks.is_first) {
        tt_saving_prune(&saver->saving);
    }
    return TUTTI_OK;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static tutti_status_t hear_report(tutti_saver_t *saver, int rank)
{
    char key[KEY_BYTES], what[32];
    tutti_buffer_t text;
    tt_manifest_t *report;
    tutti_status_t status;
    TT_TRY(hear(saver, report_key(saver, rank, key), rank, &status, &text));
    snprintf(what, sizeof what, "rank %d", rank);
    status = status < 0 ? TT_FAIL(status, "%s: %s", what, (const char *)text.data)
                        : tt_manifest_parse(what, tt_buffer_view(&text), &report);
    tutti_buffer_release(&text);
    TT_TRY(status);
    status = tt_saving_take(&saver->saving, report);
    tt_manifest_release(report);
    return status;
}

/* The failure of the lowest rank that has one is that of all. */
static tutti_status_t lead(tutti_saver_t *saver, tutti_status_t status)
{
    char key[KEY_BYTES], first[TT_ERROR_TEXT_BYTES];
    snprintf(first, sizeof first, "%s", status < 0 ? tutti_last_error() : "");
    for (int rank = 1; rank < saver->saving.ranks; rank++) {
        const tutti_status_t heard = hear_report(saver, rank);
        if (heard < 0 && status >= 0) {
            status = heard;
            snprintf(first, sizeof first, "%s", tutti_last_error());
        }
        forget(saver, report_key(saver, rank, key));
    }
    status = status < 0 ? tt_fail_again(status, first) : TUTTI_OK;
    if (saver->saving.disks.count > 1) {
        status = lead_hosts(saver, status);
    } else if (status >= 0) {
        status = tt_saving_publish(&saver->saving);
    }
    status = end_host(saver, status);
    if (saver->saving.ranks == 1) {
        return status;
    }
    const tutti_bytes_t outcome = outcome_key(saver, key);
    if (status < 0) {
        return tell_failure(saver, outcome, status);
    }
    TT_TRY(tell(saver, outcome, TUTTI_OK, tutti_text("")));
    saver->is_shared = true;
    return TUTTI_OK;
}

static tutti_status_t follow(tutti_saver_t *saver, tutti_status_t status,
                             const tt_manifest_t *report)
{
    char key[KEY_BYTES];
    tutti_buffer_t text = {0};
    const tutti_bytes_t own = report_key(saver, saver->saving.rank, key);
    if (status >= 0) {
        status = tt_manifest_print(report, &text);
    }
    if (status >= 0) {
        status = tell(saver, own, TUTTI_OK, tt_buffer_view(&text));
        tutti_buffer_release(&text);
    }
    if (status < 0) {
        return fail_host(saver, tell_failure(saver, own, status));
    }
    if (saver->saving.disks.is_first) {
        follow_host(saver);
        saver->is_shared = false;
    }
    TT_TRY(hear(saver, outcome_key(saver, key), 0, &status, &text));
    saver->is_shared = true;
    status = status < 0 ? tt_fail_again(status, text.data) : TUTTI_OK;
    tutti_buffer_release(&text);
    return end_host(saver, status);
}

/* It has gone so; what is known of it now is known until the next one begins. */
static void close_save(tutti_saver_t *saver, tutti_status_t status)
{
    saver->status = status;
    atomic_store(&saver->end_ns, tt_clock_ns());
    atomic_store(&saver->state, status < 0 ? TUTTI_SAVE_FAILED : TUTTI_SAVE_PUBLISHED);
}

static void *write_all(void *user)
{
    tutti_saver_t *saver = user;
    tt_manifest_t *report = NULL;
    saver->is_shared = saver->saving.ranks == 1;
    const tutti_status_t status = tt_saving_write(&saver->saving, &report);
    const tutti_status_t ended =
        saver->saving.rank == 0 ? lead(saver, status) : follow(saver, status, report);
    tt_manifest_release(report);
    if (ended < 0) {
        snprintf(saver->error, sizeof saver->error, "%s", tutti_last_error());
    } else {
        tt_saving_log(&saver->saving);
    }
    close_save(saver, ended);
    return NULL;
}

static void *write_beside(void *user)
{
    tt_thread_stand_back();
    return write_all(user);
}

/* ---- the caller ------------------------------------------------------------------------------ */

tutti_status_t tutti_saver_create(const tutti_checkpoint_t *checkpoint, tutti_saver_t **out)
{
    tutti_saver_t *saver = tt_alloc(sizeof *saver, "saver");
    TT_TRY_ALLOC(saver);
    saver->checkpoint = *checkpoint;
    saver->step = -1;
    if (tutti_group_size(checkpoint->group) > 1) {
        const tutti_group_options_t options = {.name = "saver"};
        const tutti_status_t status =
            tutti_group_new(checkpoint->group, NULL, 0, &options, &saver->group);
        if (status < 0) {
            tt_free(saver);
            return status;
        }
    }
    *out = saver;
    return TUTTI_OK;
}

/* How the save went on this rank; OK if there is none. */
static tutti_status_t end(tutti_saver_t *saver)
{
    if (!saver->is_under_way) {
        return TUTTI_OK;
    }
    if (saver->has_thread) {
        pthread_join(saver->thread, NULL);
    }
    tt_saving_end(&saver->saving);
    saver->is_under_way = saver->has_thread = false;
    return saver->status < 0 ? tt_fail_again(saver->status, saver->error) : TUTTI_OK;
}

/* What is known to all is agreed on already: a rank may have missed the outcome alone. */
tutti_status_t tutti_saver_wait(tutti_saver_t *saver)
{
    if (!saver->is_under_way) { /* on all ranks, or on none */
        return TUTTI_OK;
    }
    const tutti_status_t status = end(saver);
    const tutti_status_t agreed =
        tt_group_agree(saver->checkpoint.group, saver->is_shared ? TUTTI_OK : status);
    return agreed < 0 ? agreed : status < 0 ? tt_fail_again(status, saver->error) : TUTTI_OK;
}

/* ---- what the caller may ask at any time ----------------------------------------------------- */

static void open_save(tutti_saver_t *saver)
{
    tt_saving_t *saving = &saver->saving;
    saver->step = saving->step;
    saver->begin_ns = saving->begin_ns;
    saver->all = tt_saving_own_bytes(saving);
    saver->written = 0;
    saving->written = &saver->written;
    saver->state = TUTTI_SAVE_WRITING;
}

void tutti_saver_progress(const tutti_saver_t *saver, tutti_save_progress_t *progress)
{
    const tutti_save_state_t state = (tutti_save_state_t)atomic_load(&saver->state);
    const int64_t end_ns = state == TUTTI_SAVE_NONE      ? saver->begin_ns
                           : state == TUTTI_SAVE_WRITING ? tt_clock_ns()
                                                         : atomic_load(&saver->end_ns);
    *progress =
        (tutti_save_progress_t){.state = state,
                                .step = saver->step,
                                .bytes = atomic_load(&saver->written),
                                .all = saver->all,
                                .seconds = (double)(end_ns - saver->begin_ns) / (double)TT_NS_PER_S,
                                .held_seconds = (double)saver->held_ns / (double)TT_NS_PER_S};
}

bool tutti_saver_is_done(const tutti_saver_t *saver)
{
    return saver == NULL || atomic_load(&saver->state) != TUTTI_SAVE_WRITING;
}

/* ---- a save ---------------------------------------------------------------------------------- */

/* What all ranks do before the thread begins. */
static tutti_status_t prepare(tutti_saver_t *saver, int64_t step)
{
    char key[KEY_BYTES];
    tt_saving_t *saving = &saver->saving;
    TT_TRY(tt_saving_plan(saving, &saver->checkpoint, step));
    tutti_status_t status = tt_saving_begin(saving);
    status = status < 0 ? status : tt_saving_move(saving);
    if (status >= 0) {
        status = tt_group_agree(saver->checkpoint.group, tt_saving_copy(saving));
    }
    if (status < 0) {
        return tt_saving_abandon(saving, status);
    }
    if (saver->group != NULL && saving->rank == 0 && saver->number > 0) { /* all have heard it */
        forget(saver, outcome_key(saver, key));
        forget(saver, phase_key(saver, COMPLETE, 0, key));
        forget(saver, phase_key(saver, RENAME, 0, key));
    }
    return TUTTI_OK;
}

/* In the call, where the threads could not speak to each other. */
static tutti_status_t save_now(tutti_saver_t *saver, int64_t step)
{
    tutti_status_t status = tt_saving_plan(&saver->saving, &saver->checkpoint, step);
    if (status >= 0) {
        open_save(saver);
        status = tt_saving_run(&saver->saving);
        close_save(saver, status);
        saver->held_ns = saver->end_ns - saver->begin_ns;
    }
    tt_saving_end(&saver->saving);
    return status;
}

tutti_status_t tutti_saver_save(tutti_saver_t *saver, int64_t step)
{
    const int64_t called_ns = tt_clock_ns();
    TT_TRY(tutti_saver_wait(saver));
    if (saver->group != NULL && saver->group->store == NULL) { /* a world of MPI */
        return save_now(saver, step);
    }
    const tutti_status_t status = prepare(saver, step);
    if (status < 0) {
        tt_saving_end(&saver->saving);
        return status;
    }
    open_save(saver);
    saver->saving.waited_ns = saver->begin_ns - called_ns;
    saver->held_ns = saver->saving.held_ns = tt_clock_ns() - saver->begin_ns;
    saver->number++;
    saver->is_under_way = true;
    saver->has_thread = tt_thread_start(write_beside, saver, "saver", &saver->thread) >= 0;
    if (!saver->has_thread) { /* the other ranks' threads are at it */
        tt_log(TT_LOG_WARN, "checkpoint of step %" PRId64 " is written by the caller: %s", step,
               tutti_last_error());
        write_all(saver);
    }
    return TUTTI_OK;
}

void tutti_saver_release(tutti_saver_t *saver)
{
    if (saver == NULL) {
        return;
    }
    atomic_store(&saver->leave_by, tt_deadline_in_ms(LEAVE_MS));
    if (end(saver) < 0) {
        tt_log(TT_LOG_ERROR, "the last checkpoint: %s", tutti_last_error());
    }
    tutti_group_release(saver->group);
    tt_free(saver);
}
