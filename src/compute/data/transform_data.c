/* Pictures through steps: a data set of samples that go through a function (map_data.c), which is
 * the steps one after another, from one picture into the other of two; the last one writes where
 * the sample lies. A step that leaves a picture as it is costs nothing.
 */
#include <string.h>

#include "compute/data/transform_impl.h"

#include "compute/data/dataset.h"
#include "core/base/alloc.h"

enum { STEP_DRAWS_LOG2 = 32 }; /* random numbers that a step may take */

typedef struct {
    tutti_dataset_t *map;
    tutti_transform_t steps[TUTTI_TRANSFORM_STEPS_MAX];
    int count;
} state_t;

/* The picture that stands in a sample. */
static tutti_picture_t picture_in(const tutti_sample_t *sample)
{
    const tutti_shape_t shape = sample->shapes[TUTTI_INPUT];
    return (tutti_picture_t){.dtype = sample->dtypes[TUTTI_INPUT],
                             .channels = shape.dims[0],
                             .height = shape.dims[1],
                             .width = shape.dims[2],
                             .data = sample->data[TUTTI_INPUT]};
}

static tutti_status_t copy_picture(const tutti_picture_t *from, tutti_picture_t *to)
{
    TT_TRY(tt_picture_like(from, from->dtype, to));
    memcpy(to->data, from->data,
           (size_t)(from->channels * from->height * from->width) * tt_picture_element(from));
    return TUTTI_OK;
}

/* Steps divide by sizes, and take the middle. */
static tutti_status_t check_pixels(const tutti_transform_t *step, const tutti_picture_t *picture)
{
    return picture->height > 0 && picture->width > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "transform %s: a picture of %lld x %lld pixels: there must be some",
                         step->kind->name, (long long)picture->width, (long long)picture->height);
}

/* `rooms` are what pictures between the steps lie in. */
static tutti_status_t run_steps(const state_t *state, const tutti_random_t *random,
                                tutti_picture_t *now, tutti_picture_t rooms[2], tutti_picture_t *to)
{
    bool is_there = false;
    int room = 0;
    for (int i = 0; i < state->count; i++) {
        const tutti_transform_t *step = &state->steps[i];
        tutti_random_t own = *random;
        own.next = (uint64_t)i << STEP_DRAWS_LOG2;
        tutti_picture_t *next = i + 1 == state->count ? to : &rooms[room];
        TT_TRY(check_pixels(step, now));
        const tutti_status_t status = step->kind->run(step->options, &own, now, next);
        TT_TRY(status);
        if (status != TUTTI_END) {
            *now = *next;
            room = 1 - room;
            is_there = next == to;
        }
    }
    return is_there ? TUTTI_OK : copy_picture(now, to);
}

static tutti_status_t transform(void *user, tutti_random_t *random, const tutti_sample_t *from,
                                tutti_sample_t *to)
{
    tutti_picture_t now = picture_in(from), rooms[2] = {{.dtype = TUTTI_U8}};
    tutti_picture_t last = {.sample = to, .field = TUTTI_INPUT};
    tutti_status_t status = run_steps(user, random, &now, rooms, &last);
    for (int i = 1; i < from->field_count && status >= 0; i++) {
        status = tutti_sample_copy(to, from, i);
    }
    tt_free(rooms[0].own.data);
    tt_free(rooms[1].own.data);
    return status;
}

/* ---- the data set ---------------------------------------------------------------------------- */

static tutti_status_t check(const tutti_transform_options_t *o)
{
    if (o->dataset == NULL || o->step_count < 1 || o->step_count > TUTTI_TRANSFORM_STEPS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set transform: %d steps: a data set and 1 to %d steps are required",
                       o->step_count, TUTTI_TRANSFORM_STEPS_MAX);
    }
    const tutti_field_t *field = &o->dataset->info.fields[TUTTI_INPUT];
    if ((field->dtype != TUTTI_U8 && field->dtype != TUTTI_F32) || field->shape.rank != 3 ||
        field->shape.dims[0] == TUTTI_ANY) {
        char text[200];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "data set transform: field 0 of %s is %s%s: pictures are u8 or f32 "
                       "[channels, height, width]",
                       o->dataset->ops->name, tutti_dtype_name(field->dtype),
                       tutti_shape_format(field->shape, text, sizeof text));
    }
    return TUTTI_OK;
}

static tutti_status_t plan_steps(const state_t *state, tutti_field_t *field)
{
    for (int i = 0; i < state->count; i++) {
        tutti_field_t next = *field;
        if (state->steps[i].kind == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set transform: step %d has no kind", i);
        }
        TT_TRY(state->steps[i].kind->plan(state->steps[i].options, field, &next));
        *field = next;
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_transform_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    TT_TRY(check(o));
    state->count = o->step_count;
    memcpy(state->steps, o->steps, (size_t)o->step_count * sizeof *o->steps);
    *info = o->dataset->info;
    TT_TRY(plan_steps(state, &info->fields[TUTTI_INPUT]));
    const tutti_map_options_t map = {.dataset = o->dataset,
                                     .transform = transform,
                                     .user = state,
                                     .seed = o->seed,
                                     .fields = info->fields,
                                     .field_count = info->field_count};
    return tutti_dataset_create(&tutti_map_dataset, &map, &state->map);
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    tutti_dataset_release(state->map);
}

static tutti_dataset_t *map_of(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    return state->map;
}

static tutti_status_t draw_sample(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                  tutti_sample_t *to)
{
    return tutti_map_dataset.draw(map_of(d), index, draw, to);
}

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **cursor)
{
    return tutti_map_dataset.open(map_of(d), epoch, part, parts, cursor);
}

static tutti_status_t next(tutti_dataset_t *d, void *cursor, tutti_sample_t *to)
{
    return tutti_map_dataset.next(map_of(d), cursor, to);
}

static tutti_status_t skip(tutti_dataset_t *d, void *cursor, int64_t count, int64_t *passed)
{
    return tutti_map_dataset.skip(map_of(d), cursor, count, passed);
}

static void close_part(tutti_dataset_t *d, void *cursor)
{
    tutti_map_dataset.close(map_of(d), cursor);
}

const tutti_dataset_ops_t tutti_transform_dataset = {
    .name = "transform",
    .about = "pictures that go through steps",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .draw = draw_sample,
    .open = open_part,
    .next = next,
    .skip = skip,
    .close = close_part,
};
