/* Recording a profile. A thread's lane is found by a variable of the thread; it is the process's,
 * and stays when the thread ends. A new run has another number, so that threads see that their lane
 * is of an old one.
 *
 * What fails for lack of memory is counted as lost and never told to those who run.
 */
#include "core/base/profile_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tutti/profile.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fnv.h"
#include "core/base/fork.h"
#include "core/base/log.h"

atomic_int tt_profile_users;
atomic_bool tt_profile_records;
tt_profile_t tt_profile = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint run_number;

static _Thread_local struct {
    tt_profile_lane_t *lane;
    unsigned run; /* of the lane */
    char name[TT_PROFILE_LANE_BYTES];
    int rank; /* + 1; 0: the process's */

    /* Of what is counted: how much, and how much there was when each frame began. */
    double flops, marks[TT_PROFILE_DEPTH];
    int depth;
} mine;

static const char *const kinds[TT_PROFILE_KINDS] = {
    [TT_PROFILE_FORWARD] = "forward", [TT_PROFILE_BACKWARD] = "backward",
    [TT_PROFILE_MODULE] = "module",   [TT_PROFILE_REGION] = "region",
    [TT_PROFILE_WAIT] = "wait",       [TT_PROFILE_KERNEL] = "kernel",
    [TT_PROFILE_CALL] = "call",
};

const char *tt_profile_kind_name(tt_profile_kind_t kind)
{
    return kinds[kind];
}

/* ---- the lock -------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&tt_profile.lock);
}

/* The profile is the parent's. */
static void after_fork_in_child(void)
{
    tt_alloc_unwatch();
    tt_profile_unlock();
}

static void watch_forks(void)
{
    if (pthread_atfork(before_fork, tt_profile_unlock, after_fork_in_child) != 0) {
        tt_log(TT_LOG_WARN, "no memory to watch for forks: a child that is forked while a thread "
                            "has the profile's lock will wait for it for ever");
    }
}

void tt_profile_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&tt_profile.lock);
}

void tt_profile_unlock(void)
{
    pthread_mutex_unlock(&tt_profile.lock);
}

/* ---- growing --------------------------------------------------------------------------------- */

/* Room for one more in `items`; false: there is no memory. */
static bool has_room(void **items, size_t size, size_t count, size_t *capacity)
{
    enum { FIRST = 64 };
    if (count < *capacity) {
        return true;
    }
    const size_t wanted = *capacity == 0 ? FIRST : 2 * *capacity;
    void *grown = tt_realloc(*items, wanted * size, "profile");
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    *capacity = wanted;
    return true;
}

/* Of a table whose entries are numbers from 1 on: twice as large, with places for `hash_of`. */
static bool grow_places(uint32_t **places, uint32_t *count, uint32_t entries,
                        uint64_t (*hash_of)(const void *user, uint32_t entry), const void *user)
{
    enum { FIRST = 256 };
    if (2 * (entries + 1) <= *count) {
        return true;
    }
    const uint32_t wanted = *count == 0 ? FIRST : 2 * *count;
    uint32_t *grown = tt_alloc_array(wanted, sizeof *grown, "profile");
    if (grown == NULL) {
        return false;
    }
    for (uint32_t entry = 0; entry < entries; entry++) {
        uint64_t at = hash_of(user, entry);
        while (grown[at % wanted] != 0) {
            at++;
        }
        grown[at % wanted] = entry + 1;
    }
    tt_free(*places);
    *places = grown;
    *count = wanted;
    return true;
}

/* Not in a forked child: it is the parent's. */
static bool is_recording(void)
{
    return atomic_load_explicit(&tt_profile_records, memory_order_acquire) &&
           tt_profile.forks == tt_forks;
}

/* ---- modules --------------------------------------------------------------------------------- */

/* A module's number is its place, and which run it is of: a graph keeps one longer than a run. */
enum { PLACE_BITS = 20, PLACES_MAX = 1 << PLACE_BITS };

static uint32_t number_of(uint32_t place)
{
    return place == 0 ? 0 : atomic_load(&run_number) << PLACE_BITS | place;
}

/* 0: none, or of another run. */
static uint32_t place_of(uint32_t module)
{
    const uint32_t place = module % PLACES_MAX;
    return module == number_of(place) ? place : 0;
}

static uint64_t hash_text(const char *text)
{
    return tt_fnv(TT_FNV_BEGIN, text, strlen(text));
}

