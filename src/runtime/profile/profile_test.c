/* Profiles: what is recorded, by a clock that the test moves, is what the table, the JSON and the
 * timeline say; clocks of hosts are brought together; files that are damaged are refused. */
#include "runtime/profile/profile_file_testing.h"

#include <math.h>
#include <unistd.h>

#include <jansson.h>

#include <tutti/profile.h>

#include "core/base/clock.h"
#include "core/base/profiler.h"
#include "runtime/profile/profile_parts.h"

/* ---- a clock that is moved by hand ----------------------------------------------------------- */

static int64_t now_ns;

static int64_t read_clock(void *user)
{
    (void)user;
    return now_ns;
}

static int setup(void **state)
{
    now_ns = 1000;
    tt_clock_set_source(read_clock, NULL);
    return tt_profile_file_setup(state);
}

static int teardown(void **state)
{
    tt_clock_set_source(NULL, NULL);
    return tt_profile_file_teardown(state);
}

static void begin(tt_profile_kind_t kind, const char *name, uint32_t module, int64_t at)
{
    now_ns = at;
    assert_true(tt_profile_begin(kind, name, module));
}

static void end(double elements, uint64_t bytes, int64_t at)
{
    now_ns = at;
    tt_profile_end((tt_profile_end_t){elements, bytes});
}

static double measure_core(void)
{
    return 100;
}

static void record_a_step(void)
{
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
    tt_profile_note_threads(2, measure_core);
    const uint32_t module = tt_profile_module("gpt.head");
    assert_int_equal(tt_profile_module("gpt.head"), module);
    begin(TT_PROFILE_MODULE, "linear", module, 2000);
    begin(TT_PROFILE_FORWARD, "linear", module, 2100);
    tt_profile_count(4000);
    end(10, 64, 2500); /* 10 GFLOP/s */
    begin(TT_PROFILE_FORWARD, "add", module, 2500);
    end(30, 128, 2530);
    end(0, 0, 2600);
    begin(TT_PROFILE_REGION, "backward", 0, 3000);
    begin(TT_PROFILE_BACKWARD, "linear", module, 3100);
    begin(TT_PROFILE_FORWARD, "matmul", 0, 3200); /* inside */
    tt_profile_count(7000);
    end(1, 8, 3900);
    tt_profile_count(1000);
    end(1, 8, 4000);
    end(0, 0, 4100);
    now_ns = 5000;
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
}

static tutti_profile_t *load(int count)
{
    char other[3][80];
    const char *paths[4] = {path};
    for (int i = 1; i < count; i++) {
        snprintf(other[i - 1], sizeof other[0], "%s.%d", path, i);
        paths[i] = other[i - 1];
    }
    tutti_profile_t *profile;
    if (tutti_profile_load(paths, count, &profile) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return profile;
}

static json_t *parse(tutti_status_t (*make)(const tutti_profile_t *, tutti_buffer_t *),
                     const tutti_profile_t *profile)
{
    tutti_buffer_t text;
    assert_int_equal(make(profile, &text), TUTTI_OK);
    json_t *all = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, NULL);
    tutti_buffer_release(&text);
    assert_non_null(all);
    return all;
}

/* The entry of a list with this name and kind. */
static const json_t *find(const json_t *list, const char *name, const char *kind)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const json_t *its = json_object_get(one, "kind");
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0 &&
            (its == NULL || strcmp(json_string_value(its), kind) == 0)) {
            return one;
        }
    }
    fail_msg("there is no %s %s", name, kind);
    return NULL;
}

