/* Sources: every format is known by itself, and what is wrong with a file is told. */
#include <tutti/checkpoint.h>

#include "core/base/buffer.h"
#include "core/base/fnv.h"
#include "runtime/checkpoint/source_testing.h"

static void open_source(const tt_place_of_files_t *place, const char *name, const char *format,
                        tt_source_t *source)
{
    if (tt_source_open(name == NULL ? place->folder : tt_file_of(place, name), source) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_string_equal(source->format, format);
}

static void expect_refused(const tt_place_of_files_t *place, const char *name,
                           tutti_status_t status, const char *text)
{
    tt_source_t source;
    assert_int_equal(
        tt_source_open(name == NULL ? place->folder : tt_file_of(place, name), &source), status);
    tt_expect_error(text);
    assert_null(source.manifest);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static void one_file_is_a_source(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "any.name"), "w", 4, 10);
    open_source(&place, "any.name", "safetensors", &source);
    assert_int_equal(source.manifest->tensor_count, 1);
    tt_expect_saved(&source, "w", TUTTI_SHAPE(4, 3), 10);
    tt_source_close(&source);
    assert_int_equal(rename(tt_file_of(&place, "any.name"), "/tmp/tutti-source-moved"), 0);
    tt_source_t here;
    assert_int_equal(chdir("/tmp"), 0);
    assert_int_equal(tt_source_open("tutti-source-moved", &here), TUTTI_OK);
    assert_string_equal(here.folder, ".");
    tt_expect_saved(&here, "w", TUTTI_SHAPE(4, 3), 10);
    tt_source_close(&here);
    assert_int_equal(remove("/tmp/tutti-source-moved"), 0);
    tt_end_files(&place);
}

static void write_text(const tt_place_of_files_t *place, const char *name, const char *text)
{
    tt_write_file(tt_file_of(place, name), text, strlen(text));
}

static const char index_name[] = "model.safetensors.index.json";

