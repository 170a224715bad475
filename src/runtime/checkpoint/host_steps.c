/* Finding a step on all disks: the first rank of each says what is there.
 *
 *     | digest of its manifest | a byte for each file: it is there |     nothing: no manifest
 *
 * Every rank hears all of them, and decides the same.
 */
#include "runtime/checkpoint/host_steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"

int tt_holders_find_missing(const tt_holders_t *holders)
{
    for (size_t file = 0; file < holders->files; file++) {
        bool is_there = false;
        for (int disk = 0; disk < holders->disks->count; disk++) {
            is_there = is_there || *tt_holders_of(holders, disk, (int)file);
        }
        if (!is_there) {
            return (int)file;
        }
    }
    return -1;
}

void tt_holders_release(tt_holders_t *holders)
{
    tt_free(holders->has);
    *holders = (tt_holders_t){0};
}

/* ---- what all ranks say ---------------------------------------------------------------------- */

/* `mine` is how this rank fared with its bytes. */
static tutti_status_t gather(tutti_group_t *group, tutti_status_t mine, tutti_bytes_t bytes,
                             tutti_buffer_t **out)
{
    const size_t ranks = (size_t)tutti_group_size(group);
    tutti_buffer_t *all = tt_alloc_array(ranks, sizeof *all, "checkpoint");
    tutti_status_t status =
        tt_group_agree(group, all == NULL && mine >= 0 ? TUTTI_ERR_NOMEM : mine);
    if (status >= 0) {
        status = tutti_all_gather_bytes(group, bytes, all);
        status = status < 0 ? tt_group_give_up(group, status) : status;
    }
    if (status < 0) {
        tt_free(all);
        return status;
    }
    *out = all;
    return TUTTI_OK;
}

static void free_gathered(tutti_buffer_t *all, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
}

typedef tutti_status_t newest_of_t(const char *folder, int64_t below, int64_t *step);

/* The newest that any disk's folder has below a step; TT_NO_STEP. */
static tutti_status_t newest(const tutti_checkpoint_t *c, const tt_disks_t *disks, int64_t below,
                             newest_of_t *newest_of, int64_t *step)
{
    int64_t found = TT_NO_STEP;
    tutti_buffer_t *all;
    const tutti_status_t status = disks->is_first ? newest_of(c->folder, below, &found) : TUTTI_OK;
    TT_TRY(gather(c->group, status, tutti_bytes_of(&found, sizeof found), &all));
    *step = TT_NO_STEP;
    for (int i = 0; i < disks->ranks; i++) {
        memcpy(&found, all[i].data, sizeof found);
        *step = found > *step ? found : *step;
    }
    free_gathered(all, disks->ranks);
    return TUTTI_OK;
}

tutti_status_t tt_host_steps_newest(const tutti_checkpoint_t *c, const tt_disks_t *disks,
                                    int64_t below, int64_t *step)
{
    return newest(c, disks, below, tt_steps_newest, step);
}

/* ---- one step -------------------------------------------------------------------------------- */

/* A step on this disk. */
typedef struct {
    tt_path_t folder;
    tt_manifest_t *manifest; /* NULL: there is none, or a damaged one */
    tutti_buffer_t text, report;
} part_t;

static bool has_file(const part_t *part, const char *name)
{
    tt_path_t path;
    tt_steps_file(part->folder, name, path);
    return access(path, R_OK) == 0;
}

static tutti_status_t make_report(part_t *part)
{
    const tt_manifest_t *manifest = part->manifest;
    const size_t bytes = sizeof(tt_digest_t) + manifest->file_count;
    TT_TRY(tt_manifest_print(manifest, &part->text));
    char *report = tt_alloc(bytes, "buffer");
    TT_TRY_ALLOC(report);
    const tt_digest_t digest = tt_digest_of(part->text.data, part->text.bytes);
    memcpy(report, &digest, sizeof digest);
    for (size_t i = 0; i < manifest->file_count; i++) {
        const tt_saved_file_t *file = &manifest->files[i];
        report[sizeof digest + i] =
            has_file(part, file->name) && (file->digests == NULL || has_file(part, file->digests));
    }
    part->report = (tutti_buffer_t){report, bytes};
    return TUTTI_OK;
}

