/* The checks of backend_conform.h. Element i of rank r's contribution is a hash of both, so that
 * any part that comes from a wrong place is seen. References of reductions are the kernels'
 * canonical tree, run over all ranks' contributions in this process: equal bits are wanted. */
#include "conform_impl.h"

#include <stdio.h>
#include <string.h>

#include <tutti/objects.h>

#include "comm/backend/backend.h"
#include "core/base/alloc.h"
#include "core/kernel/reduce/tree_reduce.h"
#include "core/tensor/device_testing.h"

static void put_element(void *data, tutti_dtype_t dtype, size_t at, size_t i, int rank)
{
    uint32_t random = ((uint32_t)i + 1) * 2654435761u ^ (uint32_t)(rank + 1) * 2246822519u;
    random ^= random >> 15;
    random *= 2654435769u;
    random ^= random >> 13;
    const float real = (float)(int32_t)random * 0x1p-28f;
    union {
        float f;
        uint32_t bits;
    } as = {.f = real};
    const uint16_t f16 = (uint16_t)(0x3800 | (random & 0x83ff));
    switch (dtype) {
    case TUTTI_F32:
        ((float *)data)[at] = real;
        break;
    case TUTTI_F64:
        ((double *)data)[at] = (double)real;
        break;
    case TUTTI_BF16:
        ((uint16_t *)data)[at] = (uint16_t)(as.bits >> 16);
        break;
    case TUTTI_F16:
        ((uint16_t *)data)[at] = f16;
        break;
    case TUTTI_I64:
        ((int64_t *)data)[at] = (int64_t)random - (INT64_C(1) << 31);
        break;
    case TUTTI_I32:
        ((int32_t *)data)[at] = (int32_t)random;
        break;
    case TUTTI_I8:
    case TUTTI_U8:
        ((uint8_t *)data)[at] = (uint8_t)random;
        break;
    case TUTTI_BOOL:
        ((uint8_t *)data)[at] = random & 1;
        break;
    case TUTTI_DTYPE_COUNT:
        break;
    }
}

/* Elements [begin, begin + count) of a rank's contribution. */
void tt_conform_fill(void *data, tutti_dtype_t dtype, size_t begin, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) {
        put_element(data, dtype, i, begin + i, rank);
    }
}

void tt_conform_note(const tt_conform_at_t *at, const char *what, const char *how)
{
    static const char *const memories[TT_MEMORIES] = {"heap",   "foreign", "mixed",
                                                      "halved", "device",  "some devices"};
    at->out->wrong++;
    if (at->out->text[0] == 0) {
        snprintf(at->out->text, sizeof at->out->text,
                 "rank %d of %d: %s %s[%zu] %s, root %d, %s memory: %s", at->rank, at->size, what,
                 tutti_dtype_name(at->dtype), at->count, tutti_reduction_name(at->op), at->root,
                 memories[at->memory], how);
    }
}

void tt_conform_ok(const tt_conform_at_t *at, const char *what, tutti_status_t status)
{
    at->out->checks++;
    if (status != TUTTI_OK) {
        tt_conform_note(at, what, tutti_last_error());
    }
}

void tt_conform_bytes(const tt_conform_at_t *at, const char *what, const void *got,
                      const void *want, size_t bytes)
{
    at->out->checks++;
    for (size_t i = 0; i < bytes; i++) {
        at->out->digest =
            (at->out->digest ^ ((const unsigned char *)got)[i]) * UINT64_C(0x100000001b3);
    }
    if (bytes > 0 && memcmp(got, want, bytes) != 0) {
        size_t i = 0;
        char how[64];
        while (((const char *)got)[i] == ((const char *)want)[i]) {
            i++;
        }
        snprintf(how, sizeof how, "byte %zu of %zu", i, bytes);
        tt_conform_note(at, what, how);
    }
}

void *tt_conform_room(size_t bytes)
{
    return tt_alloc(bytes + 1, "test");
}

