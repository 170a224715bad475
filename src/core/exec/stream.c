/* A stream: a ring of records, written by those who push, read by the stream's thread.
 *
 *     ring | free | record | record | record | (skip to the begin) |
 *                 ^ read                      ^ written
 *
 * A record is a head and the arguments. `posted` and `finished` count records, and are what the
 * thread and those who wait sleep on; they look for a few us first. Cost of a record: a lock that
 * is nearly always free, the copy of its arguments, and a system call where the thread sleeps.
 */
#include "core/exec/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/integers.h"
#include "core/base/log.h"
#include "core/base/profiler.h"
#include "core/base/ref.h"
#include "core/base/spin.h"
#include "core/base/thread.h"

enum { RING_BYTES = 1 << 20, RECORD_ALIGN = 64, SPINS = 2000, SLEEP_NS = 100000, LOST_KEPT = 4 };

/* Without a name: the rest of the ring is empty. */
typedef struct {
    const char *name;
    tutti_status_t (*run)(void *arguments);
    size_t record_bytes;
    int64_t least_ns;
    int64_t pushed_ns; /* of a stream that is watched */
    bool is_always; /* not skipped: releases and waits, which keep what others use; first values */
    _Alignas(16) unsigned char arguments[];
} record_t;

/* What a failure spoiled: the values of records [begin, end) are not there. */
typedef struct {
    uint64_t begin, end; /* no end before the failure has been told */
    uint32_t told;       /* how many had been, with it */
    tutti_status_t status;
    bool is_seen; /* by one who asked for the values */
    char text[TT_ERROR_TEXT_BYTES];
} lost_t;

struct tutti_stream {
    tt_ref_t ref; /* of its owner, and of those that look at its events */
    char name[32];
    void *user;
    pid_t owner;
    pthread_t thread;
    pthread_mutex_t push_lock;
    uint64_t written;                     /* bytes of the ring, ever; under push_lock */
    _Alignas(64) _Atomic uint32_t posted; /* records */
    _Atomic uint32_t is_thread_asleep;
    _Alignas(64) _Atomic uint64_t read;  /* bytes of the ring, ever */
    _Atomic uint32_t finished, sleepers; /* records; those who wait for them */
    tt_spin_t spin;                      /* of those who wait */
    _Atomic uint64_t pushed, done, skipped;
    atomic_bool stops;
    pthread_mutex_t failure_lock;
    _Atomic int failure;         /* the status of the first work that failed; 0: none to tell */
    _Atomic uint64_t skip_until; /* records before this one are skipped */
    _Atomic uint32_t told;       /* failures */
    lost_t lost[LOST_KEPT];      /* of the last failures, told or not; under failure_lock */
    uint64_t lost_count;         /* ever */
    unsigned char *ring;
    const tt_stream_watch_t *watch; /* moves while nothing is under way */
};

/* Until *word is not `old`. *asleep says that somebody must be woken. */
static void wait_until_moved(tt_spin_t *spin, _Atomic uint32_t *word, uint32_t old,
                             _Atomic uint32_t *asleep, tt_deadline_t deadline)
{
    if (tt_spin_sees_move(spin, SPINS, word, old)) {
        return;
    }
    atomic_fetch_add(asleep, 1);
    while (atomic_load(word) == old && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(word, old, deadline);
    }
    atomic_fetch_sub(asleep, 1);
}

static void move(_Atomic uint32_t *word, _Atomic uint32_t *asleep)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(asleep) > 0) {
        tt_futex_wake_all(word);
    }
}

/* ---- the stream's thread --------------------------------------------------------------------- */

/* Of those that there are. */
static lost_t *newest(tt_stream_t *stream)
{
    return &stream->lost[(stream->lost_count - 1) % LOST_KEPT];
}

static void keep_failure(tt_stream_t *stream, const record_t *record, tutti_status_t status)
{
    const char *text = tutti_last_error();
    const size_t length = strlen(record->name);
    const bool is_named =
        strncmp(text, record->name, length) == 0 && (text[length] == ':' || text[length] == ' ');
    pthread_mutex_lock(&stream->failure_lock);
    lost_t *lost = &stream->lost[stream->lost_count++ % LOST_KEPT];
    *lost = (lost_t){.begin = atomic_load(&stream->done), .end = UINT64_MAX, .status = status};
    snprintf(lost->text, sizeof lost->text, "%s: %s%s%s", stream->name,
             is_named ? "" : record->name, is_named ? "" : ": ", text);
    atomic_store(&stream->failure, status);
    pthread_mutex_unlock(&stream->failure_lock);
}

