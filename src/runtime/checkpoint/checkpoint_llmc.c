/* A GPT-2 into llm.c's file (llmc_layout.h). Its tensors are found by our names, or by those of
 * Hugging Face's; the names that the file's order goes by are then those of the checkpoint, until
 * it is written. Memory: two windows.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/little_endian.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/llmc_layout.h"
#include "runtime/checkpoint/problems.h"
#include "runtime/checkpoint/saved_impl.h"

enum { WINDOW_BYTES = 16 << 20 };

static const char head_name[] = "head.weight";

typedef struct {
    tutti_saved_t *saved;
    const char *path;
    const tutti_saved_watch_t *watch;
    tutti_dtype_t dtype;
    int64_t sizes[TT_LLMC_SIZES];
    tt_manifest_t *names; /* in the order of the file; then the head, if it has its own tensor */
    tt_fit_t *fits;       /* [names->tensor_count] */
    bool *is_known;       /* [tensors of the checkpoint] */
    tt_problems_t problems;
    tt_new_file_t file;
    uint64_t done, all;
} llmc_t;

/* ---- what it is made of ---------------------------------------------------------------------- */

static tt_fit_t find(const llmc_t *m, const char *name)
{
    tutti_load_options_t options = {0};
    options.rules = tutti_gpt2_rules(&options.rule_count);
    return tt_load_find(&options, tt_saved_names(m->saved), name);
}

static tutti_shape_t shape_of(const tt_fit_t *fit)
{
    const tutti_shape_t shape = fit->saved->shape;
    return fit->is_transposed && shape.rank == 2 ? TUTTI_SHAPE(shape.dims[1], shape.dims[0])
                                                 : shape;
}

static bool has_layer(const llmc_t *m, int layer)
{
    char name[TT_LLMC_NAME_BYTES];
    bool is_there = false;
    for (int i = 0; i < TT_LLMC_PARTS && !is_there; i++) {
        tt_llmc_name(&tt_llmc_parts[i], layer, name);
        is_there = tt_llmc_parts[i].is_of_layer && find(m, name).saved != NULL;
    }
    return is_there;
}

/* Of a matrix that is missing, or none: zeros, and nothing is compared with them. */
static void measure(llmc_t *m)
{
    const tt_fit_t tok = find(m, tt_llmc_parts[TT_LLMC_EMBEDDING].name),
                   pos = find(m, tt_llmc_parts[TT_LLMC_POSITIONS].name);
    int64_t *sizes = m->sizes;
    if (tok.saved != NULL && tok.saved->shape.rank == 2) {
        sizes[TT_LLMC_V] = tok.saved->shape.dims[0];
        sizes[TT_LLMC_C] = tok.saved->shape.dims[1];
        m->dtype = tok.saved->dtype;
    }
    if (pos.saved != NULL && pos.saved->shape.rank == 2) {
        sizes[TT_LLMC_T] = pos.saved->shape.dims[0];
    }
    while (sizes[TT_LLMC_L] < TT_LLMC_LAYERS_MAX && has_layer(m, (int)sizes[TT_LLMC_L])) {
        sizes[TT_LLMC_L]++;
    }
    sizes[TT_LLMC_PADDED] = (sizes[TT_LLMC_V] + TT_LLMC_PAD - 1) / TT_LLMC_PAD * TT_LLMC_PAD;
    sizes[TT_LLMC_C3] = 3 * sizes[TT_LLMC_C];
    sizes[TT_LLMC_C4] = 4 * sizes[TT_LLMC_C];
    sizes[TT_LLMC_ONE] = 1;
}

static tutti_shape_t want_shape(const llmc_t *m, int part)
{
    const tt_llmc_part_t *p = &tt_llmc_parts[part];
    const int64_t rows = m->sizes[part == TT_LLMC_EMBEDDING ? TT_LLMC_V : p->rows];
    return p->columns == TT_LLMC_ONE ? TUTTI_SHAPE(rows) : TUTTI_SHAPE(rows, m->sizes[p->columns]);
}

static tutti_status_t add(llmc_t *m, const char *name, const tt_fit_t *fit, tutti_shape_t want)
{
    char has[160], wanted[160];
    const tt_manifest_t *all = tt_saved_names(m->saved);
    const tutti_shape_t shape = shape_of(fit);
    tt_saved_tensor_t *tensor;
    m->is_known[fit->saved - all->tensors] = true;
    if (m->sizes[TT_LLMC_V] > 0 && m->sizes[TT_LLMC_T] > 0 && !tutti_shape_equal(shape, want)) {
        tt_problems_add(&m->problems, "\"%s\" is %s, not %s", name,
                        tutti_shape_format(shape, has, sizeof has),
                        tutti_shape_format(want, wanted, sizeof wanted));
    }
    if (fit->saved->dtype != m->dtype) {
        tt_problems_add(&m->problems, "\"%s\" is %s, \"tok.weight\" %s: one dtype is wanted", name,
                        tutti_dtype_name(fit->saved->dtype), tutti_dtype_name(m->dtype));
    }
    tt_fit_t source = tt_saved_fit(m->saved, fit->saved);
    source.is_transposed = source.is_transposed != fit->is_transposed;
    m->fits[m->names->tensor_count] = source;
    return tt_manifest_add(m->names, name, fit->saved->dtype, shape, &tensor);
}

