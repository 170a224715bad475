/* The inside of the mpi engine, shared by its files. */
#ifndef TT_MPI_IMPL_H
#define TT_MPI_IMPL_H

#include <sys/queue.h>

#include "comm/backend/backend.h"
#include "comm/backend/mpi/mpi_plugin.h"
#include "comm/exec/call_text.h"
#include "core/kernel/reduce/tree_reduce.h"

typedef struct tt_mpi_group tt_mpi_group_t;
typedef struct tt_mpi_job tt_mpi_job_t;

/* What the requests of a job are for: whose messages, to say which rank did not come. */
typedef struct {
    int peer;
    bool is_recv;
} tt_mpi_peer_t;

/* A call under way. Jobs go back to their group's list with their memory, so that nothing is
 * allocated in the steady state. */
struct tt_mpi_job {
    tt_mpi_job_t *next; /* of the group's jobs under way, of its free ones, of those left over */
    const tt_mpi_t *mpi;
    tt_op_t *op;         /* of the call or the message; NULL: it was given up */
    const tt_op_t *held; /* that one, while MPI may touch its memory; NULL: none */
    tt_run_t *run;       /* the call; NULL: it is a message */
    uint64_t sequence;
    bool is_behind;                  /* it has not begun: tt_mpi_is_behind */
    tt_call_descriptor_t descriptor; /* of a call that is checked */

    /* Called when all requests are done: posts the next ones and returns PENDING, or ends. NULL:
     * the call is over then. */
    tutti_status_t (*advance)(tt_mpi_group_t *group, tt_mpi_job_t *job);

    void *requests;
    tt_mpi_peer_t *peers; /* [request_capacity] */
    int request_count, request_capacity;

    int step;                /* of the performer that it has */
    size_t block, total;     /* elements: where this block begins, where the last one ends */
    bool is_whole;           /* every rank gets all of all pieces */
    tt_slice_t *send, *recv; /* [size] parts in the piece, in out */
    tt_slice_t *slices;      /* [size] what each rank adds up in this block */
    int *piece_counts;       /* [size] of a reduction */
    int *counts, *starts;    /* [size] for MPI's own collectives */
    size_t bytes;            /* of a message; of the largest one of a call that comes */

    const void **sources; /* [source_capacity] of the tree */
    unsigned char *merges;
    int source_count, source_capacity, depth;
    int tree_leaves; /* the merges are those of so many leaves, spread evenly; 0: of others */
    void *scratch, *tree_scratch;
    size_t scratch_bytes, tree_scratch_bytes;
    char *result; /* where my slice is added up; where MPI leaves its own result */
};

struct tt_mpi_group {
    const tt_mpi_t *mpi;
    tt_mpi_world_t world;
    tt_mpi_group_t *root; /* the world it is part of; NULL: it is one itself */
    LIST_HEAD(, tt_mpi_group) parts;
    LIST_ENTRY(tt_mpi_group) of_root;
    int rank, size;
    int *ranks; /* [size] in the root */
    uint32_t epoch;
    char *name;
    tt_records_t *records;
    int64_t timeout_ms, report_ms;
    tt_mpi_comm_t calls, messages;
    bool has_calls, has_messages;
    tt_device_t *memory;
    const tt_combine_kernels_t *kernels;
    int exchange_max; /* groups up to this size exchange messages; larger ones use MPI's own */
    bool aborts_job, checks;
    uint64_t sequence;
    int64_t uncanonical_sums;   /* calls so far */
    tt_mpi_job_t *first, *last; /* under way, in order */
    tt_mpi_job_t *free_jobs;
    unsigned fruitless; /* looks in a row that found nothing new */
    int64_t looked_ns;  /* when it last looked for news and at the clock */
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
};

/* Tags of the communicator for calls. The standard promises tags up to 32767. */
enum {
    TT_MPI_PHASES = 2,
    TT_MPI_SEQUENCES = 15000,
    TT_MPI_TAG_MEET = TT_MPI_PHASES * TT_MPI_SEQUENCES,
    TT_MPI_TAG_ABORTED = 32766,
    TT_MPI_TAG_FAILED,
};

/* Fruitless looks until a waiting rank reads the clock and looks for bad news, and lets others have
 * the core: some 10 µs. */
enum { TT_MPI_LOOKS = 64 };

static inline void *tt_mpi_request(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int index)
{
    return (char *)job->requests + (size_t)index * group->mpi->request_bytes;
}

/* ---- mpi_progress.c ---- */

/* Give the group up, with the last error as its text; `tag` says what the others get, 0:
 * nothing. Returns the group's status, with the text of its first failure. */
tutti_status_t tt_mpi_fail(tt_mpi_group_t *group, tutti_status_t status, int tag);

