/* Streams in an array that only grows, so that who reads it takes no lock. A block that is released
 * stands behind the counts of all streams at that time. Counts never fall, so when the first block
 * of the list is in use still, those behind it are. */
#include "core/device/streams.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/config.h"

typedef struct tt_streams_block {
    struct tt_streams_block *next;
    void *memory;
    size_t bytes;
    int count;
    tt_event_t events[]; /* of the streams that there were */
} block_t;

static tutti_status_t start(tt_streams_t *streams, tt_stream_t **out)
{
    tt_threads_t *threads;
    TT_TRY(tt_threads_create(streams->options.threads, &threads));
    const tt_stream_options_t options = {.name = streams->options.name, .user = threads};
    const tutti_status_t status = tt_stream_create(&options, out);
    if (status < 0) {
        tt_threads_release(threads);
    }
    return status;
}

tutti_status_t tt_streams_open(tt_streams_t *streams, const tt_streams_options_t *options)
{
    streams->options = *options;
    if (pthread_key_create(&streams->key, NULL) != 0) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "%s: no thread-specific key is left", options->name);
    }
    const tutti_status_t status = start(streams, &streams->streams[0]);
    if (status < 0) {
        pthread_key_delete(streams->key);
        return status;
    }
    pthread_mutex_init(&streams->lock, NULL);
    streams->last = &streams->blocks;
    atomic_store(&streams->count, 1);
    return TUTTI_OK;
}

static void end(tt_stream_t *stream)
{
    tt_threads_t *threads = tt_streams_threads(stream);
    tt_stream_release(stream);
    tt_threads_release(threads);
}

static void give_back(tt_streams_t *streams, block_t *block)
{
    streams->options.give_back(streams->options.user, block->memory, block->bytes);
    tt_free(block);
}

void tt_streams_close(tt_streams_t *streams)
{
    const int count = atomic_load(&streams->count);
    if (count == 0) {
        return;
    }
    for (int i = 0; i < count; i++) {
        end(streams->streams[i]);
    }
    for (block_t *block; (block = streams->blocks) != NULL;) {
        streams->blocks = block->next;
        give_back(streams, block);
    }
    pthread_mutex_destroy(&streams->lock);
    pthread_key_delete(streams->key);
}

/* ---- of a thread ----------------------------------------------------------------------------- */

tt_stream_t *tt_streams_current(tt_streams_t *streams)
{
    tt_stream_t *stream =
        atomic_load(&streams->count) == 1 ? NULL : pthread_getspecific(streams->key);
    return stream == NULL ? streams->streams[0] : stream;
}

tutti_status_t tt_streams_use(tt_streams_t *streams, tt_stream_t *stream)
{
    const int count = atomic_load(&streams->count);
    for (int i = 0; stream != NULL && streams->streams[i] != stream;) {
        if (++i == count) {
            TT_TRY(tt_stream_check_open(stream));
            return TT_FAIL(TUTTI_ERR_ARG, "device_set_stream: the stream is not one of %s",
                           streams->options.name);
        }
    }
    return pthread_setspecific(streams->key, stream) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOMEM, "device_set_stream: a thread's place for it");
}

/* One is added before the event is taken: who releases a block and sees one stream alone has pushed
 * what uses it before the event. The lock is held. */
static tutti_status_t add(tt_streams_t *streams, tt_stream_t **out)
{
    const int count = atomic_load(&streams->count);
    if (count == TT_DEVICE_STREAMS_MAX) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "stream_create: %d streams of %s are in use: "
                       "release one",
                       TT_DEVICE_STREAMS_MAX - 1, streams->options.name);
    }
    TT_TRY(start(streams, &streams->streams[count]));
    *out = streams->streams[count];
    tt_stream_retain(*out);
    atomic_store(&streams->count, count + 1);
    return TUTTI_OK;
}

static tutti_status_t take(tt_streams_t *streams, tt_stream_t **out)
{
    const int count = atomic_load(&streams->count);
    for (int i = 1; i < count; i++) {
        if (!tt_stream_is_held(streams->streams[i])) {
            *out = streams->streams[i];
            tt_stream_retain(*out);
            return TUTTI_OK;
        }
    }
    return add(streams, out);
}

