/**
 * @file data_files.h
 * Data sets of files: texts, tokens, IDX, NumPy's .npy, CSV.
 *
 * Example:
 *
 *     tutti_dataset_t *text;
 *     const tutti_text_options_t first_part = {.path = "bible.txt", .length = 128, .to = 0.95};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_text_dataset, &first_part, &text));
 *     tutti_dataset_release(text);
 *
 *     // sepals,petals,kind
 *     // 5.1,1.4,setosa
 *     static const char *const sizes[] = {"sepals", "petals"}, *const kind[] = {"kind"};
 *     static const char *const kinds[] = {"setosa", "versicolor", "virginica"};
 *     static const tutti_csv_field_t fields[] = {
 *         {.columns = sizes, .column_count = 2, .dtype = TUTTI_F32},
 *         {.columns = kind, .column_count = 1, .dtype = TUTTI_I64,
 *          .classes = kinds, .class_count = 3}};
 *     tutti_dataset_t *flowers;
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_csv_dataset, &(tutti_csv_options_t){
 *         .path = "iris.csv", .fields = fields, .field_count = 2}, &flowers));
 */
#ifndef TUTTI_DATA_FILES_H
#define TUTTI_DATA_FILES_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_text_options {
    const char *path;
    int64_t length; /**< bytes of a window */
    int64_t stride; /**< from window to window; 0: length, so that they do not overlap */
    double from;    /**< share of the file before the first window, such as 0.95 */
    double to;      /**< share at which the last one ends; 0: 1 */
} tutti_text_options_t;

/** Windows of a file's bytes: input [length] u8, target the same one byte further on. */
TUTTI_API extern const tutti_dataset_ops_t tutti_text_dataset;

typedef struct tutti_token_options {
    const char *const *paths; /**< [path_count] files that follow each other */
    int path_count;
    int64_t length; /**< tokens of a window */
    int64_t stride; /**< from window to window; 0: length */
    int64_t vocab;  /**< tokens must be below; 0: any */
} tutti_token_options_t;

/** Windows of llm.c's token files (1024 bytes of header, magic 20240520, then u16 tokens): input
 *  [length] i32, target the same one token further on. A window lies within one file.
 *  @source https://github.com/karpathy/llm.c */
TUTTI_API extern const tutti_dataset_ops_t tutti_token_dataset;

typedef struct tutti_idx_options {
    const char *inputs;  /**< path of an IDX file, plain or gzip */
    const char *targets; /**< the same; may be NULL */
} tutti_idx_options_t;

/** Rows of IDX files, such as MNIST's, read into memory. @source http://yann.lecun.com/exdb/mnist
 */
TUTTI_API extern const tutti_dataset_ops_t tutti_idx_dataset;

/**
 * Read an IDX file, plain or gzip.
 *
 * @param out  owned by the caller: u8 i8 i32 f32 or f64, of the file's shape
 * @thread     any
 * @errors     IO, FORMAT (file, offset, what was expected), UNSUPPORTED (16-bit integers), NOMEM
 * @source     http://yann.lecun.com/exdb/mnist
 */
TUTTI_API tutti_status_t tutti_idx_read(const char *path, tutti_tensor_t **out);

/** The same from bytes in memory. @param name stands for the path in messages @thread any
 *  @errors FORMAT, UNSUPPORTED, NOMEM */
TUTTI_API tutti_status_t tutti_idx_parse(const char *name, tutti_bytes_t data,
                                         tutti_tensor_t **out);

typedef struct tutti_line_options {
    const char *const *paths; /**< [path_count] files that follow each other; copied */
    int path_count;
} tutti_line_options_t;

/** Lines of text files, without their ends (LF or CR LF), as a stream: u8 [TUTTI_ANY]. Line i is in
 *  part i modulo parts. A file is opened when its lines are due. @source torchdata's FileOpener and
 *  readlines */
TUTTI_API extern const tutti_dataset_ops_t tutti_line_dataset;

/* ---- .npy ------------------------------------------------------------------------------------ */

/**
 * Read a .npy file, of version 1 to 3, in C or Fortran order, of either byte order.
 *
 * @param out  owned by the caller: f32 f64 f16 i64 i32 i8 u8 or bool, contiguous, of the file's
 *             shape
 * @thread     any
 * @errors     IO, FORMAT (file, offset, what was expected), UNSUPPORTED (other dtypes, records,
 *             Python's objects, more than eight dimensions), NOMEM
 * @source     numpy.lib.format; numpy.load
 */
TUTTI_API tutti_status_t tutti_npy_read(const char *path, tutti_tensor_t **out);

/** The same from bytes in memory. @param name stands for the path in messages @thread any
 *  @errors FORMAT, UNSUPPORTED, NOMEM */
TUTTI_API tutti_status_t tutti_npy_parse(const char *name, tutti_bytes_t data,
                                         tutti_tensor_t **out);

/**
 * Write a .npy file, of version 1, in C order.
 *
 * @param x  contiguous, of the host; any dtype but bf16, which NumPy does not have
 * @thread   any
 * @errors   UNSUPPORTED (bf16: copy it to f32 before), SHAPE, IO, NOMEM
 * @source   numpy.save
 */
TUTTI_API tutti_status_t tutti_npy_write(const char *path, const tutti_tensor_t *x);

typedef struct tutti_npy_options {
    const char *const *paths; /**< [path_count] a file for each field, [N, ...] */
    int path_count;
} tutti_npy_options_t;

/** Rows of .npy files, read when they are asked for; files in Fortran order are read into memory.
 *  @source numpy.load(mmap_mode="r") */
TUTTI_API extern const tutti_dataset_ops_t tutti_npy_dataset;

/* ---- CSV ------------------------------------------------------------------------------------- */

/** Columns that are one field: of several, a field of [column_count]; of one, a scalar. */
typedef struct tutti_csv_field {
    const char *const *columns; /**< [column_count] names, or without a header numbers: "1" … */
    int column_count;
    tutti_dtype_t dtype;
    bool is_text;               /**< u8 [TUTTI_ANY] instead: the bytes of one column */
    const char *const *classes; /**< [class_count] texts that stand for 0, 1, …; NULL: numbers */
    int64_t class_count;
} tutti_csv_field_t;

typedef struct tutti_csv_options {
    const char *path;
    tutti_bytes_t data; /**< instead of the file; the path then stands for it in messages */
    const tutti_csv_field_t *fields; /**< [field_count] */
    int field_count;
    char separator; /**< 0: a comma */
    bool no_header; /**< the first line is a sample too */
} tutti_csv_options_t;

/** Lines of a CSV file, read into memory. Texts may stand in double quotes, and there hold
 *  separators, ends of lines, and quotes, which are doubled. Empty lines are passed by. What is no
 *  number of its dtype is an error that names line and column. @source RFC 4180 */
TUTTI_API extern const tutti_dataset_ops_t tutti_csv_dataset;

#ifdef __cplusplus
}
#endif

#endif
