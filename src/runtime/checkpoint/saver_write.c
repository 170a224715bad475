/* The thread of a save: the talk of ranks, and on disks apart that of hosts, whose first ranks go
 * through two phases before rank 0 tells the outcome:
 *
 *     complete   the manifest of all is in each host's folder
 *     rename     it has its name there
 *
 * What was under its name before stays until all have renamed.
 */
#include "runtime/checkpoint/saver_write.h"

#include <stdio.h>

#include "core/base/buffer.h"

/* A thread's part of a save. */
typedef struct {
    tt_saving_t *saving;
    const tt_talk_t *talk;
    tt_outcome_t *outcome;
} writing_t;

static const char wrote[] = "written its files", published[] = "published it";

/* ---- hosts with disks of their own ----------------------------------------------------------- */

typedef enum { COMPLETE, RENAME, PHASE_COUNT } phase_t;

static const char *const phases[PHASE_COUNT] = {"complete", "rename"};

static tutti_bytes_t phase_key(const writing_t *w, phase_t phase, int rank,
                               char key[TT_TALK_KEY_BYTES])
{
    return tt_talk_phase(w->talk, phases[phase], rank, key);
}

/* This rank's part of a phase. */
static tutti_status_t do_phase(const writing_t *w, phase_t phase)
{
    return phase == COMPLETE ? tt_saving_complete(w->saving) : tt_saving_rename(w->saving);
}

/* How the first rank of another host fared with a phase. */
static tutti_status_t hear_host(const writing_t *w, phase_t phase, int rank)
{
    char key[TT_TALK_KEY_BYTES];
    tutti_buffer_t said = {0};
    tutti_status_t told;
    const tutti_bytes_t own = phase_key(w, phase, rank, key);
    tutti_status_t status = tt_talk_hear(w->talk, own, rank, wrote, &told, &said);
    if (status >= 0 && told < 0) {
        status = TT_FAIL(told, "rank %d: %s", rank, (const char *)said.data);
    }
    tutti_buffer_release(&said);
    tt_talk_forget(w->talk, own);
    return status;
}

