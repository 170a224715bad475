/* Contributions of several leaves a rank, scattered into parts of any size: each part has the bits
 * that it has in the all_reduce of the same leaves. */
#include "comm/group/group_team.h"

#include <tutti/collectives.h>
#include <tutti/prepared.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { RANKS = 3, LEAVES = 7, PIECES_MAX = 8 };

typedef struct {
    int64_t counts[RANKS];
    int64_t width; /* of a row */
} cut_t;

static void run_team(void (*body)(tt_member_t *))
{
    tt_team_expect(RANKS, 20000, body, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static const cut_t cuts[] = {
    {{300, 300, 300}, 1},
    {{700, 0, 200}, 1},
    {{0, 0, 1000}, 1},
    {{333, 1, 77}, 3},
};

typedef struct {
    tutti_tensor_t *pieces[PIECES_MAX];
    int count;
} pieces_t;

static tutti_tensor_t *make(tt_member_t *m, tutti_dtype_t dtype, int64_t rows, int64_t width)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_tensor(m->group, dtype, TUTTI_SHAPE(rows, width), &x) == TUTTI_OK);
    return x;
}

static void fill(tutti_tensor_t *x, int seed)
{
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const uint32_t bits = ((uint32_t)i * 2654435761U) ^ ((uint32_t)seed * 40503U);
        const double value = (double)(bits >> 8) / (1 << 20) - 7.5;
        if (tutti_tensor_dtype(x) == TUTTI_F32) {
            ((float *)tutti_tensor_data(x))[i] = (float)value;
        } else {
            ((double *)tutti_tensor_data(x))[i] = value;
        }
    }
}

/* This rank's, of leaves that are spread evenly. */
static void make_pieces(tt_member_t *m, tutti_dtype_t dtype, int64_t rows, int64_t width,
                        pieces_t *out)
{
    const int begin = LEAVES * m->rank / RANKS, end = LEAVES * (m->rank + 1) / RANKS;
    out->count = tutti_contribution_pieces(LEAVES, begin, end, NULL);
    for (int i = 0; i < out->count; i++) {
        out->pieces[i] = make(m, dtype, rows, width);
        fill(out->pieces[i], 10 * m->rank + i);
    }
}

static void compare(tt_member_t *m, const cut_t *cut, const tutti_tensor_t *all,
                    const tutti_tensor_t *part)
{
    int64_t before = 0;
    for (int i = 0; i < m->rank; i++) {
        before += cut->counts[i] * cut->width;
    }
    for (int64_t i = 0; i < tutti_tensor_numel(part); i++) {
        TT_EXPECT(m, tutti_tensor_at(part, i) == tutti_tensor_at(all, before + i));
    }
}

static void scatter(tt_member_t *m, const cut_t *cut, tutti_dtype_t dtype, tutti_dtype_t out_dtype,
                    tutti_reduction_t op)
{
    int64_t rows = 0;
    pieces_t pieces;
    for (int i = 0; i < RANKS; i++) {
        rows += cut->counts[i];
    }
    make_pieces(m, dtype, rows, cut->width, &pieces);
    const tutti_contributions_t leaves = {
        .count = LEAVES, .pieces = pieces.pieces, .piece_count = pieces.count, .dtype = dtype};
    tutti_tensor_t *all = make(m, out_dtype, rows, cut->width),
                   *part = make(m, out_dtype, cut->counts[m->rank], cut->width);
    tutti_prepared_t *prepared;
    TT_EXPECT(m, tutti_all_reduce_contributions(m->group, &leaves, all, op, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_reduce_scatter_contributions_uneven(m->group, &leaves, part, cut->counts, op,
                                                           NULL) == TUTTI_OK);
    compare(m, cut, all, part);
    TT_EXPECT(m, tutti_prepare_reduce_scatter_contributions_uneven(
                     m->group, &leaves, part, cut->counts, op, &prepared) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_tensor_fill(part, -1) == TUTTI_OK);
        TT_EXPECT(m, tutti_prepared_start(prepared, NULL) == TUTTI_OK);
        compare(m, cut, all, part);
    }
    tutti_prepared_release(prepared);
    tutti_tensor_release(all);
    tutti_tensor_release(part);
    for (int i = 0; i < pieces.count; i++) {
        tutti_tensor_release(pieces.pieces[i]);
    }
}