static uint64_t hash_module(const void *user, uint32_t entry)
{
    (void)user;
    return hash_text(tt_profile.modules[entry]);
}

/* The lock is held. */
static uint32_t add_module(const char *path)
{
    tt_profile_t *p = &tt_profile;
    size_t capacity = p->module_capacity;
    const bool has_memory =
        p->module_count < PLACES_MAX - 1 &&
        has_room((void **)&p->modules, sizeof *p->modules, p->module_count, &capacity) &&
        grow_places(&p->places, &p->place_count, p->module_count, hash_module, NULL);
    p->module_capacity = (uint32_t)capacity;
    char *copy = has_memory ? tt_strdup(path, "profile") : NULL;
    if (copy == NULL) {
        return 0;
    }
    uint64_t at = hash_text(path);
    while (p->places[at % p->place_count] != 0) {
        at++;
    }
    p->modules[p->module_count++] = copy;
    return p->places[at % p->place_count] = p->module_count;
}

uint32_t tt_profile_module(const char *path)
{
    tt_profile_t *p = &tt_profile;
    uint32_t found = 0;
    tt_profile_lock();
    for (uint64_t at = hash_text(path); p->place_count > 0; at++) {
        found = p->places[at % p->place_count];
        if (found == 0 || strcmp(p->modules[found - 1], path) == 0) {
            break;
        }
    }
    found = found == 0 && is_recording() ? add_module(path) : found;
    const uint32_t number = number_of(found);
    tt_profile_unlock();
    return number;
}