static void shards_are_found_by_their_index(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a.safetensors"), "x", 2, 1);
    tt_write_matrix(tt_file_of(&place, "b.safetensors"), "y", 3, 5);
    write_text(&place, index_name,
               "{\"metadata\": {\"total_size\": 60}, \"weight_map\": "
               "{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}");
    for (int i = 0; i < 2; i++) {
        open_source(&place, i == 0 ? NULL : index_name, "Hugging Face", &source);
        assert_int_equal(source.manifest->file_count, 2);
        tt_expect_saved(&source, "x", TUTTI_SHAPE(2, 3), 1);
        tt_expect_saved(&source, "y", TUTTI_SHAPE(3, 3), 5);
        tt_source_close(&source);
    }
    static const struct {
        const char *index;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {"", TUTTI_ERR_FORMAT, "index.json: not valid JSON at offset 0"},
        {"[]", TUTTI_ERR_FORMAT, "index.json: not valid JSON at offset 0: expected {"},
        {"{\"weight_map\": []}", TUTTI_ERR_FORMAT, "\"weight_map\": expected an object"},
        {"{\"weight_map\": {}, \"weight_map\": {}}", TUTTI_ERR_FORMAT,
         "\"weight_map\": it is there twice"},
        {"{\"weight_map\": {\"x\": [}}", TUTTI_ERR_FORMAT, "not valid JSON at offset"},
        {"{\"metadata\": [{\"x}", TUTTI_ERR_FORMAT,
         "not valid JSON at offset 15: a text that does not end"},
        {"{\"weight_map\": {}} x", TUTTI_ERR_FORMAT, "at offset 19: more behind its end"},
        {"{}", TUTTI_ERR_FORMAT, "\"weight_map\": expected an object"},
        {"{\"weight_map\": {\"x\": 1}}", TUTTI_ERR_FORMAT,
         "tensor \"x\": expected the name of a file"},
        {"{\"weight_map\": {\"x\": \"../a.safetensors\"}}", TUTTI_ERR_FORMAT,
         "tensor \"x\": expected the name of a file"},
        {"{\"weight_map\": {\"x\": \"..\"}}", TUTTI_ERR_IO, "not a regular file"},
        {"{\"weight_map\": {\"x\": \"c.safetensors\"}}", TUTTI_ERR_IO, "c.safetensors"},
        {"{\"weight_map\": {\"z\": \"a.safetensors\"}}", TUTTI_ERR_FORMAT,
         "tensor \"z\" is not in \"a.safetensors\""},
        {"{\"weight_map\": {\"x\": \"b.safetensors\", \"y\": \"a.safetensors\"}}", TUTTI_ERR_FORMAT,
         "is not in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(&place, index_name, cases[i].index);
        expect_refused(&place, NULL, cases[i].status, cases[i].text);
    }
    tt_write_matrix(tt_file_of(&place, "b.safetensors"), "x", 3, 5);
    write_text(&place, index_name,
               "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}");
    expect_refused(&place, NULL, TUTTI_ERR_FORMAT,
                   "b.safetensors: tensor \"x\" is in a.safetensors, too");
    tt_end_files(&place);
}

static void snapshots_of_earlier_versions_are_sources(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    assert_int_equal(mkdir(tt_file_of(&place, "step-000000000002"), 0700), 0);
    assert_int_equal(mkdir(tt_file_of(&place, "step-000000000010"), 0700), 0);
    tt_write_matrix(tt_file_of(&place, "step-000000000002/model.safetensors"), "w", 2, 1);
    tt_write_matrix(tt_file_of(&place, "step-000000000010/model.safetensors"), "w", 2, 2);
    tt_write_matrix(tt_file_of(&place, "step-000000000010/optim.safetensors"), "w.exp_avg", 2, 3);
    tt_write_matrix(tt_file_of(&place, "step-000000000010/extra.safetensors"), "seconds", 1, 4);
    open_source(&place, "step-000000000002", "safetensors", &source);
    tt_expect_saved(&source, "w", TUTTI_SHAPE(2, 3), 1);
    tt_source_close(&source);
    open_source(&place, NULL, "snapshot", &source);
    assert_int_equal(source.manifest->step, 10);
    tt_expect_saved(&source, "w", TUTTI_SHAPE(2, 3), 2);
    tt_expect_saved(&source, "optim.w.exp_avg", TUTTI_SHAPE(2, 3), 3);
    tt_expect_saved(&source, "seconds", TUTTI_SHAPE(1, 3), 4);
    tt_source_close(&source);
    tt_write_matrix(tt_file_of(&place, "step-000000000010/extra.safetensors"), "w", 1, 4);
    expect_refused(&place, NULL, TUTTI_ERR_FORMAT, "tensor \"w\" is in model.safetensors, too");
    tt_end_files(&place);
}

static void a_snapshot_says_how_many_steps_are_done(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t step;
    } cases[] = {
        {"7", 7}, {"999999999999", TT_STEP_MAX}, {"1000000000000", 0}, {"-1", 0}, {"7x", 0},
        {"", 0}};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(2), 1);
    const tutti_named_tensor_t named = {"w", x};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_source_t source;
        const tutti_named_text_t step = {"step", cases[i].text};
        assert_int_equal(
            tutti_safetensors_save(tt_file_of(&place, "model.safetensors"), &named, 1, &step, 1),
            TUTTI_OK);
        open_source(&place, NULL, "safetensors", &source);
        assert_int_equal(source.manifest->step, cases[i].step);
        tt_source_close(&source);
    }
    assert_int_equal(truncate(tt_file_of(&place, "model.safetensors"), 20), 0);
    expect_refused(&place, NULL, TUTTI_ERR_FORMAT, "model.safetensors: truncated");
    tutti_tensor_release(x);
    tt_end_files(&place);
}

/* ---- ours ------------------------------------------------------------------------------------ */

static void checkpoints_of_ours_are_sources(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    expect_refused(&place, NULL, TUTTI_ERR_NOT_FOUND, "no checkpoint: want manifest.json, ");
    for (int step = 1; step < 3; step++) {
        tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(5), step);
        const tutti_slice_t slice = tutti_slice_whole("w", x);
        const tutti_checkpoint_t checkpoint = {
            .folder = place.folder, .slices = &slice, .slice_count = 1};
        assert_int_equal(tutti_checkpoint_save(&checkpoint, step), TUTTI_OK);
        tutti_tensor_release(x);
    }
    static const char *const paths[] = {NULL, "step-000000000002", "step-000000000001",
                                        "step-000000000001/manifest.json"};
    for (int i = 0; i < 4; i++) {
        open_source(&place, paths[i], "checkpoint", &source);
        assert_int_equal(source.manifest->step, i < 2 ? 2 : 1);
        tt_expect_saved(&source, "w", TUTTI_SHAPE(5), i < 2 ? 2 : 1);
        tt_source_close(&source);
    }
    tt_end_files(&place);
}

