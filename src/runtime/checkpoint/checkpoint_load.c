/* Loading: the root reads the newest manifest, every rank compares it with what it wants and reads
 * the parts of all slices in which that is. What one rank cannot read is passed over by all. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/checkpoint_state.h"
#include "runtime/checkpoint/checkpoint_texts.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/slice_reader.h"
#include "runtime/checkpoint/step_folders.h"

/* ---- what fits ------------------------------------------------------------------------------- */

/* All that does not fit, in one failure. */
typedef struct {
    char text[TT_ERROR_TEXT_BYTES - 64];
    size_t used;
    int count;
    bool has_text; /* one of them is a text */
} problems_t;

__attribute__((format(printf, 2, 3))) static void add_problem(problems_t *problems,
                                                              const char *format, ...)
{
    va_list args;
    const size_t room = sizeof problems->text - problems->used;
    va_start(args, format);
    const int length = vsnprintf(problems->text + problems->used, room, format, args);
    va_end(args);
    problems->count++;
    if (length > 0 && (size_t)length < room) {
        problems->used += (size_t)length;
    } else {
        problems->text[problems->used] = 0; /* no room: it is counted */
    }
}

static void compare(const tutti_slice_t *slice, const tt_manifest_t *manifest, problems_t *problems)
{
    const tt_saved_tensor_t *saved = tt_manifest_find(manifest, slice->name);
    const tutti_shape_t whole = tt_slice_whole_shape(slice);
    const tutti_dtype_t dtype = tutti_tensor_dtype(slice->tensor);
    char has[160], want[160];
    if (saved == NULL) {
        add_problem(problems, "; \"%s\" is not in it", slice->name);
    } else if (saved->dtype != dtype || !tutti_shape_equal(saved->shape, whole)) {
        add_problem(problems, "; \"%s\" is %s%s, not %s%s", slice->name,
                    tutti_dtype_name(saved->dtype),
                    tutti_shape_format(saved->shape, has, sizeof has), tutti_dtype_name(dtype),
                    tutti_shape_format(whole, want, sizeof want));
    }
}

static void miss_text(void *user, const char *name)
{
    problems_t *problems = user;
    problems->has_text = true;
    add_problem(problems, "; text \"%s\" is not in it", name);
}

static tutti_status_t check_fit(const tutti_checkpoint_t *c, const tt_checkpoint_state_t *state,
                                const tt_manifest_t *manifest)
{
    problems_t problems = {.text = ""};
    for (size_t i = 0; i < state->slice_count; i++) {
        compare(&state->slices[i], manifest, &problems);
    }
    tt_checkpoint_texts_check(c, manifest, miss_text, &problems);
    return problems.count == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH, "checkpoint: %d tensors%s do not fit%s",
                         problems.count, problems.has_text ? " and texts" : "", problems.text);
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t read_pieces(const tt_pieces_t *pieces, const char *folder,
                                  const tt_manifest_t *manifest)
{
    tt_slice_reader_t reader;
    tutti_status_t status = tt_slice_reader_open(&reader, folder, manifest);
    for (size_t i = 0; i < pieces->count && status >= 0; i++) {
        const tt_piece_t *piece = &pieces->pieces[i];
        status = tt_slice_reader_read(&reader, tt_manifest_find(manifest, piece->name), &piece->box,
                                      piece->tensor);
    }
    tt_slice_reader_close(&reader);
    return status;
}

static tutti_status_t read_own(const tt_checkpoint_state_t *state, const char *folder,
                               const tt_manifest_t *manifest)
{
    tt_pieces_t pieces;
    TT_TRY(tt_pieces_of(state->slices, state->slice_count, &pieces));
    const tutti_status_t status = read_pieces(&pieces, folder, manifest);
    tt_pieces_release(&pieces);
    return status;
}

/* Texts come first: a loader that refuses its own leaves all tensors as they are. */
static tutti_status_t read_into(const tutti_checkpoint_t *c, const tt_checkpoint_state_t *state,
                                const char *folder, const tt_manifest_t *manifest)
{
    TT_TRY(tt_group_agree(c->group, check_fit(c, state, manifest)));
    TT_TRY(tt_group_agree(c->group, tt_checkpoint_texts_load(c, manifest)));
    return tt_group_agree(c->group, read_own(state, folder, manifest));
}

