/* Command lines: every kind and form, what may go wrong, and help. */
#include "core/base/testing.h"

#include <math.h>

#include <tutti/options.h>

typedef struct {
    int64_t steps, shards;
    double lr;
    const char *data;
    int dtype;
    bool quiet;
} settings_t;

static const char *const dtypes[] = {"f32", "bf16", NULL};

static const tutti_option_t table[] = {
    {.name = "steps",
     .alias = 'n',
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, steps),
     .argument = "N",
     .min = 1,
     .max = 1000,
     .about = "steps to train"},
    {.name = "shards-per-rank",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(settings_t, shards),
     .about = "shards"},
    {.name = "lr",
     .kind = TUTTI_OPTION_REAL,
     .offset = offsetof(settings_t, lr),
     .argument = "X",
     .min = 0,
     .max = INFINITY,
     .about = "learning rate"},
    {.name = "data",
     .alias = 'd',
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(settings_t, data),
     .argument = "FILE",
     .about = "text to train on"},
    {.name = "dtype",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, dtype),
     .choices = dtypes,
     .about = "of the parameters"},
    {.name = "quiet", .alias = 'q', .offset = offsetof(settings_t, quiet), .about = "say little"},
    {0}};

static const settings_t defaults = {.steps = 100, .lr = 0.5};

enum { ARGS_MAX = 12 };

/* Parses a command line of texts that ends with NULL. */
static tutti_status_t parse(settings_t *settings, int *rest, ...)
{
    char *argv[ARGS_MAX] = {(char *)(uintptr_t) "program"};
    int argc = 1;
    va_list args;
    va_start(args, rest);
    for (char *text; (text = va_arg(args, char *)) != NULL && argc < ARGS_MAX; argc++) {
        argv[argc] = text;
    }
    va_end(args);
    memcpy(settings, &defaults, sizeof *settings);
    return tutti_options_parse(table, argc, argv, settings, rest);
}

static void every_kind_is_stored(void **state)
{
    (void)state;
    settings_t s;
    int rest = -1;
    assert_int_equal(parse(&s, &rest, "--steps", "7", "--lr", "1e-3", "--data", "a.txt", "--dtype",
                           "bf16", "--quiet", NULL),
                     TUTTI_OK);
    assert_int_equal(s.steps, 7);
    assert_true(s.lr == 1e-3);
    assert_string_equal(s.data, "a.txt");
    assert_int_equal(s.dtype, 1);
    assert_true(s.quiet);
    assert_int_equal(rest, 10);
}

static void every_form_is_understood(void **state)
{
    (void)state;
    settings_t s;
    assert_int_equal(parse(&s, NULL, "--steps=8", "--shards_per_rank", "-3", "-dfile", NULL), 0);
    assert_int_equal(s.steps, 8);
    assert_int_equal(s.shards, -3);
    assert_string_equal(s.data, "file");
    assert_int_equal(parse(&s, NULL, "-n", "9", "--data=--x=1", "-q", NULL), TUTTI_OK);
    assert_int_equal(s.steps, 9);
    assert_string_equal(s.data, "--x=1");
}

static void a_command_line_is_checked_without_a_place_for_values(void **state)
{
    (void)state;
    char words[][10] = {"program", "-n", "8", "--quiet", "file", "--nothing"};
    char *const argv[] = {words[0], words[1], words[2], words[3], words[4], words[5]};
    int rest = 0;
    assert_int_equal(tutti_options_parse(table, 6, argv, NULL, &rest), TUTTI_OK);
    assert_int_equal(rest, 4);
    assert_int_equal(tutti_options_parse(table, 2, argv + 4, NULL, &rest), TUTTI_ERR_ARG);
    assert_int_equal(tutti_options_parse(table, 6, argv, NULL, NULL), TUTTI_ERR_ARG);
}

static void fields_not_given_keep_their_value(void **state)
{
    (void)state;
    settings_t s;
    assert_int_equal(parse(&s, NULL, "--lr=0", NULL), TUTTI_OK);
    assert_int_equal(s.steps, 100);
    assert_true(s.lr == 0);
    assert_null(s.data);
    assert_int_equal(parse(&s, NULL, "-n1", "-n2", NULL), TUTTI_OK);
    assert_int_equal(s.steps, 2);
}

static void parsing_stops_at_the_program_to_run(void **state)
{
    (void)state;
    settings_t s;
    int rest = -1;
    assert_int_equal(parse(&s, &rest, "-n", "2", "./gpt", "--steps", "none", NULL), TUTTI_OK);
    assert_int_equal(rest, 3);
    assert_int_equal(s.steps, 2);
    assert_int_equal(parse(&s, &rest, "-q", "--", "--steps", NULL), TUTTI_OK);
    assert_int_equal(rest, 3);
    assert_int_equal(parse(&s, &rest, "-", "-n", "2", NULL), TUTTI_OK);
    assert_int_equal(rest, 1);
    assert_int_equal(s.steps, 100);
}

