/* Matrix products: the loops around gemm.h.
 *
 *     for each block of up to 512 columns of C     B's block, packed, stays in the L2 cache
 *       for each block of 512 along K (bf16: 1024)   packed by the threads
 *         for each few rows of A (a piece)             packed on the piece's stack
 *           for each tile: multiply, add to C; after the last K block: bias, activation, rounding
 *
 * While a tile is multiplied, the cache lines of its place in C and of a later piece's A are
 * fetched (f32, f64), so that storing and packing do not wait for memory. An element's bits come
 * from the chain inside a K block and the order of the blocks, and so neither from the pieces,
 * which are therefore free to follow the number of threads, nor from the tiles. Cost: 2·M·N·K
 * operations at 94-99 % of a core's peak; scratch: 1 MiB, and M × 512 f32 where C is of 16 bits and
 * K above a block. Measured in docs/decisions/0004-products-in-tiles-of-our-own.md. Source: Goto
 * and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
 */
#include "core/kernel/matmul/matmul.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/base/profiler.h"
#include "core/kernel/matmul/gemm.h"
#include "core/kernel/half.h"

/* SMALL: elements of an A and a C that are near anyhow. NEAR: columns of a B packed before, which
 * may be larger than the caches, that all of a piece's rows meet in turn. */
enum { COLUMNS_MAX = 512, PANELS_MAX = 4, SMALL = 65536, NEAR = 128 };

typedef struct {
    const tt_matmul_t *m;
    const tt_gemm_ops_t *ops;
    int64_t lda, ldb, ldc;
    const char *a, *b; /* of one batch */
    char *c, *pre;
    float *scratch;          /* of what follows, but for a B that was packed before */
    float *packed, *partial; /* partial: sums of a 16-bit C, or NULL */
    const char *bias;        /* in f32, f64 for f64; or NULL */
    tutti_dtype_t sum_dtype; /* f32, f64 for f64 */
    int64_t column, columns, k, k_count;
    int64_t rows_per_piece, rows_ahead, columns_per_piece, column_pieces;
    bool is_last, is_fetching; /* is_fetching: A and C come from memory, ahead of their use */
} product_t;

/* data may be NULL where there is nothing, so that nothing is added to it. */
static const char *element(const void *data, tutti_dtype_t dtype, int64_t index)
{
    return index == 0 ? data : (const char *)data + index * (int64_t)tutti_dtype_bytes(dtype);
}

/* Where the sums so far of tile (row, column) are, and what is to be done with it. */
static void describe_tile(const product_t *p, int64_t row, int64_t column, tt_gemm_finish_t *f)
{
    const tt_matmul_t *m = p->m;
    const int64_t at = row * p->ldc + p->column + column;
    const bool has_sums = p->k > 0 || m->accumulate;
    const bool in_partial = p->partial != NULL;
    const int64_t sum_bytes = (int64_t)tutti_dtype_bytes(p->sum_dtype);
    void *sums = in_partial ? (void *)(p->partial + row * p->columns + column)
                            : (void *)(p->c + at * sum_bytes);
    f->add = has_sums ? sums : NULL;
    f->add_ld = in_partial ? p->columns : p->ldc;
    f->out = sums;
    f->ld = f->add_ld;
    f->dtype = p->sum_dtype;
    if (p->is_last) {
        const size_t bytes = tutti_dtype_bytes(m->out_dtype);
        f->dtype = m->out_dtype;
        f->out = p->c + at * (int64_t)bytes;
        f->pre = p->pre == NULL ? NULL : p->pre + at * (int64_t)bytes;
        f->ld = p->ldc;
        f->bias = p->bias == NULL ? NULL : p->bias + (p->column + column) * sum_bytes;
        f->epilogue = m->epilogue;
    }
}

/* Where A's elements of a K block and of a piece's rows begin. */
static const char *piece_of_a(const product_t *p, int64_t row)
{
    const int64_t at = p->m->a.transposed ? p->k * p->lda + row : row * p->lda + p->k;
    return element(p->a, p->m->dtype, at);
}