/* Its digest is right: a program has written it that is not ours. */
static void slices_that_are_not_all_of_a_tensor_are_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t boxes[3][4]; /* offset, size of [4, 6] */
        const char *text;    /* NULL: they are all of it */
    } cases[] = {
        {{{0, 0, 2, 6}, {2, 0, 2, 6}}, NULL},
        {{{0, 3, 4, 3}, {0, 0, 4, 3}}, NULL},
        {{{0, 0, 2, 6}, {2, 0, 2, 2}, {2, 2, 2, 4}}, NULL},
        {{{0, 0, 2, 6}, {2, 0, 1, 6}}, "\"w\": 6 of 24 elements are in no slice"},
        {{{0, 0, 2, 6}, {0, 0, 2, 6}}, "\"w\": slices [0:2, 0:6] and [0:2, 0:6] overlap"},
        {{{0, 0, 2, 6}, {0, 0, 2, 6}, {2, 0, 2, 6}},
         "\"w\": its slices have more than 24 elements"},
        {{{0, 0, 2, 6}, {3, 0, 1, 6}, {1, 0, 1, 6}}, "\"w\": slices [0:2, 0:6] and [1:2, 0:6]"},
        {{{0, 0, 4, 2}, {0, 1, 4, 1}, {0, 3, 4, 3}}, "\"w\": slices [0:4, 0:2] and [0:4, 1:2]"},
    };
    tt_place_of_files_t place;
    tt_begin_files(&place);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_manifest_t *manifest;
        tt_saved_tensor_t *tensor;
        assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
        assert_int_equal(tt_manifest_add_file(manifest, "a", NULL), TUTTI_OK);
        assert_int_equal(tt_manifest_add(manifest, "w", TUTTI_F32, TUTTI_SHAPE(4, 6), &tensor), 0);
        for (int k = 0; k < 3; k++) {
            const int64_t *box = cases[i].boxes[k];
            const tt_saved_slice_t slice = {.box = {2, {box[0], box[1]}, {box[2], box[3]}}};
            assert_int_equal(tt_manifest_add_slice(tensor, &slice), TUTTI_OK);
        }
        assert_int_equal(tt_manifest_write(tt_file_of(&place, "manifest.json"), manifest), 0);
        tt_manifest_release(manifest);
        if (cases[i].text != NULL) {
            expect_refused(&place, NULL, TUTTI_ERR_FORMAT, cases[i].text);
        } else {
            tt_source_t source;
            open_source(&place, NULL, "checkpoint", &source);
            tt_source_close(&source);
        }
    }
    tt_end_files(&place);
}

static void paths_that_are_nothing_are_told(void **state)
{
    (void)state;
    static char path[TT_STEP_FOLDER_BYTES_MAX + 2];
    tt_source_t source;
    memset(path, 'a', sizeof path - 1);
    assert_int_equal(tt_source_open(path, &source), TUTTI_ERR_ARG);
    assert_int_equal(tt_source_open("", &source), TUTTI_ERR_ARG);
    assert_int_equal(tt_source_open(NULL, &source), TUTTI_ERR_ARG);
    assert_int_equal(tt_source_open("/tmp/tutti-nothing-here", &source), TUTTI_ERR_IO);
    tt_expect_error("/tmp/tutti-nothing-here: cannot look at it");
    assert_int_equal(tt_source_open("/dev/null", &source), TUTTI_ERR_IO);
    tt_expect_error("not a regular file");
    tt_source_close(NULL);
}

/* ---- llm.c ----------------------------------------------------------------------------------- */

