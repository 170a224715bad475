/* All that may happen is in one epoll set: the listener, the callers, and a clock that runs while
 * there are any, since those that say nothing have to go. So an owner polls one descriptor, however
 * many strangers there are, and a look costs what there is to be seen.
 *
 * Where this process has no descriptor left, a stranger makes room; if there is none, the listener
 * rests until the clock's next tick. Those who connect wait meanwhile, as at a rank that computes.
 * So they do where there is no memory: nobody is hung up on for that, and the log says it once.
 */
#include "comm/net/admission.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "core/base/alloc.h"
#include "core/base/log.h"

/* The queue takes a connection of every rank while this process computes, as far as the system's
 * somaxconn lets it. What it does not take is not answered. */
enum { BACKLOG = 8192, ACCEPTS_AT_ONCE = 32, EVENTS_AT_ONCE = 64, ROUNDS_MAX = 8, TICK_MS = 200 };

static const char TOO_LITTLE[] = "connections of other processes cannot be taken";

/* operation: EPOLL_CTL_…; who: a caller, or the address of the listener's or the timer's fd. */
static bool watch(const tt_admission_t *admission, int operation, int fd, short events, void *who)
{
    /* POLLIN is EPOLLIN, and so on */
    struct epoll_event event = {.events = (uint32_t)events, .data.ptr = who};
    return epoll_ctl(admission->fd, operation, fd, &event) == 0;
}

/* The clock runs while there is a caller, or the listener rests. */
static void set_clock(tt_admission_t *admission)
{
    const bool is_needed = admission->count > 0 || admission->is_resting;
    const struct timespec tick = {.tv_nsec = is_needed ? TICK_MS * TT_NS_PER_MS : 0};
    if (is_needed != admission->is_ticking) {
        timerfd_settime(admission->timer, 0, &(struct itimerspec){tick, tick}, NULL);
        admission->is_ticking = is_needed;
    }
}

static void set_resting(tt_admission_t *admission, bool is_resting)
{
    if (is_resting != admission->is_resting) {
        (void)watch(admission, EPOLL_CTL_MOD, admission->listener, is_resting ? 0 : POLLIN,
                    &admission->listener);
        admission->is_resting = is_resting;
    }
    set_clock(admission);
}

/* ---- the listener ---- */

