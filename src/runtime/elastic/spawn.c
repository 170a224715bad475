/* tutti_spawn: what processes and threads share, and what their end means. */
#include "runtime/elastic/spawn_impl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"

static const char *last_line(const char *text, int *bytes)
{
    const size_t length = strlen(text);
    const size_t end = length > 0 && text[length - 1] == '\n' ? length - 1 : length;
    const char *before = memrchr(text, '\n', end);
    const char *line = before != NULL ? before + 1 : text;
    *bytes = (int)(text + end - line);
    return line;
}

/* The rank ended otherwise than by returning from its entry. */
static tutti_status_t fail_ended(const tutti_launch_report_t *report)
{
    int bytes;
    const char *words = last_line(report->stderr_tail, &bytes);
    return bytes > 0
               ? TT_FAIL(TUTTI_ERR_PEER, "%s; its last words: %.*s", report->verdict, bytes, words)
               : TT_FAIL(TUTTI_ERR_PEER, "%s", report->verdict);
}

static tutti_status_t fail_returned(tutti_spawn_t *spawn, int rank)
{
    const tt_spawn_slot_t *slot = tt_spawn_slot(spawn->block, rank);
    spawn->failed_rank = rank;
    return TT_FAIL(slot->status, "rank %d: %s", rank, slot->text);
}

static tutti_status_t judge_processes(tutti_spawn_t *spawn)
{
    tt_spawn_block_t *block = spawn->block;
    const tutti_launch_report_t *report = &block->report;
    if (!atomic_load(&block->is_answered)) {
        return TT_FAIL(TUTTI_ERR_ABORTED, "spawn: the launcher was killed, and all ranks with it");
    }
    if (block->status < 0) {
        return tt_fail_again(block->status, block->text);
    }
    if (report->exit_code == 0) {
        return TUTTI_OK;
    }
    spawn->failed_rank = report->failed_rank;
    if (report->stop_signal != 0) {
        return TT_FAIL(TUTTI_ERR_ABORTED, "spawn: stopped by SIG%s (%s)",
                       sigabbrev_np(report->stop_signal), report->verdict);
    }
    const tt_spawn_slot_t *slot =
        report->failed_rank >= 0 ? tt_spawn_slot(block, report->failed_rank) : NULL;
    const bool returned = slot != NULL && atomic_load(&slot->state) == TT_SLOT_RETURNED &&
                          slot->attempt == report->restart_count && slot->status < 0;
    return returned ? fail_returned(spawn, tt_spawn_find_failure(block, report->restart_count))
                    : fail_ended(report);
}

static tutti_status_t judge_threads(tutti_spawn_t *spawn)
{
    const int rank = tt_spawn_find_failure(spawn->block, 0);
    return rank < 0 ? TUTTI_OK : fail_returned(spawn, rank);
}

static tutti_status_t record_end(tutti_spawn_t *spawn, tutti_status_t status)
{
    spawn->has_ended = true;
    spawn->status = status;
    snprintf(spawn->text, sizeof spawn->text, "%s", status < 0 ? tutti_last_error() : "");
    return status;
}

static tutti_status_t fail_stragglers(tutti_spawn_t *spawn)
{
    char late[128] = "";
    int count = 0;
    for (int i = 0; i < spawn->block->rank_count; i++) {
        if (atomic_load(&tt_spawn_slot(spawn->block, i)->state) != TT_SLOT_RETURNED) {
            const size_t bytes = strlen(late);
            snprintf(late + bytes, sizeof late - bytes, "%s%d", count > 0 ? ", " : "", i);
            count++;
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "spawn: %d of %d ranks have not ended in time: %s", count,
                   spawn->block->rank_count, late);
}

/* ---- starting -------------------------------------------------------------------------------- */

static tutti_status_t check(int n, const tutti_spawn_options_t *options)
{
    if (n < 1 || n > TUTTI_LAUNCH_RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "spawn: %d ranks; want 1 to %d", n, TUTTI_LAUNCH_RANKS_MAX);
    }
    if (options->timeout_ms < 0 || options->grace_ms < 0 || options->max_restarts < 0) {
        return TT_FAIL(
            TUTTI_ERR_ARG, "spawn: timeout %lld ms, grace %lld ms, %d restarts: want 0 or more",
            (long long)options->timeout_ms, (long long)options->grace_ms, options->max_restarts);
    }
    return TUTTI_OK;
}

/* A process that runs the whole main() although it was started for an entry would start others,
 * and those others, without an end. */
static tutti_status_t find_entry(tutti_spawn_fn_t run, const tutti_spawn_entry_t **out)
{
    bool is_known;
    *out = tt_spawn_entry(run, NULL, &is_known);
    if (!is_known || tt_config_is_set(TT_CONFIG_SPAWN)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "spawn: main() must begin with `if (tutti_spawned(entries, &code)) { return "
                       "code; }`");
    }
    if (*out == NULL) {
        return TT_FAIL(TUTTI_ERR_NOT_FOUND,
                       "spawn: this function is not in the table that main() gives to "
                       "tutti_spawned()");
    }
    return strlen((*out)->name) < sizeof((tt_spawn_block_t *)0)->entry
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "spawn: entry \"%.70s…\": want at most 63 characters",
                         (*out)->name);
}

