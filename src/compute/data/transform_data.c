/* Pictures through steps: a data set of samples that go through a function (map_data.c), which is
 * the steps one after another, from one picture into the other of two; the last one writes where
 * the sample lies. A step that leaves a picture as it is costs nothing. Each field of a sample goes
 * through all steps before the next one; the random numbers of a step are named by its number, so
 * that all fields get the same.
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
    tutti_transform_role_t roles[TUTTI_FIELDS_MAX];
    unsigned char mask_fill;
} state_t;

/* The picture that stands in a field of a sample. */
static tutti_picture_t picture_in(const state_t *state, const tutti_sample_t *sample, int field)
{
    const tutti_shape_t shape = sample->shapes[field];
    return (tutti_picture_t){.dtype = sample->dtypes[field],
                             .channels = shape.dims[0],
                             .height = shape.dims[1],
                             .width = shape.dims[2],
                             .data = sample->data[field],
                             .is_mask = state->roles[field] == TUTTI_ROLE_MASK,
                             .mask_fill = state->mask_fill};
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

/* -1: there is none. */
static int last_step(const state_t *state, bool is_mask)
{
    int last = state->count - 1;
    while (last >= 0 && is_mask && !state->steps[last].kind->moves_pixels) {
        last--;
    }
    return last;
}

/* `rooms` are what pictures between the steps lie in. */
static tutti_status_t run_steps(const state_t *state, const tutti_random_t *random,
                                tutti_picture_t *now, tutti_picture_t rooms[2], tutti_picture_t *to)
{
    const int last = last_step(state, now->is_mask);
    bool is_there = false;
    int room = 0;
    for (int i = 0; i < state->count; i++) {
        const tutti_transform_t *step = &state->steps[i];
        if (now->is_mask && !step->kind->moves_pixels) {
            continue;
        }
        tutti_random_t own = *random;
        own.next = (uint64_t)i << STEP_DRAWS_LOG2;
        tutti_picture_t *next = i == last ? to : &rooms[room];
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

/* Random numbers depend on sizes: where a part may begin, say. */
static tutti_status_t check_sizes(const tutti_sample_t *from, int field)
{
    const int64_t *one = from->shapes[TUTTI_INPUT].dims, *other = from->shapes[field].dims;
    return one[1] == other[1] && one[2] == other[2]
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "data set transform: field %d has %lld x %lld pixels, its picture %lld x "
                         "%lld: they go through the same steps, and must have the same",
                         field, (long long)other[2], (long long)other[1], (long long)one[2],
                         (long long)one[1]);
}

static tutti_status_t transform_field(const state_t *state, const tutti_random_t *random,
                                      const tutti_sample_t *from, int field, tutti_sample_t *to)
{
    TT_TRY(check_sizes(from, field));
    tutti_picture_t now = picture_in(state, from, field);
    tutti_picture_t end = {.sample = to, .field = field, .is_mask = now.is_mask};
    tutti_picture_t rooms[2] = {{.is_mask = now.is_mask}, {.is_mask = now.is_mask}};
    end.mask_fill = rooms[0].mask_fill = rooms[1].mask_fill = now.mask_fill;
    const tutti_status_t status = run_steps(state, random, &now, rooms, &end);
    tt_free(rooms[0].own.data);
    tt_free(rooms[1].own.data);
    return status;
}

static tutti_status_t transform(void *user, tutti_random_t *random, const tutti_sample_t *from,
                                tutti_sample_t *to)
{
    const state_t *state = user;
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < from->field_count && status >= 0; i++) {
        status = state->roles[i] == TUTTI_ROLE_STAYS ? tutti_sample_copy(to, from, i)
                                                     : transform_field(state, random, from, i, to);
    }
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
    if (o->steps == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set transform: there are no steps");
    }
    if (o->mask_fill < 0 || o->mask_fill > 255) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set transform: mask_fill is %d: it must be 0 to 255",
                       o->mask_fill);
    }
    return TUTTI_OK;
}

static tutti_status_t check_field(const tutti_transform_options_t *o, int i)
{
    const tutti_field_t *field = &o->dataset->info.fields[i];
    const bool is_mask = i != TUTTI_INPUT && o->roles[i] == TUTTI_ROLE_MASK;
    if ((field->dtype != TUTTI_U8 && (is_mask || field->dtype != TUTTI_F32)) ||
        field->shape.rank != 3 || field->shape.dims[0] == TUTTI_ANY) {
        char text[200];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "data set transform: field %d of %s is %s%s: %s [channels, height, width]",
                       i, o->dataset->ops->name, tutti_dtype_name(field->dtype),
                       tutti_shape_format(field->shape, text, sizeof text),
                       is_mask ? "masks are u8" : "pictures are u8 or f32");
    }
    return TUTTI_OK;
}

/* Field 0 is a picture. */
static tutti_status_t take_roles(const tutti_transform_options_t *o, state_t *state)
{
    for (int i = 0; i < TUTTI_FIELDS_MAX; i++) {
        const bool is_one = o->roles[i] == TUTTI_ROLE_STAYS || o->roles[i] == TUTTI_ROLE_MASK ||
                            o->roles[i] == TUTTI_ROLE_PICTURE;
        const bool is_far = i >= o->dataset->info.field_count && o->roles[i] != TUTTI_ROLE_STAYS;
        if (!is_one || is_far || (i == TUTTI_INPUT && o->roles[i] == TUTTI_ROLE_MASK)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "data set transform: role %d of field %d of %s, which has %d: it stays, "
                           "is a mask (not field 0) or a picture",
                           (int)o->roles[i], i, o->dataset->ops->name,
                           o->dataset->info.field_count);
        }
        state->roles[i] = i == TUTTI_INPUT ? TUTTI_ROLE_PICTURE : o->roles[i];
        TT_TRY(state->roles[i] != TUTTI_ROLE_STAYS ? check_field(o, i) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t plan_steps(const state_t *state, bool is_mask, tutti_field_t *field)
{
    for (int i = 0; i < state->count; i++) {
        tutti_field_t next = *field;
        if (state->steps[i].kind == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set transform: step %d has no kind", i);
        }
        if (is_mask && !state->steps[i].kind->moves_pixels) {
            continue;
        }
        TT_TRY(state->steps[i].kind->plan(state->steps[i].options, field, &next));
        next.dtype = is_mask ? TUTTI_U8 : next.dtype;
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
    state->mask_fill = (unsigned char)o->mask_fill;
    *info = o->dataset->info;
    TT_TRY(take_roles(o, state));
    for (int i = 0; i < info->field_count; i++) {
        if (state->roles[i] != TUTTI_ROLE_STAYS) {
            TT_TRY(plan_steps(state, state->roles[i] == TUTTI_ROLE_MASK, &info->fields[i]));
        }
    }
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