static bool listen_at(tt_admission_t *admission, const tt_addresses_t *list)
{
    const struct sockaddr *where = (const struct sockaddr *)&list->address[0];
    socklen_t bytes = list->bytes[0];
    admission->listener = tt_socket_open(where->sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (admission->listener < 0) {
        return false;
    }
    setsockopt(admission->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    return bind(admission->listener, where, bytes) == 0 &&
           listen(admission->listener, BACKLOG) == 0 &&
           getsockname(admission->listener, &admission->where.any,
                       &(socklen_t){sizeof(tt_inet_t)}) == 0;
}

static bool open_set(tt_admission_t *admission)
{
    admission->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    admission->fd = epoll_create1(EPOLL_CLOEXEC);
    if (admission->timer < 0 || admission->fd < 0) {
        return false;
    }
    return watch(admission, EPOLL_CTL_ADD, admission->timer, POLLIN, &admission->timer) &&
           watch(admission, EPOLL_CTL_ADD, admission->listener, POLLIN, &admission->listener);
}

tutti_status_t tt_admission_open(tt_admission_t *admission, const char *address, int port)
{
    tt_addresses_t list;
    if (!tt_addresses_parse(address, port, &list)) {
        return TT_FAIL(TUTTI_ERR_ARG, "\"%s\" is no numeric address to listen on", address);
    }
    TAILQ_INIT(&admission->callers);
    admission->is_open = true;
    admission->fd = admission->listener = admission->timer = admission->held = -1;
    if (listen_at(admission, &list) && open_set(admission)) {
        return TUTTI_OK;
    }
    const tutti_status_t status =
        TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot listen on %s, port %d", address, port);
    tt_admission_close(admission);
    return status;
}

/* ---- callers ---- */

static tt_channel_t *take_out(tt_admission_t *admission, tt_caller_t *caller)
{
    tt_channel_t *channel = caller->channel;
    TAILQ_REMOVE(&admission->callers, caller, link);
    admission->proved -= caller->has_proof;
    admission->silent -= caller->is_silent;
    admission->count--;
    set_clock(admission);
    (void)watch(admission, EPOLL_CTL_DEL, tt_channel_fd(channel), 0, NULL);
    tt_free(caller);
    return channel;
}

static void drop(tt_admission_t *admission, tt_caller_t *caller)
{
    admission->strangers++;
    tt_channel_close(take_out(admission, caller));
}

void tt_admission_close(tt_admission_t *admission)
{
    if (!admission->is_open) {
        return;
    }
    for (tt_caller_t *at; (at = TAILQ_FIRST(&admission->callers)) != NULL;) {
        TAILQ_REMOVE(&admission->callers, at, link); /* a forked child shares set and clock */
        tt_channel_close(at->channel);
        tt_free(at);
    }
    tt_free(admission->proofs);
    tt_socket_close(admission->held);
    tt_socket_close(admission->listener);
    tt_socket_close(admission->timer);
    tt_socket_close(admission->fd);
    admission->is_open = false;
}

/* The oldest caller without proof, of the silent ones or of the others, goes; false if there is
 * none. */
static bool make_room(tt_admission_t *admission, bool is_silent)
{
    tt_caller_t *at;
    TAILQ_FOREACH(at, &admission->callers, link)
    {
        if (!at->has_proof && at->is_silent == is_silent) {
            drop(admission, at);
            return true;
        }
    }
    return false;
}

void tt_admission_note_stranger(tt_admission_t *admission)
{
    admission->strangers++;
    tt_log(TT_LOG_INFO, "%s refused a connection: %s", admission->name, tutti_last_error());
}

/* The failure is the last error. */
static void warn_once(tt_admission_t *admission)
{
    if (!admission->has_warned) {
        admission->has_warned = true;
        tt_log(TT_LOG_WARN, "%s: %s", admission->name, tutti_last_error());
    }
}

/* Until the clock's next tick. */
static void hold(tt_admission_t *admission, int fd)
{
    admission->held = fd;
    (void)TT_FAIL(TUTTI_ERR_NOMEM, "%s: no memory", TOO_LITTLE);
    warn_once(admission);
    set_resting(admission, true);
}

static bool add_caller(tt_admission_t *admission, int fd)
{
    if (admission->silent >= admission->most) {
        (void)make_room(admission, true);
    }
    tt_caller_t *caller = tt_alloc(sizeof *caller, "connection");
    const bool is_watched = caller != NULL && watch(admission, EPOLL_CTL_ADD, fd, POLLIN, caller);
    if (!is_watched || tt_channel_accept(fd, admission->credentials, &caller->channel) < 0) {
        (void)watch(admission, EPOLL_CTL_DEL, fd, 0, NULL);
        tt_free(caller);
        hold(admission, fd);
        return false;
    }
    caller->is_silent = true;
    caller->events = POLLIN;
    caller->deadline = tt_deadline_in_ms(TT_HANDSHAKE_MS);
    TAILQ_INSERT_TAIL(&admission->callers, caller, link);
    admission->silent++;
    admission->count++;
    set_clock(admission);
    return true;
}

/* What this process or host lacks. Any other failure is the fate of one connection that has come in
 * (accept(2) hands on what the network says of it), and the next one may be well. */
static bool is_lack(int code)
{
    return tt_is_out_of_descriptors(code) || code == ENOBUFS || code == ENOMEM;
}

/* Better a stranger than the next one of the job. True: try again. */
static bool find_room(tt_admission_t *admission, int code)
{
    if (make_room(admission, true) || make_room(admission, false)) {
        return true;
    }
    errno = code;
    (void)(tt_is_out_of_descriptors(code) ? tt_fail_out_of_descriptors(TOO_LITTLE)
                                          : TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s", TOO_LITTLE));
    warn_once(admission);
    set_resting(admission, true);
    return false;
}

/* One that is held, or the next one. */
static int take_fd(tt_admission_t *admission)
{
    const int held = admission->held;
    admission->held = -1;
    return held >= 0 ? held : tt_socket_accept(admission->listener, SOCK_NONBLOCK);
}

/* False: none waits, or none can be taken. */
static bool accept_one(tt_admission_t *admission)
{
    const int fd = take_fd(admission);
    if (fd < 0) {
        const int code = errno;
        return code != EAGAIN && code != EINTR && (!is_lack(code) || find_room(admission, code));
    }
    if (tt_socket_has_ended(fd)) {
        tt_socket_close(fd);
        admission->strangers++;
        return true;
    }
    return add_caller(admission, fd);
}

/* True: there are some to be looked at, and more may wait. */
static bool accept_some(tt_admission_t *admission)
{
    int count = 0;
    while (count < ACCEPTS_AT_ONCE && accept_one(admission)) {
        count++;
    }
    return count > 0;
}

/* ---- looking at them ---- */

/* The entry of a proof, or the free place for it. */
static uint64_t *find_proof(uint64_t *proofs, size_t capacity, uint64_t proof)
{
    size_t at = (size_t)(proof % capacity);
    while (proofs[at] != 0 && proofs[at] != proof) {
        at = (at + 1) % capacity;
    }
    return &proofs[at];
}

/* At most half of the table is used. Only the job's processes make it longer. */
static bool grow_proofs(tt_admission_t *admission)
{
    enum { FEW = 256 };
    const size_t before = admission->proof_capacity, capacity = before == 0 ? FEW : 2 * before;
    if (2 * admission->proof_count < before) {
        return true;
    }
    uint64_t *grown = tt_alloc_array(capacity, sizeof *grown, "proofs");
    for (size_t i = 0; i < before && grown != NULL; i++) {
        *find_proof(grown, capacity, admission->proofs[i]) = admission->proofs[i];
    }
    if (grown != NULL) {
        tt_free(admission->proofs);
        admission->proofs = grown;
        admission->proof_capacity = capacity;
    }
    return grown != NULL;
}

/* AUTH: a first message that was recorded is sent once more. */
static tutti_status_t check_proof(tt_admission_t *admission, tt_caller_t *caller)
{
    const uint64_t proof = tt_channel_proof(caller->channel);
    if (caller->is_known || proof == 0 || !grow_proofs(admission)) {
        return TUTTI_OK;
    }
    uint64_t *place = find_proof(admission->proofs, admission->proof_capacity, proof);
    if (*place == proof) {
        return TT_FAIL(TUTTI_ERR_AUTH, "%s sends the first message of another handshake again",
                       tt_channel_peer(caller->channel));
    }
    *place = proof;
    admission->proof_count++;
    caller->is_known = true;
    return TUTTI_OK;
}

/* A first message that was recorded on its way to another process counts as proof too: so there are
 * no more of these than the job can have, with some to spare, and what comes on top makes room as a
 * stranger's does. */
static void note_proof(tt_admission_t *admission, tt_caller_t *caller)
{
    if (caller->is_silent && tt_channel_has_spoken(caller->channel)) {
        caller->is_silent = false;
        admission->silent--;
    }
    if (!caller->has_proof && admission->proved < admission->most &&
        tt_channel_has_proof(caller->channel)) {
        caller->has_proof = true;
        admission->proved++;
    }
}

/* OK: the first message is whole. Errors: those of a channel. */
static tutti_status_t hear(tt_admission_t *admission, tt_caller_t *caller)
{
    const tutti_status_t status = tt_channel_handshake(caller->channel);
    if (status >= 0) {
        TT_TRY(check_proof(admission, caller));
    }
    if (status != TUTTI_OK) {
        return status;
    }
    return tt_channel_pull(caller->channel, caller->first, admission->first_bytes, &caller->said);
}

/* It stays, and is waited for. */
static tutti_status_t keep(tt_admission_t *admission, tt_caller_t *caller)
{
    const short events = tt_channel_events(caller->channel);
    note_proof(admission, caller);
    if (admission->is_hasty && tt_deadline_is_past(caller->deadline)) {
        return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s has not said its first message in time",
                       tt_channel_peer(caller->channel));
    }
    if (events != caller->events) {
        (void)watch(admission, EPOLL_CTL_MOD, tt_channel_fd(caller->channel), events, caller);
        caller->events = events;
    }
    return TUTTI_PENDING;
}

/* The channel if it is admitted; else NULL: it waits, or is gone. */
static tt_channel_t *look_at(tt_admission_t *admission, tt_caller_t *caller, void *first)
{
    tutti_status_t status = hear(admission, caller);
    if (status == TUTTI_OK) {
        memcpy(first, caller->first, admission->first_bytes);
        return take_out(admission, caller);
    }
    status = status == TUTTI_PENDING ? keep(admission, caller) : status;
    if (status < 0) {
        tt_admission_note_stranger(admission);
        tt_channel_close(take_out(admission, caller));
    }
    return NULL;
}

/* At all of them, for those whose time is up; and the listener need not rest any more. */
static tt_channel_t *look_at_all(tt_admission_t *admission, void *first)
{
    uint64_t ticks;
    (void)!read(admission->timer, &ticks, sizeof ticks);
    set_resting(admission, false);
    tt_channel_t *admitted = NULL;
    tt_caller_t *next;
    for (tt_caller_t *at = TAILQ_FIRST(&admission->callers); at != NULL && admitted == NULL;
         at = next) {
        next = TAILQ_NEXT(at, link);
        admitted = look_at(admission, at, first);
    }
    return admitted;
}

/* At those of whom something has come; the listener comes last, since taking a connection in may
 * push out another one. */
static tt_channel_t *look(tt_admission_t *admission, void *first, bool *has_more)
{
    struct epoll_event ready[EVENTS_AT_ONCE];
    const int count = epoll_wait(admission->fd, ready, EVENTS_AT_ONCE, 0);
    tt_channel_t *admitted = NULL;
    bool is_due = false, is_called = false;
    for (int i = 0; i < count && admitted == NULL; i++) {
        void *who = ready[i].data.ptr;
        is_due |= who == &admission->timer;
        is_called |= who == &admission->listener;
        if (who != &admission->timer && who != &admission->listener) {
            admitted = look_at(admission, who, first);
        }
    }
    if (admitted == NULL && is_due) {
        admitted = look_at_all(admission, first);
    }
    while (admission->count - admission->proved - admission->silent > admission->most &&
           make_room(admission, false)) {
    }
    is_called |= admission->held >= 0 && !admission->is_resting;
    *has_more = (is_called && accept_some(admission)) || count == EVENTS_AT_ONCE;
    return admitted;
}

tutti_status_t tt_admission_next(tt_admission_t *admission, void *first, tt_channel_t **out)
{
    bool has_more = true;
    for (int round = 0; round < ROUNDS_MAX && has_more; round++) {
        *out = look(admission, first, &has_more);
        if (*out != NULL) {
            return TUTTI_OK;
        }
    }
    return TUTTI_PENDING;
}
