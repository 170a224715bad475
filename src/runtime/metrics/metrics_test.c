/* Metrics: what files hold, what is cut away when a training goes on, what is refused, and what
 * happens without memory or room. tests/formats/metrics_test.py reads the files as others do. */
#include <tutti/metrics.h>

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/comma_testing.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/metrics/metrics_impl.h"

enum { THREADS = 4, TOLD = 200, TEXT_BYTES = 1 << 16 };

static char place[TT_PLACE_BYTES], folder[TT_PLACE_BYTES + 8];

static int begin(void **state)
{
    (void)state;
    tt_place_make(place);
    snprintf(folder, sizeof folder, "%s/run", place);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(place);
    return 0;
}

/* The whole file; "": there is none. */
static const char *text_of(const char *name)
{
    static char text[TEXT_BYTES];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const size_t count = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    text[count] = 0;
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Of the events, the file that TensorBoard reads as its nth, from 0; of `count`. */
static void events_path(size_t nth, size_t count, char path[256])
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, count);
    snprintf(path, 256, "%s", found.gl_pathv[nth]);
    globfree(&found);
}

static long events_bytes(size_t nth, size_t count)
{
    char path[256];
    events_path(nth, count, path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    fclose(file);
    return bytes;
}

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text != 0; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static void expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, text);
    }
}

static tutti_metrics_t *opened(const tutti_metrics_options_t *options)
{
    tutti_metrics_t *metrics;
    assert_int_equal(tutti_metrics_open(folder, options, &metrics), TUTTI_OK);
    return metrics;
}

static void tell_steps(tutti_metrics_t *metrics, int64_t first, int64_t last)
{
    for (int64_t step = first; step < last; step++) {
        assert_int_equal(tutti_metrics_scalar(metrics, "loss", step, (double)step), TUTTI_OK);
    }
}

static void numbers_are_told_as_they_are(void **state)
{
    (void)state;
    tutti_metrics_t *metrics = opened(NULL);
    const double values[] = {0.1, -0.0, 1e300, 1.0 / 3, NAN, -INFINITY, 5e-324, 0.1 + 0.2};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(tutti_metrics_scalar(metrics, "a,\"b", (int64_t)i, values[i]), TUTTI_OK);
    }
    assert_int_equal(tutti_metrics_text(metrics, "note", 3, "two\nlines \xff \xe2\x82\xac"),
                     TUTTI_OK);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    const char *csv = text_of("metrics.csv");
    assert_int_equal(count_lines(csv), 9);
    expect_in(csv, "step,time,name,value\n0,");
    expect_in(csv, ",\"a,\"\"b\",0.1\n");
    expect_in(csv, ",-0\n");
    expect_in(csv, ",1e+300\n");
    expect_in(csv, ",0.3333333333333333\n");
    expect_in(csv, ",nan\n");
    expect_in(csv, ",-inf\n");
    expect_in(csv, ",4.94065645841247e-324\n");
    expect_in(csv, ",0.30000000000000004\n");
    const char *json = text_of("metrics.jsonl");
    assert_int_equal(count_lines(json), 9);
    expect_in(json, "\"name\":\"a,\\\"b\",\"value\":0.1}\n");
    expect_in(json, "\"value\":null,\"not_finite\":\"nan\"}\n");
    expect_in(json, "\"value\":null,\"not_finite\":\"-inf\"}\n");
    expect_in(json, "\"text\":\"two\\u000alines \xef\xbf\xbd \xe2\x82\xac\"}\n");
}

/* "%g" of a German locale has a comma, a list of two values in CSV. */
static void a_locale_changes_no_number(void **state)
{
    (void)state;
    tt_comma_begin();
    tutti_metrics_t *metrics = opened(NULL);
    assert_int_equal(tutti_metrics_scalar(metrics, "x", 0, 0.5), TUTTI_OK);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    tt_comma_end();
    expect_in(text_of("metrics.csv"), ",x,0.5\n");
    expect_in(text_of("metrics.jsonl"), "\"value\":0.5}");
}

