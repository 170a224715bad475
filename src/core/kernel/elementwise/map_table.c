/* Names and formulas of the element-wise kinds, out of maps.def. */
#include <string.h>

#include "core/kernel/elementwise/map.h"

const tt_map_entry_t tt_unary_table[TT_UNARY_COUNT] = {
#define TT_UNARY(kind, name, about, real, i64) {name, about, #i64},
#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
};

const tt_map_entry_t tt_binary_table[TT_BINARY_COUNT] = {
#define TT_BINARY(kind, name, about, real, i64) {name, about, #i64},
#include "core/kernel/elementwise/maps.def"
#undef TT_BINARY
};

const tt_map_entry_t tt_ternary_table[TT_TERNARY_COUNT] = {
#define TT_TERNARY(kind, name, about, real, i64) {name, about, #i64},
#include "core/kernel/elementwise/maps.def"
#undef TT_TERNARY
};

bool tt_unary_takes_ints(tt_unary_t kind)
{
    return strcmp(tt_unary_table[kind].int_formula, "TT_NO") != 0;
}

bool tt_binary_takes_ints(tt_binary_t kind)
{
    return strcmp(tt_binary_table[kind].int_formula, "TT_NO") != 0;
}

bool tt_ternary_takes_ints(tt_ternary_t kind)
{
    return strcmp(tt_ternary_table[kind].int_formula, "TT_NO") != 0;
}
