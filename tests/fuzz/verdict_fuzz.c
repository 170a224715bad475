/* Arbitrary bytes as a dump: beside a good one, and beside itself. Whatever is taken is judged, in
 * plain lines. */
#include <stddef.h>
#include <stdint.h>

#include "comm/diagnose/dump_verdict.h"
#include "core/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char good[] =
    "{\"format\":\"tutti-dump\",\"version\":1,\"rank\":0,\"groups\":[{\"name\":\"world\","
    "\"rank\":0,\"size\":2,\"epoch\":0,\"ranks\":[0,1],\"error\":\"late\",\"awaited\":[1],"
    "\"calls\":[{\"number\":1,\"kind\":\"call\",\"call\":\"all_reduce\",\"sequence\":7,"
    "\"dtype\":\"f32\",\"count\":4,\"root\":0,\"tag\":0,\"reduction\":\"sum\","
    "\"site\":\"train.c:88\",\"state\":\"posted\",\"round\":-1}],\"seen\":[]}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tt_dump_verdict_t *verdict;
    TT_ASSERT(tt_dump_verdict_create(&verdict) == TUTTI_OK);
    TT_ASSERT(tt_dump_verdict_add(verdict, "good", good, sizeof good - 1) == TUTTI_OK);
    if (tt_dump_verdict_add(verdict, "fuzz", data, bytes) == TUTTI_OK) {
        TT_ASSERT(tt_dump_verdict_add(verdict, "again", data, bytes) == TUTTI_OK);
    }
    tutti_buffer_t text;
    bool is_guilty = false;
    TT_ASSERT(tt_dump_verdict_say(verdict, &text, &is_guilty) == TUTTI_OK);
    TT_ASSERT(is_guilty);
    for (size_t i = 0; i < text.bytes; i++) {
        const unsigned char byte = ((const unsigned char *)text.data)[i];
        TT_ASSERT(byte == '\n' || (byte >= ' ' && byte != 0x7f));
    }
    tutti_buffer_release(&text);
    tt_dump_verdict_release(verdict);
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