static void pass_time(int64_t until)
{
    for (int64_t left; (left = until - tt_clock_ns()) > 0;) {
        if (left > SLEEP_NS) {
            tt_clock_sleep(left - SLEEP_NS / 2, TT_NEVER);
        } else {
            tt_cpu_pause();
        }
    }
}

static void do_work(tt_stream_t *stream, record_t *record)
{
    const bool is_lost = atomic_load(&stream->failure) < 0 ||
                         atomic_load(&stream->done) < atomic_load(&stream->skip_until);
    if (is_lost && !record->is_always) {
        atomic_fetch_add(&stream->skipped, 1);
        return;
    }
    const bool is_profiled = tt_profile_begin(TT_PROFILE_KERNEL, record->name, 0);
    const int64_t begin = record->least_ns > 0 ? tt_clock_ns() : 0;
    const tutti_status_t status = record->run(record->arguments);
    if (status < 0 && !is_lost) {
        keep_failure(stream, record, status);
    }
    if (record->least_ns > 0) {
        pass_time(begin + record->least_ns);
    }
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
}

static tutti_status_t run_wait(void *arguments);

static void do_watched(tt_stream_t *stream, record_t *record)
{
    const tt_stream_watch_t *watch = stream->watch;
    tt_stream_moment_t moment = {
        .name = record->name, .index = stream->done, .pushed_ns = record->pushed_ns};
    if (record->run == run_wait) {
        memcpy(&moment.awaited, record->arguments, sizeof moment.awaited); /* a wait_t begins so */
    }
    if (watch->before != NULL) {
        watch->before(watch->user, &moment);
    }
    moment.begin_ns = tt_clock_ns();
    do_work(stream, record);
    moment.end_ns = tt_clock_ns();
    watch->behind(watch->user, &moment);
}

static record_t *record_at(const tt_stream_t *stream, uint64_t at)
{
    return (record_t *)(void *)(stream->ring + at % RING_BYTES);
}

static void *run_stream(void *user)
{
    tt_stream_t *stream = user;
    tt_spin_t spin = {0};
    tt_profile_name_thread(stream->name);
    for (uint32_t seen = 0;; seen++) {
        wait_until_moved(&spin, &stream->posted, seen, &stream->is_thread_asleep, TT_NEVER);
        if (atomic_load(&stream->stops) &&
            atomic_load(&stream->done) == atomic_load(&stream->pushed)) {
            return NULL; /* what was pushed before it was told to stop is done, too */
        }
        record_t *record = record_at(stream, stream->read);
        if (record->name == NULL) {
            atomic_fetch_add(&stream->read, record->record_bytes);
            record = record_at(stream, stream->read);
        }
        if (stream->watch == NULL) {
            do_work(stream, record);
        } else {
            do_watched(stream, record);
        }
        atomic_fetch_add(&stream->read, record->record_bytes);
        atomic_fetch_add(&stream->done, 1);
        move(&stream->finished, &stream->sleepers);
    }
}

/* ---- making and ending ----------------------------------------------------------------------- */

tutti_status_t tt_stream_create(const tt_stream_options_t *options, tt_stream_t **out)
{
    tt_stream_t *stream = tt_alloc(sizeof *stream, "stream");
    TT_TRY_ALLOC(stream);
    tt_ref_init(&stream->ref);
    snprintf(stream->name, sizeof stream->name, "%s", options->name);
    stream->user = options->user;
    stream->owner = getpid();
    stream->ring = tt_alloc_raw(RING_BYTES, "stream");
    tutti_status_t status = stream->ring == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    pthread_mutex_init(&stream->push_lock, NULL);
    pthread_mutex_init(&stream->failure_lock, NULL);
    if (status >= 0) {
        status = tt_thread_start(run_stream, stream, options->name, &stream->thread);
    }
    if (status < 0) {
        tt_free(stream->ring);
        tt_free(stream);
        return status;
    }
    *out = stream;
    return TUTTI_OK;
}