static void llmc_writes_our_names_and_layouts(void **state)
{
    (void)state;
    enum { C = TT_LLMC_C, L = TT_LLMC_L };
    static uint8_t bytes[8192];
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    for (int is_f32 = 0; is_f32 < 2; is_f32++) {
        tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes,
                      tt_fill_llmc(bytes, sizeof bytes, is_f32));
        open_source(&place, "gpt2.bin", "llm.c", &source);
        assert_int_equal(source.manifest->tensor_count, 5 + 12 * L);
        tt_expect_saved(&source, "tok.weight", TUTTI_SHAPE(TT_LLMC_V, C), 0);
        tt_expect_saved(&source, "head.weight", TUTTI_SHAPE(TT_LLMC_V, C), 0);
        double at = TT_LLMC_PADDED * C;
        tt_expect_saved(&source, "pos.weight", TUTTI_SHAPE(TT_LLMC_T, C), at);
        at += TT_LLMC_T * C;
        tt_expect_saved(&source, "blocks.1.ln1.weight", TUTTI_SHAPE(C), at + C);
        at += 2 * L * C; /* ln1w, ln1b */
        if (is_f32) {    /* bf16 counts to 256 only */
            tt_expect_saved(&source, "blocks.0.qkv.weight", TUTTI_SHAPE(3 * C, C), at);
            tt_expect_saved(&source, "blocks.1.qkv.weight", TUTTI_SHAPE(3 * C, C), at + 3 * C * C);
            at += L * (3 * C * C + 3 * C);
            tt_expect_saved(&source, "blocks.0.proj.weight", TUTTI_SHAPE(C, C), at);
            at += L * (C * C + C + 2 * C);
            tt_expect_saved(&source, "blocks.1.up.bias", TUTTI_SHAPE(4 * C),
                            at + L * 4 * C * C + 4 * C);
            at += L * (4 * C * C + 4 * C);
            tt_expect_saved(&source, "blocks.1.down.weight", TUTTI_SHAPE(C, 4 * C), at + 4 * C * C);
            at += L * (4 * C * C + C);
            tt_expect_saved(&source, "ln.weight", TUTTI_SHAPE(C), at);
            tt_expect_saved(&source, "ln.bias", TUTTI_SHAPE(C), at + C);
        }
        tt_source_close(&source);
    }
    tt_end_files(&place);
}

static void what_is_wrong_with_a_file_of_llmc_is_told(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    static const struct {
        int at;
        uint32_t value;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {4, 1, TUTTI_ERR_UNSUPPORTED,
         "llm.c's version 1 at offset 4: expected 3 (f32) or 5 (bf16)"},
        {8, 0, TUTTI_ERR_FORMAT, "the context is 0 at offset 8: expected at least 1"},
        {12, 0x80000000u, TUTTI_ERR_FORMAT, "the vocabulary is -2147483648 at offset 12"},
        {12, 9, TUTTI_ERR_FORMAT, "the padded vocabulary is 8 at offset 28: expected at least 9"},
        {16, 3, TUTTI_ERR_FORMAT, "is longer than the file, which ends at"},
        {16, 1, TUTTI_ERR_FORMAT, "the tensors end at offset"},
        {16, INT32_MAX, TUTTI_ERR_FORMAT, "tensor \"ln1.weight\" begins at offset 1232, and is"},
        {20, 0, TUTTI_ERR_FORMAT, "heads is 0 at offset 20"},
        {24, INT32_MAX, TUTTI_ERR_FORMAT, "tensor \"tok.weight\" begins at offset 1024, and is"},
        {28, 7, TUTTI_ERR_FORMAT, "the tensors end at offset"},
    };
    tt_place_of_files_t place;
    tt_begin_files(&place);
    const size_t count = tt_fill_llmc(bytes, sizeof bytes, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t was = tt_get_u32(bytes + cases[i].at);
        tt_put_u32(bytes + cases[i].at, cases[i].value);
        tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, count);
        expect_refused(&place, "gpt2.bin", cases[i].status, cases[i].text);
        tt_put_u32(bytes + cases[i].at, was);
    }
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, count - 1);
    expect_refused(&place, "gpt2.bin", TUTTI_ERR_FORMAT, "tensor \"ln.bias\" begins at offset");
    tt_put_u32(bytes + 4, 1);
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, count);
    expect_refused(&place, "gpt2.bin", TUTTI_ERR_UNSUPPORTED, "llm.c's version 1");
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, 1023);
    expect_refused(&place, "gpt2.bin", TUTTI_ERR_FORMAT, "truncated: expected 1024 bytes");
    tt_end_files(&place);
}

