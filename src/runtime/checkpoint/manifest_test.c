/* Manifests that say what cannot be: each is refused, with what was found and where; and those at
 * the edge of what can be are printed as they were. The texts have ' where JSON has ". */
#include "runtime/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/buffer.h"
#include "core/base/testing.h"

enum { TEXT_BYTES = 2048, NAMES = 100 };

#define DIGITS "0123456789abcdef0123456789abcdef"

/* Of a manifest, without what comes behind it: the digest. */
static const char whole[] =
    "{'format':'tutti checkpoint','version':1,'step':7,'ranks':2,"
    "'files':[{'name':'a','digests':'b'},{'name':'c'}],"
    "'tensors':{'w':{'dtype':'F32','shape':[4,6],'slices':["
    "{'offset':[0,0],'size':[2,6],'rank':0,'file':0,'at':320,'first_block':3,'digest':'" DIGITS
    "'},"
    "{'offset':[2,0],'size':[2,6],'rank':1,'file':1,'at':256}]},"
    "'s':{'dtype':'BF16','shape':[],'slices':[{'offset':[],'size':[],'rank':1}]}},"
    "'texts':{'t':'x','u':'y'}";

/* One place of it that is another. */
typedef struct {
    const char *find, *put;
    tutti_status_t status;
    const char *error;
} change_t;