static double number(const json_t *object, const char *key)
{
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

/* ---- recording ------------------------------------------------------------------------------- */

static void what_runs_inside_is_taken_off(void **state)
{
    (void)state;
    record_a_step();
    tutti_profile_t *profile = load(1);
    json_t *all = parse(tutti_profile_json, profile);
    const json_t *operations = json_object_get(all, "operations");
    const json_t *linear = find(operations, "linear", "forward");
    assert_true(number(linear, "own_ns") == 400 && number(linear, "flops") == 4000);
    assert_true(number(linear, "bytes") == 64 && number(linear, "calls") == 1);
    const json_t *back = find(operations, "linear", "backward");
    assert_true(number(back, "total_ns") == 900 && number(back, "own_ns") == 200);
    assert_true(number(back, "flops") == 8000 && number(back, "own_flops") == 1000);
    const json_t *add = find(operations, "add", "forward"); /* an operation for each element */
    assert_true(number(add, "flops") == 30);
    const json_t *module = find(json_object_get(all, "modules"), "gpt.head", "module");
    assert_true(number(module, "own_ns") == 170 + 400 + 30 + 200);
    const json_t *region = find(json_object_get(all, "regions"), "backward", "region");
    assert_true(number(region, "own_ns") == 200 && number(region, "total_ns") == 1100);
    assert_true(number(all, "measured_ns") == 600 + 1100);
    assert_true(number(all, "length_ns") == 4000 && number(all, "peak_gflops") == 200);
    json_decref(all);
    tutti_profile_release(profile);
}

static void the_table_has_rates_and_shares(void **state)
{
    (void)state;
    record_a_step();
    tutti_profile_t *profile = load(1);
    tutti_buffer_t text;
    assert_int_equal(tutti_profile_table(profile, &text), TUTTI_OK);
    const char *line = strstr(text.data, "  linear ");
    assert_non_null(line);
    assert_non_null(strstr(line, " 10.0 "));  /* GFLOP/s */
    assert_non_null(strstr(line, " 5.0 % ")); /* of two cores of 100 */
    assert_non_null(strstr(line, " 24 % "));  /* 400 of 1700 ns */
    assert_non_null(strstr(text.data, "linear backward"));
    tutti_buffer_release(&text);
    tutti_profile_release(profile);
}

static void bars_of_the_timeline_lie_where_they_were(void **state)
{
    (void)state;
    record_a_step();
    tutti_profile_t *profile = load(1);
    json_t *all = parse(tutti_profile_trace, profile);
    const json_t *events = json_object_get(all, "traceEvents");
    bool has_seen = false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(json_string_value(json_object_get(event, "name")), "add") == 0) {
            assert_true(number(event, "ts") == 1.5 && number(event, "dur") == 0.03);
            assert_string_equal(
                json_string_value(json_object_get(json_object_get(event, "args"), "module")),
                "gpt.head");
            has_seen = true;
        }
    }
    assert_true(has_seen);
    json_decref(all);
    tutti_profile_release(profile);
}

static void nothing_is_recorded_when_it_is_off(void **state)
{
    (void)state;
    assert_false(tt_profile_begin(TT_PROFILE_FORWARD, "early", 0));
    tutti_profile_begin("early");
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
    assert_int_equal(tutti_profile_start(path), TUTTI_ERR_STATE);
    tutti_profile_end(); /* of what began before */
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
    assert_int_equal(tutti_profile_stop(), TUTTI_ERR_STATE);
    assert_int_equal(tutti_profile_start("/nowhere/at/all"), TUTTI_ERR_IO);
    tt_expect_error("/nowhere/at/all");
    assert_int_equal(tutti_profile_start(place), TUTTI_ERR_IO); /* what ends with it would fail */
    tt_expect_error("Is a directory");
    assert_int_equal(tutti_profile_start(""), TUTTI_ERR_IO);
    tt_expect_error("No such file");
    tutti_profile_t *profile = load(1);
    json_t *all = parse(tutti_profile_json, profile);
    assert_int_equal(json_array_size(json_object_get(all, "regions")), 0);
    json_decref(all);
    tutti_profile_release(profile);
}

static void memory_at_the_peak_is_named(void **state)
{
    (void)state;
    assert_int_equal(tutti_profile_start(path), TUTTI_OK);
    void *low = tt_alloc(1000, "profile test low"), *high = tt_alloc(50000, "profile test high");
    tt_free(low);
    tt_free(high);
    low = tt_alloc(2000, "profile test low"); /* below the peak */
    assert_int_equal(tutti_profile_stop(), TUTTI_OK);
    tt_free(low);
    tutti_profile_t *profile = load(1);
    json_t *all = parse(tutti_profile_json, profile);
    const json_t *process = json_array_get(json_object_get(all, "processes"), 0);
    const json_t *alive = json_object_get(process, "alive");
    assert_true(number(find(alive, "profile test high", ""), "bytes") == 50000);
    assert_true(number(find(alive, "profile test low", ""), "bytes") == 1000);
    assert_true(number(process, "peak_bytes") >= 51000);
    json_decref(all);
    tutti_profile_release(profile);
}

