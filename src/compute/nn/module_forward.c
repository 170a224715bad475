/* Calling a module: it runs in a scope of its own, so that when it returns only its results are
 * held, and everything else lives as long as the graph needs it.
 */
#include <tutti/nn.h>

#include <stdio.h>
#include <string.h>

#include "compute/nn/module_hooks.h"
#include "core/base/alloc.h"
#include "core/base/profiler.h"
#include "core/tensor/tensor_impl.h"

enum {
    OUTPUTS_FEW = 8, /* up to so many need no memory from the heap */
    PATH_BYTES = 256
};

static tutti_status_t check_inputs(tutti_scope_t *s, tutti_tensor_t *const *inputs, int count)
{
    TT_TRY(tutti_scope_status(s));
    for (int i = 0; i < count; i++) {
        if (inputs[i] != NULL) {
            TT_TRY(tutti_tensor_status(inputs[i]));
        }
    }
    return TUTTI_OK;
}

/* So that a failure deep inside says where it was: "… (in linear in mlp in gpt)". */
static void add_place(tutti_scope_t *inner, const tutti_module_t *m)
{
    char *error = inner->error;
    const size_t length = strlen(error), room = sizeof inner->error;
    const bool has_place = length > 0 && error[length - 1] == ')' && strstr(error, " (in ") != NULL;
    const size_t end = has_place ? length - 1 : length;
    snprintf(error + end, room - end, "%s%s)", has_place ? " in " : " (in ", m->ops->name);
}

static void call(tutti_scope_t *inner, tutti_module_t *m, tutti_tensor_t *const *inputs,
                 int input_count, tutti_tensor_t **outputs, int output_count)
{
    if (m->ops->forward_many != NULL) {
        m->ops->forward_many(inner, m, inputs, input_count, outputs, output_count);
    } else if (m->ops->forward != NULL && input_count == 1 && output_count == 1) {
        outputs[0] = m->ops->forward(inner, m, inputs[0]);
    } else {
        (void)tutti_scope_fail(inner, TT_FAIL(TUTTI_ERR_ARG,
                                              "%s takes one tensor and gives one, not %d and %d",
                                              m->ops->name, input_count, output_count));
    }
}

/* Outputs were the scope's null tensor before the call: one that still is, without a failure, was
 * left out, and must not outlive the scope. */
static void check_outputs(tutti_scope_t *inner, const tutti_module_t *m, tutti_tensor_t **outputs,
                          int count)
{
    for (int i = 0; i < count; i++) {
        if (outputs[i] == NULL || outputs[i] == &inner->null) {
            outputs[i] = tutti_scope_fail(
                inner, TT_FAIL(TUTTI_ERR_ARG, "%s: its forward gave nothing as output %d",
                               m->ops->name, i));
        }
    }
}

/* The same between the module's hooks, which may put other tensors into a copy of the inputs. */
static void call_hooked(tutti_scope_t *inner, tutti_module_t *m, tutti_tensor_t *const *inputs,
                        int input_count, tutti_tensor_t **outputs, int output_count)
{
    tutti_tensor_t **own = tt_alloc_array((size_t)input_count, sizeof *own, "module inputs");
    if (own == NULL) {
        (void)tutti_scope_fail(inner, TUTTI_ERR_NOMEM);
        return;
    }
    memcpy(own, inputs, (size_t)input_count * sizeof *own);
    tutti_module_call_t seen = {.module = m, .input_count = input_count, .inputs = own};
    bool takes_grads = false;
    if (tutti_scope_fail(inner, tt_module_enter(inner, &seen, &takes_grads))->status >= 0) {
        call(inner, m, own, input_count, outputs, output_count);
        check_outputs(inner, m, outputs, output_count);
    }
    seen.outputs = outputs;
    seen.output_count = output_count;
    (void)tutti_scope_fail(inner,
                           tt_module_leave(inner, &seen, takes_grads, tutti_scope_status(inner)));
    tt_free(own);
}

static size_t add_name(char *text, size_t bytes, size_t at, const char *name)
{
    return at >= bytes || name[0] == '\0'
               ? at
               : at + (size_t)snprintf(text + at, bytes - at, ".%s", name);
}

/* The names that lead to a module from its parent, or from one above it that did not run: a list of
 * modules is only gone through. Where they end; 0: it is not below. */
