/* Where the time of a step of lesson 17 goes: a network on two strict devices, the batch whole and
 * in splits.
 *
 *     build/bench/device_timeline                  # splits of 32, 16, 8, 4 and 2 pictures
 *     build/bench/device_timeline --json 8         # 32 and 8, a line for each
 *
 * Each round takes three steps of each size:
 *
 *     step      nobody looks: its wall time
 *     watched   each launch, copy and wait on each stream is measured: pushed, begun, done. The
 *               timeline is what these give by the rules alone: a piece begins when the one before
 *               it on its stream is done, it has been pushed, and, behind a wait, the other
 *               stream's event is done. It lasts as long as was measured. A wait lasts no time
 *     alone     the same, but no two pieces are done at a time: what each takes when it has the
 *               memory and the caches to itself. Its timeline is what two devices that share
 *               nothing would take
 *
 * The timeline over the wall time of the watched step says how much of that is explained; what is
 * not is threads that wake late. Shares of the timeline, for each device: busy; waiting for the
 * host to push; waiting for the other device. Medians of rounds. Wants two idle cores.
 */
#define main lesson_main /* the lesson's own program is not run */
int lesson_main(int argc, char **argv);
#include "../examples/17_two_devices.c"
#undef main

#include <pthread.h>
#include <string.h>

#include "core/device/device.h"

enum { LANES = 2, PIECES_MAX = 1 << 15, SIZES_MAX = 8, ROUNDS = 15, WARM = 2, FIGURES_MAX = 12 };

/* ---- watching -------------------------------------------------------------------------------- */

typedef struct {
    tt_stream_t *stream;
    pthread_mutex_t *turn; /* NULL: both lanes work at a time */
    uint64_t first;        /* index of the step's first piece */
    int count;
    tt_stream_moment_t pieces[PIECES_MAX];
    int64_t ends[PIECES_MAX]; /* by the timeline */
} lane_t;

static lane_t lanes[LANES];

static bool is_wait(const tt_stream_moment_t *piece)
{
    return piece->awaited.stream != NULL;
}

static void take_turn(void *user, const tt_stream_moment_t *piece)
{
    lane_t *lane = user;
    if (lane->turn != NULL && !is_wait(piece)) {
        pthread_mutex_lock(lane->turn);
    }
}

static void keep_piece(void *user, const tt_stream_moment_t *piece)
{
    lane_t *lane = user;
    if (lane->turn != NULL && !is_wait(piece)) {
        pthread_mutex_unlock(lane->turn);
    }
    if (lane->count < PIECES_MAX) {
        lane->pieces[lane->count++] = *piece;
    }
}

/* A step, of which each piece is kept. */
static tutti_status_t watch_step(const session_t *session, int64_t split, pthread_mutex_t *turn)
{
    tt_stream_watch_t watches[LANES];
    for (int i = 0; i < LANES; i++) {
        lanes[i].stream = tt_device_stream(session->devices[i]);
        lanes[i].turn = turn;
        lanes[i].first = tt_stream_event(lanes[i].stream).count;
        lanes[i].count = 0;
        watches[i] = (tt_stream_watch_t){take_turn, keep_piece, &lanes[i]};
        tt_stream_set_watch(lanes[i].stream, &watches[i]);
    }
    tutti_status_t status = train_step(session, split);
    for (int i = 0; i < LANES; i++) { /* also behind a failure: the watches go */
        const tutti_status_t last = tutti_device_synchronize(session->devices[i], 0);
        status = status < 0 ? status : last;
        tt_stream_set_watch(lanes[i].stream, NULL);
        if (status >= 0 && lanes[i].count == PIECES_MAX) {
            status = TT_FAIL(TUTTI_ERR_STATE, "a step has more than %d pieces", PIECES_MAX - 1);
        }
    }
    return status;
}

/* ---- the timeline ---------------------------------------------------------------------------- */

typedef struct {
    int64_t free_at; /* the piece before is done */
    int64_t busy, unpushed, waiting;
    int done;
} place_t;

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When the event of a wait is done: 0 before the step, -1 where that is not known yet. */
static int64_t event_end(tt_event_t event, const place_t *places)
{
    for (int i = 0; i < LANES; i++) {
        if (lanes[i].stream == event.stream && event.count > lanes[i].first) {
            const uint64_t last = event.count - lanes[i].first - 1;
            return last < (uint64_t)places[i].done ? lanes[i].ends[last] : -1;
        }
    }
    return 0;
}

