/* The plug-in: one MPI as the table of mpi_plugin.h. This file is compiled once for each MPI that
 * is installed, against its mpi.h, into a shared object that exports one symbol.
 *
 * Messages of more than INT_MAX bytes go as one element of a type made for them (MPI-3 counts are
 * int). Where MPI was initialised with MPI_THREAD_SERIALIZED, calls take a lock; it is held for
 * the length of one MPI call, of which only subgroup() waits for others.
 *
 * Cost: a call and a few instructions over MPI. Source: the MPI standard, version 3.1.
 */
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/backend/mpi/mpi_plugin.h"

_Static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t), "a communicator fits its handle");

#if defined(OPEN_MPI)
#define FLAVOUR "openmpi"
#elif defined(MPICH_VERSION)
#define FLAVOUR "mpich"
#else
#define FLAVOUR "other"
#endif

#define LAST_WAIT_S 2.0

/* MPI is one per process, so this is too. */
static struct {
    pthread_mutex_t lock;
    bool is_open, is_ours, is_locked, has_failed;
    tt_mpi_world_t world;
    MPI_Op sum, min, max; /* our own */
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    if (mpi.is_locked) {
        pthread_mutex_lock(&mpi.lock);
    }
}

static int unlock(int result)
{
    if (mpi.is_locked) {
        pthread_mutex_unlock(&mpi.lock);
    }
    return result;
}

static MPI_Comm comm_of(tt_mpi_comm_t handle)
{
    MPI_Comm comm;
    memcpy(&comm, &handle, sizeof comm);
    return comm;
}

static tt_mpi_comm_t handle_of(MPI_Comm comm)
{
    tt_mpi_comm_t handle = {0};
    memcpy(&handle, &comm, sizeof comm);
    return handle;
}

/* ---- reductions of our own (decision 0006) ---- */

/* The lower of two, or of -x the lower: the higher. Of floats, NaN if either is. */
static void keep_lower(const void *in, void *inout, int count, MPI_Datatype type, double sign)
{
    for (int i = 0; i < count && type == MPI_FLOAT; i++) {
        const float a = ((const float *)in)[i], b = ((const float *)inout)[i];
        ((float *)inout)[i] = a * (float)sign < b * (float)sign || isnan(a) ? a : b;
    }
    for (int i = 0; i < count && type == MPI_DOUBLE; i++) {
        const double a = ((const double *)in)[i], b = ((const double *)inout)[i];
        ((double *)inout)[i] = a * sign < b * sign || isnan(a) ? a : b;
    }
    for (int i = 0; i < count && type == MPI_UINT8_T; i++) {
        const uint8_t a = ((const uint8_t *)in)[i], b = ((const uint8_t *)inout)[i];
        ((uint8_t *)inout)[i] = (a < b) == (sign > 0) ? a : b;
    }
}

static void keep_min(void *in, void *inout, int *count, MPI_Datatype *type)
{
    keep_lower(in, inout, *count, *type, 1);
}

static void keep_max(void *in, void *inout, int *count, MPI_Datatype *type)
{
    keep_lower(in, inout, *count, *type, -1);
}

/* Of either sign: modulo 256. */
static void add_bytes(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint8_t *a = in;
    uint8_t *b = inout;
    (void)type;
    for (int i = 0, end = *count; i < end; i++) {
        b[i] = (uint8_t)(a[i] + b[i]);
    }
}

static MPI_Datatype type_of(tt_mpi_dtype_t dtype)
{
    switch (dtype) {
    case TT_MPI_F32:
        return MPI_FLOAT;
    case TT_MPI_F64:
        return MPI_DOUBLE;
    case TT_MPI_I64:
        return MPI_INT64_T;
    case TT_MPI_I32:
        return MPI_INT32_T;
    case TT_MPI_I8:
        return MPI_INT8_T;
    case TT_MPI_U8:
    case TT_MPI_DTYPE_COUNT:
        break;
    }
    return MPI_UINT8_T;
}

/* Our own where MPI's promise nothing about NaN, or are wrong: MPICH 4.0.2 compares u8 as signed,
 * Open MPI's sums of 8 bits saturate. */