static void flops_can_be_counted_without_a_profile(void **state)
{
    (void)state;
    tt_profile_start_counting();
    const double before = tt_profile_flops();
    begin(TT_PROFILE_FORWARD, "linear", 0, 0);
    tt_profile_count(500);
    end(3, 0, 0);
    begin(TT_PROFILE_FORWARD, "add", 0, 0);
    end(7, 0, 0);
    assert_true(tt_profile_flops() - before == 507);
    tutti_profile_count(NAN); /* what is no number is not counted, and spoils nothing */
    tutti_profile_count(INFINITY);
    tutti_profile_count(-1);
    assert_true(tt_profile_flops() - before == 507);
    tt_profile_end_counting();
    assert_false(tt_profile_is_on());
}

/* ---- several ranks --------------------------------------------------------------------------- */

static void write_rank(int rank, const char *boot, int64_t begin_ns, int64_t wall_ns,
                       const char *calls, int count)
{
    char name[80];
    snprintf(name, sizeof name, rank == 0 ? "%s" : "%s.%d", path, rank);
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fprintf(file,
            "tutti profile 1\n{\"rank\":%d,\"world_size\":2,\"threads\":1,\"peak_mflops\":1000,"
            "\"begin_ns\":%lld,\"end_ns\":%lld,\"wall_ns\":%lld,\"host\":\"h%d\",\"boot\":\"%s\","
            "\"program\":\"p\"}\n{\"peak_bytes\":0,\"alive\":[]}\n{\"modules\":[]}\n"
            "{\"lane\":\"main\",\"rank\":%d,\"lost\":0,\"events\":0,\"calls\":%d,\"rows\":["
            "[\"call\",\"all_reduce\",0,1,10,10,10,0,0,8],[\"call\",\"send\",0,1,1,1,1,0,0,8],"
            "[\"call\",\"recv\",0,1,1,1,1,0,0,8]]}\n%s",
            rank, (long long)begin_ns, (long long)begin_ns + 100000, (long long)wall_ns, rank, boot,
            rank, count, calls);
    fclose(file);
}

/* The other host's clock is 7,000,000 ahead, and the wall says 5000 less than that. The call of 2
 * bounds it from below, that of 3 from above: rank 1 came 40 before rank 0 left. */
static void clocks_of_hosts_are_set_by_calls(void **state)
{
    (void)state;
    write_rank(0, "a", 1000, 900000,
               "c 0 100 200 2 8 0 2 -1 1 \"world\"\nc 0 300 400 3 8 0 2 -1 1 \"world\"\n", 2);
    write_rank(1, "b", 7001000, 895000,
               "c 0 20 140 2 8 1 2 -1 1 \"world\"\nc 0 360 420 3 8 1 2 -1 1 \"world\"\n", 2);
    tutti_profile_t *profile = load(2);
    /* True: offset -7,000,000 and d within [100 - 140, 400 - 360] of it. By the wall the clocks
     * differ by 5000 more; the middle half of what is allowed ends at 20. */
    assert_int_equal(profile->host_count, 2);
    assert_true(llabs(profile->processes[1].offset_ns + 7000000) <= 20);
    assert_int_equal(profile->doubt_ns, 80);
    tutti_profile_release(profile);
}

/* A call that failed on a rank may have ended there before others began it. */
static void a_failed_call_sets_no_clock(void **state)
{
    (void)state;
    write_rank(0, "a", 1000, 900000,
               "c 0 100 200 2 8 0 2 -1 1 \"world\"\nc 0 300 900 3 8 0 2 -1 1 \"world\"\n", 2);
    write_rank(1, "b", 1000, 900000,
               "c 0 150 190 2 8 1 2 -1 1 \"world\"\nc 0 10 20 3 8 1 2 -1 0 \"world\"\n", 2);
    tutti_profile_t *profile = load(2);
    assert_true(llabs(profile->processes[1].offset_ns) <= 20);
    assert_int_equal(profile->doubt_ns, 50 + 90);
    tutti_profile_release(profile);
}

static void who_comes_last_keeps_the_others(void **state)
{
    (void)state;
    write_rank(0, "a", 1000, 1000,
               "c 0 100 200 2 8 0 2 -1 1 \"world\"\nc 0 300 400 3 8 0 2 -1 1 \"world\"\n", 2);
    write_rank(1, "a", 1000, 1000,
               "c 0 170 210 2 8 1 2 -1 1 \"world\"\nc 0 310 420 3 8 1 2 -1 1 \"world\"\n", 2);
    tutti_profile_t *profile = load(2);
    json_t *all = parse(tutti_profile_json, profile);
    const json_t *late = json_object_get(all, "late");
    assert_int_equal(json_array_size(late), 1);
    assert_true(number(json_array_get(late, 0), "rank") == 1);
    assert_true(number(json_array_get(late, 0), "last") == 2);
    assert_true(number(json_array_get(late, 0), "kept_others_ns") == 80);
    json_decref(all);
    tutti_profile_release(profile);
}