/* A file that changes behind its header. */
/* Zeros that no disk has to hold: each of the layers would be twelve tensors in memory. */
static void a_file_of_llmc_may_not_have_millions_of_layers(void **state)
{
    (void)state;
    enum { LAYERS = 10001, BYTES = 1024 + 4 * (4 + LAYERS * 25) };
    static const uint32_t header[] = {20240326, 3, 1, 1, LAYERS, 1, 1, 1};
    uint8_t bytes[1024] = {0};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        tt_put_u32(bytes + 4 * i, header[i]);
    }
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, sizeof bytes);
    assert_int_equal(truncate(tt_file_of(&place, "gpt2.bin"), BYTES), 0);
    expect_refused(&place, "gpt2.bin", TUTTI_ERR_UNSUPPORTED,
                   "10001 layers at offset 16: expected at most 10000");
    tt_put_u32(bytes + 16, LAYERS - 1);
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, sizeof bytes);
    assert_int_equal(truncate(tt_file_of(&place, "gpt2.bin"), BYTES - 100), 0);
    tt_source_t source;
    open_source(&place, "gpt2.bin", "llm.c", &source);
    assert_int_equal(source.manifest->tensor_count, 5 + 12 * (LAYERS - 1));
    tt_source_close(&source);
    tt_end_files(&place);
}

/* ---- names ----------------------------------------------------------------------------------- */

enum { PAIRS = 12, PART_BYTES = 4, HASH_BITS = 14 };

/* Two texts that a hash leads to the same place from its state, which moves on. */
static void find_pair(uint64_t *hash, char pair[2][PART_BYTES + 1])
{
    static int seen[1 << HASH_BITS];
    memset(seen, 0, sizeof seen);
    for (int i = 1; i < 1 << 16; i++) {
        snprintf(pair[1], PART_BYTES + 1, "%04x", i);
        const uint64_t next = tt_fnv(*hash, pair[1], PART_BYTES) % (1 << HASH_BITS);
        if (seen[next] != 0) {
            snprintf(pair[0], PART_BYTES + 1, "%04x", seen[next]);
            *hash = next;
            return;
        }
        seen[next] = i;
    }
    fail_msg("no pair");
}

/* 4096 names of which a hash without a secret makes one place: each would be compared with all. */
static void names_of_strangers_do_not_collide(void **state)
{
    (void)state;
    static char pairs[PAIRS][2][PART_BYTES + 1];
    uint64_t hash = TT_FNV_BEGIN;
    tt_manifest_t *manifest;
    tt_saved_tensor_t *tensor;
    size_t run = 0, longest = 0;
    for (int i = 0; i < PAIRS; i++) {
        find_pair(&hash, pairs[i]);
    }
    assert_int_equal(tt_manifest_create(0, 1, &manifest), TUTTI_OK);
    for (int i = 0; i < 1 << PAIRS; i++) {
        char name[PAIRS * PART_BYTES + 1] = "";
        for (int k = 0; k < PAIRS; k++) {
            memcpy(name + (size_t)k * PART_BYTES, pairs[k][i >> k & 1], PART_BYTES + 1);
        }
        assert_int_equal(tt_manifest_add(manifest, name, TUTTI_U8, TUTTI_SHAPE(0), &tensor), 0);
    }
    assert_int_equal(manifest->tensor_count, 1 << PAIRS);
    for (size_t i = 0; i < manifest->tensor_names.size; i++) {
        run = manifest->tensor_names.places[i] == 0 ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    assert_true(longest < 400);
    tt_manifest_release(manifest);
}

static void what_was_cut_after_opening_is_an_error(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a"), "w", 4, 0);
    open_source(&place, "a", "safetensors", &source);
    assert_int_equal(truncate(tt_file_of(&place, "a"), 140), 0);
    assert_null(tt_read_saved(&source, source.manifest->tensors));
    tt_expect_error("/a: truncated: expected 48 bytes at offset");
    tt_source_close(&source);
    tt_end_files(&place);
}

/* Two matrices in one file; the other one of them is the first. */
static void write_pair(const char *path, bool is_swapped)
{
    tutti_tensor_t *w = tt_ramp(TUTTI_F32, TUTTI_SHAPE(4, 3), 0),
                   *v = tt_ramp(TUTTI_F32, TUTTI_SHAPE(4, 3), 100);
    const tutti_named_tensor_t pair[] = {{"w", w}, {"v", v}}, swapped[] = {{"v", v}, {"w", w}};
    assert_int_equal(tutti_safetensors_save(path, is_swapped ? swapped : pair, 2, NULL, 0), 0);
    tutti_tensor_release(w);
    tutti_tensor_release(v);
}

/* By another job, or it is another file on another host: as long, and otherwise inside. */
static void what_was_replaced_after_opening_is_an_error(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    tt_place_of_files_t place;
    tt_source_t source;
    tutti_buffer_t text;
    tt_begin_files(&place);
    write_pair(tt_file_of(&place, "a"), false);
    open_source(&place, "a", "safetensors", &source);
    assert_int_equal(tt_manifest_print(source.manifest, &text), TUTTI_OK); /* to another rank */
    tt_manifest_release(source.manifest);
    assert_int_equal(tt_manifest_parse("rank 0", tt_buffer_view(&text), &source.manifest), 0);
    tutti_buffer_release(&text);
    tt_expect_saved(&source, "w", TUTTI_SHAPE(4, 3), 0);
    write_pair(tt_file_of(&place, "a"), true);
    assert_null(tt_read_saved(&source, source.manifest->tensors));
    tt_expect_error("/a: not the file that was opened first: its first");
    tt_source_close(&source);
    const size_t count = tt_fill_llmc(bytes, sizeof bytes, true);
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, count);
    open_source(&place, "gpt2.bin", "llm.c", &source);
    tt_put_u32(bytes + 4, 5);
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, count);
    assert_null(tt_read_saved(&source, source.manifest->tensors));
    tt_expect_error("/gpt2.bin: not the file that was opened first: its first 1024 bytes");
    tt_source_close(&source);
    tt_end_files(&place);
}