static tutti_status_t start(tutti_spawn_t *spawn, int n, const tutti_spawn_options_t *options)
{
    const tutti_spawn_entry_t *entry = NULL;
    int fd = -1;
    if (!options->threads) {
        TT_TRY(find_entry(spawn->run, &entry));
    }
    TT_TRY(tt_spawn_block_create(entry != NULL ? entry->name : "", n, options, &spawn->block, &fd));
    const tutti_status_t status = options->threads
                                      ? tt_spawn_threads(spawn)
                                      : tt_spawn_processes(spawn, fd, options->environment);
    close(fd);
    return status;
}

tutti_status_t tutti_spawn_start(tutti_spawn_fn_t run, int n, const tutti_spawn_options_t *options,
                                 tutti_spawn_t **out)
{
    TT_WANT("spawn_start", run);
    TT_WANT("spawn_start", out);
    const tutti_spawn_options_t defaults = {0};
    const tutti_spawn_options_t *chosen = options != NULL ? options : &defaults;
    TT_TRY(check(n, chosen));
    tutti_spawn_t *spawn = tt_alloc(sizeof *spawn, "spawn");
    TT_TRY_ALLOC(spawn);
    spawn->owner = getpid();
    spawn->run = run;
    spawn->is_threads = chosen->threads;
    spawn->failed_rank = spawn->pidfd = spawn->lifeline = -1;
    spawn->deadline = chosen->timeout_ms > 0 ? tt_deadline_in_ms(chosen->timeout_ms) : TT_NEVER;
    pthread_mutex_init(&spawn->mutex, NULL);
    pthread_cond_init(&spawn->changed, NULL);
    const tutti_status_t status = start(spawn, n, chosen);
    if (status < 0) {
        char text[TT_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        tutti_spawn_release(spawn);
        return tt_fail_again(status, text);
    }
    *out = spawn;
    return TUTTI_OK;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static tutti_status_t wait_until(tutti_spawn_t *spawn, tt_deadline_t deadline)
{
    return spawn->is_threads ? tt_spawn_threads_wait(spawn, deadline)
                             : tt_spawn_processes_wait(spawn, deadline);
}

/* Threads that do not end in time are waited for in release. */
static tutti_status_t give_up(tutti_spawn_t *spawn)
{
    const tutti_status_t status = record_end(spawn, fail_stragglers(spawn));
    if (spawn->is_threads) {
        tutti_store_abort(spawn->store);
    } else {
        tt_spawn_processes_end(spawn);
    }
    return tt_fail_again(status, spawn->text);
}

tutti_status_t tutti_spawn_join(tutti_spawn_t *spawn, int64_t timeout_ms)
{
    TT_WANT("spawn_join", spawn);
    if (timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "spawn: join for %lld ms; want 0 or more",
                       (long long)timeout_ms);
    }
    if (spawn->has_ended) {
        return spawn->status < 0 ? tt_fail_again(spawn->status, spawn->text) : spawn->status;
    }
    const tt_deadline_t mine = timeout_ms > 0 ? tt_deadline_in_ms(timeout_ms) : TT_NEVER;
    const tutti_status_t status =
        wait_until(spawn, mine < spawn->deadline ? mine : spawn->deadline);
    if (status != TUTTI_OK) {
        const bool is_late = status == TUTTI_PENDING && tt_deadline_is_past(spawn->deadline);
        return is_late ? give_up(spawn) : status;
    }
    return record_end(spawn, spawn->is_threads ? judge_threads(spawn) : judge_processes(spawn));
}

tutti_status_t tutti_spawn_kill(tutti_spawn_t *spawn, int signal)
{
    TT_WANT("spawn_kill", spawn);
    if (signal < 1 || signal > 64) {
        return TT_FAIL(TUTTI_ERR_ARG, "spawn: %d is no signal", signal);
    }
    if (spawn->is_threads) {
        tutti_store_abort(spawn->store);
        return TUTTI_OK;
    }
    return tt_spawn_processes_signal(spawn, signal);
}

const tutti_launch_report_t *tutti_spawn_report(const tutti_spawn_t *spawn)
{
    return spawn != NULL && spawn->has_ended && !spawn->is_threads ? &spawn->block->report : NULL;
}

int tutti_spawn_failed_rank(const tutti_spawn_t *spawn)
{
    return spawn != NULL ? spawn->failed_rank : -1;
}

void tutti_spawn_release(tutti_spawn_t *spawn)
{
    if (spawn == NULL || spawn->owner != getpid()) {
        return;
    }
    if (spawn->is_threads) {
        tt_spawn_threads_end(spawn);
    } else {
        tt_spawn_processes_end(spawn);
    }
    tt_spawn_block_close(spawn->block);
    pthread_cond_destroy(&spawn->changed);
    pthread_mutex_destroy(&spawn->mutex);
    tt_free(spawn);
}

tutti_status_t tutti_spawn(tutti_spawn_fn_t run, int n, const tutti_spawn_options_t *options)
{
    tutti_spawn_t *spawn;
    TT_TRY(tutti_spawn_start(run, n, options, &spawn));
    const tutti_status_t status = tutti_spawn_join(spawn, 0);
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    tutti_spawn_release(spawn);
    return status < 0 ? tt_fail_again(status, text) : status;
}