/* A of the piece that this thread probably does next: a share for each tile of the one before. */
static tt_gemm_ahead_t piece_ahead(const product_t *p, int64_t row, int64_t tiles)
{
    const int64_t rows = tt_min(p->rows_per_piece, p->m->m - row);
    if (rows <= 0) {
        return (tt_gemm_ahead_t){0};
    }
    const bool transposed = p->m->a.transposed;
    const int64_t element_bytes = (int64_t)tutti_dtype_bytes(p->m->dtype);
    const char *a = piece_of_a(p, row);
    const int64_t before = (int64_t)((uintptr_t)a % TT_GEMM_LINE);
    const int64_t bytes = (transposed ? rows : p->k_count) * element_bytes + before;
    const int64_t lines = (transposed ? p->k_count : rows) * tt_pieces_of(bytes, TT_GEMM_LINE);
    return (tt_gemm_ahead_t){.row = a - before,
                             .pitch = p->lda * element_bytes,
                             .bytes = bytes,
                             .lines = tt_pieces_of(lines, tiles)};
}

static tt_gemm_ahead_t tile_ahead(const tt_gemm_finish_t *f)
{
    const int64_t bytes = (int64_t)tutti_dtype_bytes(f->dtype), width = f->columns * bytes;
    return (tt_gemm_ahead_t){.row = f->out,
                             .pitch = f->ld * bytes,
                             .bytes = width,
                             .lines = f->rows * tt_pieces_of(width, TT_GEMM_LINE)};
}

static void prefetch_tile(const tt_gemm_finish_t *f)
{
    const int64_t bytes = (int64_t)tutti_dtype_bytes(f->dtype);
    for (int64_t row = 0; row < f->rows; row++) {
        __builtin_prefetch((char *)f->out + row * f->ld * bytes, 1);
        __builtin_prefetch((char *)f->out + row * f->ld * bytes + TT_GEMM_LINE, 1);
    }
}

/* One panel of A times the piece's panels of B. ahead: NULL, or two: the first is made here. */
static void multiply_panel(const product_t *p, const float *panel, int64_t row, int64_t rows,
                           int64_t first, int64_t end, tt_gemm_ahead_t *ahead)
{
    _Alignas(64) float tile[TT_GEMM_ROWS_MAX * TT_GEMM_COLUMNS_MAX];
    const int64_t steps = tt_gemm_steps(p->ops, p->k_count);
    const int64_t depth = tt_gemm_depth(p->ops, p->k_count);
    for (int64_t column = first; column < end; column += p->ops->columns) {
        tt_gemm_finish_t finish = {
            .rows = (int)rows,
            .columns = (int)tt_min(p->ops->columns, end - column),
            .tile = tile,
        };
        describe_tile(p, row, column, &finish);
        if (ahead != NULL) {
            ahead[0] = tile_ahead(&finish);
        } else {
            prefetch_tile(&finish);
        }
        p->ops->multiply((int)rows, steps, panel, p->m->a.transposed, p->packed + column * depth,
                         tile, ahead);
        p->ops->finish(&finish);
    }
}

