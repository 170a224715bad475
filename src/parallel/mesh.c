/* Meshes: the ranks of a group in rows and columns, with a group for each dimension.
 *
 * Rank r stands where the rth element of a row-major array of the shape does:
 *
 *     shape 2 × 4 ("dp", "tp")      tp →   0 1 2 3
 *                                   dp ↓   4 5 6 7
 *
 * A mesh keeps for each of its dimensions the step between neighbours in the laid out group, and
 * the group of this rank's line along it. So a slice is a choice of dimensions, and flattening
 * several makes one group, over all their coordinates. Cost: a group for each dimension.
 */
#include <tutti/group.h>

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/ref.h"

enum { NAME_BYTES = 32, NAMES_BYTES = TUTTI_MESH_DIMS_MAX * (NAME_BYTES + 2) };

/* A dimension, and this rank's line along it. */
typedef struct {
    char name[NAME_BYTES];
    int size, coordinate;
    int *offsets; /* [size] of each coordinate in the laid out group, from coordinate 0 */
    tutti_group_t *group;
} line_t;

struct tutti_mesh {
    tt_ref_t ref;
    tutti_group_t *group; /* that was laid out */
    int dims;
    line_t lines[TUTTI_MESH_DIMS_MAX];
};

tutti_mesh_t *tutti_mesh_retain(tutti_mesh_t *mesh)
{
    if (mesh != NULL) {
        tt_ref_retain(&mesh->ref);
    }
    return mesh;
}

void tutti_mesh_release(tutti_mesh_t *mesh)
{
    if (mesh == NULL || !tt_ref_release(&mesh->ref)) {
        return;
    }
    for (int i = 0; i < mesh->dims; i++) {
        tutti_group_release(mesh->lines[i].group);
        tt_free(mesh->lines[i].offsets);
    }
    tutti_group_release(mesh->group);
    tt_free(mesh);
}

static tutti_status_t open_mesh(tutti_group_t *group, tutti_mesh_t **out)
{
    tutti_mesh_t *mesh = tt_alloc(sizeof *mesh, "mesh");
    TT_TRY_ALLOC(mesh);
    tt_ref_init(&mesh->ref);
    mesh->group = tutti_group_retain(group);
    *out = mesh;
    return TUTTI_OK;
}

/* One more dimension, without a group yet. */
static tutti_status_t add_line(tutti_mesh_t *mesh, const char *name, int size, int coordinate)
{
    line_t *line = &mesh->lines[mesh->dims];
    line->offsets = tt_alloc_array((size_t)size, sizeof *line->offsets, "mesh");
    TT_TRY_ALLOC(line->offsets);
    snprintf(line->name, sizeof line->name, "%s", name);
    line->size = size;
    line->coordinate = coordinate;
    line->group = NULL;
    mesh->dims++;
    return TUTTI_OK;
}

/* The group of the ranks along a line. */
static tutti_status_t open_line(tutti_mesh_t *mesh, line_t *line)
{
    int *ranks = tt_alloc_array((size_t)line->size, sizeof *ranks, "mesh");
    TT_TRY_ALLOC(ranks);
    const int origin = tutti_group_rank(mesh->group) - line->offsets[line->coordinate];
    for (int i = 0; i < line->size; i++) {
        ranks[i] = origin + line->offsets[i];
    }
    const tutti_status_t status = tutti_group_new(
        mesh->group, ranks, line->size, &(tutti_group_options_t){.name = line->name}, &line->group);
    tt_free(ranks);
    return status;
}

static tutti_status_t check_name(const char *call, const char *name)
{
    if (name == NULL || name[0] == 0 || strlen(name) >= NAME_BYTES) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a dimension is called \"%.40s\"; want 1 to %d letters",
                       call, name != NULL ? name : "", NAME_BYTES - 1);
    }
    return TUTTI_OK;
}

