/* Collectives of mpi_conform that move data only. */
#include "mpi_conform.h"

typedef struct {
    tt_collective_t collective;
    tutti_dtype_t dtype;
    size_t count;
    const size_t *counts, *recv_counts;
    int root;
} move_t;

static size_t part(const size_t *counts, size_t count, int rank)
{
    return counts != NULL ? counts[rank] : count;
}

static size_t start_of(const size_t *counts, size_t count, int rank)
{
    size_t begin = 0;
    for (int i = 0; i < rank; i++) {
        begin += part(counts, count, i);
    }
    return begin;
}

/* What `from` gives to `to`: element i of it. */
static double moved(int from, int to, size_t i)
{
    return (double)((i + (size_t)from * 31 + (size_t)to * 17) % 2);
}

/* The parts in a buffer: from me to each, or the same to all. */
static void fill_parts(const group_t *group, const move_t *m, bool same, bool all)
{
    for (int to = 0; to < group->size; to++) {
        const size_t begin = all ? start_of(m->counts, m->count, to) : 0;
        const size_t count =
            all ? part(m->counts, m->count, to) : part(m->counts, m->count, my_rank);
        for (size_t i = 0; i < count && (all || to == 0); i++) {
            set(m->dtype, buffers[0], begin + i, moved(my_rank, same ? 0 : to, i));
        }
    }
}

static void check_moved(const group_t *group, const move_t *m)
{
    const char *name = tt_collective_name(m->collective);
    const size_t mine = part(m->counts, m->count, my_rank);
    const bool gets_all = m->collective == TT_ALL_GATHER || m->collective == TT_ALL_TO_ALL ||
                          (m->collective == TT_GATHER && my_rank == m->root);
    const size_t *counts = m->collective == TT_ALL_TO_ALL ? m->recv_counts : m->counts;
    const bool same = m->collective == TT_ALL_GATHER || m->collective == TT_GATHER;
    for (int from = 0; from < group->size && gets_all; from++) {
        const size_t begin = start_of(counts, m->count, from);
        for (size_t i = 0; i < part(counts, m->count, from); i++) {
            expect(name, m->dtype, buffers[1], begin + i, moved(from, same ? 0 : my_rank, i));
        }
    }
    if (m->collective == TT_SCATTER || m->collective == TT_BROADCAST) {
        const size_t count = m->collective == TT_SCATTER ? mine : m->count;
        for (size_t i = 0; i < count; i++) {
            expect(name, m->dtype, buffers[1], i,
                   moved(m->root, m->collective == TT_SCATTER ? my_rank : 0, i));
        }
    }
    const size_t end = gets_all                        ? start_of(counts, m->count, group->size)
                       : m->collective == TT_SCATTER   ? mine
                       : m->collective == TT_BROADCAST ? m->count
                                                       : 0;
    expect_untouched(name, m->dtype, buffers[1], end);
}

static void try_move(const group_t *group, const move_t *m)
{
    const bool all = m->collective == TT_SCATTER || m->collective == TT_ALL_TO_ALL;
    const bool same = m->collective == TT_ALL_GATHER || m->collective == TT_GATHER ||
                      m->collective == TT_BROADCAST;
    const bool is_root = group->rank == m->root;
    const bool gives = is_root || (m->collective != TT_SCATTER && m->collective != TT_BROADCAST);
    const bool gets = is_root || m->collective != TT_GATHER;
    poison();
    move_t filled = *m;
    filled.counts = m->collective == TT_BROADCAST ? NULL : m->counts;
    fill_parts(group, &filled, same, all);
    perform(group, &(tt_call_t){.collective = m->collective,
                                .dtype = m->dtype,
                                .out_dtype = m->dtype,
                                .count = m->count,
                                .counts = filled.counts,
                                .recv_counts = m->recv_counts,
                                .root = m->root,
                                .pieces = (const void *[]){buffers[0]},
                                .piece_count = gives,
                                .out = gets ? buffers[1] : NULL});
    check_moved(group, &filled);
}

static void try_uneven(const group_t *group, move_t m)
{
    size_t counts[LEAVES_MAX], recv_counts[LEAVES_MAX];
    for (int rank = 0; rank < group->size; rank++) {
        counts[rank] = m.count * (size_t)((rank + 1) % 3) + (size_t)rank;
    }
    m.counts = counts;
    if (m.collective == TT_ALL_TO_ALL) { /* from rank f to rank t: count × ((f + t) % 3) + t */
        for (int rank = 0; rank < group->size; rank++) {
            counts[rank] = m.count * (size_t)((my_rank + rank) % 3) + (size_t)rank;
            recv_counts[rank] = m.count * (size_t)((my_rank + rank) % 3) + (size_t)my_rank;
        }
        m.recv_counts = recv_counts;
    }
    try_move(group, &m);
}

/* Where a rank has all parts, its own part is the other buffer. */
static void try_in_place(const group_t *group, tt_collective_t collective, int root)
{
    enum { COUNT = 1000, PART_BYTES = COUNT * sizeof(int32_t) };
    const move_t m = {.collective = collective, .dtype = TUTTI_I32, .count = COUNT, .root = root};
    const bool is_scatter = collective == TT_SCATTER;
    const bool has_all = collective == TT_ALL_GATHER || group->rank == root;
    const size_t own = (size_t)group->rank * PART_BYTES;
    char *piece = buffers[0], *out = is_scatter || has_all ? buffers[1] : NULL;
    poison();
    fill_parts(group, &m, !is_scatter, is_scatter);
    if (has_all && is_scatter) {
        out = piece + own;
    } else if (has_all) {
        piece = memcpy(out + own, piece, PART_BYTES);
    }
    perform(group, &(tt_call_t){.collective = collective,
                                .dtype = m.dtype,
                                .out_dtype = m.dtype,
                                .count = COUNT,
                                .root = root,
                                .pieces = (const void *[]){piece},
                                .piece_count = !is_scatter || has_all,
                                .out = out});
    if (has_all && is_scatter) {
        memcpy(buffers[1], out, PART_BYTES);
    }
    check_moved(group, &m);
}

void try_moves(const group_t *group)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4099};
    static const tt_collective_t all[] = {TT_ALL_GATHER, TT_BROADCAST, TT_GATHER, TT_SCATTER,
                                          TT_ALL_TO_ALL};
    for (int d = 0; d < TUTTI_DTYPE_COUNT; d++) {
        for (size_t c = 0; c < 5 * 5; c++) {
            const move_t m = {.collective = all[c / 5],
                              .dtype = (tutti_dtype_t)d,
                              .count = counts[c % 5],
                              .root = (int)c % group->size};
            try_move(group, &m);
            if (m.collective != TT_BROADCAST) {
                try_uneven(group, m);
            }
        }
    }
    for (int root = 0; root < group->size; root++) {
        try_in_place(group, TT_ALL_GATHER, root);
        try_in_place(group, TT_GATHER, root);
        try_in_place(group, TT_SCATTER, root);
    }
    perform(group, &(tt_call_t){.collective = TT_BARRIER});
}
