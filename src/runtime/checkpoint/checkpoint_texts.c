/* Texts: what is small, and no tensor. */
#include "runtime/checkpoint/checkpoint_texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "compute/data/dataloader_impl.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/log.h"

#define LIBRARY_PREFIX "tutti."

/* A text of the library's. */
typedef struct {
    const char *name;
    bool (*is_wanted)(const tutti_checkpoint_t *checkpoint);

    /* NULL data: this rank has none. */
    tutti_status_t (*save)(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out);

    /* NULL: it is for readers; a checkpoint without it can be loaded. */
    tutti_status_t (*load)(const tutti_checkpoint_t *checkpoint, tutti_bytes_t text);
} text_t;

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *pack_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Takes the object over. */
static tutti_status_t print(json_t *json, tutti_buffer_t *out)
{
    const size_t bytes = json == NULL ? 0 : json_dumpb(json, NULL, 0, JSON_COMPACT);
    char *text = tt_alloc(bytes + 1, "checkpoint");
    const bool is_printed =
        bytes > 0 && text != NULL && json_dumpb(json, text, bytes, JSON_COMPACT) == bytes;
    json_decref(json);
    if (!is_printed) {
        tt_free(text);
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: checkpoint");
    }
    *out = (tutti_buffer_t){text, bytes};
    return TUTTI_OK;
}

static tutti_status_t parse(const char *name, tutti_bytes_t text, json_t **out)
{
    *out = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, NULL);
    return *out != NULL ? TUTTI_OK
                        : TT_FAIL(TUTTI_ERR_FORMAT, "checkpoint: its text \"%s\" is no JSON", name);
}

/* ---- the optimizer --------------------------------------------------------------------------- */

static bool has_optim(const tutti_checkpoint_t *checkpoint)
{
    return checkpoint->optim != NULL;
}

static json_t *pack_group(const tutti_optim_t *opt, int group)
{
    json_t *options = json_object();
    for (const tutti_optim_option_t *o = opt->ops->options; o->name != NULL; o++) {
        const char *at = (const char *)opt->groups[group].options + o->offset;
        const double value = strcmp(o->name, "lr") == 0 ? tutti_optim_lr(opt, group)
                                                        : *(const double *)(const void *)at;
        if (json_object_set_new(options, o->name, pack_real(value)) != 0) {
            json_decref(options);
            return NULL;
        }
    }
    return options;
}

static tutti_status_t save_optimizer(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out)
{
    const tutti_optim_t *opt = checkpoint->optim;
    json_t *groups = json_array();
    bool is_whole = groups != NULL;
    for (int i = 0; i < opt->group_count && is_whole; i++) {
        is_whole = json_array_append_new(groups, pack_group(opt, i)) == 0;
    }
    if (!is_whole) {
        json_decref(groups);
        groups = NULL;
    }
    return print(groups == NULL ? NULL
                                : json_pack("{s:s, s:o}", "kind", opt->ops->name, "groups", groups),
                 out);
}

static tutti_status_t load_optimizer(const tutti_checkpoint_t *checkpoint, tutti_bytes_t text)
{
    json_t *json;
    const char *own = checkpoint->optim->ops->name;
    TT_TRY(parse("tutti.optimizer", text, &json));
    const char *kind = json_string_value(json_object_get(json, "kind"));
    const tutti_status_t status =
        kind != NULL && strcmp(kind, own) == 0
            ? TUTTI_OK
            : TT_FAIL(TUTTI_ERR_MISMATCH,
                      "checkpoint: it holds the state of optimizer %s, not of %s",
                      kind == NULL ? "(none)" : kind, own);
    json_decref(json);
    return status;
}

/* ---- scaler, loader, shards, schedule -------------------------------------------------------- */

static bool has_scaler(const tutti_checkpoint_t *checkpoint)
{
    return checkpoint->scaler != NULL;
}

static tutti_status_t save_scaler(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out)
{
    const tutti_scaler_state_t state = tutti_scaler_get_state(checkpoint->scaler);
    return print(json_pack("{s:f, s:I, s:I}", "scale", state.scale, "growth_tracker",
                           (json_int_t)state.growth_tracker, "skipped", (json_int_t)state.skipped),
                 out);
}