static tutti_status_t check_shape(const tutti_group_t *group, int dims, const int *shape,
                                  const char *const *names)
{
    if (dims < 1 || dims > TUTTI_MESH_DIMS_MAX || shape == NULL || names == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "mesh_create: %d dimensions; want 1 to %d, shape and names",
                       dims, TUTTI_MESH_DIMS_MAX);
    }
    int64_t ranks = 1;
    for (int i = 0; i < dims; i++) {
        TT_TRY(check_name("mesh_create", names[i]));
        for (int j = 0; j < i; j++) {
            if (strcmp(names[i], names[j]) == 0) {
                return TT_FAIL(TUTTI_ERR_ARG, "mesh_create: two dimensions are called \"%s\"",
                               names[i]);
            }
        }
        if (shape[i] < 1) {
            return TT_FAIL(TUTTI_ERR_ARG, "mesh_create: size %d of dimension \"%s\"", shape[i],
                           names[i]);
        }
        ranks = ranks > INT32_MAX ? ranks : ranks * shape[i];
    }
    if (ranks != tutti_group_size(group)) {
        return TT_FAIL(TUTTI_ERR_ARG, "mesh_create: the shape has %lld places, group %s %d ranks",
                       (long long)ranks, tutti_group_name(group), tutti_group_size(group));
    }
    return TUTTI_OK;
}

