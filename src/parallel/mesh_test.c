/* Meshes: who stands where, the groups of rows and columns, slices, flattening, misuse. */
#include "core/base/testing.h"

#include <tutti/group.h>

#include "comm/group/group_team.h"

static void run_team(int size, void (*body)(tt_member_t *))
{
    tt_team_expect(size, 20000, body, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static bool ends(const char *text)
{
    const char *found = strstr(tutti_last_error(), text);
    return found != NULL && strlen(found) == strlen(text);
}

/* The sum of the world ranks along a line. */
static void expect_sum(tt_member_t *m, tutti_group_t *group, double want)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_I64, TUTTI_SHAPE(5), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 4) == want);
    tutti_tensor_release(x);
}

static void rows_and_columns(tt_member_t *m)
{
    tutti_mesh_t *mesh;
    const char *const names[] = {"dp", "tp"};
    TT_EXPECT(m, tutti_mesh_create(m->group, 2, (const int[]){2, 3}, names, &mesh) == TUTTI_OK);
    const int row = m->rank / 3, column = m->rank % 3;
    TT_EXPECT(m, tutti_mesh_dims(mesh) == 2 && strcmp(tutti_mesh_name(mesh, 1), "tp") == 0);
    TT_EXPECT(m, tutti_mesh_coordinate(mesh, "dp") == row);
    TT_EXPECT(m, tutti_mesh_coordinate(mesh, "tp") == column);
    TT_EXPECT(m, tutti_mesh_size(mesh, "dp") == 2 && tutti_mesh_size(mesh, "pp") == 0);
    TT_EXPECT(m, tutti_mesh_rank_at(mesh, (const int[]){1, 2}) == 5);
    TT_EXPECT(m, tutti_mesh_rank_at(mesh, (const int[]){2, 0}) == -1);
    TT_EXPECT(m, tutti_group_rank(tutti_mesh_group(mesh, "tp")) == column);
    TT_EXPECT(m, tutti_group_rank(tutti_mesh_group(mesh, "dp")) == row);
    TT_EXPECT(m, tutti_mesh_group(mesh, "pp") == NULL && tutti_mesh_name(mesh, 2) == NULL);
    expect_sum(m, tutti_mesh_group(mesh, "tp"), row == 0 ? 0 + 1 + 2 : 3 + 4 + 5);
    expect_sum(m, tutti_mesh_group(mesh, "dp"), 2 * column + 3);
    tutti_mesh_release(mesh);
}

static void a_mesh_has_a_group_for_each_row_and_column(void **state)
{
    (void)state;
    run_team(6, rows_and_columns);
}

static void slices(tt_member_t *m)
{
    tutti_mesh_t *mesh, *plane, *line, *flat;
    const char *const names[] = {"pp", "dp", "tp"};
    TT_EXPECT(m, tutti_mesh_create(m->group, 3, (const int[]){2, 2, 2}, names, &mesh) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_slice(mesh, (const char *[]){"tp", "pp"}, 2, &plane) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_dim(plane, "tp") == 0 && tutti_mesh_dim(plane, "dp") == -1);
    /* dp stays my own: tp 1 and pp 0 */
    const int dp = m->rank / 2 % 2;
    TT_EXPECT(m, tutti_mesh_rank_at(plane, (const int[]){1, 0}) == 2 * dp + 1);
    TT_EXPECT(m, tutti_mesh_slice(plane, (const char *[]){"pp"}, 1, &line) == TUTTI_OK);
    expect_sum(m, tutti_mesh_group(line, "pp"), 2 * (m->rank % 4) + 4);

    const char *const both[] = {"pp", "tp"};
    TT_EXPECT(m, tutti_mesh_flatten(mesh, both, 2, "model", &flat) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_size(flat, "model") == 4);
    TT_EXPECT(m, tutti_mesh_coordinate(flat, "model") == m->rank / 4 * 2 + m->rank % 2);
    TT_EXPECT(m, tutti_mesh_rank_at(flat, (const int[]){3}) == 4 + 2 * dp + 1);
    expect_sum(m, tutti_mesh_group(flat, "model"), dp == 0 ? 0 + 1 + 4 + 5 : 2 + 3 + 6 + 7);
    tutti_mesh_release(mesh); /* the others stand by themselves */
    expect_sum(m, tutti_mesh_group(plane, "tp"), m->rank / 2 * 4 + 1);
    tutti_mesh_release(tutti_mesh_retain(plane));
    tutti_mesh_release(plane);
    tutti_mesh_release(line);
    tutti_mesh_release(flat);
}