static void a_training_goes_on_where_it_was_saved(void **state)
{
    (void)state;
    tutti_metrics_t *metrics = opened(NULL);
    tell_steps(metrics, 0, 10);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    const long bytes_of_10 = events_bytes(0, 1);
    const tutti_metrics_options_t at_6 = {.is_continued = true, .step = 6};
    metrics = opened(&at_6);
    assert_int_equal(tutti_metrics_flush(metrics), TUTTI_OK);
    assert_int_equal(count_lines(text_of("metrics.jsonl")), 6);
    assert_int_equal(count_lines(text_of("metrics.csv")), 7);
    const long bytes_of_6 = events_bytes(0, 2), bytes_of_0 = events_bytes(1, 2);
    assert_true(bytes_of_6 < bytes_of_10);
    tell_steps(metrics, 6, 10);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_int_equal(events_bytes(0, 2), bytes_of_6);
    assert_int_equal(events_bytes(1, 2) - bytes_of_0, bytes_of_10 - bytes_of_6);
    assert_int_equal(count_lines(text_of("metrics.csv")), 11);
    const tutti_metrics_options_t at_0 = {.is_continued = true};
    assert_int_equal(tutti_metrics_close(opened(&at_0)), TUTTI_OK);
    assert_string_equal(text_of("metrics.csv"), "step,time,name,value\n");
    assert_string_equal(text_of("metrics.jsonl"), "");
}

/* Who reads has a file open that is written anew under its name, so what follows must come in one
 * that is behind it by name, whatever the clock says; and it begins with what TensorBoard takes for
 * a start at that step (event.proto: step 6, session_log of status START). */
static void what_follows_comes_in_a_file_behind(void **state)
{
    (void)state;
    static const char restart[] = {16, 6, 58, 2, 8, 1};
    char path[256], later[256], data[512];
    tutti_metrics_t *metrics = opened(NULL);
    tell_steps(metrics, 0, 10);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    events_path(0, 1, path);
    snprintf(later, sizeof later, "%s/events.out.tfevents.8888888888.z", folder);
    assert_int_equal(rename(path, later), 0);
    for (size_t files = 2; files < 5; files++) {
        metrics = opened(&(tutti_metrics_options_t){.is_continued = true, .step = 6});
        assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
        events_path(0, files, path);
        assert_string_equal(path, later);
        events_path(files - 1, files, path);
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        const size_t bytes = fread(data, 1, sizeof data, file);
        fclose(file);
        assert_non_null(memmem(data, bytes, restart, sizeof restart));
    }
}

/* Of what a crash left, whole records and lines stay. */
static void half_records_and_lines_are_cut_away(void **state)
{
    (void)state;
    for (long cut = 0; cut < 40; cut += 7) {
        char path[256], line[160];
        tutti_metrics_t *metrics = opened(NULL);
        tell_steps(metrics, 0, 2);
        assert_int_equal(tutti_metrics_flush(metrics), TUTTI_OK);
        const long bytes_of_2 = events_bytes(0, 1);
        tell_steps(metrics, 2, 3);
        assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
        events_path(0, 1, path);
        const long whole = events_bytes(0, 1);
        assert_true(whole - cut > bytes_of_2);
        assert_int_equal(truncate(path, whole - cut), 0);
        snprintf(line, sizeof line, "printf '{\"step\":9' >>%s/metrics.jsonl", folder);
        assert_int_equal(system(line), 0);
        metrics = opened(&(tutti_metrics_options_t){.is_continued = true, .step = 3});
        assert_int_equal(count_lines(text_of("metrics.jsonl")), 3);
        assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
        assert_int_equal(events_bytes(0, 2), cut == 0 ? whole : bytes_of_2);
        tt_place_remove(folder);
    }
}

/* A disk that was full when a file began. */
static void half_a_first_record_is_cut_away(void **state)
{
    (void)state;
    for (long bytes = 40; bytes >= 0; bytes -= 5) {
        char path[256];
        assert_int_equal(tutti_metrics_close(opened(NULL)), TUTTI_OK);
        events_path(0, 1, path);
        assert_int_equal(truncate(path, bytes), 0);
        const tutti_metrics_options_t at_0 = {.is_continued = true};
        assert_int_equal(tutti_metrics_close(opened(&at_0)), TUTTI_OK);
        assert_int_equal(events_bytes(0, 2), bytes == 40 ? 40 : 0);
        tt_place_remove(folder);
    }
}

