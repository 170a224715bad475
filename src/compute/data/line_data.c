/* Lines of text files as a stream: files one behind another, line i for part i modulo parts. Each
 * part reads all files, and passes the lines of others by without a copy.
 */
#include <limits.h>
#include <string.h>

#include <tutti/data_files.h>

#include "compute/data/byte_sink.h"
#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/file.h"

enum { BLOCK_BYTES = 1 << 16 };

typedef struct {
    char **paths;
    int count;
} state_t;

typedef struct {
    int64_t part, parts;
    int64_t line; /* lines before */
    int next_file;
    bool is_open;
    tt_file_t file;
    uint64_t offset; /* of what is not in the block yet */
    size_t at, filled;
    tt_sink_t text; /* of a line */
    char block[BLOCK_BYTES];
} cursor_t;

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_line_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    TT_TRY(tt_want_paths("line", o->paths, o->path_count, INT_MAX));
    state->paths = tt_alloc_array((size_t)o->path_count, sizeof *state->paths, "file names");
    TT_TRY_ALLOC(state->paths);
    for (; state->count < o->path_count; state->count++) {
        state->paths[state->count] = tt_strdup(o->paths[state->count], "file name");
        TT_TRY_ALLOC(state->paths[state->count]);
    }
    *info = (tutti_dataset_info_t){
        .count = TUTTI_ANY, .field_count = 1, .fields = {{TUTTI_U8, TUTTI_SHAPE(TUTTI_ANY)}}};
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    for (int i = 0; i < state->count; i++) {
        tt_free(state->paths[i]);
    }
    tt_free(state->paths);
}

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **out)
{
    cursor_t *cursor = tt_alloc(sizeof *cursor, "stream");
    (void)d;
    (void)epoch;
    TT_TRY_ALLOC(cursor);
    cursor->part = part;
    cursor->parts = parts;
    *out = cursor;
    return TUTTI_OK;
}

static void close_part(tutti_dataset_t *d, void *user)
{
    cursor_t *cursor = user;
    (void)d;
    if (cursor->is_open) {
        tt_file_close(&cursor->file);
    }
    tt_free(cursor->text.bytes.data);
    tt_free(cursor);
}

/* Bytes in the block; END: the file has no more. */
static tutti_status_t fill(cursor_t *cursor)
{
    if (cursor->at < cursor->filled) {
        return TUTTI_OK;
    }
    const uint64_t left = cursor->file.bytes - cursor->offset;
    if (left == 0) {
        return TUTTI_END;
    }
    cursor->at = 0;
    cursor->filled = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
    TT_TRY(tt_file_read_at(&cursor->file, cursor->offset, cursor->block, cursor->filled));
    cursor->offset += cursor->filled;
    return TUTTI_OK;
}

/* A line of the open file, kept if it is wanted; END: there is none. */
static tutti_status_t read_line(cursor_t *cursor, bool is_wanted)
{
    tutti_status_t status = fill(cursor);
    cursor->text.bytes.bytes = 0;
    for (bool is_whole = status != TUTTI_OK; !is_whole;) {
        const char *begin = cursor->block + cursor->at;
        const size_t room = cursor->filled - cursor->at;
        const char *end = memchr(begin, '\n', room);
        const size_t bytes = end == NULL ? room : (size_t)(end - begin);
        if (is_wanted) {
            TT_TRY(tt_sink_append(&cursor->text, begin, bytes));
        }
        cursor->at += bytes + (end != NULL);
        is_whole = end != NULL;
        if (!is_whole) {
            const tutti_status_t more = fill(cursor);
            TT_TRY(more);
            is_whole = more == TUTTI_END; /* a last line without an end */
        }
    }
    return status;
}

/* The next line of all files; END behind the last. */
static tutti_status_t next_line(const state_t *state, cursor_t *cursor, bool is_wanted)
{
    for (;;) {
        if (!cursor->is_open) {
            if (cursor->next_file == state->count) {
                return TUTTI_END;
            }
            TT_TRY(tt_file_open(state->paths[cursor->next_file++], &cursor->file));
            cursor->is_open = true;
            cursor->offset = 0;
            cursor->at = cursor->filled = 0;
        }
        const tutti_status_t status = read_line(cursor, is_wanted);
        if (status != TUTTI_END) {
            cursor->line += status == TUTTI_OK;
            return status;
        }
        tt_file_close(&cursor->file);
        cursor->is_open = false;
    }
}

/* The next line of this part. */
static tutti_status_t next_own(const state_t *state, cursor_t *cursor, bool is_wanted)
{
    for (;;) {
        const bool is_own = cursor->line % cursor->parts == cursor->part;
        const tutti_status_t status = next_line(state, cursor, is_own && is_wanted);
        if (is_own || status != TUTTI_OK) {
            return status;
        }
    }
}

static tutti_status_t next(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    cursor_t *cursor = user;
    const tutti_status_t status = next_own(d->state, cursor, true);
    if (status != TUTTI_OK) {
        return status;
    }
    const char *text = cursor->text.bytes.data;
    size_t bytes = cursor->text.bytes.bytes;
    bytes -= bytes > 0 && text[bytes - 1] == '\r';
    TT_TRY(tutti_sample_resize(to, 0, TUTTI_SHAPE((int64_t)bytes)));
    if (bytes > 0) {
        memcpy(to->data[0], text, bytes);
    }
    return TUTTI_OK;
}

static tutti_status_t skip(tutti_dataset_t *d, void *user, int64_t count, int64_t *passed)
{
    tutti_status_t status = TUTTI_OK;
    while (*passed < count && status == TUTTI_OK) {
        status = next_own(d->state, user, false);
        *passed += status == TUTTI_OK;
    }
    return status < 0 ? status : TUTTI_OK;
}

const tutti_dataset_ops_t tutti_line_dataset = {
    .name = "line",
    .about = "lines of text files, a stream",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .open = open_part,
    .next = next,
    .skip = skip,
    .close = close_part,
};