/* With its digest, and a new line. */
static tutti_bytes_t text_of(const change_t *change, char text[TEXT_BYTES])
{
    const char *at = strstr(whole, change->find);
    char digest[TT_DIGEST_TEXT_BYTES];
    assert_non_null(at);
    snprintf(text, TEXT_BYTES, "%.*s%s%s", (int)(at - whole), whole, change->put,
             at + strlen(change->find));
    for (char *c = text; *c != 0; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    const size_t covered = strlen(text);
    tt_digest_format(tt_digest_of(text, covered), digest);
    snprintf(text + covered, TEXT_BYTES - covered, ",\"digest\":\"%s\"}\n", digest);
    return tutti_text(text);
}

#define FORMAT(find, put, error)                                                                   \
    {                                                                                              \
        find, put, TUTTI_ERR_FORMAT, "m: " error                                                   \
    }
#define NAMES_OF(i) "\"files\"[" i "]: expected names of a file and of its digests"
#define NO_NAME(i, name)                                                                           \
    "\"files\"[" i "]: \"" name "\" is no name of a file in the checkpoint's folder"
#define INTEGER(name, range) "\"" name "\": expected an integer of " range
#define UP_TO "0 to 9223372036854775807"
#define DTYPES "\"dtype\": expected F32, F64, BF16, F16, I64, I32, I8, U8 or BOOL"
#define W "tensor \"w\": "
#define SLICE(i) W "\"slices\"[" i "]: "

static const change_t mistakes[] = {
    FORMAT("'tutti checkpoint'", "'tutti'", "\"format\": expected \"tutti checkpoint\""),
    FORMAT("'format'", "'for'", "\"format\": expected \"tutti checkpoint\""),
    FORMAT("'version':1", "'version':0", INTEGER("version", "1 to 2147483647")),
    FORMAT("'version':1", "'version':1.5", INTEGER("version", "1 to 2147483647")),
    {"'version':1", "'version':2", TUTTI_ERR_UNSUPPORTED,
     "m: version 2: this library reads up to 1"},
    FORMAT("'step':7", "'step':-1", INTEGER("step", "0 to 999999999999")),
    FORMAT("'step':7", "'step':1000000000000", INTEGER("step", "0 to 999999999999")),
    FORMAT("'ranks':2", "'ranks':0", INTEGER("ranks", "1 to 2147483647")),
    FORMAT("'ranks':2", "'ranks':2147483648", INTEGER("ranks", "1 to 2147483647")),
    FORMAT("[{'name':'a','digests':'b'},{'name':'c'}]", "{}", "\"files\": expected a list"),
    FORMAT("'name':'c'", "'digests':'c'", NAMES_OF("1")),
    FORMAT("'digests':'b'", "'digests':1", NAMES_OF("0")),
    FORMAT("'name':'c'", "'name':''", NO_NAME("1", "")),
    FORMAT("'name':'c'", "'name':'.'", NO_NAME("1", ".")),
    FORMAT("'name':'c'", "'name':'..'", NO_NAME("1", "..")),
    FORMAT("'digests':'b'", "'digests':'../b'", NO_NAME("0", "../b")),
    FORMAT("'name':'c'", "'name':'c','head':'" DIGITS "'",
           "\"files\"[1]: " INTEGER("head_bytes", "1 to 100000008")),
    FORMAT("'name':'c'", "'name':'c','head':'0123','head_bytes':9",
           "\"files\"[1]: \"head\": expected 32 hexadecimal digits"),
    FORMAT("'ranks':2,", "'ranks':2,'hosts':['h',1],", "\"hosts\"[1]: expected a name"),
    FORMAT("'tensors':{", "'tensors':[],'more':{", "\"tensors\": expected an object"),
    FORMAT("'dtype':'F32',", "", W DTYPES),
    {"'F32'", "'F31'", TUTTI_ERR_UNSUPPORTED, "m: " W DTYPES},
    FORMAT("'shape':[4,6]", "'shape':4", W "\"shape\": expected a list of at most 8 numbers"),
    FORMAT("'shape':[4,6]", "'shape':[1,1,1,1,1,1,1,1,1]",
           W "\"shape\": expected a list of at most 8 numbers"),
    FORMAT("'shape':[4,6]", "'shape':[4,-1]", W "\"shape\"[1]: expected an integer, not negative"),
    FORMAT("'shape':[4,6]", "'shape':[4.0,6]", W "\"shape\"[0]: expected an integer, not negative"),
    FORMAT("'shape':[4,6]", "'shape':[4611686018427387904,6]",
           W "more elements than memory can address"),
    FORMAT("[{'offset':[],'size':[],'rank':1}]", "1", "tensor \"s\": \"slices\": expected a list"),
    FORMAT("'offset':[2,0]", "'offset':[3,0]", SLICE("1") "a slice that is no part of [4, 6]"),
    FORMAT("'size':[2,6]", "'size':[2]", SLICE("0") "a slice that is no part of [4, 6]"),
    FORMAT("'size':[],'rank':1", "'size':[],'rank':2",
           "tensor \"s\": \"slices\"[0]: \"rank\": expected an integer of 0 to 1"),
    FORMAT("'rank':0", "'rank':-1", SLICE("0") INTEGER("rank", "0 to 1")),
    FORMAT("'file':1", "'file':2", SLICE("1") INTEGER("file", "0 to 1")),
    FORMAT("'file':1", "'file':-1", SLICE("1") INTEGER("file", "0 to 1")),
    FORMAT("'at':256", "'at':-1", SLICE("1") INTEGER("at", UP_TO)),
    FORMAT("'first_block':3", "'first_block':562949953421312",
           SLICE("0") INTEGER("first_block", "0 to 562949953421311")),
    FORMAT(DIGITS, "0123", SLICE("0") "\"digest\": expected 32 hexadecimal digits"),
    FORMAT(",'digest':'" DIGITS "'", "", SLICE("0") "\"digest\": expected 32 hexadecimal digits"),
    FORMAT("'texts':{", "'texts':[],'more':{", "\"texts\": expected an object"),
    FORMAT("'u':'y'", "'u':1", "text \"u\": expected a text"),
    FORMAT("'u':'y'", "'t':'y'", "text \"t\": it is there twice"),
    FORMAT("'s':{", "'w':{", W "it is there twice"),
    FORMAT("'ranks':2", "'step':2", "not valid JSON at offset 57: duplicate object key"),
    FORMAT("'texts':{", "'files':{", "not valid JSON at offset 425: duplicate object key"),
    FORMAT("'step':7,", "'step':7,,", "not valid JSON at offset 50: a name expected"),
};

static void what_cannot_be_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        char text[TEXT_BYTES];
        tt_manifest_t *manifest;
        assert_int_equal(tt_manifest_parse("m", text_of(&mistakes[i], text), &manifest),
                         mistakes[i].status);
        if (strcmp(tutti_last_error(), mistakes[i].error) != 0) {
            fail_msg("%s to %s:\n%s\n%s", mistakes[i].find, mistakes[i].put, tutti_last_error(),
                     mistakes[i].error);
        }
    }
}

