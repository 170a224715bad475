/* Reading bytes that may be compressed by gzip, with zlib. One gzip member. */
#include "compute/data/inflate.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/base/alloc.h"

enum {
    GZIP_WINDOW = 16 + MAX_WBITS, /* zlib's code for "expect gzip's header" */
    EXPANSION_MAX = 1032,         /* deflate's limit: bytes out of one byte */
};

static void *allocate(void *opaque, unsigned count, unsigned size)
{
    (void)opaque;
    return tt_alloc_array(count, size, "inflate");
}

static void release(void *opaque, void *block)
{
    (void)opaque;
    tt_free(block);
}

tutti_status_t tt_inflate_begin(const char *name, tutti_bytes_t data, tt_inflate_t *out)
{
    const unsigned char *bytes = data.data;
    *out = (tt_inflate_t){.name = name, .data = data};
    out->is_gzip = data.bytes >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
    if (!out->is_gzip) {
        return TUTTI_OK;
    }
    if (data.bytes > UINT_MAX) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: compressed files above 4 GiB", name);
    }
    out->z.zalloc = allocate;
    out->z.zfree = release;
    out->z.next_in = (Bytef *)(uintptr_t)data.data;
    out->z.avail_in = (uInt)data.bytes;
    return inflateInit2(&out->z, GZIP_WINDOW) == Z_OK
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOMEM, "%s: out of memory for inflating", name);
}

static tutti_status_t fail_cut(const tt_inflate_t *in, size_t bytes, size_t found)
{
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "%s: truncated: expected %zu bytes at offset %" PRIu64 "%s, there are %zu",
                   in->name, bytes, in->offset, in->is_gzip ? " (after gunzip)" : "", found);
}

static tutti_status_t read_plain(tt_inflate_t *in, void *to, size_t bytes)
{
    const size_t left = in->data.bytes - (size_t)in->offset;
    if (bytes > left) {
        return fail_cut(in, bytes, left);
    }
    if (bytes > 0) {
        memcpy(to, (const char *)in->data.data + in->offset, bytes);
    }
    return TUTTI_OK;
}

static tutti_status_t read_gzip(tt_inflate_t *in, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const size_t left = bytes - done;
        const uInt room = left < UINT_MAX ? (uInt)left : UINT_MAX;
        in->z.next_out = (Bytef *)to + done;
        in->z.avail_out = room;
        const int result = in->is_at_end ? Z_BUF_ERROR : inflate(&in->z, Z_NO_FLUSH);
        done += room - in->z.avail_out;
        in->is_at_end = in->is_at_end || result == Z_STREAM_END;
        if (result == Z_MEM_ERROR) {
            return TT_FAIL(TUTTI_ERR_NOMEM, "%s: out of memory for inflating", in->name);
        }
        if (result == Z_BUF_ERROR && done < bytes) {
            return fail_cut(in, bytes, done);
        }
        if (result == Z_NEED_DICT || (result < 0 && result != Z_BUF_ERROR)) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: corrupt gzip data at offset %lu: %s (expected %zu bytes there)",
                           in->name, in->z.total_in, in->z.msg == NULL ? "?" : in->z.msg,
                           bytes - done);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_inflate_read(tt_inflate_t *in, void *to, size_t bytes)
{
    TT_TRY(in->is_gzip ? read_gzip(in, to, bytes) : read_plain(in, to, bytes));
    in->offset += bytes;
    return TUTTI_OK;
}

/* One byte too many, or the end with its checksum. */
static tutti_status_t expect_gzip_end(tt_inflate_t *in)
{
    unsigned char extra;
    in->z.next_out = &extra;
    in->z.avail_out = 1;
    const int result = in->is_at_end ? Z_STREAM_END : inflate(&in->z, Z_NO_FLUSH);
    if (in->z.avail_out == 1 && result == Z_STREAM_END) {
        return in->z.avail_in == 0
                   ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_FORMAT, "%s: %u bytes behind the end of the gzip data",
                             in->name, in->z.avail_in);
    }
    return result == Z_DATA_ERROR
               ? TT_FAIL(TUTTI_ERR_FORMAT, "%s: corrupt gzip data at offset %lu: %s", in->name,
                         in->z.total_in, in->z.msg == NULL ? "?" : in->z.msg)
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: expected the end at offset %" PRIu64 " (after gunzip), %s", in->name,
                         in->offset,
                         in->z.avail_out == 0 ? "there is more" : "the file ends before it");
}

tutti_status_t tt_inflate_expect_end(tt_inflate_t *in)
{
    if (in->is_gzip) {
        return expect_gzip_end(in);
    }
    return in->offset == in->data.bytes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: expected the end at offset %" PRIu64 ", there are %" PRIu64
                         " more bytes",
                         in->name, in->offset, in->data.bytes - in->offset);
}

uint64_t tt_inflate_bytes_max(const tt_inflate_t *in)
{
    return in->is_gzip ? (uint64_t)in->z.avail_in * EXPANSION_MAX + EXPANSION_MAX
                       : in->data.bytes - in->offset;
}

void tt_inflate_end(tt_inflate_t *in)
{
    if (in->is_gzip) {
        (void)inflateEnd(&in->z);
    }
}
