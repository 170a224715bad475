/* For tests: tensors of a rank that is a thread, on the host or on a device of its own. Header
 * only.
 *
 *     place_t p = {.m = m};
 *     open_place(&p);                          // else: on the host
 *     tutti_tensor_t *x = make(&p, 7, 1);      // 1, 2, … 7
 *     expect_values(&p, x, 1, 1);
 *     close_place(&p);
 */
#ifndef TT_GROUP_PLACE_H
#define TT_GROUP_PLACE_H

#include <tutti/devices.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/tensor/tensor_impl.h"

enum { TENSORS_MAX = 32, ELEMENTS_MAX = 64 };

/* Tensors of a place, which are released and read in the order in which they were made. */
typedef struct {
    tt_member_t *m;
    tutti_device_t *device; /* NULL: the host */
    tutti_tensor_t *made[TENSORS_MAX];
    int count, number; /* of the device, beside the rank */
    int64_t launch_ns, memory_bytes;
} place_t;

static inline void open_place(place_t *p)
{
    char name[32];
    snprintf(name, sizeof name, "strict:%d", p->m->rank + p->number);
    const tutti_device_options_t options = {
        .threads = 1, .launch_ns = p->launch_ns, .memory_bytes = p->memory_bytes};
    TT_EXPECT(p->m, tutti_device_open(name, &options, &p->device) == TUTTI_OK);
}

static inline void release_all(place_t *p)
{
    for (int i = 0; i < p->count; i++) {
        tutti_tensor_release(p->made[i]);
    }
    p->count = 0;
}

static inline void close_place(place_t *p)
{
    release_all(p);
    tutti_device_release(p->device);
}

static inline tutti_tensor_t *make_unset(place_t *p, int64_t elements)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(p->m,
              tt_tensor_new(p->device, TUTTI_F32, TUTTI_SHAPE(elements), false, &x) == TUTTI_OK);
    p->made[p->count++] = x;
    return x;
}

/* Elements are value, value + 1, … */
static inline tutti_tensor_t *make(place_t *p, int64_t elements, double value)
{
    tutti_tensor_t *x = make_unset(p, elements), *host = NULL;
    float values[ELEMENTS_MAX];
    for (int i = 0; i < elements; i++) {
        values[i] = (float)(value + i);
    }
    TT_EXPECT(p->m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(elements), values, &host) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_tensor_copy(x, host) == TUTTI_OK);
    tutti_tensor_release(host);
    return x;
}

static inline void expect_values(place_t *p, const tutti_tensor_t *x, float first, float step)
{
    float values[ELEMENTS_MAX] = {0};
    TT_EXPECT(p->m, tt_tensor_read(x, values) == TUTTI_OK);
    for (int i = 0; i < tutti_tensor_numel(x); i++) {
        TT_EXPECT(p->m, values[i] == first + step * (float)i);
    }
}

/* Tensors made in the same order in two places have the same bits. */
static inline void expect_same(place_t *a, place_t *b)
{
    for (int i = 0; i < a->count && a->m->failure[0] == 0; i++) {
        float want[ELEMENTS_MAX] = {0}, have[ELEMENTS_MAX] = {0};
        TT_EXPECT(a->m, tt_tensor_read(a->made[i], want) == TUTTI_OK);
        TT_EXPECT(a->m, tt_tensor_read(b->made[i], have) == TUTTI_OK);
        TT_EXPECT(a->m, memcmp(want, have, sizeof want) == 0);
    }
}

/* The device fails in front of what is launched next. */
static inline tutti_status_t gather_outside(void *arguments)
{
    (void)arguments;
    return TT_FAIL(TUTTI_ERR_ARG, "gather: index 9 is outside");
}

static inline void spoil(place_t *p)
{
    const tt_work_t gather = {.name = "gather", .run = gather_outside};
    TT_EXPECT(p->m, tt_stream_push(tt_device_stream(p->device), &gather) == TUTTI_OK);
}

#endif