static void what_can_be_is_printed_as_it_was(void **state)
{
    (void)state;
    static const change_t changes[] = {
        {.find = "", .put = ""},
        {.find = "'step':7", .put = "'step':0"},
        {.find = "'step':7", .put = "'step':999999999999"},
        {.find = "'ranks':2", .put = "'ranks':2147483647"},
        {.find = "'ranks':2", .put = "'ranks':2,'whole':true"},
        {.find = "'name':'c'", .put = "'name':'c','head':'" DIGITS "','head_bytes':1"},
        {.find = "'name':'c'", .put = "'name':'c','head':'" DIGITS "','head_bytes':100000008"},
        {.find = "'name':'c'", .put = "'name':'...'"},
        {.find = "'shape':[]", .put = "'shape':[],'model':true"},
        {.find = "'s':{'dtype':'BF16','shape':[],'slices':[{'offset':[],'size':[]",
         .put = "'s':{'dtype':'BF16','shape':[1,2,1,1,1,1,1,1],'slices':["
                "{'offset':[0,1,0,0,0,0,0,0],'size':[1,1,1,1,1,1,1,1]"},
        {.find = "'at':256", .put = "'at':9223372036854775807"},
        {.find = "'first_block':3", .put = "'first_block':562949953421311"},
        {.find = "'t':'x','u':'y'", .put = "'t':'\\n\u00e4'"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char text[TEXT_BYTES];
        tt_manifest_t *manifest;
        tutti_buffer_t printed;
        const tutti_bytes_t bytes = text_of(&changes[i], text);
        if (tt_manifest_parse("m", bytes, &manifest) < 0) {
            fail_msg("%s: %s", changes[i].put, tutti_last_error());
        }
        assert_int_equal(tt_manifest_print(manifest, &printed), TUTTI_OK);
        assert_string_equal(printed.data, text);
        tutti_buffer_release(&printed);
        tt_manifest_release(manifest);
    }
}

static void expect_damaged(const char *text, const char *error)
{
    tt_manifest_t *manifest;
    assert_int_equal(tt_manifest_parse("m", tutti_text(text), &manifest), TUTTI_ERR_FORMAT);
    assert_string_equal(tutti_last_error(), error);
}

static void what_the_digest_does_not_fit_is_damaged(void **state)
{
    (void)state;
    char text[TEXT_BYTES], end[64];
    const tutti_bytes_t bytes = text_of(&(change_t){"", "", 0, NULL}, text);
    snprintf(end, sizeof end, "m: damaged: its digest is not that of its %zu bytes", bytes.bytes);
    text[20] ^= 1;
    expect_damaged(text, end);
    text[20] ^= 1;
    text[bytes.bytes - 4] ^= 1;
    expect_damaged(text, end);
    expect_damaged("", "m: 0 bytes are no manifest");
    expect_damaged(text + bytes.bytes - 46, "m: 46 bytes are no manifest");
    expect_damaged(text + bytes.bytes - 47, "m: damaged: its digest is not that of its 47 bytes");
}

/* ---- in memory ------------------------------------------------------------------------------- */

static void slices_are_each_element_once(void **state)
{
    (void)state;
    static const change_t changes[] = {
        {"'rank':1}]}}", "'rank':1,'file':1,'at':0}]}}", TUTTI_OK, ""},
        {"", "", TUTTI_ERR_FORMAT, "m: tensor \"s\": a slice is in no file"},
        {"'offset':[2,0],'size':[2,6]", "'offset':[1,0],'size':[2,6]", TUTTI_ERR_FORMAT,
         "m: tensor \"w\": slices [0:2, 0:6] and [1:3, 0:6] overlap"},
        {"'offset':[2,0],'size':[2,6]", "'offset':[2,0],'size':[2,5]", TUTTI_ERR_FORMAT,
         "m: tensor \"w\": 2 of 24 elements are in no slice"},
        {"'offset':[2,0],'size':[2,6]", "'offset':[1,0],'size':[3,6]", TUTTI_ERR_FORMAT,
         "m: tensor \"w\": its slices have more than 24 elements"},
        {"{'offset':[],'size':[],'rank':1}", "", TUTTI_ERR_FORMAT,
         "m: tensor \"s\": 1 of 1 elements are in no slice"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char text[TEXT_BYTES];
        tt_manifest_t *manifest;
        assert_int_equal(tt_manifest_parse("m", text_of(&changes[i], text), &manifest), TUTTI_OK);
        assert_int_equal(tt_manifest_check_slices("m", manifest), changes[i].status);
        if (changes[i].status < 0) {
            assert_string_equal(tutti_last_error(), changes[i].error);
        }
        tt_manifest_release(manifest);
    }
}

static void many_are_found_by_their_names(void **state)
{
    (void)state;
    tt_manifest_t *manifest, *copy;
    tt_saved_tensor_t *tensor;
    char name[32];
    assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
    assert_int_equal(tt_manifest_create(1, 1, &copy), TUTTI_OK);
    assert_null(tt_manifest_find(manifest, "w0"));
    for (int i = 0; i < 2 * NAMES; i++) { /* each of them twice */
        snprintf(name, sizeof name, "w%d", i % NAMES);
        assert_int_equal(
            tt_manifest_add(manifest, name, TUTTI_F32, TUTTI_SHAPE(i % NAMES), &tensor), TUTTI_OK);
        assert_int_equal(tt_manifest_add_file(manifest, name, i % 2 == 0 ? NULL : "d"), TUTTI_OK);
        assert_int_equal(tt_manifest_add_text(manifest, name, tutti_text(name)), TUTTI_OK);
    }
    assert_int_equal(manifest->tensor_count, NAMES);
    assert_int_equal(manifest->text_count, NAMES);
    assert_int_equal(tt_manifest_copy_files(copy, manifest), TUTTI_OK);
    assert_int_equal(copy->file_count, 2 * NAMES);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(tt_manifest_find(manifest, name)->shape.dims[0], i);
        assert_string_equal(tt_manifest_text(manifest, name)->data, name);
        assert_string_equal(copy->files[i].name, name);
        assert_int_equal(copy->files[i].digests != NULL, i % 2);
    }
    assert_null(tt_manifest_find(manifest, "w"));
    assert_null(tt_manifest_text(manifest, "w"));
    tt_manifest_release(copy);
    tt_manifest_release(manifest);
}

/* A stranger's: looking at all of them for each one would take hours. */
static void millions_of_names_take_no_hours(void **state)
{
    (void)state;
    enum { MANY = 200000 };
    tt_manifest_t *manifest;
    char name[32];
    assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(tt_manifest_add_text(manifest, name, tutti_text("")), TUTTI_OK);
        assert_int_equal(tt_manifest_add_host(manifest, name), TUTTI_OK);
    }
    assert_int_equal(manifest->text_count, MANY);
    assert_int_equal(manifest->host_count, MANY);
    assert_string_equal(manifest->hosts[MANY - 1], name);
    tt_manifest_release(manifest);
}