static void scatter_all(tt_member_t *m)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        scatter(m, &cuts[i], TUTTI_F32, TUTTI_F32, TUTTI_AVG);
        scatter(m, &cuts[i], TUTTI_F32, TUTTI_BF16, TUTTI_SUM);
        scatter(m, &cuts[i], TUTTI_F64, TUTTI_F64, TUTTI_MAX);
    }
}

static void parts_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    run_team(scatter_all);
}

/* The result may be this rank's part of a piece, and no other. */
static void scatter_in_place(tt_member_t *m)
{
    const cut_t *cut = &cuts[3];
    pieces_t pieces;
    tutti_tensor_t *own, *other, *all = make(m, TUTTI_F32, 411, 3);
    make_pieces(m, TUTTI_F32, 411, 3, &pieces);
    const tutti_contributions_t leaves = {
        .count = LEAVES, .pieces = pieces.pieces, .piece_count = pieces.count, .dtype = TUTTI_F32};
    const int64_t before[] = {0, 333, 334};
    const int64_t rows = cut->counts[m->rank];
    TT_EXPECT(m, tutti_all_reduce_contributions(m->group, &leaves, all, TUTTI_SUM, NULL) >= 0);
    TT_EXPECT(m, tt_tensor_over(pieces.pieces[0]->storage, TUTTI_F32, TUTTI_SHAPE(rows, 3), NULL,
                                before[m->rank] * 3, &own) == TUTTI_OK);
    TT_EXPECT(m, tt_tensor_over(pieces.pieces[0]->storage, TUTTI_F32, TUTTI_SHAPE(rows, 3), NULL,
                                before[m->rank] == 0 ? 3 : 0, &other) == TUTTI_OK);
    TT_EXPECT(m, tutti_reduce_scatter_contributions_uneven(m->group, &leaves, other, cut->counts,
                                                           TUTTI_SUM, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_reduce_scatter_contributions_uneven(m->group, &leaves, own, cut->counts,
                                                           TUTTI_SUM, NULL) == TUTTI_OK);
    compare(m, cut, all, own);
    tutti_tensor_release(own);
    tutti_tensor_release(other);
    tutti_tensor_release(all);
    for (int i = 0; i < pieces.count; i++) {
        tutti_tensor_release(pieces.pieces[i]);
    }
}

static void a_part_may_be_the_result(void **state)
{
    (void)state;
    run_team(scatter_in_place);
}

static void refuse(tt_member_t *m, tutti_tensor_t *out, const int64_t *counts, const char *text)
{
    tutti_tensor_t *piece = make(m, TUTTI_F32, 9, 1);
    const tutti_contributions_t leaves = {
        .count = RANKS, .pieces = &piece, .piece_count = 1, .dtype = TUTTI_F32};
    TT_EXPECT(m, tutti_reduce_scatter_contributions_uneven(m->group, &leaves, out, counts,
                                                           TUTTI_SUM, NULL) < 0);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
    tutti_tensor_release(piece);
}

static void misuse(tt_member_t *m)
{
    tutti_tensor_t *scalar, *out = make(m, TUTTI_F32, 3, 1);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SCALAR, &scalar) == TUTTI_OK);
    refuse(m, out, NULL, "is NULL");
    refuse(m, scalar, (int64_t[]){3, 3, 3}, "a scalar, which has no rows");
    refuse(m, out, (int64_t[]){-1, 3, 3}, "counts[0] is -1");
    refuse(m, out, (int64_t[]){4, 4, 4}, "must have 4 rows");
    tutti_tensor_release(out);
    out = make(m, TUTTI_F32, 2, 1);
    refuse(m, out, (int64_t[]){2, 2, 2}, "want f32 of 6 elements");
    tutti_tensor_release(out);
    tutti_tensor_release(scalar);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    run_team(misuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_bits_of_the_whole),
        cmocka_unit_test(a_part_may_be_the_result),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