static int count_phase(const json_t *events, char phase)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        count += json_string_value(json_object_get(event, "ph"))[0] == phase;
    }
    return count;
}

static bool is_phase(const json_t *event, const char *phases)
{
    return strchr(phases, json_string_value(json_object_get(event, "ph"))[0]) != NULL;
}

/* An arrow begins and ends where a bar of its lane begins. */
static bool is_at_a_bar(const json_t *events, const json_t *arrow)
{
    bool is_there = false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *bar = json_array_get(events, i);
        is_there = is_there || (is_phase(bar, "X") && number(bar, "ts") == number(arrow, "ts") &&
                                number(bar, "pid") == number(arrow, "pid") &&
                                number(bar, "tid") == number(arrow, "tid"));
    }
    return is_there;
}

/* An all_reduce of both, and two messages with one tag, each to its receive. */
static void arrows_lead_from_call_to_call(void **state)
{
    (void)state;
    write_rank(0, "a", 1000, 1000,
               "c 0 100 200 2 8 0 2 -1 1 \"world\"\nc 1 300 310 5 8 0 2 1 0 \"world\"\n"
               "c 1 320 330 5 8 0 2 1 0 \"world\"\n",
               3);
    write_rank(1, "a", 1000, 1000,
               "c 0 170 210 2 8 1 2 -1 1 \"world\"\nc 2 300 311 5 8 1 2 0 0 \"world\"\n"
               "c 2 305 331 5 8 1 2 0 0 \"world\"\n",
               3);
    tutti_profile_t *profile = load(2);
    json_t *all = parse(tutti_profile_trace, profile);
    const json_t *events = json_object_get(all, "traceEvents");
    assert_int_equal(count_phase(events, 's'), 3);
    assert_int_equal(count_phase(events, 'f'), 3);
    assert_int_equal(count_phase(events, 't'), 0);
    assert_int_equal(count_phase(events, 'X'), 6);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        assert_true(!is_phase(event, "sf") || is_at_a_bar(events, event));
    }
    json_decref(all);
    tutti_profile_release(profile);
}

/* ---- other people's files -------------------------------------------------------------------- */

static void expect_refusal(const char *text, const char *part)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    tutti_profile_t *profile;
    const char *const paths[] = {path};
    assert_int_equal(tutti_profile_load(paths, 1, &profile), TUTTI_ERR_FORMAT);
    tt_expect_error(path);
    tt_expect_error(part);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    write_rank(0, "a", 1000, 1000, "c 0 100 200 2 8 0 2 -1 1 \"world\"\n", 1);
    char whole[2048];
    FILE *file = fopen(path, "r");
    const size_t bytes = fread(whole, 1, sizeof whole - 1, file);
    fclose(file);
    whole[bytes] = 0;
    for (size_t cut = 0; cut < bytes; cut++) {
        char text[2048];
        snprintf(text, sizeof text, "%.*s", (int)cut, whole);
        const bool is_lines = cut > 0 && text[cut - 1] == '\n' && strstr(text, "modules") != NULL;
        if (!is_lines || strstr(text, "lane") != NULL) {
            expect_refusal(text, "line ");
        }
    }
    char *at = strstr(whole, "c 0 100 200");
    memcpy(at, "c 9 100 200", 11); /* a row that is not there */
    expect_refusal(whole, "line 6: want a call");
    memcpy(at, "c 0 300 200", 11); /* ends before it begins */
    expect_refusal(whole, "want a call");
    memcpy(at, "e 0 100 200", 11);
    expect_refusal(whole, "want a call");
}

static void write_numbers(const char *peak, const char *row)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "tutti profile 1\n{\"rank\":0,\"world_size\":1,\"threads\":1048576,"
            "\"peak_mflops\":%s,\"begin_ns\":0,\"end_ns\":9,\"wall_ns\":0,\"host\":\"h\","
            "\"boot\":\"b\",\"program\":\"p\"}\n"
            "{\"peak_bytes\":9,\"alive\":[[\"few\",1,1],[\"many\",1,8]]}\n{\"modules\":[]}\n"
            "{\"lane\":\"main\",\"rank\":0,\"lost\":0,\"events\":0,\"calls\":0,\"rows\":["
            "%s,%s,%s]}\n",
            peak, row, row, row);
    fclose(file);
}

