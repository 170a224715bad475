/* The shared memory of tutti_spawn(). */
#include "runtime/elastic/spawn_block.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/futex.h"

enum { CAUSE_MS = 1000 };

static size_t bytes_before_argument(int rank_count)
{
    return sizeof(tt_spawn_block_t) + (size_t)rank_count * sizeof(tt_spawn_slot_t);
}

static tutti_status_t map(int fd, size_t bytes, tt_spawn_block_t **out)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: cannot map %zu bytes", bytes);
    }
    *out = at;
    return TUTTI_OK;
}

static void fill(tt_spawn_block_t *block, const char *entry, const tutti_spawn_options_t *options)
{
    block->max_restarts = options->max_restarts;
    block->grace_ms = options->grace_ms;
    block->is_plain = options->is_plain;
    block->has_log_dir = options->log_dir != NULL;
    block->argument_bytes = options->argument.bytes;
    block->report = (tutti_launch_report_t){.failed_rank = -1, .failed_node = -1};
    snprintf(block->entry, sizeof block->entry, "%s", entry);
    snprintf(block->log_dir, sizeof block->log_dir, "%s",
             options->log_dir != NULL ? options->log_dir : "");
    if (options->argument.bytes > 0) {
        memcpy((char *)block + bytes_before_argument(block->rank_count), options->argument.data,
               options->argument.bytes);
    }
}

tutti_status_t tt_spawn_block_create(const char *entry, int n, const tutti_spawn_options_t *options,
                                     tt_spawn_block_t **out, int *fd)
{
    const size_t bytes = bytes_before_argument(n) + options->argument.bytes + 1;
    if (options->log_dir != NULL && strlen(options->log_dir) >= sizeof(*out)->log_dir) {
        return TT_FAIL(TUTTI_ERR_ARG, "spawn: log directory of %zu characters; want at most %zu",
                       strlen(options->log_dir), sizeof(*out)->log_dir - 1);
    }
    const int made = tt_file_lift(memfd_create("tutti-spawn", MFD_CLOEXEC));
    if (made < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: no shared memory");
    }
    tutti_status_t status = TUTTI_OK;
    if (tt_file_resize(made, bytes) != 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: no shared memory of %zu bytes", bytes);
    }
    if (status >= 0) {
        status = map(made, bytes, out);
    }
    if (status < 0) {
        close(made);
        return status;
    }
    (*out)->bytes = bytes;
    (*out)->rank_count = n;
    fill(*out, entry, options);
    *fd = made;
    return TUTTI_OK;
}

tutti_status_t tt_spawn_block_open(int fd, tt_spawn_block_t **out)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "TUTTI_SPAWN: descriptor %d", fd);
    }
    if (about.st_size < (off_t)sizeof(tt_spawn_block_t)) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "TUTTI_SPAWN: descriptor %d is none of tutti_spawn()'s",
                       fd);
    }
    return map(fd, (size_t)about.st_size, out);
}

void tt_spawn_block_close(tt_spawn_block_t *block)
{
    if (block != NULL) {
        munmap(block, block->bytes);
    }
}

tt_spawn_slot_t *tt_spawn_slot(tt_spawn_block_t *block, int rank)
{
    return (tt_spawn_slot_t *)(void *)(block + 1) + rank;
}

static tutti_bytes_t argument_of(tt_spawn_block_t *block)
{
    const char *at = (const char *)block + bytes_before_argument(block->rank_count);
    return (tutti_bytes_t){at, block->argument_bytes};
}

/* Such failures are of a rank that saw another one go. */
static bool is_notice(tutti_status_t status)
{
    return status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED;
}

/* The first rank that ends, ends the others. One that merely noticed waits a moment, so that the
 * rank that it noticed can say why it left. */
static void await_cause(tt_spawn_block_t *block, uint32_t attempt)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(CAUSE_MS);
    uint32_t seen;
    while ((seen = atomic_load(&block->caused)) != attempt + 1 && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(&block->caused, seen, deadline);
    }
}

static void tell_others(tt_spawn_block_t *block, const tutti_spawned_t *self, tutti_status_t status)
{
    const uint32_t attempt = (uint32_t)self->restart_count;
    const bool is_process = self->store == NULL;
    if (is_process && is_notice(status)) {
        await_cause(block, attempt);
    } else if (status < 0) {
        atomic_store(&block->caused, attempt + 1);
        tt_futex_wake_all(&block->caused);
    }
}

tutti_status_t tt_spawn_run(tt_spawn_block_t *block, tutti_spawn_fn_t run, tutti_spawned_t *self)
{
    tt_spawn_slot_t *slot = tt_spawn_slot(block, self->rank);
    slot->attempt = self->restart_count;
    atomic_store(&slot->state, TT_SLOT_RUNS);
    self->argument = argument_of(block);
    const tutti_status_t status = run(self);
    slot->status = status;
    slot->returned_ns = tt_clock_ns();
    snprintf(slot->text, sizeof slot->text, "%s",
             status < 0 && tutti_last_error()[0] != 0 ? tutti_last_error()
                                                      : tutti_status_text(status));
    atomic_store(&slot->state, TT_SLOT_RETURNED);
    tell_others(block, self, status);
    return status;
}

static bool is_better(const tt_spawn_slot_t *slot, const tt_spawn_slot_t *than)
{
    const bool is_late = slot->returned_ns >= than->returned_ns;
    return is_notice(slot->status) != is_notice(than->status) ? is_notice(than->status) : !is_late;
}

int tt_spawn_find_failure(tt_spawn_block_t *block, int attempt)
{
    int found = -1;
    for (int i = 0; i < block->rank_count; i++) {
        const tt_spawn_slot_t *slot = tt_spawn_slot(block, i);
        if (atomic_load(&slot->state) == TT_SLOT_RETURNED && slot->attempt == attempt &&
            slot->status < 0 && (found < 0 || is_better(slot, tt_spawn_slot(block, found)))) {
            found = i;
        }
    }
    return found;
}
