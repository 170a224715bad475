/* Rows of ranks: each row has all parameters of units, and gathers them among its own ranks alone
 * (decision 0037). The ranks of a row are usually those of a host.
 *
 *     6 ranks, replicate 3 × shard 2         slices of a flat     | 0 | 1 | 2 | 3 | 4 | 5 |
 *
 *         shard →   0   1                    parts of each row    |     0     |     1     |
 *     replicate ↓   2   3
 *                   4   5                    part 0 is on ranks 0, 2, 4, part 1 on ranks 1, 3, 5
 *
 * Gradients, and what optimizers have, are in slices of all ranks, as without rows: a rank steps
 * its slice, in memory of its own. Then the slice goes to the ranks that have it in their part, one
 * in each row. So bits, and what is sent for gradients, know nothing of rows; a part is as many
 * slices as there are rows, one behind another, and a row gathers parts as ranks without rows
 * gather slices: the source (unit_source.h) has the row's group.
 *
 * Cost: of N bytes on R rows of S ranks each rank has N / S and N / (R S), and sends N / (R S) to R
 * ranks behind a step, or to R − 1 if it is one of them; N (S − 1) / S more for each gathering.
 * Source: Zhao et al., "PyTorch FSDP", PVLDB 16(12), 2023, 3.2.2 (hybrid sharding).
 */
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"

static const char replicate[] = "replicate", shard[] = "shard";

static bool has_rows(const tutti_ddp_t *ddp)
{
    return ddp->units.rows.rows > 1;
}

/* ---- the mesh -------------------------------------------------------------------------------- */

static int rank_at(const tutti_mesh_t *mesh, int row, int place)
{
    int at[TUTTI_MESH_DIMS_MAX] = {0};
    at[tutti_mesh_dim(mesh, replicate)] = row;
    at[tutti_mesh_dim(mesh, shard)] = place;
    return tutti_mesh_rank_at(mesh, at);
}

/* The ranks along a line are those of the group that the mesh says. */
static bool is_line_of(const tutti_ddp_t *ddp, const char *name)
{
    const tt_unit_rows_t *rows = &ddp->units.rows;
    const tutti_group_t *line = tutti_mesh_group(ddp->options.mesh, name);
    const bool is_row = name == shard;
    for (int i = 0; i < tutti_group_size(line); i++) {
        const int rank = is_row ? rows->ranks[rows->row * rows->size + i]
                                : rows->ranks[i * rows->size + rows->place];
        if (tutti_group_translate(line, i, ddp->group) != rank) {
            return false;
        }
    }
    return true;
}

static tutti_status_t check_shape(const tutti_ddp_t *ddp)
{
    const tutti_mesh_t *mesh = ddp->options.mesh;
    const int rows = tutti_mesh_size(mesh, replicate), size = tutti_mesh_size(mesh, shard),
              ranks = tutti_group_size(ddp->group);
    if (ddp->options.stage < 3) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: options.mesh at stage %d, where every rank has all parameters: it is "
                       "for stage 3",
                       ddp->options.stage);
    }
    if (tutti_mesh_dims(mesh) != 2 || rows == 0 || size == 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: options.mesh has %d dimensions, the first is called \"%s\": want two, "
                       "\"replicate\" and \"shard\"",
                       tutti_mesh_dims(mesh), tutti_mesh_name(mesh, 0));
    }
    return (int64_t)rows * size == ranks
               ? TUTTI_OK
               : TT_FAIL(
                     TUTTI_ERR_ARG,
                     "ddp: options.mesh is replicate %d × shard %d, so of %lld ranks, and group "
                     "%s has %d: make it of that group, with sizes whose product is %d",
                     rows, size, (long long)rows * size, tutti_group_name(ddp->group), ranks,
                     ranks);
}

tutti_status_t tt_ddp_choose_rows(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const tutti_mesh_t *mesh = ddp->options.mesh;
    if (mesh == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(check_shape(ddp));
    *rows = (tt_unit_rows_t){.rows = tutti_mesh_size(mesh, replicate),
                             .size = tutti_mesh_size(mesh, shard),
                             .row = tutti_mesh_coordinate(mesh, replicate),
                             .place = tutti_mesh_coordinate(mesh, shard)};
    rows->ranks = tt_alloc_array((size_t)tutti_group_size(ddp->group), sizeof(int), "ddp rows");
    TT_TRY_ALLOC(rows->ranks);
    for (int i = 0; i < rows->rows * rows->size; i++) {
        rows->ranks[i] = rank_at(mesh, i / rows->size, i % rows->size);
    }
    return rank_at(mesh, rows->row, rows->place) == tutti_group_rank(ddp->group) &&
                   is_line_of(ddp, shard) && is_line_of(ddp, replicate)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "ddp: options.mesh lays out other ranks than those of group %s: make it "
                         "of that group",
                         tutti_group_name(ddp->group));
}