static void multiply_piece(void *arg, size_t piece)
{
    const product_t *p = arg;
    _Alignas(64) float panels[PANELS_MAX * TT_GEMM_A_PANEL];
    const bool transposed = p->m->a.transposed;
    const int64_t row = (int64_t)piece / p->column_pieces * p->rows_per_piece;
    const int64_t first = (int64_t)piece % p->column_pieces * p->columns_per_piece;
    const int64_t rows = tt_min(p->rows_per_piece, p->m->m - row);
    const int64_t end = tt_min(first + p->columns_per_piece, p->columns);
    const int64_t tiles =
        tt_pieces_of(rows, p->ops->rows) * tt_pieces_of(end - first, p->ops->columns);
    tt_gemm_ahead_t ahead[2];
    if (p->is_fetching) {
        ahead[1] = piece_ahead(p, row + p->rows_ahead, tiles);
    }
    if (p->k_count > 0) {
        p->ops->pack_a(piece_of_a(p, row), p->lda, transposed, rows, p->k_count, panels);
    }
    const int64_t near = p->m->packed != NULL ? NEAR : end - first;
    tt_gemm_begin(p->ops);
    for (int64_t column = first; column < end; column += near) {
        for (int64_t done = 0; done < rows; done += p->ops->rows) {
            multiply_panel(p, panels + done / p->ops->rows * TT_GEMM_A_PANEL, row + done,
                           tt_min(p->ops->rows, rows - done), column, tt_min(column + near, end),
                           p->is_fetching ? ahead : NULL);
        }
    }
    tt_gemm_end(p->ops);
}

static void pack_b_piece(void *arg, size_t piece)
{
    const product_t *p = arg;
    const bool transposed = p->m->b.transposed;
    const int64_t first = (int64_t)piece * p->columns_per_piece;
    const int64_t column = p->column + first;
    const int64_t at = transposed ? column * p->ldb + p->k : p->k * p->ldb + column;
    p->ops->pack_b(element(p->b, p->m->dtype, at), p->ldb, transposed, p->k_count,
                   tt_min(p->columns_per_piece, p->columns - first),
                   p->packed + first * tt_gemm_depth(p->ops, p->k_count));
}

/* Rows of A stored transposed lie side by side: better some panels at once, if enough remain for
 * the workers. */
static void cut_pieces(product_t *p, int workers)
{
    int64_t panels = p->m->a.transposed || workers == 1 ? PANELS_MAX : 1;
    const bool is_whole = workers == 1 && p->m->packed != NULL;
    while (!is_whole && panels > 1 && tt_pieces_of(p->m->m, panels * p->ops->rows) < 8 * workers) {
        panels /= 2;
    }
    p->rows_per_piece = panels * p->ops->rows;
    p->rows_ahead = workers * p->rows_per_piece;
    const int64_t row_pieces = tt_pieces_of(p->m->m, p->rows_per_piece);
    const int64_t wanted = workers == 1 ? 1 : tt_max(1, 4 * workers / row_pieces);
    const int64_t column_panels = tt_pieces_of(p->columns, p->ops->columns);
    p->columns_per_piece = tt_pieces_of(column_panels, wanted) * p->ops->columns;
    p->column_pieces = tt_pieces_of(p->columns, p->columns_per_piece);
}

static void pack_block(tt_threads_t *threads, product_t *p)
{
    const int64_t panels = tt_pieces_of(p->columns, p->ops->columns);
    const bool is_small = p->columns * p->k_count < 16384;
    p->columns_per_piece =
        is_small ? p->columns : tt_pieces_of(panels, tt_threads_count(threads)) * p->ops->columns;
    const int64_t pack_pieces = p->k_count > 0 ? tt_pieces_of(p->columns, p->columns_per_piece) : 0;
    tt_threads_run(threads, (size_t)pack_pieces, pack_b_piece, p);
}

static void multiply_block(tt_threads_t *threads, product_t *p)
{
    cut_pieces(p, tt_threads_count(threads));
    const int64_t row_pieces = tt_pieces_of(p->m->m, p->rows_per_piece);
    tt_threads_run(threads, (size_t)(row_pieces * p->column_pieces), multiply_piece, p);
}

static float widen_one(const void *data, tutti_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_BF16:
        return tt_bf16_to_f32(((const uint16_t *)data)[i]);
    case TUTTI_F16:
        return tt_f16_to_f32(((const uint16_t *)data)[i]);
    default:
        return ((const float *)data)[i];
    }
}

static void widen_row(const void *data, tutti_dtype_t dtype, int64_t at, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = widen_one(data, dtype, at + i);
    }
}