/* Where the host may read and write it now: behind all that was launched on its device. */
void *tt_conform_data(const tutti_tensor_t *x)
{
    tutti_device_t *device = x != NULL ? tutti_tensor_device(x) : NULL;
    if (device == NULL) {
        return tutti_tensor_data(x);
    }
    if (tutti_device_synchronize(device, 0) < 0) {
        fprintf(stderr, "conform: %s\n", tutti_last_error()); /* the values are wrong */
    }
    return tt_device_host_view(device, tutti_tensor_device_data(x));
}

static tutti_status_t make_tensor(const tt_conform_at_t *at, tutti_shape_t shape,
                                  tutti_tensor_t **out)
{
    const int rank = at->rank, half = at->size / 2;
    switch (at->memory) {
    case TT_ON_DEVICE:
        return tt_tensor_new(at->device, at->dtype, shape, true, out);
    case TT_ON_SOME_DEVICES:
        return tt_tensor_new(rank % 2 == 1 ? at->device : NULL, at->dtype, shape, true, out);
    case TT_IN_FOREIGN:
        return tutti_tensor_create(at->dtype, shape, out);
    case TT_IN_BOTH:
        return rank % 2 == 1 ? tutti_tensor_create(at->dtype, shape, out)
                             : tutti_group_tensor(at->group, at->dtype, shape, out);
    case TT_IN_HALVES:
        return rank >= half ? tutti_tensor_create(at->dtype, shape, out)
                            : tutti_group_tensor(at->group, at->dtype, shape, out);
    default:
        return tutti_group_tensor(at->group, at->dtype, shape, out);
    }
}

tutti_tensor_t *tt_conform_make(const tt_conform_at_t *at, size_t count)
{
    tutti_tensor_t *x = NULL;
    tt_conform_ok(at, "tensor", make_tensor(at, TUTTI_SHAPE((int64_t)count), &x));
    return x;
}

tutti_tensor_t *tt_conform_make_filled(const tt_conform_at_t *at, size_t count)
{
    tutti_tensor_t *x = tt_conform_make(at, count);
    tt_conform_fill(tt_conform_data(x), at->dtype, 0, count, at->rank);
    return x;
}

size_t tt_conform_bytes_of(const tt_conform_at_t *at, size_t count)
{
    return count * tutti_dtype_bytes(at->dtype);
}

/* Compare x with elements [begin, …) of a rank's contribution. */
void tt_conform_elements(const tt_conform_at_t *at, const char *what, const void *got, size_t begin,
                         size_t count, int rank)
{
    void *want = tt_conform_room(tt_conform_bytes_of(at, count));
    tt_conform_fill(want, at->dtype, begin, count, rank);
    tt_conform_bytes(at, what, got, want, tt_conform_bytes_of(at, count));
    tt_free(want);
}

/* ---- all of it ---- */

static const size_t counts[] = {0, 1, 257, 20001, 100003};

/* A share of the cases may be enough; all ranks choose the same. */
static bool is_chosen(tt_conform_at_t *at)
{
    return tt_test_takes(at->cases++);
}

void tt_conform_choose(void)
{
    (void)tt_test_takes(0);
}

static bool takes(tutti_dtype_t dtype, tutti_reduction_t op)
{
    return op == TUTTI_CUSTOM ||
           (op == TUTTI_PREMUL_SUM ? tutti_dtype_is_float(dtype)
                                   : tt_combine_check("test", dtype, op) == TUTTI_OK);
}

static void reduce_all(tt_conform_at_t *at, int count_count)
{
    for (int op = 0; op < TUTTI_REDUCTION_COUNT; op++) {
        at->op = (tutti_reduction_t)op;
        const bool is_long = op == TUTTI_SUM || op == TUTTI_MINLOC || op == TUTTI_CUSTOM;
        for (int k = 0; k < (is_long ? count_count : 3) && takes(at->dtype, at->op); k++) {
            if (!is_chosen(at)) {
                continue;
            }
            at->count = counts[k] * (size_t)tt_combine_width(at->op);
            at->root = (k + op) % at->size;
            if (op == TUTTI_PREMUL_SUM) {
                tt_conform_check_premul(at);
            } else if (op == TUTTI_CUSTOM) {
                tt_conform_check_custom(at, k);
            } else {
                tt_conform_check_all_reduce(at);
                tt_conform_check_scan(at);
                tt_conform_check_reduce_scatter(at);
                tt_conform_check_reduce_scatter_uneven(at);
            }
        }
    }
}