static tutti_status_t load_scaler(const tutti_checkpoint_t *checkpoint, tutti_bytes_t text)
{
    json_t *json;
    json_int_t growth_tracker, skipped;
    tutti_scaler_state_t state;
    TT_TRY(parse("tutti.scaler", text, &json));
    const bool is_whole = json_unpack(json, "{s:F, s:I, s:I}", "scale", &state.scale,
                                      "growth_tracker", &growth_tracker, "skipped", &skipped) == 0;
    json_decref(json);
    if (!is_whole) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "checkpoint: its text \"tutti.scaler\" is %.*s: want "
                       "scale, growth_tracker and skipped",
                       (int)(text.bytes < 100 ? text.bytes : 100), (const char *)text.data);
    }
    state.growth_tracker = growth_tracker;
    state.skipped = skipped;
    return tutti_scaler_set_state(checkpoint->scaler, state);
}

static bool has_loader(const tutti_checkpoint_t *checkpoint)
{
    return checkpoint->loader != NULL;
}

/* A rank that hosts no shard does not know where the loader stands. */
static tutti_status_t save_loader(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out)
{
    return tt_dataloader_local_lots(checkpoint->loader) > 0
               ? tutti_dataloader_save_state(checkpoint->loader, out)
               : TUTTI_OK;
}

static tutti_status_t load_loader(const tutti_checkpoint_t *checkpoint, tutti_bytes_t text)
{
    return tutti_dataloader_load_state(checkpoint->loader, text);
}

static bool has_shards(const tutti_checkpoint_t *checkpoint)
{
    return checkpoint->shards > 0;
}

static tutti_status_t save_shards(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, checkpoint->shards);
    return tt_buffer_copy(tutti_text(text), out);
}

static void compare_shards(const tutti_checkpoint_t *checkpoint, const tt_manifest_t *manifest)
{
    char own[32];
    const tutti_buffer_t *saved = tt_manifest_text(manifest, "tutti.shards");
    snprintf(own, sizeof own, "%" PRId64, checkpoint->shards);
    if (checkpoint->shards > 0 && saved != NULL && strcmp(saved->data, own) != 0) {
        tt_log(TT_LOG_WARN,
               "checkpoint of step %" PRId64
               ": saved by a training of %.20s shards, this one has %s: its bits are another "
               "training's",
               manifest->step, (const char *)saved->data, own);
    }
}

static bool has_schedule(const tutti_checkpoint_t *checkpoint)
{
    return checkpoint->schedule != NULL;
}

static tutti_status_t save_schedule(const tutti_checkpoint_t *checkpoint, tutti_buffer_t *out)
{
    const tutti_schedule_t *s = checkpoint->schedule;
    TT_TRY(tutti_schedule_check(s));
    return print(json_pack("{s:s, s:o, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "kind",
                           tt_schedules[s->kind]->name, "lr", pack_real(s->lr), "warmup_steps",
                           (json_int_t)s->warmup_steps, "total_steps", (json_int_t)s->total_steps,
                           "min_ratio", pack_real(s->min_ratio), "step_size",
                           (json_int_t)s->step_size, "gamma", pack_real(s->gamma), "up_share",
                           pack_real(s->up_share), "div_factor", pack_real(s->div_factor),
                           "final_div_factor", pack_real(s->final_div_factor)),
                 out);
}

static const text_t library[] = {
    {LIBRARY_PREFIX "optimizer", has_optim, save_optimizer, load_optimizer},
    {LIBRARY_PREFIX "scaler", has_scaler, save_scaler, load_scaler},
    {LIBRARY_PREFIX "loader", has_loader, save_loader, load_loader},
    {LIBRARY_PREFIX "shards", has_shards, save_shards, NULL},
    {LIBRARY_PREFIX "schedule", has_schedule, save_schedule, NULL},
};

enum { LIBRARY_TEXTS = sizeof library / sizeof *library };

/* ---- all of them ----------------------------------------------------------------------------- */

bool tt_bytes_are_utf8(tutti_bytes_t text)
{
    json_t *json = json_stringn(text.data, text.bytes);
    const bool is_text = json != NULL && memchr(text.data, 0, text.bytes) == NULL;
    json_decref(json);
    return is_text;
}