/* Files of others may have any name; that of one in the folder itself. */
static void names_of_files_need_not_be_utf_8(void **state)
{
    (void)state;
    static const char *const refused[] = {"", "2", "2g", "2E", "2f", "2e2e", "00", NULL};
    char longest[2 * 256 + 3] = "";
    tt_manifest_t *manifest, *again;
    tutti_buffer_t text;
    tt_saved_tensor_t *tensor;
    assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
    assert_int_equal(tt_manifest_add_file(manifest, "caf\xe9.safetensors", NULL), TUTTI_OK);
    assert_int_equal(tt_manifest_add_file(manifest, "caf\xc3\xa9.safetensors", NULL), TUTTI_OK);
    assert_int_equal(tt_manifest_add(manifest, "w", TUTTI_F32, TUTTI_SHAPE(0), &tensor), TUTTI_OK);
    assert_int_equal(tt_manifest_print(manifest, &text), TUTTI_OK);
    assert_int_equal(tt_manifest_parse("m", tutti_bytes_of(text.data, text.bytes), &again), 0);
    assert_int_equal(again->file_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(again->files[i].name, manifest->files[i].name);
    }
    tutti_buffer_release(&text);
    tt_manifest_release(again);
    tt_manifest_release(manifest);
    memset(longest, '4', 2 * 256);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char put[640], json[TEXT_BYTES];
        snprintf(put, sizeof put, "'name_hex':'%s'", refused[i] == NULL ? longest : refused[i]);
        const change_t change = {.find = "'name':'c'", .put = put};
        assert_int_equal(tt_manifest_parse("m", text_of(&change, json), &again), TUTTI_ERR_FORMAT);
        assert_non_null(strstr(tutti_last_error(), "m: \"files\"[1]: "));
    }
}

