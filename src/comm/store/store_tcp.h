/* What client and server of a tcp store say first, each; docs/formats/store.md. */
#ifndef TT_STORE_TCP_H
#define TT_STORE_TCP_H

enum { TT_STORE_HELLO_BYTES = 16 };

static const char tt_store_hello[TT_STORE_HELLO_BYTES] = "tutti store 1\n";

#endif
