/* What the log says of a save, and of how often to save. The second needs what the saves before
 * took: a table has it, for each folder into which this process has saved as rank 0.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <tutti/launch.h>

#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/fnv.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "runtime/checkpoint/save_advice.h"
#include "runtime/checkpoint/saving.h"

enum { FOLDERS_MAX = 64, ALL_RANKS = -1 };

/* Of the saves into a folder. */
typedef struct {
    uint64_t folder; /* a digest of its name */
    int64_t count;
    int64_t first_ns, first_step; /* when the first began */
    double cost, took;            /* of all, in seconds */
    double told;                  /* the interval that was advised last; 0: none was */
} history_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static history_t histories[FOLDERS_MAX];

/* Of the plan's slices that are a rank's, or of all. */
static uint64_t bytes_of(const tt_saving_t *save, int rank)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < save->plan->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &save->plan->tensors[i];
        for (size_t k = 0; k < tensor->slice_count; k++) {
            if (rank == ALL_RANKS || tensor->slices[k].rank == rank) {
                bytes += (uint64_t)tt_box_numel(&tensor->slices[k].box) *
                         tutti_dtype_bytes(tensor->dtype);
            }
        }
    }
    return bytes;
}

uint64_t tt_saving_own_bytes(const tt_saving_t *save)
{
    uint64_t bytes = bytes_of(save, save->rank);
    for (int rank = 0; rank < save->ranks; rank++) {
        if (tt_disks_copies(&save->disks, save->plan->copies, rank, save->rank)) {
            bytes += bytes_of(save, rank);
        }
    }
    return bytes;
}

static double seconds_of(int64_t ns)
{
    return (double)ns / (double)TT_NS_PER_S;
}

/* The history of a folder; where there is no room the one of another begins anew. */
static history_t *find_history(const char *folder)
{
    const uint64_t digest = tt_fnv(TT_FNV_BEGIN, folder, strlen(folder));
    size_t at = 0;
    while (at < FOLDERS_MAX && histories[at].count > 0 && histories[at].folder != digest) {
        at++;
    }
    history_t *found = &histories[at < FOLDERS_MAX ? at : digest % FOLDERS_MAX];
    if (found->folder != digest) {
        *found = (history_t){.folder = digest};
    }
    return found;
}

/* Since the launcher has begun the job; without one, since the first save: nothing failed then. */
static void count_failures(const history_t *history, int64_t now_ns, tt_save_facts_t *facts)
{
    int64_t begin = 0;
    facts->job_seconds = seconds_of(now_ns - history->first_ns);
    if (tt_config_is_set(TT_CONFIG_JOB_BEGIN) &&
        tt_config_int(TT_CONFIG_JOB_BEGIN, 0, INT64_MAX, &begin) >= 0 && begin > 0) {
        const double since = (double)time(NULL) - (double)begin;
        facts->job_seconds = since > facts->job_seconds ? since : facts->job_seconds;
        facts->failures = tutti_restart_count();
    }
}

/* What a save costs is the time that the caller is held. The text stays empty if there is nothing
 * to say: after the first save, or when the advice is as before. */
static void advise(const tt_saving_t *save, int64_t now_ns, char text[TT_ADVICE_BYTES])
{
    const double took = seconds_of(now_ns - save->begin_ns);
    history_t *history = find_history(save->checkpoint->folder);
    const double before = history->cost;
    if (history->count++ == 0) {
        history->first_ns = save->begin_ns;
        history->first_step = save->step;
    }
    history->took += took;
    history->cost += save->held_ns > 0 ? seconds_of(save->held_ns + save->waited_ns) : took;
    const double saves = (double)history->count, intervals = saves - 1;
    const double worked = seconds_of(save->begin_ns - history->first_ns) - before;
    tt_save_facts_t facts = {.cost = history->cost / saves,
                             .least = save->held_ns > 0 ? history->took / saves : 0,
                             .mtbf = (double)save->checkpoint->mtbf_s};
    if (intervals < 1 || worked <= 0) {
        return;
    }
    facts.interval = worked / intervals;
    facts.steps = (double)(save->step - history->first_step) / intervals;
    count_failures(history, now_ns, &facts);
    const double interval = tt_advice_text(&facts, text);
    if (tt_advice_has_changed(interval, history->told)) {
        history->told = interval;
    } else {
        text[0] = 0;
    }
}

void tt_saving_log(const tt_saving_t *save)
{
    char bytes[TT_UNITS_TEXT_BYTES], took[TT_UNITS_TEXT_BYTES], held[TT_UNITS_TEXT_BYTES];
    char advice[TT_ADVICE_BYTES] = "";
    const int64_t now_ns = tt_clock_ns();
    if (save->rank != 0) {
        return;
    }
    tt_units_bytes(bytes_of(save, ALL_RANKS), bytes);
    tt_units_seconds(seconds_of(now_ns - save->begin_ns), took);
    tt_units_seconds(seconds_of(save->held_ns), held);
    tt_log(TT_LOG_INFO, "checkpoint of step %lld: %s in %s%s%s%s", (long long)save->step, bytes,
           took, save->held_ns > 0 ? ", " : "", save->held_ns > 0 ? held : "",
           save->held_ns > 0 ? " of it in the step" : "");
    pthread_mutex_lock(&mutex);
    advise(save, now_ns, advice);
    pthread_mutex_unlock(&mutex);
    if (advice[0] != 0) {
        tt_log(TT_LOG_INFO, "%s", advice);
    }
}