static void a_stray_argument_is_an_error_where_none_is_wanted(void **state)
{
    (void)state;
    settings_t s;
    assert_int_equal(parse(&s, NULL, "-q", "stray", NULL), TUTTI_ERR_ARG);
    tt_expect_error("\"stray\"");
    assert_false(s.quiet);
}

static void an_unknown_option_names_the_nearest(void **state)
{
    (void)state;
    settings_t s;
    int rest;
    assert_int_equal(parse(&s, &rest, "--step=3", NULL), TUTTI_ERR_ARG);
    tt_expect_error("--step: the nearest is --steps");
    assert_int_equal(parse(&s, &rest, "--shards", "3", NULL), TUTTI_ERR_ARG);
    tt_expect_error("the nearest is --shards-per-rank");
    assert_int_equal(parse(&s, &rest, "--dtpye", NULL), TUTTI_ERR_ARG);
    tt_expect_error("the nearest is --dtype");
    assert_int_equal(parse(&s, &rest, "--hlep", NULL), TUTTI_ERR_ARG);
    tt_expect_error("the nearest is --help");
    assert_int_equal(parse(&s, &rest, "-steps", "3", NULL), TUTTI_ERR_ARG);
    tt_expect_error("unknown option -steps: write --steps");
    assert_int_equal(parse(&s, &rest, "-x", NULL), TUTTI_ERR_ARG);
    tt_expect_error("unknown option -x");
}

