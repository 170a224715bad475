/* Files of arbitrary bytes as what weights are loaded from: refused with a text, or every tensor
 * that the headers promise can be read, or is refused. The first byte says what the file is:
 *
 *     s   NAME.safetensors                b   NAME.bin, of llm.c
 *     i   Hugging Face's index, beside a file of two tensors
 *     o   a snapshot of earlier versions: the optimizer's file beside a model's
 *     m   a manifest, its digest made to fit, beside a file of 4 KiB
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/checkpoint_files.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"
#include "runtime/checkpoint/block_digest.h"

enum { PATH_BYTES = 256, END_BYTES = 46, TENSOR_BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Two tensors of four bytes. */
static const char model_header[] =
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[4,8]}}";

static char folder[] = "/tmp/tutti-source-fuzz-XXXXXX";
static const char *written[2]; /* names of files in it */
static int written_count;

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    TT_ASSERT(file >= 0);
    TT_ASSERT(write(file, data, bytes) == (ssize_t)bytes);
    close(file);
    written[written_count++] = name;
}

static void write_model(void)
{
    enum { HEADER_BYTES = sizeof model_header - 1 };
    uint8_t all[8 + HEADER_BYTES + 8] = {HEADER_BYTES};
    TT_ASSERT(HEADER_BYTES < 256);
    memcpy(all + 8, model_header, HEADER_BYTES);
    write_bytes("model.safetensors", all, sizeof all);
}

/* What stands before the digest, or would. */
static void write_manifest(const uint8_t *data, size_t bytes)
{
    static const uint8_t values[4096];
    char digest[TT_DIGEST_TEXT_BYTES];
    bytes = bytes > END_BYTES ? bytes - END_BYTES : bytes;
    char *text = tt_alloc_raw(bytes + END_BYTES + 1, "fuzz");
    TT_ASSERT(text != NULL);
    memcpy(text, data, bytes);
    snprintf(text + bytes, END_BYTES + 1, ",\"digest\":\"%s\"}\n",
             tt_digest_format(tt_digest_of(data, bytes), digest));
    write_bytes("manifest.json", text, bytes + END_BYTES);
    write_bytes("rank-00000-0.safetensors", values, sizeof values);
    tt_free(text);
}

static void remove_files(void)
{
    while (written_count > 0) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, written[--written_count]);
        unlink(path);
    }
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
}

static void prepare(void)
{
    static bool is_there;
    if (!is_there) {
        TT_ASSERT(mkdtemp(folder) != NULL);
        atexit(remove_folder);
        is_there = true;
    }
    remove_files();
}

/* What to open: the folder, or a file in it. */
static const char *write_files(char kind, const uint8_t *data, size_t bytes)
{
    switch (kind) {
    case 's':
        write_bytes("x.safetensors", data, bytes);
        return "/x.safetensors";
    case 'b':
        write_bytes("x.bin", data, bytes);
        return "/x.bin";
    case 'i':
        write_model();
        write_bytes("model.safetensors.index.json", data, bytes);
        return "";
    case 'o':
        write_model();
        write_bytes("optim.safetensors", data, bytes);
        return "";
    case 'm':
        write_manifest(data, bytes);
        return "";
    default:
        return NULL;
    }
}

static void read_tensor(tutti_saved_t *saved, const tutti_saved_tensor_t *tensor)
{
    static const int64_t zeros[TUTTI_RANK_MAX];
    tutti_tensor_t *x;
    TT_ASSERT(tutti_shape_numel(tensor->shape) >= 0);
    if (tensor->bytes > TENSOR_BYTES_MAX) {
        return;
    }
    TT_ASSERT(tutti_tensor_create(tensor->dtype, tensor->shape, &x) == TUTTI_OK);
    if (tutti_saved_read(saved, tensor->name, zeros, x) < 0) {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    tutti_tensor_release(x);
}

static void read_all(tutti_saved_t *saved)
{
    tutti_saved_tensor_t tensor, found;
    tutti_saved_part_t part;
    tutti_named_text_t text;
    for (size_t i = 0; tutti_saved_at(saved, i, &tensor) == TUTTI_OK; i++) {
        TT_ASSERT(tutti_saved_find(saved, tensor.name, &found) == TUTTI_OK);
        TT_ASSERT(found.name == tensor.name);
        size_t parts = 0;
        while (tutti_saved_part_at(saved, i, parts, &part) == TUTTI_OK) {
            parts++;
        }
        TT_ASSERT(parts == tensor.slices);
        read_tensor(saved, &tensor);
    }
    for (size_t i = 0; tutti_saved_text_at(saved, i, &text) == TUTTI_OK; i++) {
        TT_ASSERT(text.name != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    prepare();
    const char *name = bytes == 0 ? NULL : write_files((char)data[0], data + 1, bytes - 1);
    char path[PATH_BYTES];
    tutti_saved_t *saved;
    if (name == NULL) {
        return 0;
    }
    snprintf(path, sizeof path, "%s%s", folder, name);
    if (tutti_saved_open(path, &saved) == TUTTI_OK) {
        read_all(saved);
        tutti_saved_close(saved);
    } else {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
