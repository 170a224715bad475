/* GPT-2 as llm.c's train_gpt2.py writes it (write_model()):
 *
 *     | 256 × i32: magic, version, T, V, L, heads, C, V padded, 0 … | tensors, without gaps |
 *
 *     version 3   all in f32
 *     version 5   all in bf16
 *
 * Each tensor stands for all layers: qkvw is [L, 3C, C]. Matrices are [out, in], as ours are. So
 * tensors get the names of our module (layer_gpt.c), a slice of the file for each layer. The head
 * is the embedding, which is there once. Of the padded vocabulary the first V rows are values, the
 * others 0.
 */
#ifndef TT_LLMC_LAYOUT_H
#define TT_LLMC_LAYOUT_H

#include <stdbool.h>

enum { TT_LLMC_MAGIC = 20240326, TT_LLMC_NUMBERS = 256, TT_LLMC_HEADER_BYTES = 1024 };
enum { TT_LLMC_F32 = 3, TT_LLMC_BF16 = 5 };

/* Each has 12 tensors: a small file may say that there are millions. */
enum { TT_LLMC_LAYERS_MAX = 10000 };

/* The vocabulary is padded to a multiple of. */
enum { TT_LLMC_PAD = 128 };

/* Sizes in the order of the header; those of tensors are products of them. */
typedef enum {
    TT_LLMC_T,
    TT_LLMC_V,
    TT_LLMC_L,
    TT_LLMC_HEADS,
    TT_LLMC_C,
    TT_LLMC_PADDED,
    TT_LLMC_C3,
    TT_LLMC_C4,
    TT_LLMC_ONE,
    TT_LLMC_SIZES
} tt_llmc_size_t;

enum { TT_LLMC_PARTS = 16, TT_LLMC_EMBEDDING = 0, TT_LLMC_POSITIONS = 1 };

/* What the parts of the file are, in their order; of a layer: without "blocks.N.". */
typedef struct {
    const char *name;
    tt_llmc_size_t rows, columns; /* of one layer; columns ONE: a vector */
    bool is_of_layer;
} tt_llmc_part_t;

extern const tt_llmc_part_t tt_llmc_parts[TT_LLMC_PARTS];

enum { TT_LLMC_NAME_BYTES = 64 };

/* As our module calls it. */
void tt_llmc_name(const tt_llmc_part_t *part, int layer, char name[TT_LLMC_NAME_BYTES]);

/* The text of a checkpoint that says how many heads there are: no tensor does. */
#define TT_LLMC_HEADS_TEXT "tutti.heads"

#endif