static void a_mesh_is_sliced_and_flattened(void **state)
{
    (void)state;
    run_team(8, slices);
}

static void misuse(tt_member_t *m)
{
    tutti_mesh_t *mesh, *none = NULL;
    const char *const names[] = {"dp", "dp"};
    TT_EXPECT(m,
              tutti_mesh_create(m->group, 2, (const int[]){2, 1}, names, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("two dimensions are called \"dp\""));
    TT_EXPECT(m, tutti_mesh_create(m->group, 1, (const int[]){3}, names, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("the shape has 3 places, group world 2 ranks"));
    TT_EXPECT(m, tutti_mesh_create(m->group, 1, (const int[]){0}, names, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_mesh_create(m->group, 0, NULL, NULL, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_mesh_create(m->group, 1, (const int[]){2}, names, &mesh) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_slice(mesh, (const char *[]){"tp"}, 1, &none) == TUTTI_ERR_NOT_FOUND);
    TT_EXPECT(m, says("the mesh has no dimension \"tp\"; it has dp"));
    TT_EXPECT(m, tutti_mesh_flatten(mesh, names, 1, "dp", &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("has a dimension \"dp\" already"));
    TT_EXPECT(m, none == NULL);
    tutti_mesh_release(mesh);
}

/* Nothing is left of the last one either. */
static void as_many_as_there_may_be(tt_member_t *m)
{
    tutti_mesh_t *mesh;
    const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    const int shape[] = {1, 1, 1, 1, 1, 1, 1, 2, 1};
    TT_EXPECT(m, tutti_mesh_create(m->group, TUTTI_MESH_DIMS_MAX, shape, names, &mesh) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_coordinate(mesh, "h") == m->rank);
    expect_sum(m, tutti_mesh_group(mesh, "h"), 1);
    tutti_mesh_release(mesh);
    TT_EXPECT(m, tutti_mesh_create(m->group, TUTTI_MESH_DIMS_MAX + 1, shape, names, &mesh) ==
                     TUTTI_ERR_ARG);
}

static void a_mesh_has_up_to_eight_dimensions(void **state)
{
    (void)state;
    run_team(2, as_many_as_there_may_be);
}

static void wrong_slices(tt_member_t *m)
{
    tutti_mesh_t *mesh, *none = NULL;
    const char *const names[] = {"dp", "tp"}, *const unnamed[] = {"dp", NULL};
    const char *const twice[] = {"tp", "tp"}, *const more[] = {"dp", "tp", "dp"};
    TT_EXPECT(m, tutti_mesh_create(m->group, 2, (const int[]){2, 1}, names, &mesh) == TUTTI_OK);
    TT_EXPECT(m, tutti_mesh_slice(mesh, (const char *[]){"pp"}, 1, &none) == TUTTI_ERR_NOT_FOUND);
    TT_EXPECT(m, ends("the mesh has no dimension \"pp\"; it has dp, tp"));
    TT_EXPECT(m, tutti_mesh_slice(mesh, unnamed, 2, &none) == TUTTI_ERR_NOT_FOUND);
    TT_EXPECT(m, says("no dimension \"\""));
    TT_EXPECT(m, tutti_mesh_slice(mesh, twice, 2, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("dimension \"tp\" is there twice"));
    TT_EXPECT(m, tutti_mesh_slice(mesh, more, 3, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("3 of 2 dimensions"));
    TT_EXPECT(m, tutti_mesh_slice(mesh, names, 0, &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_mesh_flatten(mesh, NULL, 2, "all", &none) == TUTTI_ERR_ARG);
    TT_EXPECT(m, none == NULL);
    tutti_mesh_release(mesh);
}

static void slices_of_what_is_not_there_are_refused(void **state)
{
    (void)state;
    run_team(2, wrong_slices);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    run_team(2, misuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mesh_has_a_group_for_each_row_and_column),
        cmocka_unit_test(a_mesh_is_sliced_and_flattened),
        cmocka_unit_test(a_mesh_has_up_to_eight_dimensions),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(slices_of_what_is_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
