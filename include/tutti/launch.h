/**
 * @file launch.h
 * Starting the ranks of a job on one host or several, and ending them: what `tutti run` does, and
 * what a program does itself.
 *
 * Example:
 *
 *     const char *const command[] = {"./gpt", "--steps", "100", NULL};
 *     tutti_launch_report_t report;
 *     TUTTI_CHECK(tutti_launch(&(tutti_launch_options_t){.rank_count = 2, .command = command},
 *                              &report));
 *     if (report.exit_code != 0) {
 *         fprintf(stderr, "%s%s\n", report.stderr_tail, report.verdict);
 *     }
 *
 * Every rank gets torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,
 * GROUP_WORLD_SIZE, ROLE_RANK, ROLE_WORLD_SIZE, ROLE_NAME, MASTER_ADDR, MASTER_PORT,
 * TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_RUN_ID; and of our own
 * TUTTI_AGENT_STORE=1 (the store at MASTER_PORT listens already, in the launcher), TUTTI_THREADS
 * (its cores, unless that is set) and TUTTI_TERMINAL=1 when its output goes to a terminal.
 *
 * On several hosts the same is called on each, with node_count, a node_rank of its own, and the
 * host and port where node 0's launcher has the store; TUTTI_KEY_FILE in the environment names a
 * file with the same key on each. The hosts' numbers of ranks may differ. When a rank or a launcher
 * fails anywhere, all launchers stop their ranks and report the same first failure.
 *
 * With `hosts`, it is called once, on any machine, and starts the others' launchers by ssh: what
 * the ranks of all hosts print comes out here, and what would end them here ends them there. The
 * job's key goes over ssh's standard input.
 *
 * Unlike torchrun: ranks are bound to disjoint cores; output comes in whole lines with the rank in
 * front; the first rank's exit code or signal is the job's; no process outlives the job, not even
 * when the launcher is killed with SIGKILL or a rank leaves a daemon behind.
 *
 * With max_restarts, all ranks of a job are started again when one fails, with another store and
 * another key (made from the job's and the number of the attempt), so that no process of an earlier
 * attempt can join a later one. Programs go on from their newest checkpoint (checkpoint.h).
 */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/objects.h>
#include <tutti/status.h>
#include <tutti/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most ranks that one launcher starts. */
enum { TUTTI_LAUNCH_RANKS_MAX = 4096 };

/** Which streams of a rank; torchrun's numbers. */
enum { TUTTI_STREAM_STDOUT = 1, TUTTI_STREAM_STDERR = 2 };

/** A host that ranks are started on by ssh. */
typedef struct tutti_launch_host {
    const char *name; /**< as ssh takes it: "node1", "user@192.0.2.10" */
    int rank_count;   /**< at least 1 */
} tutti_launch_host_t;

/** Zero means default. */
typedef struct tutti_launch_options {
    int rank_count;             /**< 0: as many as there are cores that this process may use */
    const char *const *command; /**< ended by NULL; the first is looked up in PATH */
    int node_count;             /**< hosts; 0: 1 */
    int node_rank;              /**< of this host; -1: what Slurm says (SLURM_NODEID) */
    const char *master_host;    /**< name or address of node 0's host: only that one is listened on;
                                     NULL: 127.0.0.1 */
    int master_port;            /**< of the store; 0: the system chooses, on one host only */
    int64_t join_timeout_ms;    /**< until all hosts have joined; 0: 10 minutes */
    const char *run_id;         /**< letters, digits, '-', '_', '.'; NULL: made up */
    const char *log_dir; /**< logs go to log_dir/run_id/attempt_A/RANK/stdout.log and stderr.log;
                              NULL: a new directory in TMPDIR, or /tmp, if there is
                              anything to log */
    const uint8_t *redirects; /**< [rank_count], bits of streams: to the log only; NULL: none */
    const uint8_t *tees;      /**< [rank_count], bits of streams: to the log as well; NULL: none */
    int64_t grace_ms;         /**< from the first SIGTERM to SIGKILL; 0: 30 s */
    bool is_plain;            /**< lines of stdout come as they are, without the rank in front */
    int max_restarts;         /**< how often all ranks are started again after one has failed */
    const char *const *environment; /**< of ranks: more "NAME=value", ended by NULL; may be NULL */
    const char *executable;         /**< file to execute, as command[0]; NULL: command[0] */
    int lifeline; /**< descriptor of a pipe whose other end's closing ends the job; 0: none.
                                       A byte that comes through it is the number of a signal */
    const tutti_launch_host_t *hosts; /**< [host_count]: ranks are started there, none here;
                                           rank_count, node_count and node_rank do not count then,
                                           and redirects and tees are of all ranks; NULL: here */
    int host_count;
    const char *ssh;    /**< command, as a shell reads it, that gets a host and a command behind its
                             own arguments; NULL: ssh, without questions */
    const char *folder; /**< of the ranks on each host; NULL: the caller's current one */
    const char *remote; /**< the tutti command on each host; NULL: tutti, in the PATH there */
} tutti_launch_options_t;

