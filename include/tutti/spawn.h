/**
 * @file spawn.h
 * Starting ranks from inside a program: as processes, or as threads for tests.
 *
 * Example:
 *
 *     static tutti_status_t train(const tutti_spawned_t *self)
 *     {
 *         tutti_group_t *world;
 *         TUTTI_CHECK(tutti_init(TUTTI_SPAWNED(self), &world));
 *         printf("rank %d of %d: %s\n", self->rank, self->size, (const char *)self->argument.data);
 *         tutti_group_release(world);
 *         return TUTTI_OK;
 *     }
 *
 *     static const tutti_spawn_entry_t entries[] = {{"train", train}, {NULL, NULL}};
 *
 *     int code;
 *     if (tutti_spawned(entries, &code)) { // at the beginning of main()
 *         return code;
 *     }
 *     tutti_spawn_options_t options = {.argument = tutti_text("hello")};
 *     TUTTI_CHECK(tutti_spawn(train, 2, &options));
 *
 * A rank is the same program, executed again (/proc/self/exe), so that its threads and libraries
 * start clean: main() hands control to tutti_spawned(), which calls the entry in a process that was
 * started for one, and does nothing elsewhere. A rank gets the environment that `tutti run` gives
 * (elastic.h), cores of its own, and nothing on stdin; its lines come with the rank in front.
 *
 * The first rank that fails ends the others, and tutti_spawn() returns its failure: the status that
 * it returned, with "rank R: " before its text, or PEER with how it ended, "rank 1: killed by
 * SIGSEGV". Of several failures it is the one that explains the others. No rank outlives the
 * program, not even when that is killed with SIGKILL.
 *
 * Unlike torch.multiprocessing.spawn: the others are ended by SIGTERM first, and killed after
 * grace_ms; what ranks leave behind is killed, too; arguments are bytes.
 */
#ifndef TUTTI_SPAWN_H
#define TUTTI_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/bytes.h>
#include <tutti/elastic.h>
#include <tutti/status.h>
#include <tutti/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a rank is given; valid while its entry runs. */
typedef struct tutti_spawned_rank {
    int rank, size;
    tutti_bytes_t argument; /**< tutti_spawn_options_t's, with a 0 behind it */
    tutti_store_t *store;   /**< of threads: where they meet; NULL: in the environment */
    int restart_count;      /**< how often all ranks were started again */
} tutti_spawned_t;

/** Options of tutti_init() for a rank. */
#define TUTTI_SPAWNED(self)                                                                        \
    (&(tutti_init_options_t){                                                                      \
        .store = (self)->store, .rank = (self)->rank, .world_size = (self)->size})

/** What a rank does. Before it returns it releases all that it has, also when it fails. */
typedef tutti_status_t (*tutti_spawn_fn_t)(const tutti_spawned_t *self);

/** An entry of the program; tables end with {NULL, NULL}. */
typedef struct tutti_spawn_entry {
    const char *name; /**< at most 63 characters, for messages and process lists */
    tutti_spawn_fn_t run;
} tutti_spawn_entry_t;

/** Zero means default. */
typedef struct tutti_spawn_options {
    tutti_bytes_t argument;         /**< copied, for every rank */
    bool threads;                   /**< ranks are threads of this process; only `argument` and the
                                         timeout count then */
    int64_t timeout_ms;             /**< of the whole; 0: none */
    const char *const *environment; /**< "NAME=value" for the ranks, ended by NULL */
    const char *log_dir;            /**< as in tutti_launch_options_t; all is logged there, too */
    bool is_plain;                  /**< lines of stdout come without the rank in front */
    int64_t grace_ms;               /**< from SIGTERM to SIGKILL; 0: 30 s */
    int max_restarts;               /**< how often all ranks are started again after a failure */
} tutti_spawn_options_t;

/** Ranks that run, or have run. */
typedef struct tutti_spawned_ranks tutti_spawn_t;

/**
 * Hand control to the entry that this process was started for, if it was started for one. The
 * first that main() does, and in every program that calls tutti_spawn(): it knows the entries from
 * here.
 *
 * @param entries  borrowed for ever: a static table
 * @param code     out, what main() returns, when true
 * @return         true: this was a process of tutti_spawn(), and it is done
 * @thread         before there are threads
 * @cost           one look into the environment
 * @errors         none: a rank's go to the one who started it
 */
TUTTI_API bool tutti_spawned(const tutti_spawn_entry_t *entries, int *code);

/**
 * Run an entry as n ranks, and wait for their end.
 *
 * @param run      in the table of tutti_spawned(); for threads any function
 * @param options  borrowed; NULL for all defaults
 * @thread         any
 * @cost           three processes more than ranks; about 20 ms
 * @errors         that of the first rank that failed; PEER (it was killed, or ended by exit);
 *                 TIMEOUT (names the ranks that were still running, which are ended); ARG, STATE
 *                 (tutti_spawned() was not called), NOT_FOUND (no such entry), IO, NOMEM
 * @source         torch.multiprocessing.spawn(join=True)
 */
TUTTI_API tutti_status_t tutti_spawn(tutti_spawn_fn_t run, int n,
                                     const tutti_spawn_options_t *options);

/**
 * The same without waiting.
 *
 * @param out  owned by the caller, to be released with tutti_spawn_release
 * @thread     any
 * @errors     ARG, STATE, NOT_FOUND, IO, NOMEM
 * @source     torch.multiprocessing.spawn(join=False)
 */
TUTTI_API tutti_status_t tutti_spawn_start(tutti_spawn_fn_t run, int n,
                                           const tutti_spawn_options_t *options,
                                           tutti_spawn_t **out);

/**
 * Wait until all ranks have ended.
 *
 * @param timeout_ms  0: the options'
 * @return            PENDING: some still run when this timeout is over; the options' is an error
 * @thread            one at a time
 * @errors            as tutti_spawn; again and again the same
 * @source            torch.multiprocessing.SpawnContext.join
 */
TUTTI_API tutti_status_t tutti_spawn_join(tutti_spawn_t *spawn, int64_t timeout_ms);

/** Send a signal to every rank; of threads: abort the store that they meet in. Does not wait.
 *  @thread any @errors ARG (no signal), IO */
TUTTI_API tutti_status_t tutti_spawn_kill(tutti_spawn_t *spawn, int signal);

/** How it ended, in a launcher's words; borrowed; NULL before, and for threads. @thread one at a
 *  time @errors none */
TUTTI_API const tutti_launch_report_t *tutti_spawn_report(const tutti_spawn_t *spawn);

/** Whose failure tutti_spawn_join() returns; -1: none, or no rank's. @thread one at a time
 *  @errors none */
TUTTI_API int tutti_spawn_failed_rank(const tutti_spawn_t *spawn);

/** Forget the ranks; those that still run are killed. Threads are waited for: they end when what
 *  they wait for has failed. NULL does nothing. @thread one at a time @errors none */
TUTTI_API void tutti_spawn_release(tutti_spawn_t *spawn);

#ifdef __cplusplus
}
#endif

#endif