/* As in the contract of backends. */
bool tt_mpi_holds(void *state, const tt_op_t *op);
void tt_mpi_progress(void *state);
tutti_status_t tt_mpi_test(void *state, tt_op_t *op);
tutti_status_t tt_mpi_wait(void *state, tt_op_t *op, tt_deadline_t deadline);
void tt_mpi_wait_until(void *state, const tt_until_t *until, tt_deadline_t deadline);
tutti_status_t tt_mpi_status(void *state);

/* The same without looking for what others have seen. */
tutti_status_t tt_mpi_known_status(const tt_mpi_group_t *group);

/* OK, with what a probe has found in *op; or PENDING. */
tutti_status_t tt_mpi_probe(tt_mpi_group_t *group, const tt_message_t *message,
                            tt_message_op_t *op);

/* Whether a call must wait before it begins: an earlier one has its memory, or waits itself. */
bool tt_mpi_is_behind(const tt_mpi_group_t *group, const tt_mpi_job_t *job);

/* Copies what it packs, and does its first step, which `advance` is. */
tutti_status_t tt_mpi_begin(tt_mpi_group_t *group, tt_mpi_job_t *job);

/* ---- mpi_dump.c ---- */

/* "all_reduce #5 f32[1024] of group dp (train.c:88)" */
tt_call_text_t tt_mpi_describe_job(const tt_mpi_group_t *group, const tt_mpi_job_t *job);

/* A job's operation goes into the recorder, as one that runs if it has begun. */
void tt_mpi_write_down(const tt_mpi_group_t *group, const tt_mpi_job_t *job);

/* What has become of it. */
void tt_mpi_note(const tt_mpi_group_t *group, const tt_op_t *op, tt_record_state_t state);

/* "; nothing came from rank 1, rank 4", as far as a job's requests tell; or "". */
void tt_mpi_list_missing(const tt_mpi_group_t *group, const tt_mpi_job_t *job, char *text,
                         size_t text_bytes);

/* A wait that has become long is logged, once. */
void tt_mpi_report_wait(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int64_t now);

/* As in the contract of backends; and for TUTTI_DUMP. */
tutti_status_t tt_mpi_dump(void *state, const char *path);
void tt_mpi_dump_failure(tt_mpi_group_t *group);

/* ---- mpi_join.c ---- */

/* The communicators of a group, under the deadline of its options. */
tutti_status_t tt_mpi_make_comms(tt_mpi_group_t *group, const tt_backend_options_t *options);

/* ---- mpi_job.c ---- */

tt_mpi_job_t *tt_mpi_take_job(tt_mpi_group_t *group);
void tt_mpi_give_back(tt_mpi_group_t *group, tt_mpi_job_t *job);
void tt_mpi_free_jobs(tt_mpi_job_t *job);

/* Whether MPI is done with a job that was given up, which it then has no requests for. */
bool tt_mpi_is_quiet(tt_mpi_job_t *job);

/* A job of a group that closes, with memory that MPI may touch; it is freed when MPI is done. */
void tt_mpi_leave_job(tt_mpi_job_t *job);

/* Free what MPI is done with of the jobs that were left. */
void tt_mpi_free_left(void);

/* Room for so many requests, sources, bytes, or levels of a tree in all; what was there is lost,
 * but for requests. */
tutti_status_t tt_mpi_want_requests(tt_mpi_group_t *group, tt_mpi_job_t *job, int count);
tutti_status_t tt_mpi_want_sources(tt_mpi_job_t *job, int count);
tutti_status_t tt_mpi_want_scratch(tt_mpi_job_t *job, size_t bytes);
tutti_status_t tt_mpi_want_tree(tt_mpi_job_t *job, int depth);

/* A request of a job, for which room is there; -1: of no peer. */
void *tt_mpi_next_request(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, bool is_recv);

/* Post a message of a call, in one of its phases; room for its request is there. */
tutti_status_t tt_mpi_post_send(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer,
                                const void *data, size_t bytes);
tutti_status_t tt_mpi_post_recv(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, void *data,
                                size_t bytes);

tutti_status_t tt_mpi_post_own(tt_mpi_group_t *group, tt_mpi_job_t *job, const tt_mpi_call_t *call);

/* The status for an error of MPI's, recorded. */
tutti_status_t tt_mpi_error(tt_mpi_group_t *group, const char *call, int error);

/* The merges of a reduction's canonical tree, and how many pieces every rank has. Errors: ARG. */
tutti_status_t tt_mpi_plan_tree(const tt_mpi_group_t *group, tt_mpi_job_t *job);

/* ---- performers ---- */

/* Begin a call by messages between all ranks, or by MPI's own collectives. */
tutti_status_t tt_mpi_exchange(tt_mpi_group_t *group, tt_mpi_job_t *job);
bool tt_mpi_suits_own(const tt_mpi_group_t *group, const tt_mpi_job_t *job);
tutti_status_t tt_mpi_own(tt_mpi_group_t *group, tt_mpi_job_t *job);

/* The same by messages, if all ranks are in this call. Errors: MISMATCH. */
tutti_status_t tt_mpi_check(tt_mpi_group_t *group, tt_mpi_job_t *job);

#endif
