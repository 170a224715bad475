/* Verdicts out of dumps that are written down here: what is said of which rank, and what is no
 * dump. */
#include "core/base/testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <tutti/diagnose.h>

#include "comm/diagnose/dump_verdict.h"

enum { DUMPS_MAX = 3, BYTES_MAX = 4000 };

/* JSON with ' in place of ". */
#define CALL_LIKE(name, number, state, site, rest)                                                 \
    "{'kind':'call','call':'" name "','sequence':" #number ",'dtype':'f32','count':4," rest        \
    ",'site':'" site "','state':'" state "'}"
#define CALL(name, number, state, site)                                                            \
    CALL_LIKE(name, number, state, site, "'root':0,'tag':0,'reduction':'sum'")
#define GROUP(name, rank, calls, more)                                                             \
    "{'name':'" name "','rank':" #rank ",'size':3,'epoch':0,'ranks':[0,1,2],'calls':[" calls       \
    "]" more "}"
#define DUMP(rank, groups)                                                                         \
    "{'format':'tutti-dump','version':1,'rank':" #rank ",'groups':[" groups "]}"
#define WORLD(rank, calls) DUMP(rank, GROUP("world", rank, calls, ""))

static const char *in_json(const char *text, char out[BYTES_MAX])
{
    assert_true(snprintf(out, BYTES_MAX, "%s", text) < BYTES_MAX);
    for (char *at = out; *at != 0; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    return out;
}

typedef struct {
    const char *dumps[DUMPS_MAX];
    const char *verdict;
} case_t;

#define IN_7 CALL("all_reduce", 7, "posted", "a.c:1")
#define NOBODY(files) "no rank keeps another waiting, as far as " #files " files tell\n"
#define ALL_IN_7 "group world: all ranks entered all_reduce #7 f32[4] (a.c:1)\n"
#define NEVER_ENTERED_7 "never entered all_reduce #7 f32[4] (a.c:1); "

static void expect_verdict(const case_t *c)
{
    tt_dump_verdict_t *verdict;
    tutti_buffer_t text;
    bool is_guilty = false;
    char json[BYTES_MAX];
    assert_int_equal(tt_dump_verdict_create(&verdict), TUTTI_OK);
    for (int i = 0; i < DUMPS_MAX && c->dumps[i] != NULL; i++) {
        in_json(c->dumps[i], json);
        assert_int_equal(tt_dump_verdict_add(verdict, "file", json, strlen(json)), TUTTI_OK);
    }
    assert_int_equal(tt_dump_verdict_say(verdict, &text, &is_guilty), TUTTI_OK);
    assert_int_equal(text.bytes, strlen(c->verdict));
    assert_memory_equal(text.data, c->verdict, text.bytes);
    assert_int_equal(is_guilty, strstr(c->verdict, "no rank keeps another waiting") == NULL);
    tutti_buffer_release(&text);
    tt_dump_verdict_release(verdict);
}

static void a_call_that_all_are_in_keeps_nobody(void **state)
{
    (void)state;
#define ALL(word)                                                                                  \
    {                                                                                              \
        WORLD(0, CALL("barrier", 7, word, "")), WORLD(1, CALL("barrier", 7, word, "")),            \
            WORLD(2, CALL("barrier", 7, word, ""))                                                 \
    }
#define ENTERED "group world: all ranks entered barrier #7\n" NOBODY(3)
    static const case_t cases[] = {
        {ALL("started"), ENTERED},
        {ALL("posted"), ENTERED},
        {ALL("running"), ENTERED},
        {ALL("failed"), ENTERED},
        {ALL("done"), NOBODY(3)},
        {{WORLD(0, IN_7), WORLD(1, IN_7), WORLD(2, IN_7)}, ALL_IN_7 NOBODY(3)},
        {{WORLD(0, "")}, NOBODY(1)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_verdict(&cases[i]);
    }
}

static void a_rank_that_never_entered_is_told_with_where_it_is(void **state)
{
    (void)state;
    static const case_t cases[] = {
        {{WORLD(0, IN_7), WORLD(1, IN_7),
          WORLD(2, CALL("broadcast", 6, "done", "b.c:2") ",{'kind':'send','state':'done'}")},
         "group world: rank 2 " NEVER_ENTERED_7 "its last call is broadcast #6 f32[4] (b.c:2)\n"},
        {{WORLD(0, CALL("all_reduce", 8, "started", "a.c:9")), WORLD(1, IN_7),
          WORLD(2, CALL("barrier", 6, "done", ""))},
         "group world: rank 2 " NEVER_ENTERED_7 "its last call is barrier #6\n"},
        {{WORLD(0, IN_7), WORLD(2, "")},
         "group world: rank 1 " NEVER_ENTERED_7 "it left no file, so it died or was ended first\n"
         "group world: rank 2 " NEVER_ENTERED_7 "it has made no call\n"},
        {{DUMP(0, GROUP("world", 0, IN_7,
                        ",'seen':[{'rank':1,'last':" CALL(
                            "gather", 6, "done",
                            "c.c:3") "},"
                                     "{'rank':2,'where':'recv of rows','last':" CALL(
                                         "gather", 5, "done", "") "},{'rank':3},{'rank':-1}]"))},
         "group world: rank 1 " NEVER_ENTERED_7 "its last call is gather #6 f32[4] (c.c:3)\n"
         "group world: rank 2 " NEVER_ENTERED_7 "it was seen waiting in recv of rows\n"},
        {{WORLD(0, IN_7), WORLD(1, IN_7),
          DUMP(2, GROUP("rows", 2, CALL("scan", 3, "running", "d.c:4"), ""))},
         "group world: rank 2 " NEVER_ENTERED_7 "it is in scan #3 f32[4] of group rows (d.c:4)\n"
         "group rows: rank 0 never entered scan #3 f32[4] (d.c:4); "
         "it is in all_reduce #7 f32[4] of group world (a.c:1)\n"
         "group rows: rank 1 never entered scan #3 f32[4] (d.c:4); "
         "it is in all_reduce #7 f32[4] of group world (a.c:1)\n"},
        {{WORLD(0, IN_7), WORLD(1, IN_7),
          WORLD(2, CALL("all_reduce", 6, "done", "") ",{'kind':'recv','dtype':'i32','count':2,"
                                                     "'peer':1,'state':'started'}")},
         "group world: rank 2 " NEVER_ENTERED_7
         "it is in recv of i32[2] with rank 1 of group world\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_verdict(&cases[i]);
    }
}

static void calls_that_differ_are_told_with_what_differs(void **state)
{
    (void)state;
#define LIKE(rest) CALL_LIKE("reduce", 7, "posted", "a.c:1", rest)
#define DIFFER(other, mine, theirs)                                                                \
    {                                                                                              \
        {WORLD(0, LIKE("'root':0,'tag':0,'reduction':'sum'")), WORLD(1, LIKE(other)),              \
         WORLD(2, LIKE("'root':0,'tag':0,'reduction':'sum'"))},                                    \
            "group world: rank 1 called reduce #7 f32[4]" mine                                     \
            " (a.c:1), rank 0 called reduce #7 f32[4]" theirs " (a.c:1)\n"                         \
    }
    static const case_t cases[] = {
        DIFFER("'root':2,'tag':0,'reduction':'sum'", " with root 2", " with root 0"),
        DIFFER("'root':0,'tag':-5,'reduction':'sum'", " with tag -5", " with tag 0"),
        DIFFER("'root':0,'tag':0,'reduction':'max'", " max", " sum"),
        DIFFER("'root':1,'tag':2,'reduction':'max'", " with root 1 with tag 2 max",
               " with root 0 with tag 0 sum"),
        {{WORLD(0, IN_7), WORLD(1, CALL("barrier", 7, "posted", "")), WORLD(2, IN_7)},
         "group world: rank 1 called barrier #7, rank 0 called all_reduce #7 f32[4] (a.c:1)\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_verdict(&cases[i]);
    }
}

static void what_ranks_say_is_quoted_without_control_characters(void **state)
{
    (void)state;
    static const case_t cases[] = {
        {{DUMP(0, GROUP("world", 0, "", ",'error':'rank 1\\u001b[2J is\\u007f gone'")),
          DUMP(1, GROUP("world", 1, "", ",'error':''"))},
         "  rank 0 says: rank 1?[2J is? gone\n"},
        {{DUMP(0, GROUP("w\\nd", 0, IN_7, "")), DUMP(1, GROUP("w\\nd", 1, IN_7, "")),
          DUMP(2, GROUP("w\\nd", 2, IN_7, ""))},
         "group w?d: all ranks entered all_reduce #7 f32[4] (a.c:1)\n" NOBODY(3)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_verdict(&cases[i]);
    }
}

/* Groups are told apart by name, epoch, size and ranks; each is judged once. */
static void each_group_is_judged_once(void **state)
{
    (void)state;
#define OF(epoch, ranks)                                                                           \
    "{'name':'world','rank':0,'size':3,'epoch':" #epoch ",'ranks':" ranks ",'calls':[]}"
    static const case_t cases[] = {
        {{WORLD(0, IN_7), WORLD(0, CALL("barrier", 1, "posted", "")), WORLD(1, IN_7)},
         "group world: rank 2 " NEVER_ENTERED_7 "it left no file, so it died or was ended first\n"},
        {{DUMP(0, GROUP("world", 0, IN_7, "") "," OF(1, "[0,1,2]") "," OF(0, "[2,1,0]")),
          WORLD(1, IN_7), WORLD(2, IN_7)},
         ALL_IN_7 NOBODY(3)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_verdict(&cases[i]);
    }
}

/* As of 4,096 ranks on a mesh of twelve dimensions: each dump tells of groups that one other has.
 */
static void many_files_and_groups_take_seconds(void **state)
{
    enum { DIMENSIONS = 12, GUARD_S = 4, BYTES = 8000 };
    (void)state;
    tt_dump_verdict_t *verdict;
    tutti_buffer_t text;
    bool is_guilty = true;
    static char json[BYTES], call[BYTES_MAX];
    (void)in_json(CALL("barrier", 1, "posted", ""), call);
    assert_int_equal(tt_dump_verdict_create(&verdict), TUTTI_OK);
    for (int rank = 0; rank < TT_VERDICT_DUMPS; rank++) {
        int length = snprintf(
            json, BYTES, "{\"format\":\"tutti-dump\",\"version\":1,\"rank\":%d,\"groups\":[", rank);
        for (int i = 0; i < DIMENSIONS; i++) {
            const int low = rank & ~(1 << i), high = rank | 1 << i;
            length += snprintf(json + length, BYTES - (size_t)length,
                               "%s{\"name\":\"pair\",\"rank\":%d,\"size\":2,\"epoch\":0,"
                               "\"ranks\":[%d,%d],\"calls\":[%s]}",
                               i > 0 ? "," : "", rank == high, low, high, call);
        }
        length += snprintf(json + length, BYTES - (size_t)length, "]}");
        assert_int_equal(tt_dump_verdict_add(verdict, "file", json, (size_t)length), TUTTI_OK);
    }
    const clock_t start = clock(); /* this process's, whatever else runs */
    assert_int_equal(tt_dump_verdict_say(verdict, &text, &is_guilty), TUTTI_OK);
    const double took_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("%d files of %d groups: %.3f s\n", TT_VERDICT_DUMPS, DIMENSIONS, took_s);
    assert_true(took_s < GUARD_S);
    assert_false(is_guilty);
    tutti_buffer_release(&text);
    tt_dump_verdict_release(verdict);
}

static void what_is_no_dump_is_refused(void **state)
{
    (void)state;
#define HEAD "{'format':'tutti-dump','version':1,'rank':0,'groups':["
#define NO_DUMP "f: no dump of a group, version 1"
#define NO_GROUP "f: group 0 is not one of 1 to 4096 ranks"
    static const char *const cases[][2] = {
        {"{", "f: line 1: "},
        {"{'format':'dump','version':1,'rank':0,'groups':[]}", NO_DUMP},
        {"{'format':'tutti-dump','version':2,'rank':0,'groups':[]}", NO_DUMP},
        {"{'format':'tutti-dump','version':1,'rank':-1,'groups':[]}", NO_DUMP},
        {"{'format':'tutti-dump','version':1,'groups':[]}", NO_DUMP},
        {"{'format':'tutti-dump','version':1,'rank':0,'groups':{}}", NO_DUMP},
        {HEAD "{'size':0,'rank':0,'ranks':[]}]}", NO_GROUP},
        {HEAD "{'size':1,'ranks':[0]}]}", NO_GROUP},
        {HEAD "{'size':1,'rank':1,'ranks':[0]}]}", NO_GROUP},
        {HEAD "{'size':2,'rank':1,'ranks':[0]}]}", NO_GROUP},
        {HEAD "{'size':4097,'rank':1,'ranks':[0]}]}", NO_GROUP},
        {HEAD "{'size':1,'rank':0,'ranks':[0]},{'size':1,'rank':0}]}",
         "f: group 1 is not one of 1 to 4096 ranks"},
    };
    tt_dump_verdict_t *verdict;
    char json[BYTES_MAX];
    assert_int_equal(tt_dump_verdict_create(&verdict), TUTTI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        in_json(cases[i][0], json);
        assert_int_equal(tt_dump_verdict_add(verdict, "f", json, strlen(json)), TUTTI_ERR_FORMAT);
        tt_expect_error(cases[i][1]);
    }
    tt_dump_verdict_release(verdict);
}

static void write_file(char path[], const char *text)
{
    char json[BYTES_MAX];
    const int fd = mkstemp(path);
    in_json(text, json);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, json, strlen(json)), strlen(json));
    close(fd);
}

static void files_are_read_in_their_order(void **state)
{
    (void)state;
    char here[] = "/tmp/tutti_verdict_XXXXXX", there[] = "/tmp/tutti_verdict_XXXXXX";
    const char *const paths[] = {here, there, "/nowhere/rank2.json"};
    static const char want[] =
        "group world: rank 1 " NEVER_ENTERED_7 "its last call is barrier #1\n"
        "group world: rank 2 " NEVER_ENTERED_7 "it left no file, so it died or was ended first\n";
    write_file(here, WORLD(0, IN_7));
    write_file(there, WORLD(1, CALL("barrier", 1, "done", "")));
    tutti_buffer_t text;
    bool is_guilty = false;
    assert_int_equal(tutti_verdict(paths, 2, &text, &is_guilty), TUTTI_OK);
    assert_true(is_guilty);
    assert_int_equal(text.bytes, sizeof want - 1);
    assert_memory_equal(text.data, want, text.bytes);
    tutti_buffer_release(&text);
    assert_int_equal(tutti_verdict(paths, 3, &text, &is_guilty), TUTTI_ERR_IO);
    tt_expect_error("/nowhere/rank2.json");
    assert_int_equal(tutti_verdict(paths, 0, &text, &is_guilty), TUTTI_ERR_ARG);
    unlink(here);
    unlink(there);
}

/* What jansson has allocated and not freed. */
static long json_blocks;

static void *allocate(size_t bytes)
{
    json_blocks++;
    return malloc(bytes);
}

static void release(void *block)
{
    json_blocks -= block != NULL;
    free(block);
}

static int no_json_is_left(void **state)
{
    TT_ASSERT(json_blocks == 0);
    return tt_nothing_is_left(state);
}

int main(void)
{
    json_set_alloc_funcs(allocate, release);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_all_are_in_keeps_nobody),
        cmocka_unit_test(a_rank_that_never_entered_is_told_with_where_it_is),
        cmocka_unit_test(calls_that_differ_are_told_with_what_differs),
        cmocka_unit_test(what_ranks_say_is_quoted_without_control_characters),
        cmocka_unit_test(each_group_is_judged_once),
        cmocka_unit_test(many_files_and_groups_take_seconds),
        cmocka_unit_test(what_is_no_dump_is_refused),
        cmocka_unit_test(files_are_read_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, no_json_is_left);
}
