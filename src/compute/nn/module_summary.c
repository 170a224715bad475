/* A module as text, with what a forward of it makes: hooks at every module see its outputs, and how
 * many operations were counted (profiler.h) while it ran. On meta nothing is computed, and counts
 * are the same.
 *
 *     module                         first output              parameters     FLOPs     outputs
 *     gpt                            f32[4, 64, 256]               136960      63 M   256.0 KiB
 *       gpt_embedding                f32[4, 64, 64]                 20480      33 k    64.0 KiB
 *
 * Source: torchinfo.
 */
#include <tutti/modes.h>
#include <tutti/profile.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/profiler.h"
#include "core/base/reals.h"
#include "core/base/units.h"

enum { TITLE_COLUMNS = 36, OUTPUT_COLUMNS = 24 };

/* A module, as often as it was called. */
typedef struct {
    tutti_module_t *module;
    const char *name; /* as its parent calls it; borrowed */
    int depth;
    uint64_t calls, output_bytes; /* bytes: of all calls */
    double flops, before;
    char output[96]; /* of the last call */
    bool is_first;   /* no module before it is the same */
    bool is_hooked;
} seen_t;

typedef struct {
    seen_t *modules;
    size_t count;
    char *text; /* NULL: its length is asked for */
    size_t bytes, length;
} summary_t;

/* ---- the modules ----------------------------------------------------------------------------- */

static size_t count_below(const tutti_module_t *m)
{
    size_t count = 1;
    for (size_t i = 0; i < m->child_count; i++) {
        count += count_below(m->children[i].module);
    }
    return count;
}

/* Parents first. A child without a name is told by its kind alone. */
static void add_below(summary_t *summary, tutti_module_t *m, const char *name, int depth)
{
    seen_t *seen = &summary->modules[summary->count++];
    *seen = (seen_t){.module = m, .name = name, .depth = depth, .is_first = true};
    for (const seen_t *before = summary->modules; before < seen; before++) {
        seen->is_first = seen->is_first && before->module != m;
    }
    for (size_t i = 0; i < m->child_count; i++) {
        add_below(summary, m->children[i].module, m->children[i].name, depth + 1);
    }
}

static tutti_status_t note_before(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    (void)call;
    ((seen_t *)user)->before = tt_profile_flops();
    return TUTTI_OK;
}

static tutti_status_t note_behind(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    seen_t *seen = user;
    (void)s;
    seen->calls++;
    seen->flops += tt_profile_flops() - seen->before;
    for (int i = 0; i < call->output_count; i++) {
        seen->output_bytes += tutti_tensor_bytes(call->outputs[i]);
    }
    if (call->output_count > 0) {
        tutti_tensor_describe(call->outputs[0], seen->output, sizeof seen->output);
    }
    return TUTTI_OK;
}

static tutti_status_t add_hooks(summary_t *summary)
{
    static const tutti_module_hooks_t hooks = {.before_forward = note_before,
                                               .after_forward = note_behind};
    for (size_t i = 0; i < summary->count; i++) {
        seen_t *seen = &summary->modules[i];
        if (seen->is_first) {
            TT_TRY(tutti_module_add_hooks(seen->module, &hooks, seen));
            seen->is_hooked = true;
        }
    }
    return TUTTI_OK;
}

static void free_modules(summary_t *summary)
{
    for (size_t i = 0; i < summary->count; i++) {
        seen_t *seen = &summary->modules[i];
        if (seen->is_hooked) {
            tutti_module_remove_hooks(seen->module, seen);
        }
    }
    tt_free(summary->modules);
}

/* ---- the forward ----------------------------------------------------------------------------- */

static tutti_status_t forward(tutti_module_t *m, const tutti_summary_options_t *options)
{
    tutti_scope_t *s;
    tutti_tensor_t *output;
    TT_TRY(tutti_scope_open(m->ctx, &s));
    tutti_tensor_t **outputs = &output;
    const int count = options->output_count > 0 ? options->output_count : 1;
    if (count > 1) {
        outputs = tt_alloc_array((size_t)count, sizeof(tutti_tensor_t *), "summary");
    }
    if (outputs == NULL) {
        (void)tutti_scope_fail(s, TUTTI_ERR_NOMEM);
    } else {
        tutti_forward_many(s, m, options->inputs, options->input_count, outputs, count);
    }
    if (outputs != &output) {
        tt_free(outputs);
    }
    return tutti_scope_close(s);
}

/* As in an evaluation: nothing is dropped, and no graph is made. */
static tutti_status_t look(tutti_module_t *m, const tutti_summary_options_t *options)
{
    tutti_context_t *ctx = m->ctx;
    const bool trains = tutti_context_is_training(ctx);
    const bool had_grad = tutti_context_set_grad_enabled(ctx, false);
    tutti_context_set_training(ctx, false);
    tt_profile_start_counting();
    const tutti_status_t status = forward(m, options);
    tt_profile_end_counting();
    tutti_context_set_training(ctx, trains);
    (void)tutti_context_set_grad_enabled(ctx, had_grad);
    return status;
}