/* Under its name, or if there is an old one and that is wanted, that. */
static void name_part(const tutti_checkpoint_t *c, int64_t step, bool is_old, tt_path_t folder)
{
    tt_steps_old(c->folder, step, folder);
    if (!is_old || access(folder, F_OK) != 0) {
        tt_steps_name(c->folder, step, folder);
    }
}

/* A disk on which the step is not, or not as a whole, has nothing of it. Errors: NOMEM. */
static tutti_status_t open_part(int64_t step, part_t *part)
{
    tt_path_t path;
    tt_steps_file(part->folder, TT_MANIFEST_NAME, path);
    tutti_status_t status = tt_manifest_read(path, &part->manifest);
    if (status >= 0 && part->manifest->step != step) {
        status = TT_FAIL(TUTTI_ERR_FORMAT, "%s: is of step %" PRId64, path, part->manifest->step);
    }
    status = status < 0 ? status : tt_manifest_check_slices(path, part->manifest);
    if (status < 0) {
        tt_manifest_release(part->manifest);
        part->manifest = NULL;
        if (status == TUTTI_ERR_FORMAT) {
            tt_log(TT_LOG_WARN, "checkpoint: %s", tutti_last_error());
        }
        return status == TUTTI_ERR_NOMEM ? status : TUTTI_OK;
    }
    return make_report(part);
}

static void close_part(part_t *part)
{
    tutti_buffer_release(&part->text);
    tutti_buffer_release(&part->report);
    tt_manifest_release(part->manifest);
}

static bool has_digest_of(const tutti_buffer_t *report, const tutti_buffer_t *other)
{
    return report->bytes == other->bytes && report->bytes > 0 &&
           memcmp(report->data, other->data, sizeof(tt_digest_t)) == 0;
}

/* What the disks with the manifest of one of them have. */
static void take_reports(const tutti_buffer_t *all, const tutti_buffer_t *like, tt_holders_t *h)
{
    for (int disk = 0; disk < h->disks->count; disk++) {
        const tutti_buffer_t *report = &all[tt_disks_rank(h->disks, disk, 0)];
        const char *files = (const char *)report->data + sizeof(tt_digest_t);
        for (size_t i = 0; i < h->files; i++) {
            *tt_holders_of(h, disk, (int)i) = has_digest_of(report, like) && files[i] != 0;
        }
    }
}

/* On the rank whose manifest it is; the others hear it from there. */
static tutti_status_t fail_missing(const part_t *part, int file)
{
    const tt_manifest_t *m = part->manifest;
    return TT_FAIL(TUTTI_ERR_IO, "%s/%s of host %s is on none of these hosts", part->folder,
                   m->files[file].name,
                   m->host_count > 0 ? m->hosts[m->files[file].host] : "(not told)");
}

/* The rank whose manifest holds: the first of which all is there; else the first that there is;
 * -1: none. Leaves in `h` who has what of it. */
static tutti_status_t choose(const tutti_buffer_t *all, tt_holders_t *h, int *chosen)
{
    int first = -1;
    for (int disk = 0; disk <= h->disks->count; disk++) {
        const bool is_last = disk == h->disks->count;
        const int rank = is_last ? first : tt_disks_rank(h->disks, disk, 0);
        if (rank < 0 || all[rank].bytes == 0) {
            continue;
        }
        first = first < 0 ? rank : first;
        tt_free(h->has);
        h->files = all[rank].bytes - sizeof(tt_digest_t);
        h->has = tt_alloc_array((size_t)h->disks->count, h->files + 1, "checkpoint");
        TT_TRY_ALLOC(h->has);
        take_reports(all, &all[rank], h);
        *chosen = rank;
        if (tt_holders_find_missing(h) < 0) {
            return TUTTI_OK;
        }
    }
    return TUTTI_OK;
}

/* The manifest of a rank, on all. */
static tutti_status_t share(tutti_group_t *group, int root, const part_t *part,
                            tt_manifest_t **manifest)
{
    tutti_buffer_t shared;
    const tutti_status_t status =
        tutti_broadcast_bytes(group, tt_buffer_view(&part->text), root, &shared);
    if (status < 0) {
        return tt_group_give_up(group, status);
    }
    tt_manifest_t *found = NULL;
    const tutti_status_t parsed =
        tt_manifest_parse("a host's manifest", tt_buffer_view(&shared), &found);
    tutti_buffer_release(&shared);
    const tutti_status_t agreed = tt_group_agree(group, parsed);
    if (agreed < 0) {
        tt_manifest_release(parsed < 0 ? NULL : found);
        return agreed;
    }
    *manifest = found;
    return TUTTI_OK;
}