bool tt_profile_has_module(uint32_t module)
{
    return place_of(module) != 0;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

void tt_profile_name_thread(const char *name)
{
    snprintf(mine.name, sizeof mine.name, "%s", name);
}

void tt_profile_set_rank(int rank, int world_size)
{
    mine.rank = rank + 1;
    tt_profile_lock();
    if (tt_profile.world_size <= 1 ||
        (tt_profile.world_size == world_size && rank < tt_profile.rank)) {
        tt_profile.rank = rank; /* the first of those that are threads of this process */
        tt_profile.world_size = world_size;
    }
    if (mine.lane != NULL && mine.run == atomic_load(&run_number) &&
        atomic_load(&tt_profile_records)) {
        mine.lane->rank = rank;
    }
    tt_profile_unlock();
}

/* The lock is held. */
static void name_lane(tt_profile_lane_t *lane)
{
    const long id = syscall(SYS_gettid);
    if (mine.name[0] != 0) {
        snprintf(lane->name, sizeof lane->name, "%s", mine.name);
    } else if (id == (long)getpid()) {
        snprintf(lane->name, sizeof lane->name, "main");
    } else {
        snprintf(lane->name, sizeof lane->name, "thread %ld", id);
    }
}

static tt_profile_lane_t *new_lane(void)
{
    tt_profile_lane_t *lane = tt_alloc(sizeof *lane, "profile");
    if (lane == NULL) {
        return NULL;
    }
    pthread_mutex_init(&lane->lock, NULL);
    tt_profile_lock();
    if (!atomic_load(&tt_profile_records)) {
        tt_profile_unlock();
        pthread_mutex_destroy(&lane->lock);
        tt_free(lane);
        return NULL;
    }
    name_lane(lane);
    lane->rank = mine.rank > 0 ? mine.rank - 1 : tt_profile.rank;
    lane->next = tt_profile.lanes;
    tt_profile.lanes = lane;
    mine.run = atomic_load(&run_number);
    mine.lane = lane;
    tt_profile_unlock();
    return lane;
}

/* This thread's, locked; NULL: it is off, or there is no memory. Lanes are freed by
 * tutti_profile_stop() alone, which is called while no other thread computes; at the end of the
 * process threads may run, and what they record then waits for the lock (tt_profile_renew). */
static tt_profile_lane_t *take_lane(void)
{
    if (!is_recording()) {
        return NULL;
    }
    tt_profile_lane_t *lane =
        mine.lane != NULL && mine.run == atomic_load(&run_number) ? mine.lane : new_lane();
    if (lane != NULL) {
        pthread_mutex_lock(&lane->lock);
    }
    return lane;
}

void tt_profile_renew(void)
{
    for (tt_profile_lane_t *lane = tt_profile.lanes; lane != NULL; lane = lane->next) {
        pthread_mutex_lock(&lane->lock);
        pthread_mutex_unlock(&lane->lock);
    }
    atomic_fetch_add(&run_number, 1);
}

void tt_profile_free(void)
{
    tt_profile_t *p = &tt_profile;
    while (p->lanes != NULL) {
        tt_profile_lane_t *lane = p->lanes;
        p->lanes = lane->next;
        tt_free(lane->rows);
        tt_free(lane->places);
        tt_free(lane->events);
        tt_free(lane->calls);
        pthread_mutex_destroy(&lane->lock);
        tt_free(lane);
    }
    for (uint32_t i = 0; i < p->module_count; i++) {
        tt_free(p->modules[i]);
    }
    tt_free(p->modules);
    tt_free(p->places);
    tt_free(p->path);
    p->modules = NULL;
    p->places = NULL;
    p->path = NULL;
    p->module_count = p->module_capacity = p->place_count = 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t hash_key(uint64_t name, tt_profile_kind_t kind, uint32_t module)
{
    return name ^ ((uint64_t)kind << 32 | module) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t hash_row(const void *user, uint32_t entry)
{
    const tt_profile_row_t *row = &((const tt_profile_lane_t *)user)->rows[entry];
    return hash_key(hash_text(row->name), row->kind, row->module);
}

static bool is_row(const tt_profile_row_t *row, const char *name, tt_profile_kind_t kind,
                   uint32_t module)
{
    return row->kind == kind && row->module == module && strcmp(row->name, name) == 0;
}

/* + 1; 0: no memory. */
static uint32_t row_of(tt_profile_lane_t *lane, const char *text, tt_profile_kind_t kind,
                       uint32_t module)
{
    char name[TT_PROFILE_NAME_BYTES] = "";
    const size_t length = strnlen(text, sizeof name - 1);
    memcpy(name, text, length);
    const uint64_t hash = hash_key(tt_fnv(TT_FNV_BEGIN, name, length), kind, module);
    for (uint64_t at = hash; lane->place_count > 0; at++) {
        const uint32_t found = lane->places[at % lane->place_count];
        if (found == 0) {
            break;
        }
        if (is_row(&lane->rows[found - 1], name, kind, module)) {
            return found;
        }
    }
    size_t capacity = lane->row_capacity;
    const bool has_memory =
        has_room((void **)&lane->rows, sizeof *lane->rows, lane->row_count, &capacity) &&
        grow_places(&lane->places, &lane->place_count, lane->row_count, hash_row, lane);
    lane->row_capacity = (uint32_t)capacity;
    if (!has_memory) {
        return 0;
    }
    uint64_t at = hash;
    while (lane->places[at % lane->place_count] != 0) {
        at++;
    }
    tt_profile_row_t *row = &lane->rows[lane->row_count++];
    memcpy(row->name, name, sizeof name);
    row->kind = kind;
    row->module = module;
    return lane->places[at % lane->place_count] = lane->row_count;
}

/* ---- what runs ------------------------------------------------------------------------------- */

/* Without a profile a frame is a mark alone. */
static void mark(void)
{
    if (mine.depth < TT_PROFILE_DEPTH) {
        mine.marks[mine.depth] = mine.flops;
    }
    mine.depth++;
}

static void unmark(double elements)
{
    if (mine.depth > 0 && --mine.depth < TT_PROFILE_DEPTH && mine.flops == mine.marks[mine.depth]) {
        mine.flops += elements;
    }
}

bool tt_profile_begin_on(tt_profile_kind_t kind, const char *name, uint32_t module)
{
    tt_profile_lane_t *lane = take_lane();
    mark();
    if (lane == NULL) {
        return true;
    }
    if (lane->depth < TT_PROFILE_DEPTH) {
        lane->frames[lane->depth] = (tt_profile_frame_t){
            .row = row_of(lane, name, kind, place_of(module)), .begin_ns = tt_clock_ns()};
    }
    lane->depth++;
    pthread_mutex_unlock(&lane->lock);
    return true;
}

static void add_event(tt_profile_lane_t *lane, const tt_profile_frame_t *frame, int64_t now)
{
    if (lane->event_count >= tt_profile.events_max ||
        !has_room((void **)&lane->events, sizeof *lane->events, lane->event_count,
                  &lane->event_capacity)) {
        lane->lost++;
        return;
    }
    lane->events[lane->event_count++] =
        (tt_profile_event_t){frame->begin_ns, now, (uint64_t)tt_alloc_live(), frame->row - 1};
}

/* What was counted, or what ran inside counted; where nothing was, the elements. */
static double operations_of(const tt_profile_frame_t *frame, double elements)
{
    const double counted = frame->flops + frame->inside_flops;
    return counted > 0 ? counted : elements;
}

static void add_up(tt_profile_row_t *row, const tt_profile_frame_t *frame, int64_t ns,
                   tt_profile_end_t end)
{
    const double flops = operations_of(frame, end.elements);
    row->calls++;
    row->bytes += end.bytes;
    row->total_ns += ns;
    row->own_ns += ns - frame->inside_ns;
    row->longest_ns = ns > row->longest_ns ? ns : row->longest_ns;
    row->flops += flops;
    row->own_flops += flops - frame->inside_flops;
}

static void end_frame(tt_profile_lane_t *lane, int64_t now, tt_profile_end_t end)
{
    if (lane->depth == 0 || --lane->depth >= TT_PROFILE_DEPTH) {
        return; /* begun in another run; or too deep */
    }
    const tt_profile_frame_t *frame = &lane->frames[lane->depth];
    const int64_t ns = now - frame->begin_ns;
    if (frame->row == 0) {
        lane->lost++;
        return;
    }
    add_up(&lane->rows[frame->row - 1], frame, ns, end);
    add_event(lane, frame, now);
    if (lane->depth > 0) {
        lane->frames[lane->depth - 1].inside_ns += ns;
        lane->frames[lane->depth - 1].inside_flops += operations_of(frame, end.elements);
    }
}

void tt_profile_end(tt_profile_end_t end)
{
    const int64_t now = tt_clock_ns();
    tt_profile_lane_t *lane = take_lane();
    unmark(end.elements);
    if (lane != NULL) {
        end_frame(lane, now, end);
        pthread_mutex_unlock(&lane->lock);
    }
}

void tt_profile_count_on(double flops)
{
    tt_profile_lane_t *lane = take_lane();
    mine.flops += flops;
    if (lane == NULL) {
        return;
    }
    if (lane->depth > 0 && lane->depth <= TT_PROFILE_DEPTH) {
        lane->frames[lane->depth - 1].flops += flops;
    }
    pthread_mutex_unlock(&lane->lock);
}

void tt_profile_start_counting(void)
{
    atomic_fetch_add(&tt_profile_users, 1);
    mine.depth = 0;
}

double tt_profile_flops(void)
{
    return mine.flops;
}

void tt_profile_end_counting(void)
{
    atomic_fetch_sub(&tt_profile_users, 1);
}

/* Of one that began in an earlier run, the part that lies in this one. */
static void add_call(tt_profile_lane_t *lane, const tt_profile_call_t *call, int64_t now)
{
    const int64_t zero = tt_profile.begin_ns;
    const int64_t begin_ns = call->begin_ns < zero ? zero : call->begin_ns;
    const uint32_t row = row_of(lane, call->name, TT_PROFILE_CALL, 0);
    if (row == 0 || lane->call_count >= TT_PROFILE_CALLS_MAX ||
        !has_room((void **)&lane->calls, sizeof *lane->calls, lane->call_count,
                  &lane->call_capacity)) {
        lane->lost++;
    } else {
        tt_profile_ended_t *ended = &lane->calls[lane->call_count++];
        *ended = (tt_profile_ended_t){*call, now, row - 1};
        ended->call.begin_ns = begin_ns;
    }
    if (row > 0) {
        const tt_profile_frame_t frame = {0};
        add_up(&lane->rows[row - 1], &frame, now - begin_ns,
               (tt_profile_end_t){.bytes = call->bytes});
    }
}

void tt_profile_end_call(const tt_profile_call_t *call)
{
    const int64_t now = tt_clock_ns();
    tt_profile_lane_t *lane = take_lane();
    if (lane != NULL) {
        add_call(lane, call, now);
        pthread_mutex_unlock(&lane->lock);
    }
}

/* ---- regions of a program's own -------------------------------------------------------------- */

void tutti_profile_begin(const char *name)
{
    (void)tt_profile_begin(TT_PROFILE_REGION, name != NULL ? name : "?", 0);
}

void tutti_profile_end(void)
{
    if (tt_profile_is_on()) {
        tt_profile_end((tt_profile_end_t){0});
    }
}

void tutti_profile_count(double flops)
{
    const double most = 1e300;
    if (flops > 0 && flops < most) { /* what is no number would be in all sums from now on */
        tt_profile_count(flops);
    }
}