/* ---- opening --------------------------------------------------------------------------------- */

static tutti_status_t new_groups(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    const tt_unit_rows_t *rows = &units->rows;
    const tutti_group_options_t all = {.name = "slices of ddp"}, one = {.name = "units of ddp"};
    if (!has_rows(ddp)) {
        return tutti_group_new(ddp->group, NULL, 0, &one, &units->group);
    }
    TT_TRY(tutti_group_new(ddp->group, NULL, 0, &all, &units->rows.group));
    return tutti_group_new(ddp->group, rows->ranks + rows->row * rows->size, rows->size, &one,
                           &units->group);
}

tutti_status_t tt_ddp_open_rows(tutti_ddp_t *ddp)
{
    const tutti_status_t status = new_groups(ddp);
    /* perhaps on this rank alone */
    return status < 0 ? tt_group_give_up(ddp->group, status) : TUTTI_OK;
}

static tutti_status_t cut_flat(tutti_ddp_t *ddp, int index)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    tt_unit_flat_t *flat = &ddp->units.source.flats[index];
    int64_t **cuts = &rows->cuts[2 * index], **counts = &rows->cuts[2 * index + 1];
    *cuts = tt_alloc_array((size_t)rows->size + 1, sizeof **cuts, "ddp rows");
    TT_TRY_ALLOC(*cuts);
    *counts = tt_alloc_array((size_t)rows->size, sizeof **counts, "ddp rows");
    TT_TRY_ALLOC(*counts);
    for (int i = 0; i <= rows->size; i++) {
        (*cuts)[i] = flat->cuts[i * rows->rows];
    }
    for (int i = 0; i < rows->size; i++) {
        (*counts)[i] = (*cuts)[i + 1] - (*cuts)[i];
    }
    flat->cuts = *cuts;
    flat->counts = *counts;
    return TUTTI_OK;
}

tutti_status_t tt_ddp_cut_rows(tutti_ddp_t *ddp)
{
    const int flats = ddp->units.source.flat_count;
    if (!has_rows(ddp)) {
        return TUTTI_OK;
    }
    ddp->units.rows.cuts = tt_alloc_array(2 * (size_t)flats, sizeof(int64_t *), "ddp rows");
    TT_TRY_ALLOC(ddp->units.rows.cuts);
    for (int f = 0; f < flats; f++) {
        TT_TRY(cut_flat(ddp, f));
    }
    return TUTTI_OK;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void add_transfer(tt_unit_rows_t *rows, tutti_transfer_t transfer)
{
    rows->transfers[rows->transfer_count++] = transfer;
}

/* Slice number `index` of this rank's part. */
static tutti_status_t open_receive(tutti_ddp_t *ddp, int flat, int index)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const int owner = rows->place * rows->rows + index;
    const int64_t *cuts = tt_ddp_unit_cuts(ddp, flat);
    const tutti_tensor_t *own = ddp->units.source.flats[flat].own;
    tutti_tensor_t **part = &rows->parts[flat * rows->rows + index];
    TT_TRY(tt_tensor_over(own->storage, own->dtype, TUTTI_SHAPE(cuts[owner + 1] - cuts[owner]),
                          NULL, own->offset + cuts[owner] - cuts[rows->place * rows->rows], part));
    if (owner != tutti_group_rank(ddp->group) && (*part)->numel > 0) {
        add_transfer(rows, (tutti_transfer_t){TUTTI_RECV, *part, owner, flat});
    }
    return TUTTI_OK;
}

static void list_sends(tutti_ddp_t *ddp, int flat)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const int rank = tutti_group_rank(ddp->group), place = rank / rows->rows;
    for (int row = 0; row < rows->rows && rows->slices[flat]->numel > 0; row++) {
        const int to = rows->ranks[row * rows->size + place];
        if (to != rank) {
            add_transfer(rows, (tutti_transfer_t){TUTTI_SEND, rows->slices[flat], to, flat});
        }
    }
}