static tutti_status_t read_all(const tutti_checkpoint_t *c, const char *folder,
                               const tt_manifest_t *manifest)
{
    tt_checkpoint_state_t state = {0};
    tutti_status_t status =
        tt_group_agree(c->group, tt_checkpoint_state_wanted(c, manifest, &state));
    if (status >= 0) {
        status = read_into(c, &state, folder, manifest);
    }
    const bool is_read = status >= 0; /* on all ranks, or on none */
    status = tt_checkpoint_state_end(&state, status);
    return is_read ? tt_group_agree(c->group, status) : status;
}

static bool is_root(const tutti_checkpoint_t *c)
{
    return c->group == NULL || tutti_group_rank(c->group) == 0;
}

/* That of a folder which was copied to another name is damaged. */
static tutti_status_t read_manifest(const char *path, int64_t step, tt_manifest_t **out)
{
    TT_TRY(tt_manifest_read(path, out));
    const int64_t found = (*out)->step;
    if (found == step) {
        return TUTTI_OK;
    }
    tt_manifest_release(*out);
    *out = NULL;
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: is of step %" PRId64, path, found);
}

static tutti_status_t read_step(const tutti_checkpoint_t *c, int64_t step)
{
    tt_path_t folder, path;
    tt_manifest_t *manifest = NULL;
    tt_steps_name(c->folder, step, folder);
    tt_steps_file(folder, TT_MANIFEST_NAME, path);
    tutti_status_t status =
        tt_manifest_share(c->group, is_root(c) ? read_manifest(path, step, &manifest) : TUTTI_OK,
                          "the manifest of rank 0", &manifest);
    if (status >= 0) {
        status = read_all(c, folder, manifest);
    }
    tt_manifest_release(manifest);
    return status;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* An older one may do. */
static bool is_damage(tutti_status_t status)
{
    return status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT;
}

/* Rank 0's newest one below a step, on every rank; TT_NO_STEP. */
static tutti_status_t choose(const tutti_checkpoint_t *c, int64_t below, int64_t *found)
{
    tutti_buffer_t shared;
    *found = TT_NO_STEP;
    TT_TRY(
        tt_group_agree(c->group, is_root(c) ? tt_steps_newest(c->folder, below, found) : TUTTI_OK));
    if (c->group == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_broadcast_bytes(c->group, tutti_bytes_of(found, sizeof *found), 0, &shared));
    memcpy(found, shared.data, sizeof *found);
    tutti_buffer_release(&shared);
    return TUTTI_OK;
}

/* Who may not write here reads what has its name. */
static void recover(const tutti_checkpoint_t *c)
{
    if (is_root(c) && tt_steps_recover(c->folder) < 0) {
        tt_log(TT_LOG_WARN, "checkpoint: %s", tutti_last_error());
    }
}

static tutti_status_t check(const tutti_checkpoint_t *c)
{
    tt_pieces_t pieces;
    TT_TRY(tt_checkpoint_check(c));
    TT_TRY(tt_pieces_of(c->slices, c->slice_count, &pieces));
    tt_pieces_release(&pieces);
    return TUTTI_OK;
}

tutti_status_t tutti_checkpoint_load(const tutti_checkpoint_t *checkpoint, int64_t *step)
{
    tutti_status_t first = TUTTI_END; /* of the newest */
    char text[TT_ERROR_TEXT_BYTES] = "";
    TT_TRY(tt_group_agree(checkpoint->group, check(checkpoint)));
    TT_TRY(tt_folder_lock(checkpoint->folder, checkpoint->group, false));
    recover(checkpoint);
    for (int64_t found, below = INT64_MAX;; below = found) {
        TT_TRY(choose(checkpoint, below, &found));
        if (found == TT_NO_STEP) {
            return first < 0 ? tt_fail_again(first, text) : TUTTI_END;
        }
        const tutti_status_t status = read_step(checkpoint, found);
        if (status >= 0) {
            *step = found;
            return TUTTI_OK;
        }
        if (!is_damage(status)) {
            return status;
        }
        tt_log(TT_LOG_WARN, "checkpoint of step %lld is passed over: %s", (long long)found,
               tutti_last_error());
        if (first == TUTTI_END) {
            first = status;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
}

tutti_status_t tutti_checkpoint_newest(const char *folder, int64_t *step)
{
    int64_t found;
    TT_TRY(tt_checkpoint_check(&(tutti_checkpoint_t){.folder = folder}));
    TT_TRY(tt_steps_newest(folder, INT64_MAX, &found));
    if (found == TT_NO_STEP) {
        return TUTTI_END;
    }
    *step = found;
    return TUTTI_OK;
}
