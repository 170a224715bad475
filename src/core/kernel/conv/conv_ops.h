/* What conv_simd.c exports per variant: tiles of sums over elements of planes (conv_window.h),
 * which are read where they lie; copies into planes; and tiles into channels of an image.
 *
 *     tile[i][lane] = start[i][lane] + Σ k  planes[row_at[i] + step_at[k]] · b[k][lane]
 *
 * An element is one f32, or two bf16 that are multiplied by two of b.
 */
#ifndef TT_CONV_OPS_H
#define TT_CONV_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/kernel/kernels.h"

enum {
    TT_CONV_ROWS_MAX = 14,
    TT_CONV_COLUMNS_MAX = 32,
    TT_CONV_STORED_MAX = 16,
    TT_CONV_PITCH = 16,
    TT_CONV_SLACK = 64
};

typedef struct {
    int rows;               /* at most the table's */
    bool is_narrow;         /* only the first half of the columns counts */
    bool is_added;          /* to what is in the tile */
    const int64_t *row_at;  /* bytes; NULL: planes is a panel of all rows (tt_conv_gather_t) */
    const int64_t *step_at; /* bytes */
    int64_t steps;
    const char *planes;
    const float *b;      /* the table's columns for each step */
    const float *start;  /* NULL: zeros; what chains begin with, may be the tile */
    int64_t start_pitch; /* floats from row to row; 0: the same for all, a bias */
    float *tile;         /* rows are the table's columns apart */
} tt_conv_tile_t;

/* Neighbours in planes, and their place in a panel. */
typedef struct {
    const char *from;
    int count; /* at most TT_CONV_ROWS_MAX */
    float *to;
} tt_conv_piece_t;

/* The elements of some tiles' rows into panels, step after step, TT_CONV_PITCH floats apart: they
 * are read once, and multiplied by many channels' weights. */
typedef struct {
    int pieces;
    const tt_conv_piece_t *piece;
    const int64_t *step_at; /* bytes */
    int64_t steps;
} tt_conv_gather_t;

/* Rows of an image's units into rows of their planes. Numbers are in elements. */
typedef struct {
    int64_t units, rows, count;
    const void *from;
    int64_t second;                       /* to what makes a pair of an element, or 0: zeros */
    int64_t step, from_pitch, from_unit;  /* between elements, rows and units of `from` */
    void *to, *odd;                       /* odd, with step 2: what lies between, or NULL */
    int64_t odd_count, to_pitch, to_unit; /* of odd, too */
} tt_conv_copy_t;

/* Column after column of a tile to where a channel is, `step` elements from row to row. */
typedef struct {
    int rows, columns; /* rows: at most TT_CONV_STORED_MAX */
    const float *tile;
    tutti_dtype_t dtype;
    void *out;
    int64_t step;
    int64_t ld; /* elements from channel to channel */
} tt_conv_store_t;

/* Sums with channels in rows and positions in lanes, by AMX: blocks of up to 16 rows by vectors of
 * 16 columns, side by side.
 *
 *     tile[i][lane] = Σ k, pairs p  a[a_at[k] + i a_pitch + p] · b[b_at[k] + p b_pitch + lane]
 */
typedef struct {
    int blocks, vectors; /* 1 or 2 of each */
    int64_t steps;
    const int64_t *a_at, *b_at; /* bytes of each step */
    const char *a, *b;
    int64_t a_block, a_pitch, b_pitch; /* bytes from block to block and row to row */
    bool is_added;                     /* to what is in the tile */
    char *tile;
    int64_t tile_block, tile_pitch;
} tt_conv_product_t;

/* Rows of sums to rows of positions of an image's channels. Numbers are in elements. */
typedef struct {
    int64_t channels, rows, count;
    const float *from, *bias; /* bias: of each channel */
    int64_t from_channel, from_row;
    tutti_dtype_t dtype;
    void *out;
    int64_t channel, row, step; /* from one to the next */
} tt_conv_rows_t;

/* conv_winograd.h: rows of tiles of one channel to V, with zeros around the image. Writes whole
 * vectors, up to TT_CONV_SLACK bytes behind the last tile. */
typedef struct {
    const float *image;
    int64_t size[2];
    int64_t at[2];       /* the first tile's corner; may be negative */
    int64_t rows, tiles; /* tiles: of a row */
    float *v;
    int64_t v_row,
        v_step; /* floats from row to row, from place to place of the 16; v_row: tiles, or
                   half a vector if they are no more: two rows are then done at once */
} tt_conv_input_t;

/* Tiles of a row, and the two rows of positions they stand for; a table's columns for each. */
typedef struct {
    int64_t tiles, width; /* width: positions of a row, for the last tile may have but one */
    bool is_narrow;
    float *m;
    int64_t m_step;
    const float *bias;
    float *rows[2];
} tt_conv_output_t;

/* Sums of a channel's 16 places over runs, to 9 taps of the table's columns. */
typedef struct {
    int64_t runs, run_step, step; /* floats from run to run, from place to place */
    const float *sums;
    float *taps;
} tt_conv_taps_t;

typedef struct {
    void (*input)(const tt_conv_input_t *input);
    void (*output)(const tt_conv_output_t *output);
    void (*gradient)(const tt_conv_output_t *gradient); /* from rows to m */
    void (*taps)(const tt_conv_taps_t *taps);
} tt_conv_winograd_ops_t;

typedef struct tt_depthwise_ops tt_depthwise_ops_t; /* conv_depthwise.h */

struct tt_conv_ops {
    int rows, columns; /* of a tile */
    const tt_conv_winograd_ops_t *winograd;
    const tt_depthwise_ops_t *depthwise;
    void (*multiply_f32)(const tt_conv_tile_t *tile);
    void (*multiply_bf16)(const tt_conv_tile_t *tile); /* NULL where gemm.h has none */
    void (*gather)(const tt_conv_gather_t *gather);
    void (*copy_f32)(const tt_conv_copy_t *copy); /* the only one that knows odd */
    void (*copy_bf16)(const tt_conv_copy_t *copy);
    void (*pair_bf16)(const tt_conv_copy_t *copy);
    void (*store)(const tt_conv_store_t *store);
    /* Where the CPU has AMX (gemm.h): */
    void (*begin_amx)(int rows, int pairs);
    void (*end_amx)(void);
    void (*multiply_amx)(const tt_conv_product_t *product);
    void (*store_rows)(const tt_conv_rows_t *rows);
};

void tt_conv_amx_multiply_avx512(const tt_conv_product_t *product);

extern const tt_conv_winograd_ops_t tt_conv_winograd_ops_baseline, tt_conv_winograd_ops_avx2;
extern const tt_conv_winograd_ops_t tt_conv_winograd_ops_avx512;

extern const tt_depthwise_ops_t tt_depthwise_ops_baseline, tt_depthwise_ops_avx2;
extern const tt_depthwise_ops_t tt_depthwise_ops_avx512;

void tt_conv_multiply_bf16_avx512(const tt_conv_tile_t *tile);

#endif