/* Of tensors they must, for other programs read them: none is left out. */
static void a_tensors_name_that_is_not_utf_8_is_refused(void **state)
{
    (void)state;
    tt_manifest_t *manifest;
    tt_saved_tensor_t *tensor;
    tutti_buffer_t text;
    assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
    assert_int_equal(tt_manifest_add(manifest, "a\xff", TUTTI_F32, TUTTI_SHAPE(1), &tensor), 0);
    assert_int_equal(tt_manifest_print(manifest, &text), TUTTI_ERR_NOMEM);
    tt_expect_error("a name that is not UTF-8");
    tt_manifest_release(manifest);
}

static void another_one_of_a_name_is_refused(void **state)
{
    (void)state;
    tt_manifest_t *manifest;
    tt_saved_tensor_t *tensor;
    assert_int_equal(tt_manifest_create(1, 1, &manifest), TUTTI_OK);
    assert_int_equal(tt_manifest_add(manifest, "w", TUTTI_F32, TUTTI_SHAPE(3), &tensor), TUTTI_OK);
    assert_int_equal(tt_manifest_add(manifest, "w", TUTTI_F64, TUTTI_SHAPE(3), &tensor),
                     TUTTI_ERR_MISMATCH);
    assert_string_equal(tutti_last_error(), "tensor \"w\" is f32[3], and f64[3]");
    assert_int_equal(tt_manifest_add(manifest, "w", TUTTI_F32, TUTTI_SHAPE(3, 1), &tensor),
                     TUTTI_ERR_MISMATCH);
    assert_int_equal(tt_manifest_add_text(manifest, "t", tutti_text("x")), TUTTI_OK);
    assert_int_equal(tt_manifest_add_text(manifest, "t", tutti_text("y")), TUTTI_ERR_MISMATCH);
    assert_string_equal(tutti_last_error(), "checkpoint: two ranks have other texts \"t\"");
    tt_manifest_release(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_told),
        cmocka_unit_test(what_can_be_is_printed_as_it_was),
        cmocka_unit_test(what_the_digest_does_not_fit_is_damaged),
        cmocka_unit_test(slices_are_each_element_once),
        cmocka_unit_test(many_are_found_by_their_names),
        cmocka_unit_test(millions_of_names_take_no_hours),
        cmocka_unit_test(names_of_files_need_not_be_utf_8),
        cmocka_unit_test(a_tensors_name_that_is_not_utf_8_is_refused),
        cmocka_unit_test(another_one_of_a_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