static void widen_c(const product_t *p)
{
    for (int64_t row = 0; row < p->m->m; row++) {
        widen_row(p->c, p->m->out_dtype, row * p->ldc + p->column, p->columns,
                  p->partial + row * p->columns);
    }
}

static int64_t k_block_of(const product_t *p)
{
    return (int64_t)TT_GEMM_DEPTH / p->ops->floats_per_step * p->ops->k_per_step;
}

/* Blocks as large as each other, for each packs all of A. */
static int64_t column_block(const tt_matmul_t *m)
{
    const int64_t blocks = m->packed != NULL ? 1 : tt_max(1, tt_pieces_of(m->n, COLUMNS_MAX));
    return tt_pieces_of(tt_pieces_of(m->n, blocks), TT_GEMM_COLUMNS_MAX) * TT_GEMM_COLUMNS_MAX;
}

/* Floats of a packed B in front of a K block: blocks of K, each of panels of all columns. */
static int64_t packed_at(const product_t *p)
{
    const int64_t panels = tt_pieces_of(p->m->n, p->ops->columns);
    return tt_gemm_depth(p->ops, p->k) * panels * p->ops->columns;
}

static void multiply_one(tt_threads_t *threads, product_t *p)
{
    const int64_t k_block = k_block_of(p);
    const int64_t block = column_block(p->m);
    for (p->column = 0; p->column < p->m->n; p->column += block) {
        p->columns = tt_min(block, p->m->n - p->column);
        if (p->partial != NULL && p->m->accumulate) {
            widen_c(p);
        }
        p->k = 0;
        do {
            p->k_count = tt_min(k_block, p->m->k - p->k);
            p->is_last = p->k + p->k_count == p->m->k;
            if (p->m->packed == NULL) {
                pack_block(threads, p);
            } else {
                p->packed = (float *)(uintptr_t)p->m->packed + packed_at(p);
            }
            multiply_block(threads, p);
            p->k += p->k_count;
        } while (!p->is_last);
    }
}

/* One borrowed block: B's block, the bias in f32 (that of f64 stays), the sums of a 16-bit C. */
static tutti_status_t borrow_scratch(tt_threads_t *threads, product_t *p)
{
    const tt_matmul_t *m = p->m;
    const int64_t depth = tt_min(TT_GEMM_DEPTH, tt_gemm_depth(p->ops, m->k));
    const int64_t width = tt_pieces_of(tt_min(column_block(m), m->n), 64) * 64;
    const int64_t block = m->packed != NULL ? 0 : width * depth;
    const int64_t bias = m->bias == NULL || p->sum_dtype == TUTTI_F64 ? 0 : m->n;
    const bool has_blocks = m->k > k_block_of(p);
    const bool is_partial = m->out_dtype != p->sum_dtype && (has_blocks || m->accumulate);
    const int64_t floats = block + bias + (is_partial ? m->m * width : 0);
    p->scratch = tt_threads_borrow(threads, (size_t)floats * sizeof *p->scratch);
    TT_TRY_ALLOC(p->scratch);
    p->packed = p->scratch;
    p->bias = m->bias;
    p->partial = is_partial ? p->scratch + block + bias : NULL;
    if (bias > 0) {
        widen_row(m->bias, m->bias_dtype, 0, m->n, p->scratch + block);
        p->bias = (const char *)(p->scratch + block);
    }
    return TUTTI_OK;
}

static tutti_status_t multiply_batch(tt_threads_t *threads, const tt_matmul_t *m, int64_t batch)
{
    product_t p = {
        .m = m,
        .ops = tt_gemm_ops(m->dtype),
        .sum_dtype = m->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32,
        .lda = m->a.ld,
        .ldb = m->b.ld,
        .ldc = m->c_ld,
        .a = element(m->a.data, m->dtype, batch * m->a.batch_stride),
        .b = element(m->b.data, m->dtype, batch * m->b.batch_stride),
    };
    p.is_fetching = p.ops->is_fetching && m->k > 0 && m->m * (m->n + m->k) > SMALL;
    const int64_t c_bytes = batch * m->c_batch_stride * (int64_t)tutti_dtype_bytes(m->out_dtype);
    p.c = (char *)m->c + c_bytes;
    p.pre = m->pre == NULL ? NULL : (char *)m->pre + c_bytes;
    TT_TRY(borrow_scratch(threads, &p));
    multiply_one(threads, &p);
    tt_threads_give_back(threads, p.scratch);
    return TUTTI_OK;
}