static void a_bool_of_a_stranger_is_0_or_1(void **state)
{
    (void)state;
    static const char text[] =
        "\x40\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}     "
        "    \1\2";
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    tt_write_file(tt_file_of(&place, "a"), text, sizeof text - 1);
    open_source(&place, "a", "safetensors", &source);
    assert_null(tt_read_saved(&source, source.manifest->tensors));
    tt_expect_error("/a: tensor \"x\": byte 2 at offset 73: expected 0 or 1, a bool");
    tt_source_close(&source);
    tt_end_files(&place);
}

static void memory_that_runs_out_is_told(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    tt_place_of_files_t place;
    tt_source_t source;
    tt_begin_files(&place);
    tt_write_file(tt_file_of(&place, "b"), bytes, tt_fill_llmc(bytes, sizeof bytes, true));
    tt_write_matrix(tt_file_of(&place, "a"), "w", 4, 0);
    write_text(&place, index_name, "{\"weight_map\": {\"w\": \"a\"}}");
    assert_int_equal(mkdir(tt_file_of(&place, "both"), 0700), 0);
    tt_write_matrix(tt_file_of(&place, "both/model.safetensors"), "w", 4, 0);
    tt_write_matrix(tt_file_of(&place, "both/optim.safetensors"), "w.exp_avg", 4, 0);
    static const char *const names[] = {"a", "b", "model.safetensors.index.json", "both"};
    for (int i = 0; i < 4; i++) {
        const size_t before = tt_alloc_stats().blocks;
        for (size_t n = 1;; n++) {
            tt_alloc_fail_at(n);
            const tutti_status_t status = tt_source_open(tt_file_of(&place, names[i]), &source);
            const bool has_failed = tt_alloc_has_failed();
            tt_alloc_fail_at(0);
            if (status >= 0) {
                tt_source_close(&source);
            }
            assert_int_equal(tt_alloc_stats().blocks, before);
            if (!has_failed) {
                assert_int_equal(status, TUTTI_OK);
                break;
            }
            assert_int_equal(status, TUTTI_ERR_NOMEM);
        }
    }
    tt_end_files(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_is_a_source),
        cmocka_unit_test(shards_are_found_by_their_index),
        cmocka_unit_test(snapshots_of_earlier_versions_are_sources),
        cmocka_unit_test(a_snapshot_says_how_many_steps_are_done),
        cmocka_unit_test(checkpoints_of_ours_are_sources),
        cmocka_unit_test(slices_that_are_not_all_of_a_tensor_are_refused),
        cmocka_unit_test(paths_that_are_nothing_are_told),
        cmocka_unit_test(llmc_writes_our_names_and_layouts),
        cmocka_unit_test(what_is_wrong_with_a_file_of_llmc_is_told),
        cmocka_unit_test(a_file_of_llmc_may_not_have_millions_of_layers),
        cmocka_unit_test(names_of_strangers_do_not_collide),
        cmocka_unit_test(what_was_cut_after_opening_is_an_error),
        cmocka_unit_test(what_was_replaced_after_opening_is_an_error),
        cmocka_unit_test(a_bool_of_a_stranger_is_0_or_1),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