void tt_stream_retain(tt_stream_t *stream)
{
    tt_ref_retain(&stream->ref);
}

bool tt_stream_is_held(tt_stream_t *stream)
{
    return !tt_ref_is_unique(&stream->ref);
}

void *tt_stream_user(const tt_stream_t *stream)
{
    return stream->user;
}

/* Its thread has ended before the last one lets go. */
void tt_stream_let_go(tt_stream_t *stream)
{
    if (tt_ref_release(&stream->ref)) {
        pthread_mutex_destroy(&stream->push_lock);
        pthread_mutex_destroy(&stream->failure_lock);
        tt_free(stream);
    }
}

void tt_stream_release(tt_stream_t *stream)
{
    if (stream == NULL) {
        return;
    }
    if (stream->owner == getpid()) {
        if (tt_event_wait(tt_stream_event(stream), TT_NEVER) < 0 && !newest(stream)->is_seen) {
            tt_log(TT_LOG_ERROR, "%s, and nobody waited for it", tutti_last_error());
        }
        pthread_mutex_lock(&stream->push_lock);
        atomic_store(&stream->stops, true);
        move(&stream->posted, &stream->is_thread_asleep);
        pthread_mutex_unlock(&stream->push_lock);
        pthread_join(stream->thread, NULL);
    }
    tt_free(stream->ring);
    tt_stream_let_go(stream);
}

static tutti_status_t check_owner(const tt_stream_t *stream)
{
    return stream->owner == getpid()
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s was opened before fork(): its thread is the parent's",
                         stream->name);
}

tutti_status_t tt_stream_check_open(tt_stream_t *stream)
{
    TT_TRY(check_owner(stream));
    return atomic_load(&stream->stops)
               ? TT_FAIL(TUTTI_ERR_STATE, "%s has closed: its streams take no more work",
                         stream->name)
               : TUTTI_OK;
}

/* ---- pushing --------------------------------------------------------------------------------- */

/* Room for a record that does not wrap; NULL: there is none now. push_lock is held. */
static record_t *find_room(tt_stream_t *stream, size_t bytes)
{
    const size_t left = RING_BYTES - stream->written % RING_BYTES;
    const size_t needed = bytes <= left ? bytes : left + bytes;
    if (stream->written + needed - atomic_load(&stream->read) > RING_BYTES) {
        return NULL;
    }
    if (bytes > left) {
        record_t *rest = record_at(stream, stream->written);
        rest->name = NULL;
        rest->record_bytes = left;
        stream->written += left;
    }
    return record_at(stream, stream->written);
}

/* TUTTI_PENDING: there is no room now. behind: NULL, or out. push_lock is held. */
static tutti_status_t write_record(tt_stream_t *stream, const tt_work_t *work, tt_event_t *behind)
{
    const size_t bytes = tt_round_up(sizeof(record_t) + work->bytes, RECORD_ALIGN);
    TT_TRY(tt_stream_check_open(stream));
    record_t *record = find_room(stream, bytes);
    if (record == NULL) {
        return TUTTI_PENDING;
    }
    record->name = work->name;
    record->run = work->run;
    record->record_bytes = bytes;
    record->least_ns = work->least_ns;
    record->pushed_ns = stream->watch == NULL ? 0 : tt_clock_ns();
    record->is_always = work->is_always;
    if (work->bytes > 0) {
        memcpy(record->arguments, work->arguments, work->bytes);
    }
    stream->written += bytes;
    atomic_fetch_add(&stream->pushed, 1);
    if (behind != NULL) {
        *behind = tt_stream_event(stream);
    }
    move(&stream->posted, &stream->is_thread_asleep);
    return TUTTI_OK;
}

/* Nobody else is held up by who waits for room. */
static tutti_status_t push_until(tt_stream_t *stream, const tt_work_t *work, tt_event_t *behind,
                                 tt_deadline_t deadline)
{
    for (;;) {
        const uint32_t finished = atomic_load(&stream->finished);
        pthread_mutex_lock(&stream->push_lock);
        const tutti_status_t status = write_record(stream, work, behind);
        pthread_mutex_unlock(&stream->push_lock);
        if (status != TUTTI_PENDING || tt_deadline_is_past(deadline)) {
            return status;
        }
        wait_until_moved(&stream->spin, &stream->finished, finished, &stream->sleepers, deadline);
    }
}

