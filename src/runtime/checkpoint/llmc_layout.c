/* The parts of llm.c's file. */
#include "runtime/checkpoint/llmc_layout.h"

#include <stdio.h>

#define LAYER(name, rows, columns)                                                                 \
    {                                                                                              \
        name, TT_LLMC_##rows, TT_LLMC_##columns, true                                              \
    }
#define OTHER(name, rows, columns)                                                                 \
    {                                                                                              \
        name, TT_LLMC_##rows, TT_LLMC_##columns, false                                             \
    }

const tt_llmc_part_t tt_llmc_parts[TT_LLMC_PARTS] = {
    OTHER("tok.weight", PADDED, C), OTHER("pos.weight", T, C),  LAYER("ln1.weight", C, ONE),
    LAYER("ln1.bias", C, ONE),      LAYER("qkv.weight", C3, C), LAYER("qkv.bias", C3, ONE),
    LAYER("proj.weight", C, C),     LAYER("proj.bias", C, ONE), LAYER("ln2.weight", C, ONE),
    LAYER("ln2.bias", C, ONE),      LAYER("up.weight", C4, C),  LAYER("up.bias", C4, ONE),
    LAYER("down.weight", C, C4),    LAYER("down.bias", C, ONE), OTHER("ln.weight", C, ONE),
    OTHER("ln.bias", C, ONE),
};

void tt_llmc_name(const tt_llmc_part_t *part, int layer, char name[TT_LLMC_NAME_BYTES])
{
    if (part->is_of_layer) {
        snprintf(name, TT_LLMC_NAME_BYTES, "blocks.%d.%s", layer, part->name);
    } else {
        snprintf(name, TT_LLMC_NAME_BYTES, "%s", part->name);
    }
}