static tutti_status_t open_together(const tutti_checkpoint_t *c, part_t *part,
                                    const tutti_buffer_t *all, tt_holders_t *h,
                                    tt_manifest_t **manifest)
{
    int chosen = -1;
    TT_TRY(tt_group_agree(c->group, choose(all, h, &chosen)));
    if (chosen < 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: no host has a manifest of it that can be read",
                       part->folder);
    }
    const int missing = tt_holders_find_missing(h);
    if (missing >= 0) {
        const bool is_mine = tutti_group_rank(c->group) == chosen;
        return tt_group_agree(c->group, is_mine ? fail_missing(part, missing) : TUTTI_OK);
    }
    return share(c->group, chosen, part, manifest);
}

static tutti_status_t open_step(const tutti_checkpoint_t *c, int64_t step, bool is_old,
                                tt_manifest_t **manifest, tt_holders_t *holders)
{
    tutti_buffer_t *all;
    part_t *part = tt_alloc(sizeof *part, "checkpoint");
    tutti_status_t status = part == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0) {
        name_part(c, step, is_old, part->folder);
        status = holders->disks->is_first ? open_part(step, part) : TUTTI_OK;
    }
    status = gather(c->group, status, part == NULL ? tutti_text("") : tt_buffer_view(&part->report),
                    &all);
    if (status >= 0) {
        status = open_together(c, part, all, holders, manifest);
        free_gathered(all, holders->disks->ranks);
    }
    if (part != NULL) {
        close_part(part);
    }
    tt_free(part);
    if (status < 0) {
        tt_holders_release(holders);
    }
    return status;
}

tutti_status_t tt_host_steps_open(const tutti_checkpoint_t *c, const tt_disks_t *disks,
                                  int64_t step, tt_manifest_t **manifest, tt_holders_t *holders)
{
    *holders = (tt_holders_t){.disks = disks};
    return open_step(c, step, false, manifest, holders);
}

/* ---- what a crash has left while a step was replaced ----------------------------------------- */

static tutti_status_t find_whole(const tutti_checkpoint_t *c, const tt_disks_t *disks, int64_t step,
                                 bool is_old, bool *is_whole)
{
    tt_manifest_t *manifest;
    tt_holders_t holders = {.disks = disks};
    const tutti_status_t status = open_step(c, step, is_old, &manifest, &holders);
    *is_whole = status >= 0;
    if (status >= 0) {
        tt_manifest_release(manifest);
        tt_holders_release(&holders);
    }
    return status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT ? TUTTI_OK : status;
}

tutti_status_t tt_host_steps_find_whole(const tutti_checkpoint_t *c, const tt_disks_t *disks,
                                        int64_t step, bool *is_whole)
{
    return find_whole(c, disks, step, false, is_whole);
}

/* On the first rank of a disk. */
static tutti_status_t restore(const tutti_checkpoint_t *c, int64_t step)
{
    tt_path_t path;
    tt_steps_old(c->folder, step, path);
    return access(path, F_OK) == 0 ? tt_steps_restore(c->folder, step) : TUTTI_OK;
}

static tutti_status_t recover_step(const tutti_checkpoint_t *c, const tt_disks_t *disks,
                                   int64_t step)
{
    bool is_new, is_old;
    TT_TRY(find_whole(c, disks, step, false, &is_new));
    if (is_new) {
        if (disks->is_first) {
            tt_steps_settle(c->folder, step);
        }
        return TUTTI_OK;
    }
    TT_TRY(find_whole(c, disks, step, true, &is_old));
    return is_old ? tt_group_agree(c->group, disks->is_first ? restore(c, step) : TUTTI_OK)
                  : TUTTI_OK;
}

tutti_status_t tt_host_steps_recover(const tutti_checkpoint_t *c, const tt_disks_t *disks)
{
    for (int64_t found, below = INT64_MAX;; below = found) {
        TT_TRY(newest(c, disks, below, tt_steps_newest_old, &found));
        if (found == TT_NO_STEP) {
            return TUTTI_OK;
        }
        TT_TRY(recover_step(c, disks, found));
    }
}