static void copy_all(tt_conform_at_t *at, int count_count, bool is_full)
{
    at->op = TUTTI_SUM;
    for (int k = 0; k < count_count; k++) {
        if (!is_chosen(at)) {
            continue;
        }
        at->count = counts[k];
        for (int root = 0; root < (is_full ? at->size : 1); root++) {
            at->root = is_full ? root : k % at->size;
            tt_conform_check_broadcast(at);
            tt_conform_check_gather(at);
            tt_conform_check_scatter(at);
        }
        tt_conform_check_all_gather(at);
        tt_conform_check_all_gather_uneven(at);
        tt_conform_check_all_to_all(at);
        tt_conform_check_all_to_all_uneven(at);
        tt_conform_check_messages(at);
    }
}

static void mix_all(tt_conform_at_t *at, int count_count)
{
    at->op = TUTTI_SUM;
    for (int k = 0; k < count_count; k++) {
        if (!is_chosen(at)) {
            continue;
        }
        at->count = counts[k];
        tt_conform_check_in_flight(at);
        tt_conform_check_in_order(at);
        tt_conform_check_coalesced(at);
    }
    for (int k = 0; k < 3; k++) {
        if (!is_chosen(at)) {
            continue;
        }
        at->count = counts[k];
        at->root = k % at->size;
        tt_conform_check_prepared(at);
    }
    at->dtype = TUTTI_U8;
    for (int k = 0; k < count_count && at->device == NULL; k++) { /* bytes lie on the host */
        at->count = counts[k];
        at->root = k % at->size;
        tt_conform_check_objects(at);
    }
}

static void probe_messages(tt_conform_at_t *at)
{
    char nothing = 0;
    if (at->size > 1) {
        const int to = at->rank % 2 == 0 ? at->rank + 1 : at->rank - 1;
        const tutti_bytes_t bytes = {&nothing, 1};
        tutti_buffer_t got = {0};
        tutti_status_t status = TUTTI_OK;
        if (to < at->size) {
            status = at->rank % 2 == 0 ? tutti_send_bytes(at->group, bytes, to, 0)
                                       : tutti_recv_bytes(at->group, to, 0, NULL, &got);
        }
        at->out->no_messages = status == TUTTI_ERR_UNSUPPORTED;
        tutti_buffer_release(&got);
    }
}

/* One dtype of two or four bytes stands for those like it where memory is what differs. */
static bool is_wanted(int flags, tt_conform_memory_t memory, tutti_dtype_t dtype)
{
    if ((flags & TT_CONFORM_INTEGERS) != 0 && tutti_dtype_is_float(dtype)) {
        return false;
    }
    if (memory == TT_ON_DEVICE) {
        return true;
    }
    return (flags & TT_CONFORM_FULL) != 0 || dtype == TUTTI_F32 || dtype == TUTTI_BF16 ||
           (memory == TT_IN_HEAP && (flags & TT_CONFORM_HOSTS) == 0);
}

/* How many of the counts are tried. Several chunks matter most where hosts have other memory. */
static int count_counts(int flags, tt_conform_memory_t memory, tutti_dtype_t dtype)
{
    if (dtype != TUTTI_F32) {
        return 3;
    }
    if ((flags & TT_CONFORM_HOSTS) != 0 && memory != TT_IN_HALVES) {
        return 3;
    }
    return (flags & (TT_CONFORM_FULL | TT_CONFORM_HOSTS)) != 0 ? 5 : 4;
}

