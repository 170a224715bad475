/* Command lines of arbitrary bytes: arguments are what stands between zero bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tutti/options.h>

#include "core/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { ARGS_MAX = 16, TEXT_BYTES_MAX = 1024 };

typedef struct {
    int64_t steps;
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
     .min = 1,
     .max = 1000},
    {.name = "lr", .kind = TUTTI_OPTION_REAL, .offset = offsetof(settings_t, lr)},
    {.name = "data", .kind = TUTTI_OPTION_TEXT, .offset = offsetof(settings_t, data)},
    {.name = "dtype",
     .kind = TUTTI_OPTION_CHOICE,
     .offset = offsetof(settings_t, dtype),
     .choices = dtypes},
    {.name = "quiet", .alias = 'q', .offset = offsetof(settings_t, quiet)},
    {0}};

/* Whatever was typed: limits hold on success, and nothing is written on failure. */
static void check(tutti_status_t status, const settings_t *settings, int argc, int rest)
{
    if (status == TUTTI_OK) {
        TT_ASSERT(settings->steps >= 1 && settings->steps <= 1000);
        TT_ASSERT(settings->dtype == 0 || settings->dtype == 1);
        TT_ASSERT(rest >= 1 && rest <= argc);
    } else {
        TT_ASSERT(settings->steps == 1 && settings->data == NULL && !settings->quiet);
        TT_ASSERT(rest == -1);
        TT_ASSERT(status == TUTTI_END || tutti_last_error()[0] != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[TEXT_BYTES_MAX + 1] = {0};
    char *argv[ARGS_MAX] = {text + TEXT_BYTES_MAX};
    const size_t used = bytes < TEXT_BYTES_MAX ? bytes : TEXT_BYTES_MAX;
    memcpy(text, data, used);
    int argc = 1;
    for (size_t at = 0; at < used && argc < ARGS_MAX; at += strlen(text + at) + 1) {
        argv[argc++] = text + at;
    }
    settings_t settings = {.steps = 1};
    int rest = -1;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &settings, &rest);
    check(status, &settings, argc, rest);
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