/* A process that was killed while it cut left its new file, which TensorBoard would read, too. */
static void what_a_killed_cut_left_goes(void **state)
{
    (void)state;
    char line[1024], path[256];
    tutti_metrics_t *metrics = opened(NULL);
    tell_steps(metrics, 0, 10);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    const long whole = events_bytes(0, 1);
    events_path(0, 1, path);
    snprintf(line, sizeof line, "cp %s %s.tmp-7-0 && cp %s/metrics.csv %s/metrics.csv.tmp-7-0",
             path, path, folder, folder);
    assert_int_equal(system(line), 0);
    metrics = opened(&(tutti_metrics_options_t){.is_continued = true, .step = 6});
    tell_steps(metrics, 6, 10);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_true(events_bytes(0, 2) < whole); /* and the other is what follows */
    assert_string_equal(text_of("metrics.csv.tmp-7-0"), "");
}

/* The thread that writes is the parent's, and so is the folder. */
static void a_forked_child_is_refused(void **state)
{
    (void)state;
    int ended;
    tutti_metrics_t *metrics = opened(NULL);
    tell_steps(metrics, 0, 1);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const bool is_refused = tutti_metrics_scalar(metrics, "a", 1, 1) == TUTTI_ERR_STATE &&
                                tutti_metrics_text(metrics, "a", 1, "b") == TUTTI_ERR_STATE &&
                                tutti_metrics_flush(metrics) == TUTTI_ERR_STATE;
        _exit(is_refused && tutti_metrics_close(metrics) == TUTTI_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    tell_steps(metrics, 1, 3);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_int_equal(count_lines(text_of("metrics.jsonl")), 3);
}

static void a_used_folder_is_refused(void **state)
{
    (void)state;
    tutti_metrics_t *metrics = opened(&(tutti_metrics_options_t){.formats = TUTTI_METRICS_JSON});
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_int_equal(tutti_metrics_open(folder, NULL, &metrics), TUTTI_ERR_STATE);
    tt_expect_error("holds metrics.jsonl of an earlier training");
    tt_expect_error(folder);
    assert_string_equal(text_of("metrics.csv"), ""); /* not asked for */
}

static void a_file_that_is_no_events_is_not_written_over(void **state)
{
    (void)state;
    char line[256];
    snprintf(line, sizeof line,
             "mkdir %s; echo no events at all, but text >%s/events.out.tfevents.1.a", folder,
             folder);
    assert_int_equal(system(line), 0);
    tutti_metrics_t *metrics;
    const tutti_metrics_options_t options = {.is_continued = true};
    assert_int_equal(tutti_metrics_open(folder, &options, &metrics), TUTTI_ERR_FORMAT);
    tt_expect_error("holds no record of events");
    assert_string_equal(text_of("events.out.tfevents.1.a"), "no events at all, but text\n");
}

static void bad_arguments_are_named(void **state)
{
    (void)state;
    tutti_metrics_t *metrics;
    assert_int_equal(tutti_metrics_open(folder, &(tutti_metrics_options_t){.formats = 8}, &metrics),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_metrics_open(folder, &(tutti_metrics_options_t){.step = 3}, &metrics),
                     TUTTI_ERR_ARG);
    tt_expect_error("step 3");
    assert_int_equal(tutti_metrics_open("/proc/none/run", NULL, &metrics), TUTTI_ERR_IO);
    tt_expect_error("/proc/none");
    metrics = opened(NULL);
    assert_int_equal(tutti_metrics_scalar(metrics, "", 0, 1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_metrics_scalar(metrics, "a\nb", 0, 1), TUTTI_ERR_ARG);
    tt_expect_error("control character at byte 1");
    assert_int_equal(tutti_metrics_scalar(metrics, "a\xc3", 0, 1), TUTTI_ERR_ARG);
    tt_expect_error("is not UTF-8 at byte 1");
    assert_int_equal(tutti_metrics_scalar(metrics, "a", -1, 1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_metrics_text(metrics, "a", 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_int_equal(tutti_metrics_close(NULL), TUTTI_OK);
    assert_string_equal(text_of("metrics.jsonl"), "");
}

static tutti_tensor_t *tensor_of(tutti_dtype_t dtype, tutti_shape_t shape, const double *values)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_F64, shape, &x), TUTTI_OK);
    memcpy(tutti_tensor_data(x), values, tutti_tensor_bytes(x));
    tutti_tensor_t *cast;
    assert_int_equal(tutti_tensor_create(dtype, shape, &cast), TUTTI_OK);
    assert_int_equal(tutti_tensor_copy(cast, x), TUTTI_OK);
    tutti_tensor_release(x);
    return cast;
}

static void values_fall_into_the_bucket_that_they_are_below(void **state)
{
    (void)state;
    const double values[] = {-1e-12, 0, 5e-13, 1e-12, 1.05e-12, 2, 1e30, NAN, INFINITY};
    tutti_tensor_t *x = tensor_of(TUTTI_F64, TUTTI_SHAPE(3, 3), values);
    static tt_metric_spread_t spread;
    assert_int_equal(tt_metric_spread_take(x, &spread), TUTTI_OK);
    tutti_tensor_release(x);
    assert_int_equal(spread.count, 7);
    assert_int_equal(spread.not_finite, 2);
    assert_true(spread.smallest == -1e-12 && spread.largest == 1e30);
    const int zero = TT_SPREAD_SIDE;
    assert_true(spread.counts[zero - 1] == 1 && spread.counts[zero] == 1);
    assert_true(spread.counts[zero + 1] == 2 && spread.counts[zero + 2] == 1);
    assert_true(spread.counts[TT_SPREAD_BUCKETS - 1] == 1);
    double all = 0;
    for (int i = 0; i < TT_SPREAD_BUCKETS; i++) {
        assert_true(i == 0 || spread.limits[i - 1] < spread.limits[i]);
        all += spread.counts[i];
    }
    assert_true(all == 7);
}

static void a_deviation_is_that_of_numbers_far_from_zero_too(void **state)
{
    (void)state;
    const double values[] = {1e9, 1e9 + 1, 1e9 + 2};
    tutti_tensor_t *x = tensor_of(TUTTI_F64, TUTTI_SHAPE(3), values);
    tutti_metrics_t *metrics = opened(NULL);
    assert_int_equal(tutti_metrics_histogram(metrics, "w", 1, x), TUTTI_OK);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    expect_in(text_of("metrics.jsonl"), "\"mean\":1000000001,\"std\":0.816496580927726}\n");
    tutti_tensor_release(x);
}

/* TensorBoard (2.21) answers with an error otherwise. */
static void events_have_texts_of_utf8(void **state)
{
    (void)state;
    char path[256], data[1024];
    tutti_metrics_t *metrics = opened(NULL);
    assert_int_equal(tutti_metrics_text(metrics, "note", 3, "caf\xe9 \xe2\x82\xac"), TUTTI_OK);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    events_path(0, 1, path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    static const char repaired[] = "caf\xef\xbf\xbd \xe2\x82\xac";
    assert_non_null(memmem(data, bytes, repaired, sizeof repaired - 1));
}

static void a_spread_of_nothing_finite_is_told(void **state)
{
    (void)state;
    const double values[] = {NAN, NAN};
    tutti_tensor_t *x = tensor_of(TUTTI_BF16, TUTTI_SHAPE(2), values);
    tutti_metrics_t *metrics = opened(NULL);
    assert_int_equal(tutti_metrics_histogram(metrics, "w", 1, x), TUTTI_OK);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    expect_in(text_of("metrics.jsonl"), "\"name\":\"w\",\"count\":0,\"not_finite\":2}\n");
    tutti_tensor_release(x);
}

static void pictures_that_are_none_are_refused(void **state)
{
    (void)state;
    const double zeros[16] = {0};
    tutti_metrics_t *metrics = opened(NULL);
    tutti_tensor_t *flat = tensor_of(TUTTI_F32, TUTTI_SHAPE(4, 4), zeros),
                   *two = tensor_of(TUTTI_F32, TUTTI_SHAPE(2, 2, 2), zeros),
                   *whole = tensor_of(TUTTI_I32, TUTTI_SHAPE(2, 2, 3), zeros);
    assert_int_equal(tutti_metrics_picture(metrics, "p", 0, flat), TUTTI_ERR_SHAPE);
    tt_expect_error("[4, 4]");
    assert_int_equal(tutti_metrics_picture(metrics, "p", 0, two), TUTTI_ERR_SHAPE);
    assert_int_equal(tutti_metrics_picture(metrics, "p", 0, whole), TUTTI_ERR_DTYPE);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    tutti_tensor_release(flat);
    tutti_tensor_release(two);
    tutti_tensor_release(whole);
}

static void *tell(void *user)
{
    for (int i = 0; i < TOLD; i++) {
        assert_int_equal(tutti_metrics_scalar(user, "loss", i, i), TUTTI_OK);
    }
    return NULL;
}

static void threads_tell_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    tutti_metrics_t *metrics = opened(NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, tell, metrics), 0);
    }
    assert_int_equal(tutti_metrics_flush(metrics), TUTTI_OK);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
    assert_int_equal(count_lines(text_of("metrics.csv")), THREADS * TOLD + 1);
}