static tutti_status_t push_in_time(tt_stream_t *stream, const tt_work_t *work, tt_event_t *behind)
{
    int64_t limit_ms;
    TT_TRY(tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &limit_ms));
    const tutti_status_t status = push_until(stream, work, behind, tt_deadline_in_ms(limit_ms));
    return status != TUTTI_PENDING
               ? status
               : TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s: no room behind %llu pieces of work in %lld ms",
                         stream->name, work->name,
                         (unsigned long long)(atomic_load(&stream->pushed) -
                                              atomic_load(&stream->done)),
                         (long long)limit_ms);
}

/* must: as long as it takes. */
static tutti_status_t push(tt_stream_t *stream, const tt_work_t *work, bool must,
                           tt_event_t *behind)
{
    TT_TRY(check_owner(stream));
    TT_ASSERT(work->bytes <= TT_WORK_BYTES_MAX);
    const tutti_status_t status = push_until(stream, work, behind, must ? TT_NEVER : 0);
    return status == TUTTI_PENDING ? push_in_time(stream, work, behind) : status;
}

tutti_status_t tt_stream_push(tt_stream_t *stream, const tt_work_t *work)
{
    return push(stream, work, false, NULL);
}

tutti_status_t tt_stream_push_event(tt_stream_t *stream, const tt_work_t *work, tt_event_t *behind)
{
    return push(stream, work, false, behind);
}

typedef struct {
    void (*release)(void *object);
    void *object;
} release_t;

static tutti_status_t run_release(void *arguments)
{
    const release_t *job = arguments;
    job->release(job->object);
    return TUTTI_OK;
}

tutti_status_t tt_stream_push_release(tt_stream_t *stream, void (*release)(void *object),
                                      void *object)
{
    const release_t job = {release, object};
    const tt_work_t work = {"release", run_release, &job, sizeof job, 0, .is_always = true};
    return push(stream, &work, true, NULL);
}

/* ---- events ---------------------------------------------------------------------------------- */

tt_event_t tt_stream_event(tt_stream_t *stream)
{
    const uint32_t told = atomic_load(&stream->told);
    return (tt_event_t){stream, atomic_load(&stream->pushed), told};
}

bool tt_event_is_done(tt_event_t event)
{
    return atomic_load(&event.stream->done) >= event.count;
}

/* The failure that nobody has been told of. What was pushed until now is skipped still. */
static tutti_status_t take_failure(tt_stream_t *stream)
{
    if (atomic_load(&stream->failure) == 0) {
        return TUTTI_OK;
    }
    pthread_mutex_lock(&stream->failure_lock);
    tutti_status_t status = (tutti_status_t)atomic_load(&stream->failure);
    if (status < 0) {
        lost_t *lost = newest(stream);
        status = TT_FAIL(status, "%s", lost->text);
        lost->end = atomic_load(&stream->pushed);
        atomic_store(&stream->skip_until, lost->end);
        lost->told = atomic_fetch_add(&stream->told, 1) + 1;
        atomic_store(&stream->failure, 0);
    }
    pthread_mutex_unlock(&stream->failure_lock);
    return status;
}

static bool is_over(const lost_t *lost, uint32_t told)
{
    return lost->end != UINT64_MAX && (int32_t)(told - lost->told) >= 0;
}

/* The failure that spoiled one of the records [begin, end), and was not told among the first
 * `told`; NULL: none did. What lies before the last failures that are kept is taken for spoiled.
 * failure_lock is held. */
static lost_t *find_lost(tt_stream_t *stream, uint64_t begin, uint64_t end, uint32_t told)
{
    const uint64_t count = stream->lost_count;
    const uint64_t kept = count < LOST_KEPT ? count : LOST_KEPT;
    for (uint64_t i = 1; i <= kept; i++) {
        lost_t *lost = &stream->lost[(count - i) % LOST_KEPT];
        if (is_over(lost, told)) {
            return NULL; /* as those before it */
        }
        if ((begin < lost->end && lost->begin < end) ||
            (i == LOST_KEPT && count > LOST_KEPT && begin < lost->begin)) {
            return lost;
        }
    }
    return NULL;
}