static MPI_Op op_of(tt_mpi_reduction_t reduction, tt_mpi_dtype_t dtype)
{
    const bool is_byte = dtype == TT_MPI_U8 || dtype == TT_MPI_I8;
    const bool is_ordered_here = dtype == TT_MPI_F32 || dtype == TT_MPI_F64 || dtype == TT_MPI_U8;
    switch (reduction) {
    case TT_MPI_PRODUCT:
        return MPI_PROD;
    case TT_MPI_MIN:
        return is_ordered_here ? mpi.min : MPI_MIN;
    case TT_MPI_MAX:
        return is_ordered_here ? mpi.max : MPI_MAX;
    case TT_MPI_BAND:
        return MPI_BAND;
    case TT_MPI_BOR:
        return MPI_BOR;
    case TT_MPI_BXOR:
        return MPI_BXOR;
    case TT_MPI_SUM:
    case TT_MPI_REDUCTION_COUNT:
        break;
    }
    return is_byte ? mpi.sum : MPI_SUM;
}

/* ---- the world ---- */

static const char *version(void)
{
    int length = 0;
    pthread_mutex_lock(&mpi.lock);
    if (mpi.version[0] == 0) {
        MPI_Get_library_version(mpi.version, &length);
        mpi.version[strcspn(mpi.version, "\n")] = 0;
    }
    pthread_mutex_unlock(&mpi.lock);
    return mpi.version;
}

static bool is_over(void)
{
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    return is_finalized != 0;
}

static bool open_mpi(char *text, size_t text_bytes)
{
    int is_initialized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_initialized);
    if (is_over()) {
        snprintf(text, text_bytes, "MPI was finalised already, and cannot be started again");
        return false;
    }
    if (is_initialized) {
        MPI_Query_thread(&level);
    } else {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
            snprintf(text, text_bytes, "MPI_Init_thread failed");
            return false;
        }
        /* MPICH asks the world's handler about requests that have failed. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        mpi.is_ours = true;
    }
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(text, text_bytes,
                 "MPI was initialised without threads (level %d); call MPI_Init_thread with "
                 "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or leave it to Tutti",
                 level);
        return false;
    }
    mpi.is_locked = level < MPI_THREAD_MULTIPLE;
    return true;
}

static void describe_world(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.world.size);
    mpi.world.is_ours = mpi.is_ours;
    int *tag_max = NULL, is_set = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag_max, &is_set);
    mpi.world.tag_max = is_set ? *tag_max : 32767; /* what the standard promises */
    MPI_Op_create(add_bytes, 1, &mpi.sum);
    MPI_Op_create(keep_min, 1, &mpi.min);
    MPI_Op_create(keep_max, 1, &mpi.max);
}

static bool init(tt_mpi_world_t *out, char *text, size_t text_bytes)
{
    pthread_mutex_lock(&mpi.lock);
    if (!mpi.is_open && open_mpi(text, text_bytes)) {
        describe_world();
        mpi.is_open = true;
    }
    pthread_mutex_unlock(&mpi.lock);
    *out = mpi.world;
    return mpi.is_open;
}

static void note_failure(void)
{
    mpi.has_failed = true;
}

/* Whether all ranks come to their end; after a failure, within a moment. Those that know of none
 * take part too, so that the others see them. */
static bool have_all_come(void)
{
    const double end = MPI_Wtime() + LAST_WAIT_S;
    MPI_Request request;
    int flag = 0;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) {
        return false;
    }
    while (!flag && (!mpi.has_failed || MPI_Wtime() < end)) {
        if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return false;
        }
        sched_yield();
    }
    return flag;
}

/* At the process's end. MPI_Finalize waits for everyone, so after a failure, when some may be gone,
 * it is called only if all are there. */
__attribute__((destructor)) static void finish(void)
{
    if (mpi.is_open && mpi.is_ours && !is_over() && have_all_come()) {
        MPI_Finalize();
    }
}

/* ---- communicators ---- */

static int duplicate(const tt_mpi_comm_t *comm, tt_mpi_comm_t *out, void *request)
{
    /* MPI writes the new communicator when the request is done, so it goes to where it will stay.
     */
    MPI_Comm *place = (MPI_Comm *)(void *)out;
    lock();
    return unlock(MPI_Comm_idup(comm != NULL ? comm_of(*comm) : MPI_COMM_WORLD, place, request));
}

static int subgroup(tt_mpi_comm_t parent, int count, const int *ranks, int tag, tt_mpi_comm_t *out)
{
    MPI_Group all, some;
    MPI_Comm comm = MPI_COMM_NULL;
    lock();
    int error = MPI_Comm_group(comm_of(parent), &all);
    if (error != MPI_SUCCESS) {
        return unlock(error);
    }
    error = MPI_Group_incl(all, count, ranks, &some);
    if (error == MPI_SUCCESS) {
        error = MPI_Comm_create_group(comm_of(parent), some, tag, &comm);
        MPI_Group_free(&some);
    }
    MPI_Group_free(&all);
    *out = handle_of(comm);
    return unlock(error);
}

