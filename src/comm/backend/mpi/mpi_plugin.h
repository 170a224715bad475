/* What a plug-in gives the mpi engine: MPI as a table of functions, so that the library links no
 * MPI, and one build of it works with every MPI for which a plug-in was built.
 *
 * Handles are opaque: a communicator is a tt_mpi_comm_t, and a request is memory of request_bytes.
 * Functions return 0 or MPI's error code, for error_text(). All may be called by any thread: where
 * MPI itself does not allow it, the plug-in takes a lock.
 */
#ifndef TT_MPI_PLUGIN_H
#define TT_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message that a probe has found. */
typedef struct {
    int source, tag;
    size_t bytes;
} tt_mpi_found_t;

/* Raised when anything here changes; a plug-in of another version is refused. */
enum { TT_MPI_ABI = 5 };

#define TT_MPI_SYMBOL "tutti_mpi_plugin"

enum { TT_MPI_ANY = -1, TT_MPI_TEXT_BYTES = 512 };

/* Room for an MPI_Comm: a pointer or a number. */
typedef struct {
    uint64_t bits;
} tt_mpi_comm_t;

typedef struct {
    int rank, size;
    int tag_max;
    bool is_ours; /* MPI was initialised by the plug-in, which will finalise it */
} tt_mpi_world_t;

typedef enum {
    TT_MPI_F32,
    TT_MPI_F64,
    TT_MPI_I64,
    TT_MPI_I32,
    TT_MPI_I8,
    TT_MPI_U8,
    TT_MPI_DTYPE_COUNT
} tt_mpi_dtype_t;

/* MIN and MAX of floats give NaN when any contribution is NaN, which MPI's own do not promise.
 * Those of U8 compare without a sign, and sums of 8 bits wrap around; not so in every MPI. */
typedef enum {
    TT_MPI_SUM,
    TT_MPI_PRODUCT,
    TT_MPI_MIN,
    TT_MPI_MAX,
    TT_MPI_BAND,
    TT_MPI_BOR,
    TT_MPI_BXOR,
    TT_MPI_REDUCTION_COUNT
} tt_mpi_reduction_t;

typedef enum {
    TT_MPI_ALL_REDUCE,
    TT_MPI_REDUCE_SCATTER,
    TT_MPI_REDUCE,
    TT_MPI_ALL_GATHER,
    TT_MPI_GATHER,
    TT_MPI_SCATTER,
    TT_MPI_ALL_TO_ALL,
    TT_MPI_BROADCAST,
    TT_MPI_BARRIER,
} tt_mpi_collective_t;

/* A collective of MPI's own. `counts` and `starts`: [size], of the side with a part for each rank,
 * in elements; they and the buffers must stay until it is done. */
typedef struct {
    tt_mpi_collective_t collective;
    tt_mpi_dtype_t dtype;
    tt_mpi_reduction_t reduction;
    const void *send;
    void *recv;
    bool in_place; /* at the root of gather and scatter: its own part is where it belongs */
    int count, root;
    const int *counts, *starts;
} tt_mpi_call_t;

typedef struct {
    uint32_t abi;
    uint32_t table_bytes;
    const char *flavour; /* "openmpi", "mpich" */
    size_t request_bytes;

    /* The first line of the library's own words about its version; works before init. */
    const char *(*version)(void);

    /* Initialise MPI unless that is done. Refuses (with a text) a thread level below
     * MPI_THREAD_SERIALIZED. MPI is finalised when the process exits, if it was initialised here;
     * after note_failure() only if all ranks come to their ends within a moment. */
    bool (*init)(tt_mpi_world_t *out, char *text, size_t text_bytes);
    void (*note_failure)(void);

    /* Whether MPI is finalised: it touches no memory any more. */
    bool (*is_over)(void);

    /* A copy of a communicator (NULL: of the world), done when the request is. Its errors return.
     */
    int (*duplicate)(const tt_mpi_comm_t *comm, tt_mpi_comm_t *out, void *request);

    /* Of some ranks of a communicator; only they call it, and it blocks until all of them do. */
    int (*subgroup)(tt_mpi_comm_t comm, int count, const int *ranks, int tag, tt_mpi_comm_t *out);
    void (*release)(tt_mpi_comm_t comm);

    /* Errors on this communicator are returned instead of ending the job. */
    int (*return_errors)(tt_mpi_comm_t comm);

    int (*send)(tt_mpi_comm_t comm, const void *data, size_t bytes, int peer, int tag,
                void *request);
    int (*recv)(tt_mpi_comm_t comm, void *data, size_t bytes, int peer, int tag, void *request);

    /* Whether a message is there, and which; TT_MPI_ANY as peer or tag. */
    int (*probe)(tt_mpi_comm_t comm, int peer, int tag, bool *is_there, tt_mpi_found_t *found);

    int (*collective)(tt_mpi_comm_t comm, const tt_mpi_call_t *call, void *request);

    /* A request becomes "no request". */
    void (*clear)(void *request);

    /* Whether all of so many requests, one behind the other, are done. They are "no requests" then.
     */
    int (*test)(void *requests, int count, bool *is_done);

    /* Whether one request is done; it stays what it is. */
    bool (*is_done)(void *request);

    /* As test, for a message received: also from which rank, with which tag, how many bytes. */
    int (*test_message)(void *request, bool *is_done, int *source, int *tag, size_t *bytes);

    /* Ask for the end of a receive that nothing has come for; it is done soon, as if it had come.
     */
    void (*cancel)(void *request);

    /* Whether a message is sent is not asked any more. */
    void (*forget)(void *request);

    void (*abort_job)(int code);
    void (*error_text)(int error, char *text, size_t text_bytes);
    bool (*is_truncation)(int error); /* a message was longer than its receiver asked for */
} tt_mpi_t;

/* The type of the one symbol that a plug-in exports. */
typedef const tt_mpi_t *(*tt_mpi_plugin_fn_t)(void);

#endif