static tutti_status_t check(tt_event_t before, uint64_t end, bool is_seen)
{
    tt_stream_t *stream = before.stream;
    tutti_status_t status = TUTTI_OK;
    pthread_mutex_lock(&stream->failure_lock);
    lost_t *lost = find_lost(stream, before.count, end, before.told);
    if (lost != NULL) {
        lost->is_seen |= is_seen;
        status = TT_FAIL(lost->status, "%s", lost->text);
    }
    pthread_mutex_unlock(&stream->failure_lock);
    return status;
}

/* Whether what was to be done before an event was: its last record. */
static tutti_status_t check_last(tt_event_t event, bool is_seen)
{
    const tt_event_t before = {event.stream, event.count - 1, event.told};
    return event.count == 0 ? TUTTI_OK : check(before, event.count, is_seen);
}

static tutti_status_t check_event(tt_event_t event)
{
    return check_last(event, false);
}

tutti_status_t tt_event_check(tt_event_t event)
{
    return check_last(event, true);
}

tutti_status_t tt_stream_check(tt_event_t before, tt_event_t after)
{
    TT_ASSERT(before.stream == after.stream);
    return check(before, after.count, true);
}

static tutti_status_t wait_until_done(tt_event_t event, tt_deadline_t deadline)
{
    tt_stream_t *stream = event.stream;
    TT_TRY(check_owner(stream));
    for (;;) {
        const uint32_t finished = atomic_load(&stream->finished);
        const uint64_t done = atomic_load(&stream->done);
        if (done >= event.count) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %llu of %llu pieces of work are not done",
                           stream->name, (unsigned long long)(event.count - done),
                           (unsigned long long)event.count);
        }
        wait_until_moved(&stream->spin, &stream->finished, finished, &stream->sleepers, deadline);
    }
}

tutti_status_t tt_event_wait(tt_event_t event, tt_deadline_t deadline)
{
    TT_TRY(wait_until_done(event, deadline));
    TT_TRY(take_failure(event.stream));
    return atomic_load(&event.stream->told) == event.told ? TUTTI_OK : check_event(event);
}

tutti_status_t tt_event_pass(tt_event_t event, tt_deadline_t deadline)
{
    return wait_until_done(event, deadline);
}

bool tt_stream_is_inside(const tt_stream_t *stream)
{
    return pthread_equal(pthread_self(), stream->thread) != 0;
}

typedef struct {
    tt_event_t event;
    bool is_used; /* what the work before it made: what failed there has spoiled that */
} wait_t;

static tutti_status_t run_wait(void *arguments)
{
    const wait_t *wait = arguments;
    tutti_status_t status = wait_until_done(wait->event, TT_NEVER);
    status = status >= 0 && wait->is_used ? check_event(wait->event) : status;
    tt_stream_let_go(wait->event.stream);
    return status;
}

static tutti_status_t push_wait(tt_stream_t *stream, tt_event_t event, bool is_used)
{
    const wait_t wait = {event, is_used};
    if (event.stream == stream) {
        return TUTTI_OK;
    }
    tt_ref_retain(&event.stream->ref);
    const tt_work_t work = {"wait", run_wait, &wait, sizeof wait, 0, .is_always = true};
    const tutti_status_t status = push(stream, &work, !is_used, NULL);
    if (status < 0) {
        tt_stream_let_go(event.stream);
    }
    return status;
}

tutti_status_t tt_stream_wait_event(tt_stream_t *stream, tt_event_t event)
{
    return push_wait(stream, event, true);
}

tutti_status_t tt_stream_stay_behind(tt_stream_t *stream, tt_event_t event)
{
    return push_wait(stream, event, false);
}

void tt_stream_set_watch(tt_stream_t *stream, const tt_stream_watch_t *watch)
{
    stream->watch = watch;
}

tt_stream_stats_t tt_stream_stats(tt_stream_t *stream)
{
    const uint64_t skipped = atomic_load(&stream->skipped);
    return (tt_stream_stats_t){atomic_load(&stream->done) - skipped, skipped};
}