/* Sums stay where numbers end, and the JSON is one. */
static void large_numbers_do_not_wrap(void **state)
{
    (void)state;
    write_numbers("8000000000",
                  "[\"forward\",\"add\",0,9223372036854775807,"
                  "9223372036854775807,9223372036854775807,1,0,0,9223372036854775807]");
    tutti_profile_t *profile = load(1);
    json_t *all = parse(tutti_profile_json, profile);
    const json_t *add = find(json_object_get(all, "operations"), "add", "forward");
    assert_true(number(add, "own_ns") == (double)INT64_MAX);
    assert_true(number(add, "total_ns") == (double)INT64_MAX);
    assert_true(number(all, "measured_ns") == (double)INT64_MAX);
    assert_true(number(all, "peak_gflops") == 8e6 * 1048576);
    json_decref(all);
    tutti_profile_release(profile);
    write_numbers("9223372036854775807", "[\"forward\",\"add\",0,1,1,1,1,0,0,1]");
    const char *const paths[] = {path};
    assert_int_equal(tutti_profile_load(paths, 1, &profile), TUTTI_ERR_FORMAT);
    tt_expect_error("line 2: want an integer in its range");
}

static tutti_buffer_t make(tutti_status_t (*print)(const tutti_profile_t *, tutti_buffer_t *),
                           const tutti_profile_t *profile)
{
    tutti_buffer_t text;
    assert_int_equal(print(profile, &text), TUTTI_OK);
    return text;
}

/* Several threads may read one. */
static void to_print_changes_nothing(void **state)
{
    (void)state;
    write_numbers("1", "[\"forward\",\"add\",0,1,1,1,1,0,0,1]");
    tutti_profile_t *profile = load(1);
    tutti_buffer_t before = make(tutti_profile_json, profile);
    tutti_buffer_t table = make(tutti_profile_table, profile);
    tutti_buffer_t behind = make(tutti_profile_json, profile);
    assert_string_equal(before.data, behind.data);
    assert_true(strstr(table.data, "many") < strstr(table.data, "few"));
    tutti_buffer_release(&before);
    tutti_buffer_release(&table);
    tutti_buffer_release(&behind);
    tutti_profile_release(profile);
}

static void two_files_of_one_rank_are_not_one_run(void **state)
{
    (void)state;
    tutti_profile_t *profile;
    write_rank(0, "a", 1000, 1000, "", 0);
    const char *const paths[] = {path, path};
    assert_int_equal(tutti_profile_load(paths, 2, &profile), TUTTI_ERR_ARG);
    tt_expect_error("both of rank 0");
    assert_int_equal(tutti_profile_load(paths, 0, &profile), TUTTI_ERR_ARG);
}

/* Each allocation fails once, while recording and while reading. */
static void missing_memory_breaks_nothing(void **state)
{
    (void)state;
    record_a_step();
    for (size_t nth = 1;; nth++) {
        tutti_profile_t *profile = NULL;
        const char *const paths[] = {path};
        tutti_buffer_t text[3] = {{0}};
        tt_alloc_fail_at(nth);
        tutti_status_t status = tutti_profile_load(paths, 1, &profile);
        status = status < 0 ? status : tutti_profile_table(profile, &text[0]);
        status = status < 0 ? status : tutti_profile_json(profile, &text[1]);
        status = status < 0 ? status : tutti_profile_trace(profile, &text[2]);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        for (int i = 0; i < 3; i++) {
            tutti_buffer_release(&text[i]);
        }
        tutti_profile_release(profile);
        if (!has_failed) {
            break;
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_runs_inside_is_taken_off),
        TEST(the_table_has_rates_and_shares),
        TEST(bars_of_the_timeline_lie_where_they_were),
        TEST(nothing_is_recorded_when_it_is_off),
        TEST(memory_at_the_peak_is_named),
        TEST(flops_can_be_counted_without_a_profile),
        TEST(clocks_of_hosts_are_set_by_calls),
        TEST(a_failed_call_sets_no_clock),
        TEST(who_comes_last_keeps_the_others),
        TEST(arrows_lead_from_call_to_call),
        TEST(damaged_files_are_refused),
        TEST(large_numbers_do_not_wrap),
        TEST(to_print_changes_nothing),
        TEST(two_files_of_one_rank_are_not_one_run),
        TEST(missing_memory_breaks_nothing),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