typedef struct {
    const tt_matmul_t *m;
    atomic_bool has_failed;
} batches_t;

static void multiply_batch_piece(void *arg, size_t piece)
{
    batches_t *batches = arg;
    if (multiply_batch(NULL, batches->m, (int64_t)piece) < 0) {
        atomic_store(&batches->has_failed, true);
    }
}

static tutti_status_t multiply_batches(tt_threads_t *threads, const tt_matmul_t *m)
{
    const int workers = tt_threads_count(threads);
    if (workers > 1 && m->batch >= workers) {
        batches_t batches = {.m = m};
        tt_threads_run(threads, (size_t)m->batch, multiply_batch_piece, &batches);
        return atomic_load(&batches.has_failed)
                   ? TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate scratch for matmul")
                   : TUTTI_OK;
    }
    for (int64_t batch = 0; batch < m->batch; batch++) {
        TT_TRY(multiply_batch(threads, m, batch));
    }
    return TUTTI_OK;
}

/* A batch of As that share one B is one tall A. */
static void fold_batch(tt_matmul_t *m)
{
    const bool is_tall = !m->a.transposed && m->a.batch_stride == m->m * m->a.ld &&
                         m->b.batch_stride == 0 && m->c_batch_stride == m->m * m->c_ld;
    if (is_tall) {
        m->m *= m->batch;
        m->batch = 1;
    }
}

/* A copy of x in f32, stored rows packed. */
static tutti_status_t widen_input(tt_matmul_in_t *x, tutti_dtype_t dtype, int64_t batch,
                                  int64_t rows, int64_t columns)
{
    const int64_t matrices = x->batch_stride == 0 ? 1 : batch;
    float *wide = tt_alloc_raw((size_t)(matrices * rows * columns) * sizeof *wide, "matmul input");
    TT_TRY_ALLOC(wide);
    for (int64_t i = 0; i < matrices * rows; i++) {
        const int64_t at = i / rows * x->batch_stride + i % rows * x->ld;
        widen_row(x->data, dtype, at, columns, wide + i * columns);
    }
    x->data = wide;
    x->ld = columns;
    x->batch_stride = matrices == 1 ? 0 : rows * columns;
    return TUTTI_OK;
}

static tutti_status_t multiply_widened(tt_threads_t *threads, tt_matmul_t *m)
{
    tt_matmul_in_t a = m->a, b = m->b;
    const bool at = a.transposed, bt = b.transposed;
    TT_TRY(widen_input(&a, m->dtype, m->batch, at ? m->k : m->m, at ? m->m : m->k));
    tutti_status_t status = widen_input(&b, m->dtype, m->batch, bt ? m->n : m->k, bt ? m->k : m->n);
    if (status == TUTTI_OK) {
        tt_matmul_t wide = *m;
        wide.a = a;
        wide.b = b;
        wide.dtype = TUTTI_F32;
        status = multiply_batches(threads, &wide);
        tt_free((void *)(uintptr_t)b.data);
    }
    tt_free((void *)(uintptr_t)a.data);
    return status;
}