tutti_status_t tt_streams_take(tt_streams_t *streams, tt_stream_t **out)
{
    tt_stream_t *own = streams->streams[0], *stream;
    TT_TRY(tt_stream_check_open(own));
    pthread_mutex_lock(&streams->lock);
    tutti_status_t status = take(streams, &stream);
    pthread_mutex_unlock(&streams->lock);
    TT_TRY(status);
    status = tt_stream_wait_event(stream, tt_stream_event(own));
    if (status < 0) {
        tt_stream_let_go(stream);
        return status;
    }
    *out = stream;
    return TUTTI_OK;
}

tutti_status_t tt_streams_wait(tt_streams_t *streams, tt_deadline_t deadline)
{
    tt_event_t events[TT_DEVICE_STREAMS_MAX];
    tutti_status_t first = TUTTI_OK;
    char text[TT_ERROR_TEXT_BYTES] = "";
    const int count = atomic_load(&streams->count);
    for (int i = 0; i < count; i++) {
        events[i] = tt_stream_event(streams->streams[i]);
    }
    for (int i = 0; i < count; i++) { /* else a failure is told that TIMEOUT hides */
        TT_TRY(tt_event_pass(events[i], deadline));
    }
    for (int i = 0; i < count; i++) {
        const tutti_status_t status = tt_event_wait(events[i], deadline);
        if (status < 0 && first >= 0) {
            first = status;
            memcpy(text, tutti_last_error(), strlen(tutti_last_error()) + 1);
        }
    }
    return first < 0 ? TT_FAIL(first, "%s", text) : TUTTI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* All of them wait for each other: without memory for more. */
static void join(tt_streams_t *streams, int count)
{
    for (int i = 0; i < count * count; i++) {
        const tt_event_t event = tt_stream_event(streams->streams[i % count]);
        (void)tt_stream_stay_behind(streams->streams[i / count], event); /* forked: nobody works */
    }
}

static bool is_idle(const tt_streams_t *streams, int count)
{
    for (int i = 0; i < count; i++) {
        if (!tt_event_is_done(tt_stream_event(streams->streams[i]))) {
            return false;
        }
    }
    return true;
}

static void append(tt_streams_t *streams, block_t *block)
{
    pthread_mutex_lock(&streams->lock);
    for (int i = 0; i < block->count; i++) {
        block->events[i] = tt_stream_event(streams->streams[i]);
    }
    *streams->last = block;
    streams->last = &block->next;
    pthread_mutex_unlock(&streams->lock);
}

void tt_streams_free(tt_streams_t *streams, void *memory, size_t bytes)
{
    const int count = atomic_load(&streams->count);
    block_t *block = NULL;
    if (count > 1 && !is_idle(streams, count)) {
        block = tt_alloc(sizeof *block + (size_t)count * sizeof *block->events, "released block");
        if (block != NULL) {
            block->memory = memory;
            block->bytes = bytes;
            block->count = count;
            append(streams, block);
            tt_streams_reclaim(streams);
            return;
        }
        join(streams, count);
    }
    streams->options.give_back(streams->options.user, memory, bytes);
}

/* The first of the list, if nobody uses it any more. The lock is held. */
static block_t *pop(tt_streams_t *streams)
{
    block_t *block = streams->blocks;
    for (int i = 0; block != NULL && i < block->count; i++) {
        if (!tt_event_is_done(block->events[i])) {
            return NULL;
        }
    }
    if (block != NULL) {
        streams->blocks = block->next;
        streams->last = block->next == NULL ? &streams->blocks : streams->last;
    }
    return block;
}

void tt_streams_reclaim(tt_streams_t *streams)
{
    if (atomic_load(&streams->count) == 1) {
        return;
    }
    pthread_mutex_lock(&streams->lock);
    for (block_t *block; (block = pop(streams)) != NULL;) {
        give_back(streams, block); /* here: who wants memory finds it in the list, or free */
    }
    pthread_mutex_unlock(&streams->lock);
}

bool tt_streams_settle(tt_streams_t *streams)
{
    int64_t limit = 0;
    if (atomic_load(&streams->count) == 1) {
        return false;
    }
    pthread_mutex_lock(&streams->lock);
    const bool has_any = streams->blocks != NULL;
    pthread_mutex_unlock(&streams->lock);
    if (!has_any || tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &limit) < 0) {
        return true;
    }
    const tt_deadline_t deadline = tt_deadline_in_ms(limit);
    for (int i = 0; i < atomic_load(&streams->count); i++) {
        (void)tt_event_pass(tt_stream_event(streams->streams[i]), deadline); /* in use still */
    }
    tt_streams_reclaim(streams);
    return true;
}