/* Take the lane's next pieces, as far as they depend on none that comes later. */
static bool advance(lane_t *lane, place_t *place, const place_t *places)
{
    bool has_moved = false;
    for (; place->done < lane->count; has_moved = true) {
        const tt_stream_moment_t *piece = &lane->pieces[place->done];
        const int64_t event = is_wait(piece) ? event_end(piece->awaited, places) : 0;
        if (event < 0) {
            break;
        }
        const int64_t pushed = later(place->free_at, piece->pushed_ns);
        const int64_t begin = later(pushed, event);
        const int64_t took = is_wait(piece) ? 0 : piece->end_ns - piece->begin_ns;
        place->unpushed += pushed - place->free_at;
        place->waiting += begin - pushed;
        place->busy += took;
        place->free_at = begin + took;
        lane->ends[place->done++] = place->free_at;
    }
    return has_moved;
}

/* Nanoseconds from `begin` to the end of the last piece. */
static int64_t compute_timeline(int64_t begin, place_t *places)
{
    for (int i = 0; i < LANES; i++) {
        places[i] = (place_t){.free_at = begin};
    }
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (int i = 0; i < LANES; i++) {
            has_moved |= advance(&lanes[i], &places[i], places);
        }
    }
    return later(places[0].free_at, places[1].free_at) - begin;
}

/* ---- figures --------------------------------------------------------------------------------- */

typedef enum {
    STEP,
    WATCHED,
    TIMELINE,
    EXPLAINED,
    ALONE,
    HOST,
    GAIN,
    ALONE_GAIN,
    FIGURES
} figure_t;
typedef enum { BUSY, UNPUSHED, WAITING, SHARES } share_t;

typedef struct {
    int64_t split;
    session_t session;
    uint64_t pieces[LANES];
    double figures[FIGURES][ROUNDS];
    double shares[LANES][SHARES][ROUNDS]; /* of the timeline */
} size_run_t;

static tutti_status_t take_step(size_run_t *size, double *ms)
{
    const int64_t begin = tt_clock_ns();
    TUTTI_CHECK(train_step(&size->session, size->split));
    TUTTI_CHECK(wait_for_devices(&size->session));
    *ms = (double)(tt_clock_ns() - begin) * 1e-6;
    return TUTTI_OK;
}

static tutti_status_t take_watched_step(size_run_t *size, int round)
{
    place_t places[LANES];
    const int64_t begin = tt_clock_ns();
    TUTTI_CHECK(watch_step(&size->session, size->split, NULL));
    const double wall = (double)(tt_clock_ns() - begin);
    const double timeline = (double)compute_timeline(begin, places);
    size->figures[WATCHED][round] = wall * 1e-6;
    size->figures[TIMELINE][round] = timeline * 1e-6;
    size->figures[EXPLAINED][round] = timeline / wall;
    int64_t pushed = begin;
    for (int i = 0; i < LANES; i++) {
        const lane_t *lane = &lanes[i];
        size->pieces[i] = (uint64_t)lane->count;
        size->shares[i][BUSY][round] = (double)places[i].busy / timeline;
        size->shares[i][UNPUSHED][round] = (double)places[i].unpushed / timeline;
        size->shares[i][WAITING][round] = (double)places[i].waiting / timeline;
        pushed = lane->count > 0 ? later(pushed, lane->pieces[lane->count - 1].pushed_ns) : pushed;
    }
    size->figures[HOST][round] = (double)(pushed - begin) * 1e-6;
    return TUTTI_OK;
}

static tutti_status_t take_step_alone(size_run_t *size, int round)
{
    pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    place_t places[LANES];
    const int64_t begin = tt_clock_ns();
    TUTTI_CHECK(watch_step(&size->session, size->split, &turn));
    size->figures[ALONE][round] = (double)compute_timeline(begin, places) * 1e-6;
    return TUTTI_OK;
}

/* Sizes in turns, so that a machine that is slow for a while is so for all. */
static tutti_status_t take_rounds(size_run_t *sizes, int count)
{
    for (int round = -WARM; round < ROUNDS; round++) {
        const int at = round < 0 ? 0 : round;
        for (int i = 0; i < count; i++) {
            TUTTI_CHECK(take_step(&sizes[i], &sizes[i].figures[STEP][at]));
            TUTTI_CHECK(take_watched_step(&sizes[i], at));
            TUTTI_CHECK(take_step_alone(&sizes[i], at));
            sizes[i].figures[GAIN][at] = sizes[0].figures[STEP][at] / sizes[i].figures[STEP][at];
            sizes[i].figures[ALONE_GAIN][at] =
                sizes[0].figures[ALONE][at] / sizes[i].figures[ALONE][at];
        }
    }
    return TUTTI_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values)
{
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, compare_doubles);
    return sorted[ROUNDS / 2];
}