static void release(tt_mpi_comm_t handle)
{
    MPI_Comm comm = comm_of(handle);
    lock();
    if (!is_over() && comm != MPI_COMM_NULL) {
        MPI_Comm_free(&comm);
    }
    unlock(0);
}

static int return_errors(tt_mpi_comm_t comm)
{
    lock();
    return unlock(MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN));
}

/* ---- messages ---- */

/* So many bytes as one element: some MiB and a rest. */
static int make_large_type(size_t bytes, MPI_Datatype *out)
{
    enum { UNIT = 1 << 20 };
    MPI_Datatype unit, types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    const int units = (int)(bytes / UNIT), rest = (int)(bytes % UNIT);
    int error = MPI_Type_contiguous(UNIT, MPI_BYTE, &unit);
    if (error == MPI_SUCCESS) {
        types[0] = unit;
        error = MPI_Type_create_struct(2, (int[]){units, rest},
                                       (MPI_Aint[]){0, (MPI_Aint)units * UNIT}, types, out);
        MPI_Type_free(&unit);
    }
    return error == MPI_SUCCESS ? MPI_Type_commit(out) : error;
}

static int send_message(tt_mpi_comm_t comm, const void *data, size_t bytes, int peer, int tag,
                        void *request)
{
    MPI_Datatype type = MPI_BYTE;
    const bool is_large = bytes > INT_MAX;
    lock();
    int error = is_large ? make_large_type(bytes, &type) : MPI_SUCCESS;
    if (error == MPI_SUCCESS) {
        error = MPI_Isend(data, is_large ? 1 : (int)bytes, type, peer, tag, comm_of(comm), request);
    }
    if (is_large && error == MPI_SUCCESS) {
        MPI_Type_free(&type); /* lives until the message is gone */
    }
    return unlock(error);
}

static int recv_message(tt_mpi_comm_t comm, void *data, size_t bytes, int peer, int tag,
                        void *request)
{
    MPI_Datatype type = MPI_BYTE;
    const bool is_large = bytes > INT_MAX;
    peer = peer == TT_MPI_ANY ? MPI_ANY_SOURCE : peer;
    tag = tag == TT_MPI_ANY ? MPI_ANY_TAG : tag;
    lock();
    int error = is_large ? make_large_type(bytes, &type) : MPI_SUCCESS;
    if (error == MPI_SUCCESS) {
        error = MPI_Irecv(data, is_large ? 1 : (int)bytes, type, peer, tag, comm_of(comm), request);
    }
    if (is_large && error == MPI_SUCCESS) {
        MPI_Type_free(&type);
    }
    return unlock(error);
}

static int probe(tt_mpi_comm_t comm, int peer, int tag, bool *is_there, tt_mpi_found_t *found)
{
    MPI_Status status;
    MPI_Count bytes = 0;
    int flag = 0;
    peer = peer == TT_MPI_ANY ? MPI_ANY_SOURCE : peer;
    tag = tag == TT_MPI_ANY ? MPI_ANY_TAG : tag;
    lock();
    int error = MPI_Iprobe(peer, tag, comm_of(comm), &flag, &status);
    *is_there = error == MPI_SUCCESS && flag;
    if (*is_there) {
        error = MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
        *found = (tt_mpi_found_t){status.MPI_SOURCE, status.MPI_TAG, (size_t)bytes};
    }
    return unlock(error);
}

/* ---- collectives ---- */

