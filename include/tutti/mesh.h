/**
 * @file mesh.h
 * A mesh: the ranks of a group laid out in rows and columns (and more), with a group for each.
 *
 * Example:
 *
 *     tutti_mesh_t *mesh; // 8 ranks as 2 × 4: ranks 0-3 are the first row
 *     TUTTI_CHECK(tutti_mesh_create(world, 2, (const int[]){2, 4}, (const char *[]){"dp", "tp"},
 *                                   &mesh));
 *     tutti_group_t *row = tutti_mesh_group(mesh, "tp");    // 4 ranks: those with my "dp"
 *     tutti_group_t *column = tutti_mesh_group(mesh, "dp"); // 2 ranks: those with my "tp"
 *     TUTTI_CHECK(tutti_all_reduce(row, x, TUTTI_SUM, NULL));
 *     TUTTI_CHECK(tutti_barrier(column, NULL));
 *     tutti_mesh_release(mesh);
 *
 * Rank r of the group stands at the coordinates of the rth element of a row-major array of the
 * mesh's shape. Unlike torch's DeviceMesh: a dimension always has a name, a slice may be sliced
 * again, and no assumption is made about hosts.
 */
#ifndef TUTTI_MESH_H
#define TUTTI_MESH_H

#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks in rows and columns; reference-counted; the thread of its group. */
typedef struct tutti_mesh tutti_mesh_t;

enum { TUTTI_MESH_DIMS_MAX = 8 };

/**
 * Lay out the ranks of a group. Every rank of it makes this call, with the same arguments.
 *
 * @param group  retained
 * @param dims   1 to TUTTI_MESH_DIMS_MAX
 * @param shape  [dims] sizes; their product is the group's size
 * @param names  [dims] different from each other and not empty; copied
 * @param out    owned by the caller
 * @thread       the group's; blocks until the members of each of this rank's groups have made it
 * @cost         a group for each dimension
 * @errors       ARG; as tutti_group_new
 * @source       torch.distributed.device_mesh.init_device_mesh
 */
TUTTI_API tutti_status_t tutti_mesh_create(tutti_group_t *group, int dims, const int *shape,
                                           const char *const *names, tutti_mesh_t **out);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_mesh_t *tutti_mesh_retain(tutti_mesh_t *mesh);
/** One owner fewer; NULL is fine. @thread the group's @errors none */
TUTTI_API void tutti_mesh_release(tutti_mesh_t *mesh);

/** Number of dimensions. @thread any @errors none */
TUTTI_API int tutti_mesh_dims(const tutti_mesh_t *mesh);
/** Name of a dimension; NULL outside. @thread any @errors none */
TUTTI_API const char *tutti_mesh_name(const tutti_mesh_t *mesh, int dim);
/** Index of the dimension of this name; -1 if there is none. @thread any @errors none */
TUTTI_API int tutti_mesh_dim(const tutti_mesh_t *mesh, const char *name);
/** Ranks along a dimension; 0 if there is none of this name. @thread any @errors none */
TUTTI_API int tutti_mesh_size(const tutti_mesh_t *mesh, const char *name);
/** Where this rank stands along a dimension; -1 if there is none of this name. @thread any
 *  @errors none */
TUTTI_API int tutti_mesh_coordinate(const tutti_mesh_t *mesh, const char *name);
/** The rank, in the group that was laid out, at coordinates [dims] of this mesh; what the mesh was
 *  sliced off stays at this rank's own. -1 outside. @thread any @errors none */
TUTTI_API int tutti_mesh_rank_at(const tutti_mesh_t *mesh, const int *coordinates);

/** The ranks that differ from this one along that dimension alone, in its order; borrowed. NULL if
 *  there is none of this name. @thread the group's @errors none */
TUTTI_API tutti_group_t *tutti_mesh_group(const tutti_mesh_t *mesh, const char *name);

/**
 * Some dimensions of a mesh, in the order given: this rank's rows, columns, planes. Makes no group.
 *
 * @param names  [count] dimensions of the mesh, each once
 * @param out    owned by the caller
 * @thread       the group's
 * @errors       NOT_FOUND (lists the names there are), ARG, NOMEM
 * @source       DeviceMesh["dp", "tp"]
 */
TUTTI_API tutti_status_t tutti_mesh_slice(tutti_mesh_t *mesh, const char *const *names, int count,
                                          tutti_mesh_t **out);

/**
 * A mesh of one dimension instead of several: all ranks that differ from this one along those
 * alone, the last named fastest. Its members make this call, with the same arguments.
 *
 * @param names  [count] dimensions of the mesh, each once
 * @param name   of the new dimension; not one of the mesh's
 * @param out    owned by the caller
 * @thread       the group's; blocks
 * @cost         a group
 * @errors       NOT_FOUND, ARG; as tutti_group_new
 * @source       DeviceMesh._flatten
 */
TUTTI_API tutti_status_t tutti_mesh_flatten(tutti_mesh_t *mesh, const char *const *names, int count,
                                            const char *name, tutti_mesh_t **out);

#ifdef __cplusplus
}
#endif

#endif