static void a_bad_value_names_option_value_and_what_is_wanted(void **state)
{
    (void)state;
    settings_t s;
    static const struct {
        char argument[32];
        const char *error;
    } cases[] = {
        {"--steps=0", "--steps 0: want an integer from 1 to 1000"},
        {"--steps=1001", "from 1 to 1000"},
        {"--steps=3x", "--steps 3x: want an integer"},
        {"--steps=", "want an integer"},
        {"--steps= 3", "want an integer"},
        {"--steps=99999999999999999999", "want an integer"},
        {"--lr=-1", "--lr -1: want a number of at least 0"},
        {"--lr=fast", "--lr fast: want a number"},
        {"--lr=nan", "want a number"},
        {"--lr=inf", "want a number"},
        {"--lr=0x1", "want a number"},
        {"--lr=1e999", "want a number"},
        {"--dtype=f64", "--dtype f64: want f32 or bf16"},
        {"--quiet=yes", "--quiet is a flag and takes no value, not \"yes\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(&s, NULL, cases[i].argument, NULL), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
}

static void a_missing_value_is_named(void **state)
{
    (void)state;
    settings_t s;
    assert_int_equal(parse(&s, NULL, "--steps", NULL), TUTTI_ERR_ARG);
    tt_expect_error("--steps: the value is missing: want an integer from 1 to 1000");
    assert_int_equal(parse(&s, NULL, "--data", "--quiet", NULL), TUTTI_ERR_ARG);
    tt_expect_error("--data: the value is missing: want FILE, and before --quiet");
}

static void a_failure_changes_nothing(void **state)
{
    (void)state;
    settings_t s;
    int rest = -1;
    assert_int_equal(parse(&s, &rest, "--steps=5", "--quiet", "--lr=x", NULL), TUTTI_ERR_ARG);
    assert_memory_equal(&s, &defaults, sizeof s);
    assert_int_equal(rest, -1);
}

static void help_ends_parsing(void **state)
{
    (void)state;
    settings_t s;
    assert_int_equal(parse(&s, NULL, "--steps=5", "--help", "--nonsense", NULL), TUTTI_END);
    assert_int_equal(s.steps, 100);
    assert_int_equal(parse(&s, NULL, "-h", NULL), TUTTI_END);
}

static void help_lists_every_option_with_its_default(void **state)
{
    (void)state;
    char text[1024];
    const size_t length = tutti_options_help(table, &defaults, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "  -n, --steps N                steps to train (default: 100)\n"
                              "      --shards-per-rank VALUE  shards (default: 0)\n"
                              "      --lr X                   learning rate (default: 0.5)\n"
                              "  -d, --data FILE              text to train on\n"
                              "      --dtype f32|bf16         of the parameters (default: f32)\n"
                              "  -q, --quiet                  say little\n"
                              "  -h, --help                   show this text\n");
    char cut[10];
    assert_int_equal(tutti_options_help(table, &defaults, cut, sizeof cut), length);
    assert_string_equal(cut, "  -n, --s");
    assert_int_equal(tutti_options_help(table, &defaults, NULL, 0), length);
}

/* "…" is three bytes and one column. */
static void help_has_its_columns_also_beside_letters_of_several_bytes(void **state)
{
    static const tutti_option_t names[] = {
        {.name = "hosts", .kind = TUTTI_OPTION_TEXT, .argument = "A,…", .about = "of the job"},
        {.name = "ssh-key", .kind = TUTTI_OPTION_TEXT, .argument = "F", .about = "for them"},
        {0}};
    (void)state;
    char text[256];
    (void)tutti_options_help(names, NULL, text, sizeof text);
    assert_string_equal(text, "      --hosts A,…  of the job\n"
                              "      --ssh-key F  for them\n"
                              "  -h, --help       show this text\n");
}

static void the_nearest_name_is_found(void **state)
{
    (void)state;
    static const char *const verbs[] = {"run", "bench", "info", "explain", NULL};
    assert_string_equal(tutti_nearest_name("rnu", verbs), "run");
    assert_string_equal(tutti_nearest_name("ifno", verbs), "info");
    assert_string_equal(tutti_nearest_name("exp", verbs), "explain");
    assert_string_equal(tutti_nearest_name("banch", verbs), "bench");
    assert_null(tutti_nearest_name("run", verbs + 4));
    char endless[300];
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = 0;
    assert_non_null(tutti_nearest_name(endless, verbs));
}

typedef struct {
    tutti_option_texts_t variables;
    bool quiet;
} variables_t;

static const tutti_option_t collecting[] = {
    {.name = "export",
     .alias = 'x',
     .kind = TUTTI_OPTION_TEXTS,
     .offset = offsetof(variables_t, variables),
     .argument = "NAME",
     .about = "again and again"},
    {.name = "quiet", .alias = 'q', .offset = offsetof(variables_t, quiet)},
    {0}};

/* argc texts after the program's name. */
static tutti_status_t collect(variables_t *out, int count, const char *const *texts)
{
    char *argv[TUTTI_OPTION_TEXTS_MAX + 2] = {(char *)(uintptr_t) "program"};
    for (int i = 0; i < count; i++) {
        argv[i + 1] = (char *)(uintptr_t)texts[i];
    }
    *out = (variables_t){.quiet = false};
    return tutti_options_parse(collecting, count + 1, argv, out, NULL);
}

static void an_option_may_collect_its_values(void **state)
{
    (void)state;
    variables_t got;
    const char *const texts[] = {"-x", "A", "--export=B=1", "-q", "-xC"};
    assert_int_equal(collect(&got, 5, texts), TUTTI_OK);
    assert_true(got.quiet && got.variables.count == 3);
    assert_string_equal(got.variables.texts[0], "A");
    assert_string_equal(got.variables.texts[1], "B=1");
    assert_string_equal(got.variables.texts[2], "C");
    const char *many[TUTTI_OPTION_TEXTS_MAX + 1];
    for (int i = 0; i <= TUTTI_OPTION_TEXTS_MAX; i++) {
        many[i] = "-xA";
    }
    assert_int_equal(collect(&got, TUTTI_OPTION_TEXTS_MAX, many), TUTTI_OK);
    assert_int_equal(got.variables.count, TUTTI_OPTION_TEXTS_MAX);
    assert_int_equal(collect(&got, TUTTI_OPTION_TEXTS_MAX + 1, many), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "--export: given too often; at most 64 times"));
    assert_int_equal(got.variables.count, 0);
    assert_int_equal(collect(&got, 1, (const char *const[]){"-x"}), TUTTI_ERR_ARG);
    char help[512];
    tutti_options_help(collecting, &got, help, sizeof help);
    assert_non_null(strstr(help, "  -x, --export NAME  again and again\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_stored),
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(a_command_line_is_checked_without_a_place_for_values),
        cmocka_unit_test(fields_not_given_keep_their_value),
        cmocka_unit_test(parsing_stops_at_the_program_to_run),
        cmocka_unit_test(a_stray_argument_is_an_error_where_none_is_wanted),
        cmocka_unit_test(an_unknown_option_names_the_nearest),
        cmocka_unit_test(a_bad_value_names_option_value_and_what_is_wanted),
        cmocka_unit_test(a_missing_value_is_named),
        cmocka_unit_test(a_failure_changes_nothing),
        cmocka_unit_test(help_ends_parsing),
        cmocka_unit_test(help_lists_every_option_with_its_default),
        cmocka_unit_test(help_has_its_columns_also_beside_letters_of_several_bytes),
        cmocka_unit_test(an_option_may_collect_its_values),
        cmocka_unit_test(the_nearest_name_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
