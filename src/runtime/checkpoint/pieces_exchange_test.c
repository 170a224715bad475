/* Pieces that move from any layout to any other one, and failures on the way. */
#include "runtime/checkpoint/pieces_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/devices.h>
#include <tutti/launch.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "runtime/checkpoint/layout_testing.h"
#include "runtime/checkpoint/save_plan.h"

enum { RANKS_MAX = 4 };

/* ---- any layout to any other ----------------------------------------------------------------- */

/* What all ranks have of a layout, each slice once. */
static tt_manifest_t *plan_layout(tt_layout_t layout, int ranks)
{
    tt_manifest_t *plan;
    assert_int_equal(tt_manifest_create(1, ranks, &plan), TUTTI_OK);
    for (int rank = 0; rank < ranks; rank++) {
        tt_laid_t laid;
        tt_pieces_t pieces;
        tt_manifest_t *own;
        tt_lay(&laid, layout, rank, ranks);
        assert_int_equal(tt_pieces_of(laid.slices, laid.count, &pieces), TUTTI_OK);
        assert_int_equal(tt_manifest_create(1, ranks, &own), TUTTI_OK);
        assert_int_equal(tt_pieces_describe(laid.slices, laid.count, &pieces, own, rank), TUTTI_OK);
        assert_int_equal(tt_save_plan_add(plan, own), TUTTI_OK);
        tt_manifest_release(own);
        tt_pieces_release(&pieces);
        tt_lay_end(&laid);
    }
    assert_int_equal(tt_save_plan_assign(plan), TUTTI_OK);
    return plan;
}

static size_t count_wanted(const tt_manifest_t *wanted, int rank)
{
    size_t count = 0;
    for (size_t i = 0; i < wanted->tensor_count; i++) {
        for (size_t k = 0; k < wanted->tensors[i].slice_count; k++) {
            count += wanted->tensors[i].slices[k].rank == rank;
        }
    }
    return count;
}

static tutti_status_t expect_received(const tt_manifest_t *wanted, int rank,
                                      const tt_pieces_t *received)
{
    if (received->count != count_wanted(wanted, rank)) {
        return TT_FAIL(TUTTI_ERR_STATE, "%zu pieces", received->count);
    }
    for (size_t i = 0; i < received->count; i++) {
        const tt_piece_t *piece = &received->pieces[i];
        const tutti_slice_t slice =
            tutti_slice_box(piece->name, piece->tensor, piece->whole, piece->box.offset);
        TT_TRY(tt_lay_each(&slice, tt_layout_expect));
    }
    return TUTTI_OK;
}

static tutti_status_t exchange_layouts(tutti_group_t *world, tt_layout_t from, tt_layout_t to)
{
    const int rank = tutti_group_rank(world), ranks = tutti_group_size(world);
    tt_manifest_t *has = plan_layout(from, ranks), *wanted = plan_layout(to, ranks);
    tt_laid_t laid;
    tt_pieces_t pieces, received;
    tt_lay(&laid, from, rank, ranks);
    TT_TRY(tt_lay_all(&laid, tt_layout_set));
    TT_TRY(tt_pieces_of(laid.slices, laid.count, &pieces));
    tutti_status_t status = tt_pieces_exchange(world, has, wanted, &pieces, &received);
    if (status >= 0) {
        status = expect_received(wanted, rank, &received);
        tt_pieces_release(&received);
    }
    tt_pieces_release(&pieces);
    tt_lay_end(&laid);
    tt_manifest_release(has);
    tt_manifest_release(wanted);
    return status;
}

static tutti_status_t exchange_all(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_status_t status = TUTTI_OK;
    for (int pair = 0; pair < TT_LAYOUT_COUNT * TT_LAYOUT_COUNT && status >= 0; pair++) {
        const tt_layout_t from = (tt_layout_t)(pair / TT_LAYOUT_COUNT);
        const tt_layout_t to = (tt_layout_t)(pair % TT_LAYOUT_COUNT);
        status = exchange_layouts(world, from, to);
        if (status < 0) {
            fprintf(stderr, "rank %d: %s to %s: %s\n", self->rank, tt_layout_names[from],
                    tt_layout_names[to], tutti_last_error());
        }
    }
    tutti_group_release(world);
    return status;
}

static void spawn(tutti_status_t (*call)(const tutti_spawned_t *self), int ranks)
{
    assert_int_equal(tutti_spawn(call, ranks, &(tutti_spawn_options_t){.threads = true}), TUTTI_OK);
}

static void any_layout_becomes_any_other(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        spawn(exchange_all, ranks);
    }
}

/* ---- one tensor of rows ---------------------------------------------------------------------- */