static tutti_status_t add_part(llmc_t *m, int part)
{
    const int layers = tt_llmc_parts[part].is_of_layer ? (int)m->sizes[TT_LLMC_L] : 1;
    for (int i = 0; i < layers; i++) {
        char name[TT_LLMC_NAME_BYTES];
        tt_llmc_name(&tt_llmc_parts[part], i, name);
        const tt_fit_t fit = find(m, name);
        if (fit.saved == NULL) {
            tt_problems_add(&m->problems, "\"%s\" is not in it", name);
        } else {
            TT_TRY(add(m, name, &fit, want_shape(m, part)));
        }
    }
    return TUTTI_OK;
}

/* By a rule the head is the embedding where it has no tensor of its own. */
static tutti_status_t add_head(llmc_t *m)
{
    const tt_fit_t tok = find(m, tt_llmc_parts[TT_LLMC_EMBEDDING].name), head = find(m, head_name);
    return head.saved == NULL || head.saved == tok.saved
               ? TUTTI_OK
               : add(m, head_name, &head, want_shape(m, TT_LLMC_EMBEDDING));
}

/* Buffers of Hugging Face's, and an optimizer's, are no part of a model. */
static void find_surplus(llmc_t *m)
{
    static const char *const others[] = {"optim.*", "*.attn.bias", "*.attn.masked_bias"};
    const tt_manifest_t *all = tt_saved_names(m->saved);
    for (size_t i = 0; i < all->tensor_count; i++) {
        bool is_known = m->is_known[i];
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            is_known = is_known || fnmatch(others[k], all->tensors[i].name, 0) == 0;
        }
        if (!is_known) {
            tt_problems_add(&m->problems, "\"%s\" is no part of a GPT-2", all->tensors[i].name);
        }
    }
}

static tutti_status_t make_plan(llmc_t *m)
{
    const tt_manifest_t *all = tt_saved_names(m->saved);
    measure(m);
    const size_t room = TT_LLMC_PARTS * ((size_t)m->sizes[TT_LLMC_L] + 1);
    m->fits = tt_alloc_array(room, sizeof *m->fits, "llm.c");
    TT_TRY_ALLOC(m->fits);
    m->is_known = tt_alloc_array(all->tensor_count + 1, sizeof *m->is_known, "llm.c");
    TT_TRY_ALLOC(m->is_known);
    TT_TRY(tt_manifest_create(0, 1, &m->names));
    for (int i = 0; i < TT_LLMC_PARTS; i++) {
        TT_TRY(add_part(m, i));
    }
    TT_TRY(add_head(m));
    find_surplus(m);
    if (m->sizes[TT_LLMC_L] == 0) {
        tt_problems_add(&m->problems, "\"blocks.0.…\" is not in it");
    }
    return tt_problems_fail(&m->problems, "no GPT-2 for llm.c");
}

/* ---- what no tensor tells -------------------------------------------------------------------- */

static tutti_status_t check_dtype(const llmc_t *m)
{
    return m->dtype == TUTTI_F32 || m->dtype == TUTTI_BF16
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_DTYPE, "%s: its tensors are %s; llm.c wants f32 or bf16: cast",
                         m->saved->path, tutti_dtype_name(m->dtype));
}

static tutti_status_t know_heads(llmc_t *m, int heads)
{
    const tutti_buffer_t *text = tt_manifest_text(m->saved->source.manifest, TT_LLMC_HEADS_TEXT);
    const int64_t width = m->sizes[TT_LLMC_C];
    m->sizes[TT_LLMC_HEADS] = heads > 0 ? heads : text != NULL ? strtoll(text->data, NULL, 10) : 0;
    if (m->sizes[TT_LLMC_HEADS] == 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: nothing in it tells how many heads the model has: want `heads` (a "
                       "GPT-2 of width %" PRId64 " has %" PRId64 ")",
                       m->saved->path, width, width < 64 ? 1 : width / 64);
    }
    return m->sizes[TT_LLMC_HEADS] > 0 && width % m->sizes[TT_LLMC_HEADS] == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: %" PRId64 " heads do not divide the width, %" PRId64,
                         m->saved->path, m->sizes[TT_LLMC_HEADS], width);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int64_t window_elements(const llmc_t *m)
{
    return WINDOW_BYTES / (int64_t)tutti_dtype_bytes(m->dtype);
}

static tutti_status_t read_window(const llmc_t *m, const char *name, int64_t first, int64_t count,
                                  tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(NULL, m->dtype, TUTTI_SHAPE(count), false, &x));
    const tutti_status_t status = tt_saved_read_window(m->saved, name, NULL, first, x);
    if (status < 0) {
        tutti_tensor_release(x);
        return status;
    }
    *out = x;
    return TUTTI_OK;
}

