/* A shared heap of one segment, its shadow of addresses, and streams.
 *
 * Cost of a launch: a comparison and an addition for each pointer, and the push (stream.h).
 */
#include "core/device/strict_device.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/core_share.h"
#include "core/device/heap.h"

#define MEMORY_BYTES (UINT64_C(64) << 30)
#define FIRST_PLACE (UINT64_C(1) << 48) /* segment 0, offset 0 */

typedef struct {
    char name[32];
    tt_strict_options_t options; /* without zeros, but of the costs */
    tt_device_t *heap;
    unsigned char *memory; /* of the heap's segment: what kernels use */
    unsigned char *shadow; /* what is handed out */
    tt_streams_t streams;
    tt_exec_t exec;
    _Atomic uint64_t launches, copied_bytes;
} strict_t;

/* ---- launches -------------------------------------------------------------------------------- */

typedef struct {
    tt_threads_t *threads; /* of the stream */
    const tt_kernel_t *kernel;
    _Alignas(16) unsigned char arguments[];
} launch_t;

enum { ARGUMENTS_MAX = TT_WORK_BYTES_MAX - sizeof(launch_t) };

static tutti_status_t run_kernel(void *user)
{
    const launch_t *launch = user;
    return launch->kernel->run(launch->threads, launch->arguments);
}

/* Also, without bytes, at its end: what is empty may begin there. */
static bool is_inside(const strict_t *strict, const void *pointer, size_t bytes)
{
    const uintptr_t at = (uintptr_t)pointer - (uintptr_t)strict->shadow;
    return at <= strict->options.memory_bytes && bytes <= strict->options.memory_bytes - at;
}

/* The address that kernels use. */
static void *inside(const strict_t *strict, const void *pointer)
{
    return strict->memory + ((uintptr_t)pointer - (uintptr_t)strict->shadow);
}

static tutti_status_t translate(const strict_t *strict, const tt_kernel_t *kernel,
                                unsigned char *arguments)
{
    for (const tt_pointer_t *p = kernel->pointers; p->name != NULL; p++) {
        void *pointer;
        memcpy(&pointer, arguments + p->offset, sizeof pointer);
        if (pointer == NULL) {
            continue;
        }
        if (!is_inside(strict, pointer, 0)) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: %s, %p, is not memory of %s", kernel->name, p->name,
                           pointer, strict->name);
        }
        pointer = inside(strict, pointer);
        memcpy(arguments + p->offset, &pointer, sizeof pointer);
    }
    return TUTTI_OK;
}

static tutti_status_t launch_strict(tt_exec_t *exec, const tt_kernel_t *kernel,
                                    const void *arguments)
{
    strict_t *strict = exec->device;
    _Alignas(16) unsigned char room[TT_WORK_BYTES_MAX];
    launch_t *launch = (void *)room;
    TT_ASSERT(kernel->bytes <= ARGUMENTS_MAX);
    tt_stream_t *stream = tt_streams_current(&strict->streams);
    *launch = (launch_t){.threads = tt_streams_threads(stream), .kernel = kernel};
    memcpy(launch->arguments, arguments, kernel->bytes);
    TT_TRY(translate(strict, kernel, launch->arguments));
    const tt_work_t work = {kernel->name,
                            run_kernel,
                            launch,
                            sizeof *launch + kernel->bytes,
                            strict->options.launch_ns,
                            kernel->is_always};
    TT_TRY(tt_stream_push(stream, &work));
    atomic_fetch_add(&strict->launches, 1);
    return TUTTI_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
} copy_t;

static tutti_status_t run_copy(void *user)
{
    const copy_t *copy = user;
    memcpy(copy->to, copy->from, copy->bytes);
    return TUTTI_OK;
}

static tutti_status_t push_copy(strict_t *strict, const char *name, const copy_t *copy)
{
    const int64_t rate = strict->options.copy_bytes_s;
    const double ns = rate > 0 ? (double)copy->bytes * 1e9 / (double)rate : 0;
    TT_TRY(tt_stream_push(tt_streams_current(&strict->streams),
                          &(tt_work_t){name, run_copy, copy, sizeof *copy, (int64_t)ns, false}));
    atomic_fetch_add(&strict->copied_bytes, copy->bytes);
    return TUTTI_OK;
}

static tutti_status_t check_memory(const strict_t *strict, const char *call, const void *pointer,
                                   size_t bytes)
{
    return is_inside(strict, pointer, bytes)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: %zu bytes at %p are not memory of %s", call, bytes,
                         pointer, strict->name);
}

static tutti_status_t copy_in(void *state, void *to, const void *host, size_t bytes)
{
    strict_t *strict = state;
    TT_TRY(check_memory(strict, "copy_in", to, bytes));
    return push_copy(strict, "copy_in", &(copy_t){inside(strict, to), host, bytes});
}

static tutti_status_t copy_out(void *state, void *host, const void *from, size_t bytes)
{
    strict_t *strict = state;
    TT_TRY(check_memory(strict, "copy_out", from, bytes));
    return push_copy(strict, "copy_out", &(copy_t){host, inside(strict, from), bytes});
}