/* ---- the text -------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void print(summary_t *summary, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t used = summary->length < summary->bytes ? summary->length : summary->bytes;
    summary->length += (size_t)tt_format_list(summary->text == NULL ? NULL : summary->text + used,
                                              summary->bytes - used, format, arguments);
    va_end(arguments);
}

/* "2.1 M" */
static const char *count_text(double count, char text[TT_UNITS_TEXT_BYTES])
{
    static const char units[] = " kMGTP";
    size_t unit = 0;
    for (; count >= 999.5 && unit + 2 < sizeof units; unit++) {
        count /= 1000;
    }
    tt_format(text, TT_UNITS_TEXT_BYTES,
              unit == 0      ? "%.0f"
              : count < 9.95 ? "%.1f %c"
                             : "%.0f %c",
              count, units[unit]);
    return text;
}

static void print_line(summary_t *summary, const seen_t *seen)
{
    char title[128], flops[TT_UNITS_TEXT_BYTES], outputs[TT_UNITS_TEXT_BYTES];
    snprintf(title, sizeof title, "%*s%s%s%s", 2 * seen->depth, "", seen->name,
             seen->name[0] == 0 ? "" : ": ", seen->module->ops->name);
    print(summary, "%-*s ", TITLE_COLUMNS, title);
    if (!seen->is_first) {
        print(summary, "as above\n");
        return;
    }
    const bool was_called = seen->calls > 0;
    print(summary, "%-*s %14" PRId64 " %9s %11s", OUTPUT_COLUMNS, was_called ? seen->output : "-",
          tutti_module_numel(seen->module), was_called ? count_text(seen->flops, flops) : "-",
          was_called ? tt_units_bytes(seen->output_bytes, outputs) : "-");
    if (seen->calls > 1) {
        print(summary, "  in %" PRIu64 " calls", seen->calls);
    }
    print(summary, "\n");
}

static tutti_status_t add_bytes(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(uint64_t *)user += tutti_tensor_bytes(x);
    return TUTTI_OK;
}

static tutti_status_t add_trained(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(int64_t *)user += tutti_tensor_requires_grad(x) ? tutti_tensor_numel(x) : 0;
    return TUTTI_OK;
}

/* Outputs of those that have none below them are what a graph may keep. */
static uint64_t bytes_of_leaves(const summary_t *summary)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < summary->count; i++) {
        const seen_t *seen = &summary->modules[i];
        bytes += seen->is_first && seen->module->child_count == 0 ? seen->output_bytes : 0;
    }
    return bytes;
}

static tutti_status_t print_sums(summary_t *summary, tutti_module_t *m)
{
    uint64_t parameters = 0, buffers = 0;
    int64_t trained = 0;
    char text[4][TT_UNITS_TEXT_BYTES];
    TT_TRY(tutti_module_each_parameter(m, add_bytes, &parameters));
    TT_TRY(tutti_module_each_parameter(m, add_trained, &trained));
    TT_TRY(tutti_module_each_buffer(m, add_bytes, &buffers));
    print(summary, "\n%" PRId64 " parameters, %" PRId64 " of them learn: %s, and buffers of %s\n",
          tutti_module_numel(m), trained, tt_units_bytes(parameters, text[0]),
          tt_units_bytes(buffers, text[1]));
    print(summary, "a forward: %s FLOPs; outputs of the modules without others in them: %s\n",
          count_text(summary->modules[0].flops, text[2]),
          tt_units_bytes(bytes_of_leaves(summary), text[3]));
    return TUTTI_OK;
}

static tutti_status_t print_all(summary_t *summary, tutti_module_t *m)
{
    print(summary, "%-*s %-*s %14s %9s %11s\n", TITLE_COLUMNS, "module", OUTPUT_COLUMNS,
          "first output", "parameters", "FLOPs", "outputs");
    for (size_t i = 0; i < summary->count; i++) {
        print_line(summary, &summary->modules[i]);
    }
    return print_sums(summary, m);
}

static tutti_status_t summarize(summary_t *summary, tutti_module_t *m,
                                const tutti_summary_options_t *options)
{
    summary->modules = tt_alloc_array(count_below(m), sizeof *summary->modules, "summary");
    TT_TRY_ALLOC(summary->modules);
    add_below(summary, m, "", 0);
    if (options->input_count > 0) {
        TT_TRY(add_hooks(summary));
        TT_TRY(look(m, options));
    }
    TT_TRY(print_all(summary, m));
    char *text = tt_alloc(summary->length + 1, "summary");
    TT_TRY_ALLOC(text);
    summary->text = text;
    summary->bytes = summary->length + 1;
    summary->length = 0;
    return print_all(summary, m);
}

tutti_status_t tutti_module_summary(tutti_module_t *m, const tutti_summary_options_t *options,
                                    tutti_buffer_t *text)
{
    TT_WANT("module_summary", m);
    TT_WANT("module_summary", text);
    const tutti_summary_options_t none = {0};
    summary_t summary = {0};
    tutti_status_t status = summarize(&summary, m, options == NULL ? &none : options);
    if (status >= 0) {
        status = tt_buffer_copy((tutti_bytes_t){summary.text, summary.length}, text);
    }
    tt_free(summary.text);
    free_modules(&summary);
    return status;
}
