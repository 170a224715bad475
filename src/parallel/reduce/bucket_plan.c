/* Planning buckets: one pass over the parameters in the order of their gradients. Source: Li et
 * al., "PyTorch Distributed", PVLDB 13(12), 2020, section 3.2.3, for order and caps. */
#include "parallel/reduce/bucket_plan.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

static int64_t padded(int64_t numel, tutti_dtype_t dtype)
{
    const int64_t per_line = TT_ALIGN / (int64_t)tutti_dtype_bytes(dtype);
    return (numel + per_line - 1) / per_line * per_line;
}

static size_t bytes_of(const tt_bucket_spec_t *bucket)
{
    return (size_t)bucket->numel * tutti_dtype_bytes(bucket->dtype);
}

static int open_bucket(tt_bucket_plan_t *plan, const tt_bucket_param_t *param)
{
    plan->buckets[plan->bucket_count] =
        (tt_bucket_spec_t){.dtype = param->dtype, .unit = param->unit};
    return plan->bucket_count++;
}

/* Every parameter joins the bucket of its dtype and device that is still open, if that is of its
 * unit. */
static void fill(tt_bucket_plan_t *plan, const tt_bucket_param_t *params, const int *order,
                 size_t first_bytes, size_t bytes)
{
    int open_ones[TT_BUCKET_DEVICES_MAX][TUTTI_DTYPE_COUNT]; /* bucket + 1; 0: none */
    memset(open_ones, 0, sizeof open_ones);
    for (int k = 0; k < plan->param_count; k++) {
        const int i = order != NULL ? order[k] : plan->param_count - 1 - k;
        const tutti_dtype_t dtype = params[i].dtype;
        int *open = &open_ones[params[i].device][dtype];
        const size_t cap = *open == 1 ? first_bytes : bytes;
        if (*open == 0 || bytes_of(&plan->buckets[*open - 1]) >= cap ||
            plan->buckets[*open - 1].unit != params[i].unit) {
            *open = open_bucket(plan, &params[i]) + 1;
        }
        tt_bucket_spec_t *bucket = &plan->buckets[*open - 1];
        plan->slots[i] = (tt_bucket_slot_t){*open - 1, bucket->numel};
        bucket->numel += padded(params[i].numel, dtype);
        bucket->param_count++;
        bucket->last = k;
    }
}

/* Buckets leave in order: the one that is complete first comes first. */
static void sort_by_last(tt_bucket_plan_t *plan, int *place)
{
    for (int b = 0; b < plan->bucket_count; b++) {
        place[b] = 0;
        for (int other = 0; other < plan->bucket_count; other++) {
            place[b] += plan->buckets[other].last < plan->buckets[b].last;
        }
    }
    for (int i = 0; i < plan->param_count; i++) {
        plan->slots[i].bucket = place[plan->slots[i].bucket];
    }
    for (int b = 0; b < plan->bucket_count; b++) {
        while (place[b] != b) {
            const int to = place[b];
            const tt_bucket_spec_t moved = plan->buckets[to];
            plan->buckets[to] = plan->buckets[b];
            plan->buckets[b] = moved;
            place[b] = place[to];
            place[to] = to;
        }
    }
}

/* `place` is room for a count of each bucket. */
static void list_members(tt_bucket_plan_t *plan, int *place)
{
    int first = 0;
    for (int b = 0; b < plan->bucket_count; b++) {
        plan->buckets[b].first = place[b] = first;
        first += plan->buckets[b].param_count;
    }
    for (int i = 0; i < plan->param_count; i++) {
        plan->members[place[plan->slots[i].bucket]++] = i;
    }
}

tutti_status_t tt_bucket_plan_init(const tt_bucket_param_t *params, int param_count,
                                   const int *order, size_t first_bytes, size_t bytes,
                                   tt_bucket_plan_t *out)
{
    const size_t count = (size_t)param_count;
    tt_bucket_plan_t plan = {.param_count = param_count};
    plan.slots = tt_alloc_array(count, sizeof *plan.slots, "bucket plan");
    plan.buckets = tt_alloc_array(count, sizeof *plan.buckets, "bucket plan");
    plan.members = tt_alloc_array(count, sizeof *plan.members, "bucket plan");
    int *place = tt_alloc_array(count, sizeof *place, "bucket plan");
    if (plan.slots == NULL || plan.buckets == NULL || plan.members == NULL || place == NULL) {
        tt_free(place);
        tt_bucket_plan_fini(&plan);
        return TUTTI_ERR_NOMEM;
    }
    fill(&plan, params, order, first_bytes, bytes);
    sort_by_last(&plan, place);
    list_members(&plan, place);
    tt_free(place);
    *out = plan;
    return TUTTI_OK;
}

bool tt_bucket_plan_equal(const tt_bucket_plan_t *a, const tt_bucket_plan_t *b)
{
    if (a->param_count != b->param_count || a->bucket_count != b->bucket_count) {
        return false;
    }
    for (int i = 0; i < a->param_count; i++) {
        if (a->slots[i].bucket != b->slots[i].bucket || a->slots[i].offset != b->slots[i].offset) {
            return false;
        }
    }
    return true;
}

void tt_bucket_plan_fini(tt_bucket_plan_t *plan)
{
    tt_free(plan->slots);
    tt_free(plan->members);
    tt_free(plan->buckets);
    *plan = (tt_bucket_plan_t){0};
}

size_t tt_bucket_plan_format(const tt_bucket_plan_t *plan, char *text, size_t text_bytes)
{
    size_t used = 0;
#define PRINT(...)                                                                                 \
    used += (size_t)snprintf(used < text_bytes ? text + used : NULL,                               \
                             used < text_bytes ? text_bytes - used : 0, __VA_ARGS__)
    for (int b = 0; b < plan->bucket_count; b++) {
        PRINT("bucket %d: %s, %zu bytes, parameters", b, tutti_dtype_name(plan->buckets[b].dtype),
              bytes_of(&plan->buckets[b]));
        for (int k = 0; k < plan->buckets[b].param_count; k++) {
            PRINT(" %d", plan->members[plan->buckets[b].first + k]);
        }
        PRINT("\n");
    }
#undef PRINT
    return used;
}