static tutti_status_t open_slice(tutti_ddp_t *ddp, int flat)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const int64_t *cuts = tt_ddp_unit_cuts(ddp, flat) + tutti_group_rank(ddp->group);
    TT_TRY(tutti_group_tensor(ddp->group, ddp->units.source.flats[flat].dtypes[TT_UNIT_FULL],
                              TUTTI_SHAPE(cuts[1] - cuts[0]), &rows->slices[flat]));
    for (int i = 0; i < rows->rows; i++) {
        TT_TRY(open_receive(ddp, flat, i));
    }
    list_sends(ddp, flat);
    return TUTTI_OK;
}

tutti_status_t tt_ddp_open_row_slices(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const size_t flats = (size_t)ddp->units.source.flat_count;
    if (!has_rows(ddp)) {
        return TUTTI_OK;
    }
    rows->slices = tt_alloc_array(flats, sizeof(tutti_tensor_t *), "ddp rows");
    TT_TRY_ALLOC(rows->slices);
    rows->parts = tt_alloc_array(flats * (size_t)rows->rows, sizeof(tutti_tensor_t *), "ddp rows");
    TT_TRY_ALLOC(rows->parts);
    rows->transfers =
        tt_alloc_array(2 * flats * (size_t)rows->rows, sizeof *rows->transfers, "ddp rows");
    TT_TRY_ALLOC(rows->transfers);
    for (size_t f = 0; f < flats; f++) {
        TT_TRY(open_slice(ddp, (int)f));
    }
    return TUTTI_OK;
}

/* Where this rank has its own slice in its part. */
static void copy_own(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const int index = tutti_group_rank(ddp->group) - rows->place * rows->rows;
    for (int f = 0; f < ddp->units.source.flat_count && index >= 0 && index < rows->rows; f++) {
        memcpy(tt_tensor_data(rows->parts[f * rows->rows + index]), tt_tensor_data(rows->slices[f]),
               tutti_tensor_bytes(rows->slices[f]));
    }
}

static void note_arrival(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    for (int i = 0; i < rows->transfer_count; i++) {
        const tutti_transfer_t *transfer = &rows->transfers[i];
        rows->received_bytes +=
            transfer->kind == TUTTI_RECV ? (int64_t)tutti_tensor_bytes(transfer->x) : 0;
    }
    for (int f = 0; f < ddp->units.source.flat_count; f++) {
        tt_tensor_touch(ddp->units.source.flats[f].own);
    }
}

static tutti_status_t exchange(tt_unit_rows_t *rows)
{
    const int count = rows->transfer_count;
    const tutti_status_t status =
        count == 0 ? TUTTI_OK : tutti_batch_send_recv(rows->group, rows->transfers, count, NULL);
    /* others must not wait for who cannot */
    return status < 0 ? tt_group_give_up(rows->group, status) : TUTTI_OK;
}

/* A rank that has got its own does not know whether another one has. */
tutti_status_t tt_ddp_rows_publish(tutti_ddp_t *ddp)
{
    if (!has_rows(ddp)) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_group_agree(ddp->group, exchange(&ddp->units.rows));
    if (status < 0) {
        return tt_group_give_up(ddp->group, status);
    }
    copy_own(ddp);
    note_arrival(ddp);
    return TUTTI_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Before the source, whose memory parts are. */
void tt_ddp_close_rows(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    const int flats = ddp->units.source.flat_count;
    for (int i = 0; rows->parts != NULL && i < flats * rows->rows; i++) {
        tutti_tensor_release(rows->parts[i]);
    }
    for (int f = 0; rows->slices != NULL && f < flats; f++) {
        tutti_tensor_release(rows->slices[f]);
    }
    tt_free(rows->transfers);
    tt_free(rows->parts);
    tt_free(rows->slices);
    rows->transfers = NULL;
    rows->parts = rows->slices = NULL;
    rows->transfer_count = 0;
}

void tt_ddp_forget_rows(tutti_ddp_t *ddp)
{
    tt_unit_rows_t *rows = &ddp->units.rows;
    for (int i = 0; rows->cuts != NULL && i < 2 * ddp->units.source.flat_count; i++) {
        tt_free(rows->cuts[i]);
    }
    tt_free(rows->cuts);
    tt_free(rows->ranks);
    tutti_group_release(rows->group);
}