/* Of [ranks · rows, columns] each rank has `rows`, every second column of its memory; and the next
 * rank, and all of it the last one, are to have it. Between the two are dimensions of 1: as many as
 * there can be. */
typedef struct {
    tutti_dtype_t dtype;
    int64_t rows, columns;
    const char *device;
    bool has_gap; /* nobody has the last rows */
} rows_t;

static rows_t rows;
static tutti_status_t met[RANKS_MAX];
static char texts[RANKS_MAX][TT_ERROR_TEXT_BYTES];
static int failing_allocation; /* of all ranks together; 0: none */

static tutti_shape_t rows_shape(int64_t count)
{
    return TUTTI_SHAPE(count, 1, 1, 1, 1, 1, 1, rows.columns);
}

/* Rows [first, first + count) of all. */
static tt_box_t rows_box(int64_t first, int64_t count)
{
    tt_box_t box = tt_box_of(rows_shape(count));
    box.offset[0] = first;
    return box;
}

static tutti_status_t add_rows(tt_manifest_t *manifest, int ranks, int rank, int64_t first,
                               int64_t count)
{
    tt_saved_tensor_t *tensor;
    const tt_saved_slice_t slice = {
        .box = rows_box(first, count), .rank = rank, .file = TT_NO_FILE};
    TT_TRY(tt_manifest_add(manifest, "w", rows.dtype, rows_shape(ranks * rows.rows), &tensor));
    return tt_manifest_add_slice(tensor, &slice);
}

static tutti_status_t make_manifests(int ranks, tt_manifest_t **has, tt_manifest_t **wanted)
{
    TT_TRY(tt_manifest_create(1, ranks, has));
    TT_TRY(tt_manifest_create(1, ranks, wanted));
    for (int rank = 0; rank < ranks; rank++) {
        if (!rows.has_gap || rank < ranks - 1) {
            TT_TRY(add_rows(*has, ranks, rank, rank * rows.rows, rows.rows));
        }
        TT_TRY(add_rows(*wanted, ranks, (rank + 1) % ranks, rank * rows.rows, rows.rows));
    }
    return add_rows(*wanted, ranks, ranks - 1, 0, ranks * rows.rows);
}

/* A different byte for each element, whatever the dtype. */
static unsigned char byte_of(int64_t element, size_t at)
{
    return rows.dtype == TUTTI_BOOL ? (unsigned char)(element * 7 % 5 == 0)
                                    : (unsigned char)((size_t)element * 31 + at * 17 + 3);
}

static tutti_status_t fill_rows(int rank, tutti_device_t *device, tutti_tensor_t **out)
{
    const size_t width = tutti_dtype_bytes(rows.dtype);
    const int64_t row = 2 * rows.columns, strides[] = {row, row, row, row, row, row, row, 2};
    tutti_tensor_t *wide, *view, *x;
    TT_TRY(tutti_tensor_create(rows.dtype, TUTTI_SHAPE(rows.rows, 2 * rows.columns), &wide));
    unsigned char *data = tutti_tensor_data(wide);
    for (int64_t i = 0; i < rows.rows * rows.columns; i++) {
        for (size_t b = 0; b < width; b++) {
            data[(size_t)(2 * i) * width + b] = byte_of(rank * rows.rows * rows.columns + i, b);
        }
    }
    TT_TRY(tt_tensor_new(device, rows.dtype, wide->shape, true, &x));
    TT_TRY(tutti_tensor_copy(x, wide));
    tutti_tensor_release(wide);
    TT_TRY(tt_tensor_over(x->storage, rows.dtype, rows_shape(rows.rows), strides, 0, &view));
    tutti_tensor_release(x);
    *out = view;
    return TUTTI_OK;
}

