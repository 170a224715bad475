/**
 * @file data_files.h
 * Data sets of files: texts, tokens, IDX.
 *
 * Example:
 *
 *     tutti_dataset_t *text;
 *     const tutti_text_options_t first_part = {.path = "bible.txt", .length = 128, .to = 0.95};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_text_dataset, &first_part, &text));
 *     tutti_dataset_release(text);
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

#ifdef __cplusplus
}
#endif

#endif
