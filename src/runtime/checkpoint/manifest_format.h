/* What the text of a manifest begins and ends with. The digest is that of all bytes before its own
 * member, which is the last one:
 *
 *     {…all the rest…,"digest":"0123456789abcdef0123456789abcdef"}\n
 */
#ifndef TT_MANIFEST_FORMAT_H
#define TT_MANIFEST_FORMAT_H

#include "runtime/checkpoint/block_digest.h"

#define TT_MANIFEST_FORMAT "tutti checkpoint"
#define TT_MANIFEST_END_BEGIN ",\"digest\":\""
#define TT_MANIFEST_END_END "\"}\n"

enum {
    TT_MANIFEST_VERSION = 1,
    TT_MANIFEST_END_BYTES =
        sizeof TT_MANIFEST_END_BEGIN - 1 + TT_DIGEST_TEXT_BYTES - 1 + sizeof TT_MANIFEST_END_END - 1
};

/* Of a file whose name is no UTF-8, in place of "name": its bytes, each as two digits. */
#define TT_MANIFEST_NAME_HEX "name_hex"

#endif