static tutti_status_t compare_head(const llmc_t *m, int64_t first, int64_t count)
{
    tutti_tensor_t *head, *tok;
    TT_TRY(read_window(m, head_name, first, count, &head));
    const tutti_status_t status =
        read_window(m, tt_llmc_parts[TT_LLMC_EMBEDDING].name, first, count, &tok);
    const bool is_same = status >= 0 && memcmp(tt_tensor_data(head), tt_tensor_data(tok),
                                               tutti_tensor_bytes(head)) == 0;
    tutti_tensor_release(head);
    TT_TRY(status);
    tutti_tensor_release(tok);
    return is_same ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_MISMATCH,
                             "%s: its head is not its embedding, and llm.c has one tensor for both",
                             m->saved->path);
}

static tutti_status_t check_head(const llmc_t *m)
{
    const tt_saved_tensor_t *head = tt_manifest_find(m->names, head_name);
    const int64_t numel = head == NULL ? 0 : tutti_shape_numel(head->shape);
    for (int64_t first = 0, step = window_elements(m); first < numel; first += step) {
        TT_TRY(compare_head(m, first, numel - first < step ? numel - first : step));
    }
    return TUTTI_OK;
}

static tutti_status_t write_tensor(llmc_t *m, const tt_saved_tensor_t *tensor)
{
    const int64_t numel = tutti_shape_numel(tensor->shape);
    for (int64_t first = 0, step = window_elements(m); first < numel; first += step) {
        tutti_tensor_t *x;
        TT_TRY(
            read_window(m, tensor->name, first, numel - first < step ? numel - first : step, &x));
        const size_t bytes = tutti_tensor_bytes(x);
        const tutti_status_t status = tt_new_file_write(&m->file, tt_tensor_data(x), bytes);
        tutti_tensor_release(x);
        TT_TRY(status);
        m->done += bytes;
        TT_TRY(tt_saved_advance(m->watch, m->done, m->all));
    }
    return TUTTI_OK;
}

static tutti_status_t write_header(llmc_t *m)
{
    uint8_t numbers[TT_LLMC_HEADER_BYTES] = {0};
    tt_put_u32(numbers, TT_LLMC_MAGIC);
    tt_put_u32(numbers + 4, m->dtype == TUTTI_F32 ? TT_LLMC_F32 : TT_LLMC_BF16);
    for (int i = TT_LLMC_T; i <= TT_LLMC_PADDED; i++) {
        tt_put_u32(numbers + 4 * (2 + i), (uint32_t)m->sizes[i]);
    }
    return tt_new_file_write(&m->file, numbers, sizeof numbers);
}

/* Rows of the vocabulary that are no token's. */
static tutti_status_t write_padding(llmc_t *m)
{
    const int64_t rows = m->sizes[TT_LLMC_PADDED] - m->sizes[TT_LLMC_V];
    const size_t bytes = (size_t)m->sizes[TT_LLMC_C] * tutti_dtype_bytes(m->dtype);
    void *zeros = tt_alloc(bytes, "llm.c");
    tutti_status_t status = zeros == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (int64_t i = 0; i < rows && status >= 0; i++) {
        status = tt_new_file_write(&m->file, zeros, bytes);
    }
    tt_free(zeros);
    return status;
}

static tutti_status_t write_parts(llmc_t *m)
{
    TT_TRY(write_header(m));
    for (size_t i = 0; i < m->names->tensor_count; i++) {
        if (strcmp(m->names->tensors[i].name, head_name) != 0) {
            TT_TRY(write_tensor(m, &m->names->tensors[i]));
        }
        if (i == TT_LLMC_EMBEDDING) {
            TT_TRY(write_padding(m));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t write_file(llmc_t *m)
{
    for (size_t i = 0; i < m->names->tensor_count; i++) {
        m->all += tt_saved_describe(&m->names->tensors[i]).bytes;
    }
    TT_TRY(check_head(m));
    TT_TRY(tt_new_file_begin(m->path, &m->file));
    return tt_new_file_end(&m->file, write_parts(m));
}

/* By the plan's names. */
static tutti_status_t write_named(llmc_t *m)
{
    tt_manifest_t *names = m->saved->names;
    tt_fit_t *fits = m->saved->fits;
    m->saved->names = m->names;
    m->saved->fits = m->fits;
    const tutti_status_t status = write_file(m);
    m->saved->names = names;
    m->saved->fits = fits;
    return status;
}

tutti_status_t tutti_saved_write_llmc(tutti_saved_t *saved, const char *path,
                                      const tutti_llmc_options_t *options)
{
    static const tutti_saved_watch_t nobody;
    static const tutti_llmc_options_t defaults;
    const tutti_llmc_options_t *o = options == NULL ? &defaults : options;
    llmc_t m = {.saved = saved, .path = path, .watch = o->watch == NULL ? &nobody : o->watch};
    tutti_status_t status = make_plan(&m);
    status = status < 0 ? status : check_dtype(&m);
    status = status < 0 ? status : know_heads(&m, o->heads);
    status = status < 0 ? status : write_named(&m);
    tt_problems_release(&m.problems);
    tt_manifest_release(m.names);
    tt_free(m.fits);
    tt_free(m.is_known);
    return status;
}
