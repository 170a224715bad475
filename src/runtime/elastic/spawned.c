/* What main() hands control to: this process may be one that tutti_spawn() has started, as the
 * launcher or as a rank. TUTTI_SPAWN says which:
 *
 *     launcher BLOCK LIFELINE     descriptors of the block and of the lifeline
 *     rank BLOCK
 *
 * The variable and the descriptors are not handed on to what the program executes itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "runtime/elastic/launch_agent.h"
#include "runtime/elastic/spawn_impl.h"

enum { CODE_FAILED = 1, CODE_MISUSED = 126 };

static _Atomic(const tutti_spawn_entry_t *) known_entries;

const tutti_spawn_entry_t *tt_spawn_entry(tutti_spawn_fn_t run, const char *name, bool *is_known)
{
    const tutti_spawn_entry_t *entry = atomic_load(&known_entries);
    *is_known = entry != NULL;
    for (; entry != NULL && entry->name != NULL; entry++) {
        if (name != NULL ? strcmp(entry->name, name) == 0 : entry->run == run) {
            return entry;
        }
    }
    return NULL;
}

/* The kernel calls a process after the file that it executes, which is /proc/self/exe. */
static void take_name(void)
{
    prctl(PR_SET_NAME, program_invocation_short_name);
}

static tutti_status_t launch(tt_spawn_block_t *block, int block_fd, int lifeline,
                             tutti_launch_report_t *report)
{
    char label[96], variable[64];
    sigset_t none;
    sigemptyset(&none);
    snprintf(label, sizeof label, "spawn:%s", block->entry);
    snprintf(variable, sizeof variable, "TUTTI_SPAWN=rank %d", block_fd);
    uint8_t *tees = tt_alloc((size_t)block->rank_count, "streams");
    TT_TRY_ALLOC(tees);
    memset(tees, block->has_log_dir ? TUTTI_STREAM_STDOUT | TUTTI_STREAM_STDERR : 0,
           (size_t)block->rank_count);
    const tutti_launch_options_t options = {
        .rank_count = block->rank_count,
        .command = (const char *const[]){program_invocation_name, label, NULL},
        .executable = "/proc/self/exe",
        .environment = (const char *const[]){variable, NULL},
        .log_dir = block->has_log_dir ? block->log_dir : NULL,
        .tees = tees,
        .grace_ms = block->grace_ms,
        .is_plain = block->is_plain,
        .max_restarts = block->max_restarts,
        .lifeline = lifeline};
    const tutti_status_t status =
        tt_launch_ranks(&(tt_agent_options_t){.options = &options, .signals = &none}, report);
    tt_free(tees);
    return status;
}

static int be_launcher(int block_fd, int lifeline)
{
    tt_spawn_block_t *block;
    fcntl(lifeline, F_SETFD, FD_CLOEXEC);
    if (tt_spawn_block_open(block_fd, &block) < 0) {
        return CODE_MISUSED;
    }
    block->status = launch(block, block_fd, lifeline, &block->report);
    snprintf(block->text, sizeof block->text, "%s", tutti_last_error());
    atomic_store(&block->is_answered, 1);
    tt_spawn_block_close(block);
    return 0;
}

static int be_rank(int block_fd)
{
    tt_spawn_block_t *block;
    int64_t rank;
    bool is_known;
    fcntl(block_fd, F_SETFD, FD_CLOEXEC);
    if (tt_spawn_block_open(block_fd, &block) < 0 ||
        tt_config_int(TT_CONFIG_RANK, 0, block->rank_count - 1, &rank) < 0) {
        return CODE_MISUSED;
    }
    const tutti_spawn_entry_t *entry = tt_spawn_entry(NULL, block->entry, &is_known);
    if (entry == NULL) {
        tt_log(TT_LOG_ERROR,
               "spawn: \"%s\" is not among the entries of this process; give tutti_spawned() the "
               "same ones in every process",
               block->entry);
        tt_spawn_block_close(block);
        return CODE_MISUSED;
    }
    tutti_spawned_t self = {
        .rank = (int)rank, .size = block->rank_count, .restart_count = tutti_restart_count()};
    const tutti_status_t status = tt_spawn_run(block, entry->run, &self);
    tt_spawn_block_close(block);
    return status < 0 ? CODE_FAILED : 0;
}

static int be_what_it_says(const char *text)
{
    int block_fd, lifeline;
    const bool is_launcher = sscanf(text, "launcher %9d %9d", &block_fd, &lifeline) == 2;
    const bool is_rank = !is_launcher && sscanf(text, "rank %9d", &block_fd) == 1;
    unsetenv(tt_config_table[TT_CONFIG_SPAWN].variable);
    take_name();
    return is_launcher ? be_launcher(block_fd, lifeline)
           : is_rank   ? be_rank(block_fd)
                       : CODE_MISUSED;
}

bool tutti_spawned(const tutti_spawn_entry_t *entries, int *code)
{
    char text[64];
    atomic_store(&known_entries, entries);
    if (!tt_config_is_set(TT_CONFIG_SPAWN)) {
        return false;
    }
    snprintf(text, sizeof text, "%s", tt_config_text(TT_CONFIG_SPAWN));
    *code = be_what_it_says(text);
    return true;
}