/* The failure of the lowest rank that has one is that of all; `status`: rank 0's own. */
static tutti_status_t hear_phase(const writing_t *w, phase_t phase, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    for (int disk = 1; disk < w->saving->disks.count; disk++) {
        const tutti_status_t heard = hear_host(w, phase, tt_disks_rank(&w->saving->disks, disk, 0));
        if (heard < 0 && status >= 0) {
            status = heard;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
    return status < 0 ? tt_fail_again(status, text) : TUTTI_OK;
}

/* A phase on all hosts; `status` is how it went until now. Where it cannot be told that it shall
 * be, that is what is told. */
static tutti_status_t lead_phase(const writing_t *w, phase_t phase, tutti_status_t status,
                                 tutti_bytes_t said)
{
    char key[TT_TALK_KEY_BYTES];
    const tutti_bytes_t all = phase_key(w, phase, 0, key);
    status = status < 0 ? status : tt_talk_tell(w->talk, all, said);
    if (status < 0) {
        (void)tt_talk_tell_failure(w->talk, all, status);
        return status;
    }
    return hear_phase(w, phase, do_phase(w, phase));
}

static tutti_status_t lead_hosts(const writing_t *w, tutti_status_t status)
{
    tutti_buffer_t text = {0};
    if (status >= 0) {
        status = tt_manifest_print(w->saving->plan, &text);
    }
    status = lead_phase(w, COMPLETE, status, tt_buffer_view(&text));
    tutti_buffer_release(&text);
    return lead_phase(w, RENAME, status, tutti_text(""));
}

/* Of rank 0, which knows where all slices are. */
static tutti_status_t take_plan(const writing_t *w, const tutti_buffer_t *text)
{
    tt_manifest_t *plan;
    TT_TRY(tt_manifest_parse("the manifest of rank 0", tt_buffer_view(text), &plan));
    tt_manifest_release(w->saving->plan);
    w->saving->plan = plan;
    return TUTTI_OK;
}

/* What rank 0 wants to be done, unless it failed elsewhere: END. */
static tutti_status_t follow_phase(const writing_t *w, phase_t phase)
{
    char key[TT_TALK_KEY_BYTES];
    tutti_buffer_t text;
    tutti_status_t status;
    TT_TRY(tt_talk_hear(w->talk, phase_key(w, phase, 0, key), 0, published, &status, &text));
    if (status < 0) {
        tutti_buffer_release(&text);
        return TUTTI_END;
    }
    status = phase == COMPLETE ? take_plan(w, &text) : TUTTI_OK;
    tutti_buffer_release(&text);
    status = status < 0 ? status : do_phase(w, phase);
    const tutti_bytes_t own = phase_key(w, phase, w->saving->rank, key);
    status = status < 0 ? status : tt_talk_tell(w->talk, own, tutti_text(""));
    if (status < 0) {
        (void)tt_talk_tell_failure(w->talk, own, status);
    }
    return status;
}

/* On the first rank of a host; how it went is told to rank 0, and comes back as the outcome. */
static void follow_host(const writing_t *w)
{
    if (follow_phase(w, COMPLETE) == TUTTI_OK) {
        (void)follow_phase(w, RENAME);
    }
}

/* What has failed on this rank, and told, goes when all have ended: others of the host may still be
 * writing. */
static tutti_status_t fail_host(const writing_t *w, tutti_status_t status)
{
    char key[TT_TALK_KEY_BYTES], text[TT_ERROR_TEXT_BYTES];
    tutti_buffer_t outcome = {0};
    tutti_status_t told;
    if (!w->saving->disks.is_first) {
        return status;
    }
    snprintf(text, sizeof text, "%s", tutti_last_error());
    (void)tt_talk_hear(w->talk, tt_talk_outcome(w->talk, key), 0, published, &told, &outcome);
    tutti_buffer_release(&outcome);
    return tt_saving_abandon(w->saving, tt_fail_again(status, text));
}

/* The outcome on a host's disk. */
static tutti_status_t end_host(const writing_t *w, tutti_status_t status)
{
    if (status < 0) {
        return tt_saving_abandon(w->saving, status);
    }
    if (w->saving->disks.count > 1 && w->saving->disks.is_first) {
        tt_saving_settle(w->saving);
    }
    return TUTTI_OK;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static tutti_status_t hear_report(const writing_t *w, int rank)
{
    char key[TT_TALK_KEY_BYTES], what[32];
    tutti_buffer_t text;
    tt_manifest_t *report;
    tutti_status_t status;
    TT_TRY(tt_talk_hear(w->talk, tt_talk_report(w->talk, rank, key), rank, wrote, &status, &text));
    snprintf(what, sizeof what, "rank %d", rank);
    status = status < 0 ? TT_FAIL(status, "%s: %s", what, (const char *)text.data)
                        : tt_manifest_parse(what, tt_buffer_view(&text), &report);
    tutti_buffer_release(&text);
    TT_TRY(status);
    status = tt_saving_take(w->saving, report);
    tt_manifest_release(report);
    return status;
}

/* The failure of the lowest rank that has one is that of all; `status`: rank 0's own. */
static tutti_status_t hear_reports(const writing_t *w, tutti_status_t status)
{
    char key[TT_TALK_KEY_BYTES], text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    for (int rank = 1; rank < w->saving->ranks; rank++) {
        const tutti_status_t heard = hear_report(w, rank);
        if (heard < 0 && status >= 0) {
            status = heard;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
        tt_talk_forget(w->talk, tt_talk_report(w->talk, rank, key));
    }
    return status < 0 ? tt_fail_again(status, text) : TUTTI_OK;
}

static tutti_status_t lead(writing_t *w, tutti_status_t status)
{
    char key[TT_TALK_KEY_BYTES];
    status = hear_reports(w, status);
    if (w->saving->disks.count > 1) {
        status = lead_hosts(w, status);
    } else if (status >= 0) {
        status = tt_saving_publish(w->saving);
    }
    status = end_host(w, status);
    if (w->saving->ranks == 1) {
        return status;
    }
    const tutti_bytes_t outcome = tt_talk_outcome(w->talk, key);
    status = status < 0 ? status : tt_talk_tell(w->talk, outcome, tutti_text(""));
    w->outcome->is_shared = status >= 0 || tt_talk_tell_failure(w->talk, outcome, status);
    return status;
}

static tutti_status_t report(writing_t *w, const tt_manifest_t *written)
{
    char key[TT_TALK_KEY_BYTES];
    tutti_buffer_t text;
    TT_TRY(tt_manifest_print(written, &text));
    const tutti_status_t status =
        tt_talk_tell(w->talk, tt_talk_report(w->talk, w->saving->rank, key), tt_buffer_view(&text));
    tutti_buffer_release(&text);
    return status;
}

/* What rank 0 told of all. */
static tutti_status_t hear_outcome(const writing_t *w)
{
    char key[TT_TALK_KEY_BYTES];
    tutti_buffer_t text;
    tutti_status_t status;
    const tutti_status_t heard =
        tt_talk_hear(w->talk, tt_talk_outcome(w->talk, key), 0, published, &status, &text);
    w->outcome->is_missed = heard == TUTTI_ERR_TIMEOUT;
    w->outcome->is_cut_off = heard < 0 && !w->outcome->is_missed;
    TT_TRY(heard);
    w->outcome->is_shared = true;
    status = status < 0 ? tt_fail_again(status, text.data) : TUTTI_OK;
    tutti_buffer_release(&text);
    return end_host(w, status);
}

static tutti_status_t follow(writing_t *w, tutti_status_t status, const tt_manifest_t *written)
{
    char key[TT_TALK_KEY_BYTES];
    const bool has_failed = status < 0;
    status = has_failed ? status : report(w, written);
    if (status < 0) {
        const tutti_bytes_t own = tt_talk_report(w->talk, w->saving->rank, key);
        w->outcome->is_shared = tt_talk_tell_failure(w->talk, own, status);
        w->outcome->is_cut_off = !has_failed && !w->outcome->is_shared;
        return fail_host(w, status);
    }
    if (w->saving->disks.is_first) {
        follow_host(w);
    }
    return hear_outcome(w);
}

tutti_status_t tt_saver_write(tt_saving_t *saving, const tt_talk_t *talk, tt_outcome_t *outcome)
{
    tt_manifest_t *written = NULL;
    *outcome = (tt_outcome_t){.is_shared = saving->ranks == 1};
    writing_t w = {saving, talk, outcome};
    const tutti_status_t status = tt_saving_write(saving, &written);
    const tutti_status_t ended = saving->rank == 0 ? lead(&w, status) : follow(&w, status, written);
    tt_manifest_release(written);
    return ended;
}

tutti_status_t tt_saver_hear_again(tt_saving_t *saving, const tt_talk_t *talk,
                                   tt_outcome_t *outcome)
{
    return hear_outcome(&(writing_t){saving, talk, outcome});
}

void tt_saver_forget(const tt_talk_t *talk)
{
    char key[TT_TALK_KEY_BYTES];
    tt_talk_forget(talk, tt_talk_outcome(talk, key));
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        tt_talk_forget(talk, tt_talk_phase(talk, phases[phase], 0, key));
    }
}