/** How a job ended. */
typedef struct tutti_launch_report {
    int exit_code;     /**< 0; the code of the first rank that failed, or 128 + its signal; 1 when
                            what the ranks printed could not be written */
    int failed_rank;   /**< the first that failed; -1: none */
    int failed_node;   /**< its host; -1: none */
    int stop_signal;   /**< that stopped the job; SIGPIPE: the output of the ranks is not read
                            any more; 0: none */
    int restart_count; /**< how often the ranks were started again */
    char verdict[512]; /**< "rank 3: killed by SIGKILL", "rank 1 on node 0 (host): exit code 7",
                            "node 2 (host): lost"; "" if none */
    char log_dir[512]; /**< where the logs are; "" if there are none */
    char stderr_tail[4096]; /**< the failed rank's last lines, each ended by a new line */
} tutti_launch_report_t;

/**
 * Run a command as a job of n ranks on this host, or this host's part of a job on several, and wait
 * for the job's end.
 *
 * Signals that arrive meanwhile are forwarded to all ranks; a second SIGINT kills them. When a rank
 * fails, the others get SIGTERM, and SIGKILL after a while.
 *
 * @param options  borrowed
 * @param report   out; written on success: a job that failed is a success of the launcher
 * @thread         a process with one thread and no children: it forks, and kills what is left
 * @cost           two processes for the launcher, one thread for the store
 * @errors         ARG; NOT_FOUND, UNSUPPORTED (the command cannot be found, cannot be executed);
 *                 IO (the port is taken, log files), NOMEM; of several hosts: TIMEOUT (names the
 *                 host that did not come), MISMATCH (started differently), AUTH; of `hosts`: IO
 *                 (names a host that ssh cannot reach), NOT_FOUND (no tutti, no command there)
 * @source         torchrun
 */
TUTTI_API tutti_status_t tutti_launch(const tutti_launch_options_t *options,
                                      tutti_launch_report_t *report);

/**
 * Be one host's part of a job whose launcher runs elsewhere: what `tutti run --agent` does, and
 * tutti_launch() with hosts has started by ssh. The job comes over standard input, and its end ends
 * the job; lines for the launcher go to standard output.
 *
 * @param exit_code  out, that of the job
 * @thread           as tutti_launch()
 * @errors           IO, FORMAT (the job cannot be read); others are told to the launcher
 */
TUTTI_API tutti_status_t tutti_launch_serve(int *exit_code);

/** Whether a launcher's variables say that this process is one of several ranks, so that
 *  tutti_init() would meet others. @thread any @errors none */
TUTTI_API bool tutti_is_launched(void);

/**
 * Write a new job key, 32 random bytes in hexadecimal, into a new file that only this user can
 * read: for jobs on several hosts, each of which gets a copy (TUTTI_KEY_FILE, tutti run
 * --key-file).
 *
 * @param path   must not exist yet
 * @thread       any
 * @errors       IO
 */
TUTTI_API tutti_status_t tutti_key_create(const char *path);

/** How often the launcher has started the ranks of this job again (TORCHELASTIC_RESTART_COUNT);
 *  0 without a launcher. @thread any @errors none */
TUTTI_API int tutti_restart_count(void);

/** Cores that this process may use. @thread any @cost reads the topology @errors none: at least 1
 */
TUTTI_API int tutti_core_count(void);

/* ---- ranks of a program ---------------------------------------------------------------------- */

/* Starting ranks from inside a program: as processes, or as threads for tests.
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
 * (launch.h), cores of its own, and nothing on stdin; its lines come with the rank in front.
 *
 * The first rank that fails ends the others, and tutti_spawn() returns its failure: the status that
 * it returned, with "rank R: " before its text, or PEER with how it ended, "rank 1: killed by
 * SIGSEGV". Of several failures it is the one that explains the others. No rank outlives the
 * program, not even when that is killed with SIGKILL.
 *
 * Unlike torch.multiprocessing.spawn: the others are ended by SIGTERM first, and killed after
 * grace_ms; what ranks leave behind is killed, too; arguments are bytes.
 */

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

#ifdef __cplusplus
#include <tutti/group.h>

/* C++ has no compound literals: the same macro, by an object. */
struct tutti_spawned_options { /* lives as long as the expression that it is made in */
    tutti_init_options_t options;
    explicit tutti_spawned_options(const tutti_spawned_t *self) : options()
    {
        options.store = self->store;
        options.rank = self->rank;
        options.world_size = self->size;
    }
    operator const tutti_init_options_t *() const
    {
        return &options;
    }
};
#undef TUTTI_SPAWNED
#define TUTTI_SPAWNED(self) tutti_spawned_options(self)
#endif

#endif