/* Without a flush: the thread has a second, the test waits for a minute. */
static void what_is_told_is_written_soon(void **state)
{
    (void)state;
    tutti_metrics_t *metrics = opened(NULL);
    tell_steps(metrics, 0, 1);
    for (int tries = 0; tries < 6000 && count_lines(text_of("metrics.jsonl")) < 1; tries++) {
        usleep(10000);
    }
    assert_int_equal(count_lines(text_of("metrics.jsonl")), 1);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_OK);
}

/* As on a full disk: files end at so many bytes. */
static void a_failure_to_write_is_told_and_stays(void **state)
{
    (void)state;
    struct rlimit was, limit;
    tutti_metrics_t *metrics = opened(NULL);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    limit = was;
    limit.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(tutti_metrics_scalar(metrics, "x", 0, 0.5), TUTTI_OK);
    const tutti_status_t flushed = tutti_metrics_flush(metrics);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(flushed, TUTTI_ERR_IO);
    tt_expect_error("File too large");
    assert_int_equal(tutti_metrics_scalar(metrics, "x", 1, 0.5), TUTTI_ERR_IO);
    assert_int_equal(tutti_metrics_close(metrics), TUTTI_ERR_IO);
    tt_expect_error("events.out.tfevents.");
}

static void missing_memory_is_told(void **state)
{
    (void)state;
    const double values[] = {0, 1, 2, 3, 4, 5};
    tutti_tensor_t *x = tensor_of(TUTTI_F32, TUTTI_SHAPE(1, 2, 3), values);
    for (size_t nth = 1;; nth++) {
        tt_place_remove(folder);
        tutti_metrics_t *metrics = NULL;
        tt_alloc_fail_at(nth);
        tutti_status_t status = tutti_metrics_open(folder, NULL, &metrics);
        status = status < 0 ? status : tutti_metrics_scalar(metrics, "x", 0, 0.5);
        status = status < 0 ? status : tutti_metrics_picture(metrics, "p", 0, x);
        status = status < 0 ? status : tutti_metrics_histogram(metrics, "h", 0, x);
        status = status < 0 ? status : tutti_metrics_text(metrics, "t", 0, "text");
        const tutti_status_t closed = tutti_metrics_close(metrics);
        const int has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        if (!has_failed) {
            assert_int_equal(status, TUTTI_OK);
            break;
        }
        if ((status < 0 ? status : closed) != TUTTI_ERR_NOMEM) {
            fail_msg("allocation %zu: %d, %d: %s", nth, status, closed, tutti_last_error());
        }
    }
    tutti_tensor_release(x);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_are_told_as_they_are),
        TEST(a_locale_changes_no_number),
        TEST(a_training_goes_on_where_it_was_saved),
        TEST(what_follows_comes_in_a_file_behind),
        TEST(half_records_and_lines_are_cut_away),
        TEST(half_a_first_record_is_cut_away),
        TEST(what_a_killed_cut_left_goes),
        TEST(a_forked_child_is_refused),
        TEST(a_used_folder_is_refused),
        TEST(a_file_that_is_no_events_is_not_written_over),
        TEST(bad_arguments_are_named),
        TEST(values_fall_into_the_bucket_that_they_are_below),
        TEST(a_deviation_is_that_of_numbers_far_from_zero_too),
        TEST(events_have_texts_of_utf8),
        TEST(a_spread_of_nothing_finite_is_told),
        TEST(pictures_that_are_none_are_refused),
        TEST(threads_tell_side_by_side),
        TEST(what_is_told_is_written_soon),
        TEST(a_failure_to_write_is_told_and_stays),
        TEST(missing_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