/* ---- report ---------------------------------------------------------------------------------- */

static void print_json(const size_run_t *size)
{
    static const char *const names[FIGURES] = {"step_ms",   "watched_ms", "timeline_ms",
                                               "explained", "alone_ms",   "host_ms",
                                               "gain",      "alone_gain"};
    printf("{\"split\":%lld", (long long)size->split);
    for (int i = 0; i < FIGURES; i++) {
        printf(",\"%s\":%.4f", names[i], median(size->figures[i]));
    }
    printf("}\n");
}

static void print_size(const size_run_t *size)
{
    printf("%5lld %8.2f %8.2f %9.3f %8.2f %6.2f %6.2f %8.2f", (long long)size->split,
           median(size->figures[STEP]), median(size->figures[TIMELINE]),
           median(size->figures[EXPLAINED]), median(size->figures[ALONE]),
           median(size->figures[GAIN]), median(size->figures[ALONE_GAIN]),
           median(size->figures[HOST]));
    for (int i = 0; i < LANES; i++) {
        printf("   %5llu %3.0f %3.0f %3.0f", (unsigned long long)size->pieces[i],
               100 * median(size->shares[i][BUSY]), 100 * median(size->shares[i][UNPUSHED]),
               100 * median(size->shares[i][WAITING]));
    }
    printf("\n");
}

static void print_report(const size_run_t *sizes, int count, bool is_json)
{
    if (!is_json) {
        printf("%5s %8s %8s %9s %8s %6s %6s %8s   %s   %s\n", "split", "step ms", "timeline",
               "explained", "alone ms", "gain", "alone", "host ms", "strict:0: busy,",
               "strict:1: % busy,");
        printf("%5s %8s %8s %9s %8s %6s %6s %8s   %s   %s\n", "", "", "", "", "", "", "gain", "",
               "pieces push other", "pieces push other");
    }
    for (int i = 0; i < count; i++) {
        if (is_json) {
            print_json(&sizes[i]);
        } else {
            print_size(&sizes[i]);
        }
    }
}

static tutti_status_t measure(tutti_device_t *const *devices, size_run_t *sizes, int count)
{
    tutti_status_t status = TUTTI_OK;
    int opened = 0;
    for (; opened < count && status >= 0; opened++) {
        sizes[opened].session = (session_t){.devices = {devices[0], devices[1]}};
        status = open_session(&sizes[opened].session);
    }
    if (status >= 0) {
        status = take_rounds(sizes, count);
    }
    for (int i = 0; i < opened; i++) {
        close_session(&sizes[i].session);
    }
    return status;
}

/* The whole batch first: the others are compared with it. */
static int read_sizes(int argc, char **argv, size_run_t *sizes, bool *is_json)
{
    int count = 0;
    sizes[count++].split = BATCH;
    for (int i = 1; i < argc; i++) {
        const int64_t split = strtoll(argv[i], NULL, 10);
        if (strcmp(argv[i], "--json") == 0) {
            *is_json = true;
        } else if (split < 1 || split >= BATCH || BATCH % split != 0 || count == SIZES_MAX) {
            return -1;
        } else {
            sizes[count++].split = split;
        }
    }
    for (int64_t split = BATCH / 2; split >= 2 && argc == 1 + (int)*is_json; split /= 2) {
        sizes[count++].split = split;
    }
    return count;
}

int main(int argc, char **argv)
{
    static size_run_t sizes[SIZES_MAX];
    tutti_device_t *devices[LANES] = {NULL, NULL};
    bool is_json = false;
    const int count = read_sizes(argc, argv, sizes, &is_json);
    if (count < 0) {
        fprintf(stderr, "device_timeline: splits divide %d, and are smaller\n", BATCH);
        return EXIT_FAILURE;
    }
    tutti_status_t status = open_devices(devices);
    if (status >= 0) {
        status = measure(devices, sizes, count);
    }
    if (status >= 0) {
        print_report(sizes, count, is_json);
    } else {
        fprintf(stderr, "device_timeline: %s\n", tutti_last_error());
    }
    for (int i = 0; i < LANES; i++) {
        tutti_device_release(devices[i]);
    }
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