static tutti_status_t expect_rows(const tt_pieces_t *received)
{
    const size_t width = tutti_dtype_bytes(rows.dtype);
    for (size_t i = 0; i < received->count; i++) {
        const tt_piece_t *piece = &received->pieces[i];
        const unsigned char *data = tutti_tensor_data(piece->tensor);
        const int64_t first = piece->box.offset[0] * rows.columns;
        for (int64_t k = 0; k < tt_box_numel(&piece->box); k++) {
            for (size_t b = 0; b < width; b++) {
                if (data[(size_t)k * width + b] != byte_of(first + k, b)) {
                    return TT_FAIL(TUTTI_ERR_STATE, "element %" PRId64, first + k);
                }
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t exchange_slice(tutti_group_t *world, tutti_tensor_t *x)
{
    const int rank = tutti_group_rank(world), ranks = tutti_group_size(world);
    tt_manifest_t *has, *wanted;
    tt_pieces_t pieces, received;
    TT_TRY(make_manifests(ranks, &has, &wanted));
    const tutti_slice_t slice = tutti_slice_box("w", x, rows_shape(ranks * rows.rows),
                                                (int64_t[TUTTI_RANK_MAX]){rank * rows.rows});
    TT_TRY(tt_pieces_of(&slice, 1, &pieces));
    TT_TRY(tutti_barrier(world, NULL));
    if (rank == 0 && failing_allocation > 0) {
        tt_alloc_fail_at((size_t)failing_allocation);
    }
    met[rank] = tt_pieces_exchange(world, has, wanted, &pieces, &received);
    snprintf(texts[rank], sizeof texts[rank], "%s", met[rank] < 0 ? tutti_last_error() : "");
    tutti_status_t status = TUTTI_OK;
    if (met[rank] >= 0) {
        status = expect_rows(&received);
        tt_pieces_release(&received);
    }
    tt_pieces_release(&pieces);
    tt_manifest_release(has);
    tt_manifest_release(wanted);
    return status;
}

static tutti_status_t exchange_rows(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_device_t *device = NULL;
    tutti_tensor_t *x;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    if (rows.device != NULL) {
        TT_TRY(tutti_device_open(rows.device, NULL, &device));
    }
    TT_TRY(fill_rows(self->rank, device, &x));
    const tutti_status_t status = exchange_slice(world, x);
    tutti_tensor_release(x);
    tutti_device_release(device);
    tutti_group_release(world);
    return status;
}

static void expect_all(int ranks, tutti_status_t status, const char *text)
{
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(met[rank], status);
        assert_non_null(strstr(texts[rank], text));
    }
}

static void every_dtype_travels(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        rows = (rows_t){(tutti_dtype_t)dtype, 5, 7, NULL, false};
        spawn(exchange_rows, 3);
        expect_all(3, TUTTI_OK, "");
    }
}

/* More than a round, cut within rows; and the last bytes are few. */
static void long_slices_go_in_rounds(void **state)
{
    (void)state;
    rows = (rows_t){TUTTI_F32, 3, 400001, NULL, false};
    spawn(exchange_rows, 2);
    expect_all(2, TUTTI_OK, "");
    rows = (rows_t){TUTTI_U8, 3, 900001, NULL, false};
    spawn(exchange_rows, 4);
    expect_all(4, TUTTI_OK, "");
}

static void slices_of_a_device_travel(void **state)
{
    (void)state;
    rows = (rows_t){TUTTI_F32, 5, 70001, "strict:0", false};
    spawn(exchange_rows, 2);
    expect_all(2, TUTTI_OK, "");
}

static void what_nobody_has_is_told(void **state)
{
    (void)state;
    rows = (rows_t){TUTTI_F32, 5, 7, NULL, true};
    spawn(exchange_rows, 3);
    expect_all(3, TUTTI_ERR_STATE, "tensor \"w\": 35 elements are with no rank");
}

/* Whoever it hits: all ranks have a failure, or none. */
static void a_failed_allocation_is_told_to_all(void **state)
{
    (void)state;
    rows = (rows_t){TUTTI_F32, 2, 100, NULL, false};
    for (failing_allocation = 1; failing_allocation > 0;) {
        spawn(exchange_rows, 2);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_true((met[0] < 0) == has_failed && (met[1] < 0) == has_failed);
        failing_allocation = has_failed ? failing_allocation + 1 : 0;
    }
}

/* In the first round, when all have agreed to begin: the last rank is gone. */
static tutti_status_t leave_or_exchange(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_tensor_t *rounds;
    if (self->rank < self->size - 1) {
        return exchange_rows(self);
    }
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &rounds));
    TT_TRY(tutti_barrier(world, NULL));
    TT_TRY(tt_group_agree(world, TUTTI_OK));
    TT_TRY(tutti_all_reduce(world, rounds, TUTTI_MAX, NULL));
    tutti_tensor_release(rounds);
    tutti_group_release(world);
    return TUTTI_OK;
}

static void a_rank_that_goes_is_told(void **state)
{
    (void)state;
    rows = (rows_t){TUTTI_F32, 3, 400001, NULL, false};
    spawn(leave_or_exchange, 3);
    expect_all(2, TUTTI_ERR_PEER, "rank 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_becomes_any_other),
        cmocka_unit_test(every_dtype_travels),
        cmocka_unit_test(long_slices_go_in_rounds),
        cmocka_unit_test(slices_of_a_device_travel),
        cmocka_unit_test(what_nobody_has_is_told),
        cmocka_unit_test(a_failed_allocation_is_told_to_all),
        cmocka_unit_test(a_rank_that_goes_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