static tutti_status_t lay_out(tutti_mesh_t *mesh, int dims, const int *shape,
                              const char *const *names)
{
    int step = tutti_group_size(mesh->group);
    for (int i = 0; i < dims; i++) {
        step /= shape[i];
        const int coordinate = tutti_group_rank(mesh->group) / step % shape[i];
        TT_TRY(add_line(mesh, names[i], shape[i], coordinate));
        for (int k = 0; k < shape[i]; k++) {
            mesh->lines[i].offsets[k] = k * step;
        }
    }
    for (int i = 0; i < dims; i++) {
        TT_TRY(open_line(mesh, &mesh->lines[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_mesh_create(tutti_group_t *group, int dims, const int *shape,
                                 const char *const *names, tutti_mesh_t **out)
{
    TT_WANT("mesh_create", group);
    TT_WANT("mesh_create", out);
    TT_TRY(check_shape(group, dims, shape, names));
    tutti_mesh_t *mesh;
    TT_TRY(open_mesh(group, &mesh));
    const tutti_status_t status = lay_out(mesh, dims, shape, names);
    if (status < 0) {
        tutti_mesh_release(mesh);
        return status;
    }
    *out = mesh;
    return TUTTI_OK;
}

int tutti_mesh_dims(const tutti_mesh_t *mesh)
{
    return mesh != NULL ? mesh->dims : 0;
}

const char *tutti_mesh_name(const tutti_mesh_t *mesh, int dim)
{
    return mesh != NULL && dim >= 0 && dim < mesh->dims ? mesh->lines[dim].name : NULL;
}

int tutti_mesh_dim(const tutti_mesh_t *mesh, const char *name)
{
    for (int i = 0; mesh != NULL && name != NULL && i < mesh->dims; i++) {
        if (strcmp(mesh->lines[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int tutti_mesh_size(const tutti_mesh_t *mesh, const char *name)
{
    const int dim = tutti_mesh_dim(mesh, name);
    return dim >= 0 ? mesh->lines[dim].size : 0;
}

int tutti_mesh_coordinate(const tutti_mesh_t *mesh, const char *name)
{
    const int dim = tutti_mesh_dim(mesh, name);
    return dim >= 0 ? mesh->lines[dim].coordinate : -1;
}

int tutti_mesh_rank_at(const tutti_mesh_t *mesh, const int *coordinates)
{
    if (mesh == NULL || coordinates == NULL) {
        return -1;
    }
    int rank = tutti_group_rank(mesh->group);
    for (int i = 0; i < mesh->dims; i++) {
        const line_t *line = &mesh->lines[i];
        if (coordinates[i] < 0 || coordinates[i] >= line->size) {
            return -1;
        }
        rank += line->offsets[coordinates[i]] - line->offsets[line->coordinate];
    }
    return rank;
}

tutti_group_t *tutti_mesh_group(const tutti_mesh_t *mesh, const char *name)
{
    const int dim = tutti_mesh_dim(mesh, name);
    return dim >= 0 ? mesh->lines[dim].group : NULL;
}

/* ---- some of the dimensions ---- */

static tutti_status_t tell_names(const tutti_mesh_t *mesh, const char *call, const char *name)
{
    char text[NAMES_BYTES] = "";
    size_t length = 0;
    for (int i = 0; i < mesh->dims; i++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i > 0 ? ", " : "",
                                   mesh->lines[i].name);
    }
    return TT_FAIL(TUTTI_ERR_NOT_FOUND, "%s: the mesh has no dimension \"%.40s\"; it has %s", call,
                   name, text);
}

static tutti_status_t find_dims(const tutti_mesh_t *mesh, const char *call,
                                const char *const *names, int count, int *dims)
{
    if (names == NULL || count < 1 || count > mesh->dims) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d of %d dimensions", call, count, mesh->dims);
    }
    for (int i = 0; i < count; i++) {
        if (names[i] == NULL || (dims[i] = tutti_mesh_dim(mesh, names[i])) < 0) {
            return tell_names(mesh, call, names[i] != NULL ? names[i] : "");
        }
        for (int j = 0; j < i; j++) {
            if (dims[i] == dims[j]) {
                return TT_FAIL(TUTTI_ERR_ARG, "%s: dimension \"%s\" is there twice", call,
                               names[i]);
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t copy_line(tutti_mesh_t *to, const line_t *line)
{
    TT_TRY(add_line(to, line->name, line->size, line->coordinate));
    line_t *copy = &to->lines[to->dims - 1];
    memcpy(copy->offsets, line->offsets, (size_t)line->size * sizeof *line->offsets);
    copy->group = tutti_group_retain(line->group);
    return TUTTI_OK;
}

tutti_status_t tutti_mesh_slice(tutti_mesh_t *mesh, const char *const *names, int count,
                                tutti_mesh_t **out)
{
    TT_WANT("mesh_slice", mesh);
    TT_WANT("mesh_slice", out);
    int dims[TUTTI_MESH_DIMS_MAX];
    tutti_mesh_t *slice;
    TT_TRY(find_dims(mesh, "mesh_slice", names, count, dims));
    TT_TRY(open_mesh(mesh->group, &slice));
    for (int i = 0; i < count; i++) {
        const tutti_status_t status = copy_line(slice, &mesh->lines[dims[i]]);
        if (status < 0) {
            tutti_mesh_release(slice);
            return status;
        }
    }
    *out = slice;
    return TUTTI_OK;
}

/* All coordinates of these dimensions in one line, the last fastest. */
static tutti_status_t merge_lines(const tutti_mesh_t *mesh, const int *dims, int count,
                                  const char *name, tutti_mesh_t *to)
{
    int size = 1, coordinate = 0;
    for (int i = 0; i < count; i++) {
        const line_t *line = &mesh->lines[dims[i]];
        size *= line->size;
        coordinate = coordinate * line->size + line->coordinate;
    }
    TT_TRY(add_line(to, name, size, coordinate));
    line_t *merged = &to->lines[0];
    for (int k = 0; k < size; k++) {
        int rest = k;
        for (int i = count; i-- > 0;) {
            const line_t *line = &mesh->lines[dims[i]];
            merged->offsets[k] += line->offsets[rest % line->size];
            rest /= line->size;
        }
    }
    return open_line(to, merged);
}

tutti_status_t tutti_mesh_flatten(tutti_mesh_t *mesh, const char *const *names, int count,
                                  const char *name, tutti_mesh_t **out)
{
    TT_WANT("mesh_flatten", mesh);
    TT_WANT("mesh_flatten", out);
    int dims[TUTTI_MESH_DIMS_MAX];
    tutti_mesh_t *flat;
    TT_TRY(find_dims(mesh, "mesh_flatten", names, count, dims));
    TT_TRY(check_name("mesh_flatten", name));
    if (tutti_mesh_dim(mesh, name) >= 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "mesh_flatten: the mesh has a dimension \"%s\" already",
                       name);
    }
    TT_TRY(open_mesh(mesh->group, &flat));
    const tutti_status_t status = merge_lines(mesh, dims, count, name, flat);
    if (status < 0) {
        tutti_mesh_release(flat);
        return status;
    }
    *out = flat;
    return TUTTI_OK;
}