/* A device for each rank, of the kind that TUTTI_TEST_DEVICE names. */
static void open_device(tt_conform_at_t *at)
{
    char name[32];
    const tutti_device_options_t options = {.threads = 1};
    snprintf(name, sizeof name, "%.*s:%d", (int)strcspn(tt_test_device(), ":"), tt_test_device(),
             at->rank);
    tt_conform_ok(at, name, tutti_device_open(name, &options, &at->device));
}

void tt_conform_run(tutti_group_t *group, int flags, tt_conform_t *out)
{
    const bool is_full = (flags & TT_CONFORM_FULL) != 0;
    const bool has_hosts = (flags & TT_CONFORM_HOSTS) != 0;
    const bool has_device = (flags & TT_CONFORM_DEVICE) != 0;
    const int end = has_device ? TT_MEMORIES : has_hosts ? TT_ON_DEVICE : TT_IN_HALVES;
    *out = (tt_conform_t){.digest = UINT64_C(0xcbf29ce484222325)};
    tt_conform_at_t at = {.group = group,
                          .rank = tutti_group_rank(group),
                          .size = tutti_group_size(group),
                          .out = out};
    if (has_device) {
        open_device(&at);
    }
    probe_messages(&at);
    for (int memory = has_device ? TT_ON_DEVICE : TT_IN_HEAP; memory < end; memory++) {
        at.memory = (tt_conform_memory_t)memory;
        for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
            const int most = count_counts(flags, at.memory, (tutti_dtype_t)dtype);
            at.dtype = (tutti_dtype_t)dtype;
            if (is_wanted(flags, at.memory, at.dtype)) {
                reduce_all(&at, most);
                copy_all(&at, most, is_full);
            }
        }
        at.dtype = (flags & TT_CONFORM_INTEGERS) != 0 ? TUTTI_I32 : TUTTI_F32;
        mix_all(&at, is_full ? 5 : has_hosts ? 3 : 4);
    }
    tutti_device_release(at.device);
}

/* What all ranks found, on rank 0's terminal. */
static long report(tutti_group_t *world, const tt_conform_t *mine)
{
    tutti_buffer_t all[TT_CONFORM_RANKS_MAX] = {{0}};
    long wrong = mine->wrong, checks = 0;
    uint64_t digest = 0;
    if (tutti_all_gather_bytes(world, tutti_bytes_of(mine, sizeof *mine), all) < 0) {
        fprintf(stderr, "conform: %s\n", tutti_last_error());
        return wrong + 1;
    }
    const bool speaks = tutti_group_rank(world) == 0;
    for (int i = 0; i < tutti_group_size(world); i++) {
        const tt_conform_t *one = all[i].data;
        wrong += i == tutti_group_rank(world) ? 0 : one->wrong;
        checks += one->checks;
        digest = digest * UINT64_C(0x100000001b3) ^ one->digest;
        if (one->wrong > 0 && speaks) {
            fprintf(stderr, "conform: %s\n", one->text);
        }
        tutti_buffer_release(&all[i]);
    }
    if (speaks) {
        printf("conform: %d ranks, %ld checks, %ld wrong, digest %016llx%s\n",
               tutti_group_size(world), checks, wrong, (unsigned long long)digest,
               mine->no_messages ? ", no messages" : "");
    }
    return wrong;
}

int tt_conform_main(int argc, char **argv, int flags)
{
    if (argc < 2 || strcmp(argv[1], "--world") != 0) {
        return -1;
    }
    tutti_group_t *world;
    tt_conform_t mine;
    if (tutti_init(NULL, &world) < 0) {
        fprintf(stderr, "conform: %s\n", tutti_last_error());
        return 1;
    }
    const bool is_whole = argc > 2 && strcmp(argv[2], "--integers") == 0;
    tt_conform_run(world, flags | (is_whole ? TT_CONFORM_INTEGERS : 0), &mine);
    const long wrong = report(world, &mine);
    tutti_group_release(world);
    return wrong == 0 ? 0 : 1;
}
