/* The table of stores; stores.def says which. */
#include "comm/store/store_ops.h"

const tt_store_ops_t *const tt_store_kinds[] = {
#define X(name) &tt_store_##name##_ops,
#include "comm/store/stores.def"
#undef X
};

const size_t tt_store_kind_count = sizeof tt_store_kinds / sizeof tt_store_kinds[0];
