/* Lines of the log: each save has one, and advice comes after the second, and when it has changed.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/testing.h"
#include "runtime/checkpoint/saving.h"

typedef struct {
    tt_saving_t save;
    tutti_checkpoint_t checkpoint;
    int64_t now_s;
    int saves, advices; /* lines */
    char line[400];     /* the newest advice */
} play_t;

static int64_t read_clock(void *user)
{
    return ((const play_t *)user)->now_s * TT_NS_PER_S;
}

static void take_line(tt_log_level_t level, const char *line, void *user)
{
    play_t *play = user;
    assert_int_equal(level, TT_LOG_INFO);
    play->saves += strstr(line, "checkpoint of step ") != NULL;
    if (strstr(line, "a save costs") != NULL) {
        play->advices++;
        snprintf(play->line, sizeof play->line, "%s", line);
    }
}

static void begin(play_t *play, const char *folder, int64_t mtbf_s)
{
    *play = (play_t){.checkpoint = {.folder = folder, .mtbf_s = mtbf_s}, .now_s = 1000};
    play->save = (tt_saving_t){.checkpoint = &play->checkpoint, .ranks = 1};
    assert_int_equal(tt_manifest_create(0, 1, &play->save.plan), TUTTI_OK);
    setenv("TUTTI_LOG", "info", 1);
    tt_clock_set_source(read_clock, play);
    tt_log_set_sink(take_line, play);
}

static void end(play_t *play)
{
    tt_log_set_sink(NULL, NULL);
    tt_clock_set_source(NULL, NULL);
    unsetenv("TUTTI_LOG");
    tt_manifest_release(play->save.plan);
}

/* 100 steps, each of 1 s, and a save of 2 s, of which the caller is held for so long; 0: for all.
 */
static void save(play_t *play, int64_t held_s)
{
    play->now_s += 100;
    play->save.step += 100;
    play->save.begin_ns = play->now_s * TT_NS_PER_S;
    play->save.held_ns = held_s * TT_NS_PER_S;
    play->now_s += 2;
    tt_saving_log(&play->save);
    play->now_s -= held_s > 0 ? 2 - held_s : 0;
}

static void expect(const play_t *play, const char *text)
{
    if (strstr(play->line, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, play->line);
    }
}

static void advice_comes_after_the_second_save_and_when_it_changes(void **state)
{
    (void)state;
    play_t play;
    begin(&play, "one", 86400);
    save(&play, 0);
    assert_int_equal(play.advices, 0);
    save(&play, 0);
    assert_int_equal(play.advices, 1);
    expect(&play,
           "a save costs 2.0 s; with a failure each 24 h, one each 9.8 min (587 steps) loses "
           "least: 0.68 % of the time; now each 1.7 min: 2.0 %");
    save(&play, 0);
    assert_int_equal(play.advices, 1);
    play.checkpoint.mtbf_s = 3600;
    save(&play, 0);
    assert_int_equal(play.advices, 2);
    expect(&play, "with a failure each 60 min, one each 2.0 min (119 steps)");
    assert_int_equal(play.saves, 4);
    end(&play);
}

static void in_the_background_a_save_costs_what_the_caller_was_held(void **state)
{
    (void)state;
    play_t play;
    begin(&play, "two", 86400);
    save(&play, 1);
    save(&play, 1);
    expect(&play, "a save costs 1.0 s; with a failure each 24 h, one each 6.9 min (415 steps)");
    play.checkpoint.mtbf_s = 1; /* but no more often than one can be written */
    save(&play, 1);
    expect(&play, "one each 2.0 s (2 steps)");
    end(&play);
}

static void failures_are_those_that_the_launcher_has_seen(void **state)
{
    (void)state;
    play_t play;
    char begun[32];
    snprintf(begun, sizeof begun, "%lld", (long long)time(NULL) - 7230);
    begin(&play, "three", 0);
    save(&play, 0);
    save(&play, 0);
    expect(&play, "no failure in 1.7 min; if one came each 1.7 min, ");
    setenv("TUTTI_JOB_BEGIN", begun, 1);
    save(&play, 0);
    expect(&play, "no failure in 2.0 h; ");
    setenv("TORCHELASTIC_RESTART_COUNT", "20", 1);
    save(&play, 0);
    expect(&play, "with a failure each 6.0 min, ");
    assert_int_equal(play.advices, 3);
    unsetenv("TORCHELASTIC_RESTART_COUNT");
    unsetenv("TUTTI_JOB_BEGIN");
    end(&play);
}

/* Whose table is full begins anew with one of the others. */
static void many_folders_do_no_harm(void **state)
{
    (void)state;
    play_t play;
    char folder[16] = "";
    begin(&play, folder, 86400);
    for (int i = 0; i < 200; i++) {
        snprintf(folder, sizeof folder, "%d", i);
        save(&play, 0);
    }
    assert_int_equal(play.advices, 0);
    save(&play, 0);
    assert_int_equal(play.advices, 1);
    end(&play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advice_comes_after_the_second_save_and_when_it_changes),
        cmocka_unit_test(in_the_background_a_save_costs_what_the_caller_was_held),
        cmocka_unit_test(failures_are_those_that_the_launcher_has_seen),
        cmocka_unit_test(many_folders_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
