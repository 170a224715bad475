/* Saves in the background. The plan and a copy are made by the caller; a thread writes them, and
 * talks to those of the other ranks (saver_write.h).
 *
 *     caller   | plan, copy |  steps …                     | join | plan, copy |
 *     thread                | write, talk, publish |
 */
#include <tutti/checkpoint.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "runtime/checkpoint/saver_write.h"

enum { LEAVE_MS = 10000, LOOK_MS = 200, GONE_MS = 2000 };

struct tutti_saver {
    tutti_checkpoint_t checkpoint;
    tutti_group_t *group; /* for its store alone; NULL: one rank */
    tt_talk_t talk;       /* of it; its number is that of saves begun */
    tt_saving_t saving;
    bool is_under_way; /* `saving` is to be ended */
    bool has_thread;   /* which is to be joined */
    pthread_t thread;

    /* Of the save under way, or of the last one. */
    int64_t step, begin_ns, held_ns;
    uint64_t all;             /* bytes that this rank writes */
    _Atomic uint64_t written; /* of them */
    _Atomic int64_t end_ns;   /* by the thread, before the state */
    _Atomic int state;        /* a tutti_save_state_t */
    _Atomic uint32_t has_ended;

    /* Of the thread. */
    tutti_status_t status;
    tt_outcome_t outcome;
    char error[TT_ERROR_TEXT_BYTES];
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* It has gone so; what is known of it now is known until the next one begins. */
static void close_save(tutti_saver_t *saver, tutti_status_t status)
{
    saver->status = status;
    snprintf(saver->error, sizeof saver->error, "%s", status < 0 ? tutti_last_error() : "");
    atomic_store(&saver->end_ns, tt_clock_ns());
    atomic_store(&saver->state, status < 0 ? TUTTI_SAVE_FAILED : TUTTI_SAVE_PUBLISHED);
}

static void *write_all(void *user)
{
    tutti_saver_t *saver = user;
    close_save(saver, tt_saver_write(&saver->saving, &saver->talk, &saver->outcome));
    if (saver->status >= 0) {
        tt_saving_log(&saver->saving);
    }
    atomic_store(&saver->has_ended, 1);
    tt_futex_wake_all(&saver->has_ended);
    return NULL;
}

static void *write_beside(void *user)
{
    tt_thread_stand_back();
    return write_all(user);
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Its ranks meet in the store. */
static tutti_status_t make_group(tutti_saver_t *saver)
{
    const tutti_group_options_t options = {.name = "saver"};
    if (tutti_group_size(saver->checkpoint.group) > 1) {
        TT_TRY(tutti_group_new(saver->checkpoint.group, NULL, 0, &options, &saver->group));
    }
    saver->talk.group = saver->group;
    return TUTTI_OK;
}

tutti_status_t tutti_saver_create(const tutti_checkpoint_t *checkpoint, tutti_saver_t **out)
{
    tutti_saver_t *saver = tt_alloc(sizeof *saver, "saver");
    tutti_status_t status =
        tt_group_agree(checkpoint->group, saver == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (status >= 0) {
        saver->checkpoint = *checkpoint;
        saver->step = -1;
        status = make_group(saver);
    }
    if (status < 0) {
        tt_free(saver);
        return status;
    }
    *out = saver;
    return TUTTI_OK;
}

/* Until the thread has ended. It waits for nobody any more as soon as a rank is seen to be gone:
 * all ranks come here, and none leaves before they have agreed. */
static void await_thread(tutti_saver_t *saver)
{
    while (atomic_load(&saver->has_ended) == 0) {
        tt_futex_wait(&saver->has_ended, 0, tt_deadline_in_ms(LOOK_MS));
        if (tt_group_is_broken(saver->checkpoint.group)) {
            atomic_store(&saver->talk.leave_by, tt_clock_ns());
        }
    }
}

static void join(tutti_saver_t *saver)
{
    if (saver->has_thread) {
        pthread_join(saver->thread, NULL);
    }
    saver->has_thread = false;
}

/* How the save went on this rank. */
static tutti_status_t end(tutti_saver_t *saver)
{
    tt_saving_end(&saver->saving);
    saver->is_under_way = false;
    return saver->status < 0 ? tt_fail_again(saver->status, saver->error) : TUTTI_OK;
}

/* The rank that has the store is gone: the agreement has named it, which the store cannot. */
static tutti_status_t name_store(const tutti_saver_t *saver, tutti_status_t agreed)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    return TT_FAIL(agreed, "checkpoint of step %" PRId64 ": %s; its end is not known here: %s",
                   saver->step, text, saver->error);
}

/* The store's connection ends with rank 0, and that rank 0 is gone may be seen a moment later. */
static bool is_broken_soon(tutti_group_t *group)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(GONE_MS);
    while (!tt_group_is_broken(group) && !tt_deadline_is_past(deadline)) {
        tt_clock_sleep(TT_NS_PER_MS, deadline);
    }
    return tt_group_is_broken(group);
}

/* What is known to all is agreed on already; who has missed the outcome asks again, when rank 0 is
 * known to have told it. */
static tutti_status_t agree(tutti_saver_t *saver)
{
    const tt_outcome_t *outcome = &saver->outcome;
    const bool is_known = outcome->is_shared || outcome->is_missed || saver->status >= 0;
    const bool is_lost =
        !is_known && outcome->is_cut_off && is_broken_soon(saver->checkpoint.group);
    tutti_status_t agreed =
        tt_group_agree(saver->checkpoint.group,
                       is_known || is_lost ? TUTTI_OK : tt_fail_again(saver->status, saver->error));
    if (agreed >= 0 && is_lost) { /* rank 0 has agreed before */
        agreed = tt_group_check(saver->checkpoint.group);
    }
    if (agreed >= 0 && outcome->is_missed) {
        close_save(saver, tt_saver_hear_again(&saver->saving, &saver->talk, &saver->outcome));
    }
    return agreed < 0 && is_lost ? name_store(saver, agreed) : agreed;
}

tutti_status_t tutti_saver_wait(tutti_saver_t *saver)
{
    if (!saver->is_under_way) { /* on all ranks, or on none */
        return TUTTI_OK;
    }
    char text[TT_ERROR_TEXT_BYTES];
    await_thread(saver);
    join(saver);
    const tutti_status_t agreed = agree(saver);
    snprintf(text, sizeof text, "%s", agreed < 0 ? tutti_last_error() : "");
    const tutti_status_t status = end(saver);
    atomic_store(&saver->talk.leave_by, 0);
    return agreed < 0 ? tt_fail_again(agreed, text) : status;
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
    if (saver->group != NULL && saving->rank == 0 && saver->talk.number > 0) { /* all heard it */
        tt_saver_forget(&saver->talk);
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
    saver->saving.is_beside = true;
    saver->saving.waited_ns = saver->begin_ns - called_ns;
    saver->held_ns = saver->saving.held_ns = tt_clock_ns() - saver->begin_ns;
    saver->talk.number++;
    saver->talk.step = step;
    saver->is_under_way = true;
    atomic_store(&saver->has_ended, 0);
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
    const bool is_broken = saver->is_under_way && tt_group_is_broken(saver->checkpoint.group);
    atomic_store(&saver->talk.leave_by, tt_deadline_in_ms(is_broken ? 0 : LEAVE_MS));
    join(saver);
    if (saver->is_under_way && end(saver) < 0) {
        tt_log(TT_LOG_ERROR, "the last checkpoint: %s", tutti_last_error());
    }
    tutti_group_release(saver->group);
    tt_free(saver);
}