static tutti_status_t check_own(const tutti_checkpoint_text_t *text)
{
    char name[80];
    if (text->name == NULL || text->name[0] == 0 ||
        strncmp(text->name, LIBRARY_PREFIX, strlen(LIBRARY_PREFIX)) == 0 ||
        !tt_bytes_are_utf8(tutti_text(text->name))) {
        tt_bytes_print(tutti_text(text->name == NULL ? "" : text->name), name, sizeof name);
        return TT_FAIL(TUTTI_ERR_ARG,
                       "checkpoint: a text \"%s\": want a name in UTF-8 that does not begin with "
                       "\"" LIBRARY_PREFIX "\"",
                       name);
    }
    return text->saved.data == NULL || tt_bytes_are_utf8(text->saved)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "checkpoint: text \"%s\" is not UTF-8, or has a 0 in it",
                         text->name);
}

tutti_status_t tt_checkpoint_texts_check_names(const tutti_checkpoint_t *checkpoint)
{
    for (size_t i = 0; i < checkpoint->text_count; i++) {
        if (checkpoint->texts[i].name == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: text %zu has no name", i);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_checkpoint_texts_add(const tutti_checkpoint_t *checkpoint,
                                       tt_manifest_t *manifest)
{
    for (int i = 0; i < LIBRARY_TEXTS; i++) {
        tutti_buffer_t text = {0};
        if (library[i].is_wanted(checkpoint)) {
            TT_TRY(library[i].save(checkpoint, &text));
        }
        const tutti_status_t status =
            text.data == NULL
                ? TUTTI_OK
                : tt_manifest_add_text(manifest, library[i].name, tt_buffer_view(&text));
        tutti_buffer_release(&text);
        TT_TRY(status);
    }
    for (size_t i = 0; i < checkpoint->text_count; i++) {
        const tutti_checkpoint_text_t *text = &checkpoint->texts[i];
        TT_TRY(check_own(text));
        if (text->saved.data != NULL) {
            TT_TRY(tt_manifest_add_text(manifest, text->name, text->saved));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_checkpoint_texts_add_kind(tt_manifest_t *manifest, const char *kind)
{
    tutti_buffer_t text;
    TT_TRY(print(json_pack("{s:s}", "kind", kind), &text));
    const tutti_status_t status =
        tt_manifest_add_text(manifest, LIBRARY_PREFIX "optimizer", tt_buffer_view(&text));
    tutti_buffer_release(&text);
    return status;
}

void tt_checkpoint_texts_check(const tutti_checkpoint_t *checkpoint, const tt_manifest_t *manifest,
                               void (*missing)(void *user, const char *name), void *user)
{
    for (int i = 0; i < LIBRARY_TEXTS; i++) {
        if (library[i].load != NULL && library[i].is_wanted(checkpoint) &&
            tt_manifest_text(manifest, library[i].name) == NULL) {
            missing(user, library[i].name);
        }
    }
    for (size_t i = 0; i < checkpoint->text_count; i++) {
        if (tt_manifest_text(manifest, checkpoint->texts[i].name) == NULL) {
            missing(user, checkpoint->texts[i].name);
        }
    }
}

tutti_status_t tt_checkpoint_texts_load(const tutti_checkpoint_t *checkpoint,
                                        const tt_manifest_t *manifest)
{
    for (int i = 0; i < LIBRARY_TEXTS; i++) {
        if (library[i].load != NULL && library[i].is_wanted(checkpoint)) {
            const tutti_buffer_t *text = tt_manifest_text(manifest, library[i].name);
            TT_TRY(library[i].load(checkpoint, tt_buffer_view(text)));
        }
    }
    for (size_t i = 0; i < checkpoint->text_count; i++) {
        tutti_checkpoint_text_t *text = &checkpoint->texts[i];
        tutti_buffer_t copy;
        TT_TRY(tt_buffer_copy(tt_buffer_view(tt_manifest_text(manifest, text->name)), &copy));
        tutti_buffer_release(&text->loaded);
        text->loaded = copy;
    }
    compare_shards(checkpoint, manifest);
    return TUTTI_OK;
}
