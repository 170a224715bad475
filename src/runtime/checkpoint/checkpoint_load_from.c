/* Loading from a path: the root finds out what it is, every rank reads what it has of it. */
#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/load_names.h"
#include "runtime/checkpoint/load_state.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/source.h"

/* The root's, on every rank. */
static tutti_status_t share_folder(tutti_group_t *group, tt_path_t folder)
{
    tutti_buffer_t shared;
    if (tutti_group_size(group) <= 1) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tutti_broadcast_bytes(group, tutti_text(folder), 0, &shared);
    if (status < 0) {
        return tt_group_give_up(group, status);
    }
    memcpy(folder, shared.data, shared.bytes + 1);
    tutti_buffer_release(&shared);
    return TUTTI_OK;
}

static tutti_status_t open_together(tutti_group_t *group, const char *path, tt_source_t *source)
{
    const bool is_root = group == NULL || tutti_group_rank(group) == 0;
    *source = (tt_source_t){0};
    TT_TRY(tt_manifest_share(group, is_root ? tt_source_open(path, source) : TUTTI_OK,
                             "the manifest of rank 0", &source->manifest));
    return share_folder(group, source->folder);
}

static tutti_status_t check(const tutti_checkpoint_t *c, const tutti_load_options_t *options)
{
    tt_pieces_t pieces;
    TT_TRY(tt_load_options_check(options));
    TT_TRY(tt_pieces_of(c->slices, c->slice_count, &pieces));
    tt_pieces_release(&pieces);
    return TUTTI_OK;
}

/* The rest of a checkpoint is for going on with a training. */
static tutti_checkpoint_t tensors_of(const tutti_checkpoint_t *c)
{
    return (tutti_checkpoint_t){.group = c->group,
                                .module = c->module,
                                .optim = c->optim,
                                .slices = c->slices,
                                .slice_count = c->slice_count,
                                .device = c->device};
}

tutti_status_t tutti_checkpoint_load_from(const tutti_checkpoint_t *checkpoint, const char *path,
                                          const tutti_load_options_t *options)
{
    static const tutti_load_options_t none;
    const tutti_checkpoint_t tensors = tensors_of(checkpoint);
    tt_source_t source = {0};
    options = options == NULL ? &none : options;
    TT_TRY(tt_group_agree(checkpoint->group, check(checkpoint, options)));
    tutti_status_t status = open_together(checkpoint->group, path, &source);
    if (status >= 0) {
        status = tt_load_state(&tensors, &(tt_loaded_t){.what = path,
                                                        .folder = source.folder,
                                                        .manifest = source.manifest,
                                                        .options = *options});
    }
    tt_source_close(&source);
    return status;
}
