/* Who shares a folder. Every rank says where it is, and finds those that say the same. */
#include "runtime/checkpoint/disks.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/fnv.h"

typedef struct {
    uint64_t machine, device, inode;
    char host[TT_HOST_NAME_BYTES];
    uint64_t token; /* in which ranks of one place differ, and what follows is not of the place */
    int per_host, host_copies, keep;
    uint64_t keep_steps; /* a digest of them, in whatever order */
} place_t;

static uint64_t digest_steps(const tutti_checkpoint_t *c)
{
    uint64_t sum = c->keep_step_count;
    for (size_t i = 0; i < c->keep_step_count; i++) {
        sum += tt_fnv(TT_FNV_BEGIN, &c->keep_steps[i], sizeof *c->keep_steps);
    }
    return sum;
}

static tutti_status_t find_place(const tutti_checkpoint_t *c, place_t *out)
{
    char boot[64];
    struct stat about;
    place_t place;
    memset(&place, 0, sizeof place); /* its padding is compared */
    if (getrandom(&place.token, sizeof place.token, 0) != (ssize_t)sizeof place.token) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    const size_t bytes = tt_file_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    place.machine = tt_fnv(TT_FNV_BEGIN, boot, bytes);
    (void)gethostname(place.host, sizeof place.host - 1);
    if (stat(c->folder, &about) == 0) {
        place.device = (uint64_t)about.st_dev;
        place.inode = (uint64_t)about.st_ino;
    }
    place.per_host = c->per_host;
    place.host_copies = c->host_copies;
    place.keep = c->keep;
    place.keep_steps = digest_steps(c);
    memcpy(out, &place, sizeof place);
    return TUTTI_OK;
}

/* Ranks that differ in it would wait for each other in other calls. */
static tutti_status_t check_alike(const tutti_buffer_t *all, int ranks)
{
    const place_t *first = all[0].data;
    for (int i = 1; i < ranks; i++) {
        const place_t *place = all[i].data;
        if (place->per_host != first->per_host) {
            return TT_FAIL(
                TUTTI_ERR_MISMATCH, "checkpoint: per_host is %s on rank %d, %s on rank 0",
                place->per_host ? "true" : "false", i, first->per_host ? "true" : "false");
        }
        if (place->per_host && place->host_copies != first->host_copies) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "checkpoint: host_copies is %d on rank %d, %d on rank 0",
                           place->host_copies, i, first->host_copies);
        }
        if (place->per_host && place->keep != first->keep) {
            return TT_FAIL(TUTTI_ERR_MISMATCH, "checkpoint: keep is %d on rank %d, %d on rank 0",
                           place->keep, i, first->keep);
        }
        if (place->per_host && place->keep_steps != first->keep_steps) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "checkpoint: keep_steps of rank %d are not those of rank 0", i);
        }
    }
    return TUTTI_OK;
}

/* `all` [ranks]: of place_t. */
static void number_disks(tt_disks_t *disks, const tutti_buffer_t *all, int rank)
{
    for (int i = 0; i < disks->ranks; i++) {
        int same = 0;
        while (same < i && memcmp(all[same].data, all[i].data, offsetof(place_t, token)) != 0) {
            same++;
        }
        if (same == i) {
            const place_t *place = all[i].data;
            memcpy(disks->hosts[disks->count], place->host, sizeof place->host);
            disks->tokens[disks->count] = place->token;
        }
        disks->of_rank[i] = same < i ? disks->of_rank[same] : disks->count++;
        if (i == rank) {
            disks->mine = disks->of_rank[i];
            disks->is_first = same == i;
        }
    }
}

