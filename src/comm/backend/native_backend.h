/* A look into the native engine, for what measures and explains it. */
#ifndef TT_NATIVE_BACKEND_H
#define TT_NATIVE_BACKEND_H

#include "comm/coll/coll.h"

/* The collectives of a group whose backend is tt_backend_native; borrowed. */
tt_coll_t *tt_native_coll(const void *state);

#endif