static size_t add_way(const tutti_module_t *from, const tutti_module_t *m, char *text, size_t bytes,
                      size_t at)
{
    size_t end = 0;
    for (size_t i = 0; i < from->child_count && end == 0; i++) {
        const tt_child_t *child = &from->children[i];
        const size_t below = add_name(text, bytes, at, child->name);
        end = child->module == m ? below : add_way(child->module, m, text, bytes, below);
    }
    return end;
}

/* "blocks.1.mlp.up"; of a module that stands alone its kind. */
static size_t write_path(const tt_module_frame_t *frame, char *text, size_t bytes)
{
    const tutti_module_t *m = frame->module;
    if (frame->outer == NULL) {
        return (size_t)snprintf(text, bytes, "%s", m->ops->name);
    }
    const size_t begin = frame->outer->write(frame->outer, text, bytes);
    const size_t end = add_way(frame->outer->module, m, text, bytes, begin);
    return end > 0 ? end : add_name(text, bytes, begin, m->ops->name);
}

/* The way to a module is looked for once in a profile, for each module around it: of many layers
 * each look goes through all of them. */
static uint32_t number_of(const tt_module_frame_t *frame, tutti_module_t *m)
{
    char path[PATH_BYTES];
    const uint32_t within = frame->outer == NULL ? 0 : frame->outer->profiled;
    const bool is_known = m->profiled_within == within && (within != 0 || frame->outer == NULL) &&
                          tt_profile_has_module(m->profiled);
    if (!is_known) {
        (void)write_path(frame, path, sizeof path);
        m->profiled = tt_profile_module(path);
        m->profiled_within = frame->outer != NULL && within == 0 ? UINT32_MAX : within;
    }
    return m->profiled;
}

static bool begin_profile(tt_module_frame_t *frame, tutti_module_t *m)
{
    frame->profiled = number_of(frame, m);
    return tt_profile_begin(TT_PROFILE_MODULE, m->ops->name, frame->profiled);
}

/* own: [output_count]; the caller's may be its inputs, too. */
static tutti_status_t forward_into(tutti_scope_t *s, tutti_module_t *m,
                                   tutti_tensor_t *const *inputs, int input_count,
                                   tutti_tensor_t **own, int output_count)
{
    TT_WANT("forward", m);
    tutti_scope_t *inner;
    TT_TRY(check_inputs(s, inputs, input_count));
    TT_TRY(tutti_scope_open_inside(s, &inner));
    for (int i = 0; i < output_count; i++) {
        own[i] = &inner->null;
    }
    tt_module_frame_t frame = {s->ctx->frame, m, write_path, 0};
    const bool is_profiled = tt_profile_is_on() && begin_profile(&frame, m);
    s->ctx->frame = &frame;
    (m->hooks.first == NULL ? call : call_hooked)(inner, m, inputs, input_count, own, output_count);
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
    s->ctx->frame = frame.outer;
    check_outputs(inner, m, own, output_count);
    if (tutti_scope_status(inner) < 0) {
        add_place(inner, m);
    }
    for (int i = 0; i < output_count; i++) {
        own[i] = tutti_scope_keep(inner, own[i]);
    }
    return tutti_scope_close(inner);
}

/* Those who wait for this rank's part of the module hear of it. */
static void give_up(const tutti_module_t *m, tutti_status_t status)
{
    for (tt_module_cut_t *cut = m == NULL ? NULL : m->cut; cut != NULL; cut = cut->next) {
        if (cut->give_up != NULL) {
            cut->give_up(cut, status);
        }
    }
}

void tutti_forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                        int input_count, tutti_tensor_t **outputs, int output_count)
{
    tutti_tensor_t *few[OUTPUTS_FEW], **own = few;
    if (output_count > OUTPUTS_FEW) {
        own = tt_alloc_array((size_t)output_count, sizeof(tutti_tensor_t *), "module outputs");
    }
    const tutti_status_t status =
        own == NULL ? TUTTI_ERR_NOMEM : forward_into(s, m, inputs, input_count, own, output_count);
    if (status < 0) {
        give_up(m, status);
        tt_fail_outputs(s, status, outputs, output_count);
    } else {
        memcpy(outputs, own, (size_t)output_count * sizeof(tutti_tensor_t *));
    }
    if (own != few) {
        tt_free(own);
    }
}

tutti_tensor_t *tutti_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    tutti_tensor_t *y;
    tutti_forward_many(s, m, &x, 1, &y, 1);
    return y;
}