static int collective(tt_mpi_comm_t handle, const tt_mpi_call_t *c, void *request)
{
    const MPI_Comm comm = comm_of(handle);
    const MPI_Datatype type = type_of(c->dtype);
    const MPI_Op op = op_of(c->reduction, c->dtype);
    const void *send = c->in_place && c->collective == TT_MPI_GATHER ? MPI_IN_PLACE : c->send;
    void *recv = c->in_place && c->collective == TT_MPI_SCATTER ? MPI_IN_PLACE : c->recv;
    MPI_Request *r = request;
    lock();
    switch (c->collective) {
    case TT_MPI_ALL_REDUCE:
        return unlock(MPI_Iallreduce(send, recv, c->count, type, op, comm, r));
    case TT_MPI_REDUCE_SCATTER:
        return unlock(MPI_Ireduce_scatter(send, recv, c->counts, type, op, comm, r));
    case TT_MPI_REDUCE:
        return unlock(MPI_Ireduce(send, recv, c->count, type, op, c->root, comm, r));
    case TT_MPI_ALL_GATHER:
        return unlock(
            MPI_Iallgatherv(send, c->count, type, recv, c->counts, c->starts, type, comm, r));
    case TT_MPI_GATHER:
        return unlock(
            MPI_Igatherv(send, c->count, type, recv, c->counts, c->starts, type, c->root, comm, r));
    case TT_MPI_SCATTER:
        return unlock(MPI_Iscatterv(send, c->counts, c->starts, type, recv, c->count, type, c->root,
                                    comm, r));
    case TT_MPI_ALL_TO_ALL:
        return unlock(MPI_Ialltoall(send, c->count, type, recv, c->count, type, comm, r));
    case TT_MPI_BROADCAST:
        return unlock(MPI_Ibcast(recv, c->count, type, c->root, comm, r));
    case TT_MPI_BARRIER:
        break;
    }
    return unlock(MPI_Ibarrier(comm, r));
}

/* ---- requests ---- */

static void clear(void *request)
{
    *(MPI_Request *)request = MPI_REQUEST_NULL;
}

/* In order, up to the first that is not done: MPI_Testall would hide which error it was. */
static int test(void *requests, int count, bool *is_done)
{
    MPI_Request *request = requests;
    int flag = 1, error = MPI_SUCCESS;
    lock();
    for (int i = 0; i < count && flag && error == MPI_SUCCESS; i++) {
        error = MPI_Test(&request[i], &flag, MPI_STATUS_IGNORE);
    }
    *is_done = flag != 0;
    return unlock(error);
}

static bool is_done(void *request)
{
    int flag = 0;
    lock();
    MPI_Request_get_status(*(MPI_Request *)request, &flag, MPI_STATUS_IGNORE);
    unlock(0);
    return flag != 0;
}

static int test_message(void *request, bool *is_done, int *source, int *tag, size_t *bytes)
{
    MPI_Status status;
    MPI_Count count = 0;
    int flag = 0;
    lock();
    int error = MPI_Test(request, &flag, &status);
    *is_done = flag != 0;
    if (error == MPI_SUCCESS && flag) {
        *source = status.MPI_SOURCE;
        *tag = status.MPI_TAG;
        error = MPI_Get_elements_x(&status, MPI_BYTE, &count);
        *bytes = (size_t)count;
    }
    return unlock(error);
}

static void cancel(void *request)
{
    lock();
    if (*(MPI_Request *)request != MPI_REQUEST_NULL) {
        MPI_Cancel(request);
    }
    unlock(0);
}

static void forget(void *request)
{
    lock();
    if (*(MPI_Request *)request != MPI_REQUEST_NULL) {
        MPI_Request_free(request);
    }
    unlock(0);
}

static void abort_job(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void error_text(int error, char *text, size_t text_bytes)
{
    char room[MPI_MAX_ERROR_STRING];
    int length = 0;
    lock();
    MPI_Error_string(error, room, &length);
    unlock(0);
    snprintf(text, text_bytes, "%.*s", length, room);
}

static bool is_truncation(int error)
{
    int error_class = 0;
    lock();
    MPI_Error_class(error, &error_class);
    unlock(0);
    return error_class == MPI_ERR_TRUNCATE;
}

__attribute__((visibility("default"))) const tt_mpi_t *tutti_mpi_plugin(void);

const tt_mpi_t *tutti_mpi_plugin(void)
{
    static const tt_mpi_t table = {
        .abi = TT_MPI_ABI,
        .table_bytes = sizeof(tt_mpi_t),
        .flavour = FLAVOUR,
        .request_bytes = sizeof(MPI_Request),
        .version = version,
        .init = init,
        .note_failure = note_failure,
        .is_over = is_over,
        .duplicate = duplicate,
        .subgroup = subgroup,
        .release = release,
        .return_errors = return_errors,
        .send = send_message,
        .recv = recv_message,
        .probe = probe,
        .collective = collective,
        .clear = clear,
        .test = test,
        .is_done = is_done,
        .test_message = test_message,
        .cancel = cancel,
        .forget = forget,
        .abort_job = abort_job,
        .error_text = error_text,
        .is_truncation = is_truncation,
    };
    return &table;
}