static tutti_status_t copy_across(void *state, void *to, void *other, const void *from,
                                  size_t bytes)
{
    strict_t *strict = state;
    const strict_t *others = other;
    TT_TRY(check_memory(strict, "copy", to, bytes));
    TT_TRY(check_memory(others, "copy", from, bytes));
    return push_copy(strict, "copy", &(copy_t){inside(strict, to), inside(others, from), bytes});
}

static void *host_view(void *state, void *memory)
{
    return inside(state, memory);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *alloc_strict(void *state, size_t bytes, const char *what)
{
    strict_t *strict = state;
    tt_streams_reclaim(&strict->streams);
    unsigned char *memory = tt_device_alloc(strict->heap, bytes, what);
    if (memory == NULL && tt_streams_settle(&strict->streams)) {
        memory = tt_device_alloc(strict->heap, bytes, what);
    }
    if (memory == NULL) {
        char text[TT_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "%s: %s", strict->name, text);
        return NULL;
    }
    return strict->shadow + (memory - strict->memory);
}

static void free_strict(void *state, void *memory, size_t bytes)
{
    strict_t *strict = state;
    tt_streams_free(&strict->streams, inside(strict, memory), bytes);
}

/* What no stream uses any more. */
static void give_back(void *user, void *memory, size_t bytes)
{
    const strict_t *strict = user;
    tt_device_free(strict->heap, memory, bytes);
}

static tt_device_stats_t stats_of_strict(void *state)
{
    strict_t *strict = state;
    tt_streams_reclaim(&strict->streams);
    tt_device_stats_t stats = tt_device_stats(strict->heap);
    stats.launches = atomic_load(&strict->launches);
    stats.copied_bytes = atomic_load(&strict->copied_bytes);
    return stats;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* A page more than the memory, so that its end is nobody else's address. */
static size_t shadow_bytes(const strict_t *strict)
{
    return strict->options.memory_bytes + tt_heap_page_bytes();
}

static void close_strict(void *state)
{
    strict_t *strict = state;
    tt_streams_close(&strict->streams);
    tutti_device_release(strict->heap);
    if (strict->shadow != NULL) {
        munmap(strict->shadow, shadow_bytes(strict));
    }
}

static tutti_status_t make_shadow(strict_t *strict)
{
    const size_t bytes = shadow_bytes(strict);
    void *shadow = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow == MAP_FAILED) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "%s: %zu bytes of addresses", strict->name, bytes);
    }
    strict->shadow = shadow;
    strict->memory = tt_heap_at(strict->heap, FIRST_PLACE, strict->options.memory_bytes);
    return TUTTI_OK;
}

static tutti_status_t try_open(strict_t *strict)
{
    const size_t bytes = strict->options.memory_bytes;
    const tt_heap_options_t heap = {.first_bytes = bytes, .idle_min = bytes, .is_fixed = true};
    TT_TRY(tt_device_open(&tt_device_heap, &heap, &strict->heap));
    TT_TRY(make_shadow(strict));
    const int threads = strict->options.threads;
    return tt_streams_open(&strict->streams,
                           &(tt_streams_options_t){.name = strict->name,
                                                   .threads = threads > 0 ? threads : 1,
                                                   .give_back = give_back,
                                                   .user = strict});
}

static tutti_status_t open_strict(void *state, const void *options)
{
    strict_t *strict = state;
    if (options != NULL) {
        strict->options = *(const tt_strict_options_t *)options;
    }
    const size_t page = tt_heap_page_bytes();
    const size_t asked = strict->options.memory_bytes;
    strict->options.memory_bytes = asked == 0 ? MEMORY_BYTES : (asked + page - 1) / page * page;
    snprintf(strict->name, sizeof strict->name, "strict:%d", strict->options.index);
    strict->exec = (tt_exec_t){.launch = launch_strict, .device = strict};
    const tutti_status_t status = try_open(strict);
    if (status < 0) {
        close_strict(strict);
    }
    return status;
}

static tt_exec_t *exec_of(void *state)
{
    strict_t *strict = state;
    return &strict->exec;
}

static tt_streams_t *streams_of(void *state)
{
    strict_t *strict = state;
    return &strict->streams;
}

static tutti_status_t open_named(int index, const tutti_device_options_t *options,
                                 tt_device_t **out)
{
    tt_strict_options_t strict = {.index = index, .threads = tt_core_share()};
    if (options != NULL) {
        strict.memory_bytes = (size_t)options->memory_bytes;
        strict.launch_ns = options->launch_ns;
        strict.copy_bytes_s = options->copy_bytes_per_s;
        strict.threads = options->threads > 0 ? options->threads : strict.threads;
    }
    return tt_device_open(&tt_device_strict, &strict, out);
}

static const tt_accelerator_ops_t accelerator = {
    .exec = exec_of,
    .streams = streams_of,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .host_view = host_view,
};

const tt_device_ops_t tt_device_strict = {
    .name = "strict",
    .about = "a virtual accelerator: its own memory, which the host may not touch, and a stream",
    .state_bytes = sizeof(strict_t),
    .open = open_strict,
    .close = close_strict,
    .alloc = alloc_strict,
    .free = free_strict,
    .stats = stats_of_strict,
    .accelerator = &accelerator,
    .open_named = open_named,
    .is_numbered = true,
};