static tutti_status_t find_together(const tutti_checkpoint_t *c, tt_disks_t *disks)
{
    place_t place;
    const size_t ranks = (size_t)disks->ranks;
    tutti_buffer_t *all = tt_alloc_array(ranks, sizeof *all, "checkpoint");
    disks->of_rank = tt_alloc_array(ranks, sizeof *disks->of_rank, "checkpoint");
    disks->hosts = tt_alloc_array(ranks, sizeof *disks->hosts, "checkpoint");
    disks->tokens = tt_alloc_array(ranks, sizeof *disks->tokens, "checkpoint");
    const bool has_room =
        all != NULL && disks->of_rank != NULL && disks->hosts != NULL && disks->tokens != NULL;
    tutti_status_t status =
        tt_group_agree(c->group, has_room ? find_place(c, &place) : TUTTI_ERR_NOMEM);
    if (status >= 0) {
        status = tutti_all_gather_bytes(c->group, tutti_bytes_of(&place, sizeof place), all);
        status = status < 0 ? tt_group_give_up(c->group, status) : status;
    }
    status = status < 0 ? status : check_alike(all, disks->ranks);
    if (status >= 0 && c->per_host) {
        disks->count = 0;
        number_disks(disks, all, tutti_group_rank(c->group));
    }
    for (size_t i = 0; all != NULL && i < ranks; i++) {
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
    return status;
}

tutti_status_t tt_disks_find(const tutti_checkpoint_t *c, tt_disks_t *out)
{
    const bool is_alone = tutti_group_size(c->group) <= 1;
    tt_disks_t disks = {.ranks = is_alone ? 1 : tutti_group_size(c->group),
                        .count = 1,
                        .is_first = is_alone || tutti_group_rank(c->group) == 0};
    const tutti_status_t status = is_alone ? TUTTI_OK : find_together(c, &disks);
    if (status < 0) {
        tt_disks_release(&disks);
        return status;
    }
    *out = disks;
    return TUTTI_OK;
}

void tt_disks_release(tt_disks_t *disks)
{
    tt_free(disks->of_rank);
    tt_free(disks->hosts);
    tt_free(disks->tokens);
    *disks = (tt_disks_t){0};
}

static int count_ranks(const tt_disks_t *disks, int disk)
{
    int size = 0;
    for (int i = 0; i < disks->ranks; i++) {
        size += disks->of_rank[i] == disk;
    }
    return size;
}

int tt_disks_rank(const tt_disks_t *disks, int disk, int number)
{
    int left = number % count_ranks(disks, disk);
    int rank = 0;
    while (disks->of_rank[rank] != disk || left-- > 0) {
        rank++;
    }
    return rank;
}

bool tt_disks_copies(const tt_disks_t *disks, int copies, int of, int by)
{
    if (disks->count == 1) {
        return false;
    }
    const int disk = disks->of_rank[of];
    const int next = (disks->of_rank[by] - disk + disks->count) % disks->count;
    int number = 0;
    for (int i = 0; i < of; i++) {
        number += disks->of_rank[i] == disk;
    }
    return next > 0 && next < copies && tt_disks_rank(disks, disks->of_rank[by], number) == by;
}

static tutti_status_t add_copies(const tt_disks_t *disks, int copies, const tt_saved_slice_t *slice,
                                 tt_saved_tensor_t *to)
{
    tt_saved_slice_t copy = *slice;
    TT_TRY(tt_manifest_add_slice(to, &copy));
    for (copy.rank = 0; copy.rank < disks->ranks; copy.rank++) {
        if (tt_disks_copies(disks, copies, slice->rank, copy.rank)) {
            TT_TRY(tt_manifest_add_slice(to, &copy));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_disks_plan_copies(const tt_disks_t *disks, const tt_manifest_t *plan,
                                    tt_manifest_t **out)
{
    TT_TRY(tt_manifest_create(plan->step, plan->ranks, out));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const tt_saved_tensor_t *from = &plan->tensors[i];
        tt_saved_tensor_t *to;
        TT_TRY(tt_manifest_add(*out, from->name, from->dtype, from->shape, &to));
        for (size_t k = 0; k < from->slice_count; k++) {
            TT_TRY(add_copies(disks, plan->copies, &from->slices[k], to));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_disks_mark(const tt_disks_t *disks, tt_manifest_t *plan)
{
    if (disks->count == 1) {
        return TUTTI_OK;
    }
    for (int i = 0; i < disks->count; i++) {
        TT_TRY(tt_manifest_add_host(plan, disks->hosts[i]));
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        for (size_t k = 0; k < plan->tensors[i].slice_count; k++) {
            const tt_saved_slice_t *slice = &plan->tensors[i].slices[k];
            plan->files[slice->file].host = disks->of_rank[slice->rank];
        }
    }
    return TUTTI_OK;
}