static tutti_status_t check(const tt_matmul_t *m)
{
    const bool is_widening = m->out_dtype == TUTTI_F32 && m->dtype != TUTTI_F64;
    if (!tutti_dtype_is_float(m->dtype) || (m->out_dtype != m->dtype && !is_widening)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "matmul cannot multiply %s into %s",
                       tutti_dtype_name(m->dtype), tutti_dtype_name(m->out_dtype));
    }
    if (m->bias != NULL && m->bias_dtype != m->dtype && m->bias_dtype != m->out_dtype) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "matmul of %s into %s cannot add a bias of %s",
                       tutti_dtype_name(m->dtype), tutti_dtype_name(m->out_dtype),
                       tutti_dtype_name(m->bias_dtype));
    }
    return TUTTI_OK;
}

static void fill_defaults(tt_matmul_t *m)
{
    m->a.ld = m->a.ld != 0 ? m->a.ld : m->a.transposed ? m->m : m->k;
    m->b.ld = m->b.ld != 0 ? m->b.ld : m->b.transposed ? m->k : m->n;
    m->c_ld = m->c_ld != 0 ? m->c_ld : m->n;
}

static tutti_status_t run_matmul(tt_threads_t *threads, const void *arguments)
{
    tt_matmul_t m = *(const tt_matmul_t *)arguments;
    if (m.batch <= 0 || m.m <= 0 || m.n <= 0) {
        return TUTTI_OK;
    }
    fill_defaults(&m);
    fold_batch(&m);
    const bool is_direct = m.dtype != TUTTI_F16 && tt_gemm_ops(m.dtype) != NULL;
    return is_direct ? multiply_batches(threads, &m) : multiply_widened(threads, &m);
}

static const tt_pointer_t matmul_pointers[] = {TT_POINTER(tt_matmul_t, a.data),
                                               TT_POINTER(tt_matmul_t, b.data),
                                               TT_POINTER(tt_matmul_t, packed),
                                               TT_POINTER(tt_matmul_t, c),
                                               TT_POINTER(tt_matmul_t, bias),
                                               TT_POINTER(tt_matmul_t, pre),
                                               TT_NO_POINTER};
static const tt_kernel_t matmul_kernel =
    TT_KERNEL("matmul", tt_matmul_t, run_matmul, matmul_pointers);

tutti_status_t tt_matmul(tt_exec_t *exec, const tt_matmul_t *matmul)
{
    TT_TRY(check(matmul));
    tt_profile_count(2.0 * (double)matmul->batch * (double)matmul->m * (double)matmul->n *
                     (double)matmul->k);
    return tt_launch(exec, &matmul_kernel, matmul);
}

size_t tt_matmul_packed_bytes(tutti_dtype_t dtype, int64_t n, int64_t k)
{
    const bool is_direct =
        dtype == TUTTI_F32 || (dtype == TUTTI_BF16 && tt_gemm_ops(dtype) != NULL);
    const tt_gemm_ops_t *ops = is_direct ? tt_gemm_ops(dtype) : NULL;
    return ops == NULL
               ? 0
               : (size_t)(tt_pieces_of(n, ops->columns) * ops->columns * tt_gemm_depth(ops, k)) *
                     sizeof(float);
}

/* `packed` is written. */
static tutti_status_t run_pack(tt_threads_t *threads, const void *arguments)
{
    tt_matmul_t m = *(const tt_matmul_t *)arguments;
    fill_defaults(&m);
    product_t p = {
        .m = &m, .ops = tt_gemm_ops(m.dtype), .ldb = m.b.ld, .b = m.b.data, .columns = m.n};
    for (; p.k < m.k; p.k += p.k_count) {
        p.k_count = tt_min(k_block_of(&p), m.k - p.k);
        p.packed = (float *)(uintptr_t)m.packed + packed_at(&p);
        pack_block(threads, &p);
    }
    return TUTTI_OK;
}

static const tt_kernel_t pack_kernel =
    TT_KERNEL("matmul_pack", tt_matmul_t, run_pack, matmul_pointers);

tutti_status_t tt_matmul_pack(tt_exec_t *exec, const tt_matmul_t *matmul, void *to)
{
    tt_matmul_t m = *matmul;
    m.packed = to;
    return tt_launch(exec, &pack_kernel, &m);
}
