/* The store in a file: a log of the requests that change something (docs/formats/store.md).
 *
 *     | "tutti log 1\n", start, checksum | (a hole) | request, checksum | request, checksum | …
 *                                                    ^ start
 *
 * Every process replays the log into a table of its own; what is asked is answered from the table.
 * A writer holds the file's lock, replays what is new, applies its request, and appends it. The
 * kernel drops the lock of a process that dies, and what such a process wrote half is shorter than
 * its head says: readers stop before it, the next writer cuts it off.
 *
 * When most of the log is about values that are gone, a writer appends what there is now as
 * ordinary records, lets `start` point to the first of them, and gives the disk the rest back as a
 * hole. At whatever moment it dies, the log says the same; a reader that was left behind `start`
 * begins again there, all others just read on. The file's length never shrinks, its blocks do.
 *
 * Cost: a read asks for the size of the file, and locks only when there is something new; a write
 * locks. Waiting polls after 1, 2, 4, … 10 ms, as there is no notice that works on every file
 * system. The log has at most four times what the store holds, and 1 MiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "comm/net/socket.h"
#include "comm/store/store_ops.h"
#include "comm/store/store_table.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/little_endian.h"
#include "core/base/log.h"

enum {
    MAGIC_BYTES = 16,
    HEAD_BYTES = 32, /* magic, u64 start, u64 checksum of both */
    SUM_BYTES = 8,
    GARBAGE_MIN = 1 << 20,
    GARBAGE_FACTOR = 4 /* the log has so many times what is needed */
};

static const char magic[MAGIC_BYTES] = "tutti log 1\n";

typedef struct {
    pthread_mutex_t mutex; /* over all below but path, fd and is_aborted */
    tt_table_t *table;
    int64_t start, replayed; /* the table holds the log from `start` up to `replayed` */
    int64_t compact_at;      /* not before the log has so many bytes: the last try failed */
    int fd;
    _Atomic bool is_aborted;
    char *path;
} file_t;

static tutti_status_t check_abort(const file_t *file)
{
    return file->is_aborted ? TT_FAIL(TUTTI_ERR_ABORTED, "store %s: aborted", file->path)
                            : TUTTI_OK;
}

/* The mutex among threads and, if wanted, the lock among processes; both by trying, since neither
 * wait has a deadline of its own. */
static tutti_status_t lock(file_t *file, bool is_locking_file, tt_deadline_t deadline)
{
    for (int64_t us = 20;; us = us < 1000 ? us * 2 : 1000) {
        TT_TRY(check_abort(file));
        if (pthread_mutex_trylock(&file->mutex) == 0) {
            if (!is_locking_file || flock(file->fd, LOCK_EX | LOCK_NB) == 0) {
                return TUTTI_OK;
            }
            const int code = errno;
            pthread_mutex_unlock(&file->mutex);
            errno = code;
            if (code != EWOULDBLOCK && code != EINTR) {
                return TT_FAIL_ERRNO(TUTTI_ERR_IO, "store %s: cannot lock", file->path);
            }
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "store %s: time is up, another process or thread "
                           "holds the lock",
                           file->path);
        }
        tt_clock_sleep(us * 1000, deadline);
    }
}

static void unlock(file_t *file, bool is_locking_file)
{
    if (is_locking_file) {
        flock(file->fd, LOCK_UN);
    }
    pthread_mutex_unlock(&file->mutex);
}

static tutti_status_t size_of(const file_t *file, int64_t *size)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "store %s: cannot stat", file->path);
    }
    if (info.st_size < file->replayed) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "store %s: shrank from %" PRId64 " to %" PRId64
                       " bytes; ranks must not clear a store in use",
                       file->path, file->replayed, (int64_t)info.st_size);
    }
    *size = info.st_size;
    return TUTTI_OK;
}

/* All of the bytes, out of the file or into it. */
static tutti_status_t transfer(const file_t *file, bool is_write, void *data, size_t bytes,
                               int64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const int64_t where = offset + (int64_t)done;
        const ssize_t n = is_write ? pwrite(file->fd, at, bytes - done, where)
                                   : pread(file->fd, at, bytes - done, where);
        if (n <= 0 && (n == 0 || errno != EINTR)) {
            errno = n == 0 ? ENODATA : errno;
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "store %s: cannot %s %zu bytes at %" PRId64,
                                 file->path, is_write ? "write" : "read", bytes, offset);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return TUTTI_OK;
}

static tutti_status_t read_at(const file_t *file, void *data, size_t bytes, int64_t offset)
{
    return transfer(file, false, data, bytes, offset);
}

static tutti_status_t write_at(const file_t *file, const void *data, size_t bytes, int64_t offset)
{
    return transfer(file, true, (void *)(uintptr_t)data, bytes, offset);
}

/* Only requests that succeeded, and change something, are in the log: what fails here is out of
 * memory, or was not written by a store. */
static tutti_status_t apply_record(file_t *file, const uint8_t *record)
{
    tt_store_request_t request;
    tutti_bytes_t *spans;
    uint32_t timeout_ms;
    TT_TRY(tt_store_request_unpack(record, record + TT_STORE_REQUEST_HEAD, &request, &timeout_ms,
                                   &spans));
    tutti_buffer_t value = {0};
    tutti_status_t status =
        tt_store_rule(request.op)->is_write
            ? tt_table_apply(file->table, &request, &(tt_store_reply_t){.values = &value})
            : TT_FAIL(TUTTI_ERR_FORMAT, "a %s, which changes nothing",
                      tt_store_rule(request.op)->text);
    tutti_buffer_release(&value);
    tt_free(spans);
    return status;
}

/* One record at file->replayed; END when the rest of the file is shorter than a record. */
static tutti_status_t replay_one(file_t *file, int64_t size)
{
    uint8_t head[TT_STORE_REQUEST_HEAD];
    const int64_t left = size - file->replayed;
    if (left < (int64_t)sizeof head) {
        return TUTTI_END;
    }
    TT_TRY(read_at(file, head, sizeof head, file->replayed));
    size_t body_bytes;
    TT_TRY(tt_store_request_head(head, &body_bytes));
    const size_t bytes = sizeof head + body_bytes;
    if (left < (int64_t)(bytes + SUM_BYTES)) {
        return TUTTI_END;
    }
    uint8_t *record = tt_alloc_raw(bytes + SUM_BYTES, "store record");
    TT_TRY_ALLOC(record);
    tutti_status_t status = read_at(file, record, bytes + SUM_BYTES, file->replayed);
    if (status >= 0 && XXH3_64bits(record, bytes) != tt_get_u64(record + bytes)) {
        status = TT_FAIL(TUTTI_ERR_FORMAT, "its checksum is wrong");
    }
    if (status >= 0) {
        status = apply_record(file, record);
    }
    tt_free(record);
    file->replayed += status >= 0 ? (int64_t)(bytes + SUM_BYTES) : 0;
    return status;
}

static void make_head(uint8_t head[HEAD_BYTES], int64_t start)
{
    memcpy(head, magic, MAGIC_BYTES);
    tt_put_u64(head + MAGIC_BYTES, (uint64_t)start);
    tt_put_u64(head + MAGIC_BYTES + 8, XXH3_64bits(head, MAGIC_BYTES + 8));
}

/* The table no longer says what the file says: the next replay begins at the front. */
static tutti_status_t forget_table(file_t *file)
{
    tt_table_t *table;
    TT_TRY(tt_table_create(&table));
    tt_table_release(file->table);
    file->table = table;
    file->replayed = 0;
    return TUTTI_OK;
}

/* Where the log begins by now, behind which a reader must not be. */
static tutti_status_t read_start(file_t *file)
{
    uint8_t head[HEAD_BYTES], want[HEAD_BYTES];
    TT_TRY(read_at(file, head, sizeof head, 0));
    const int64_t start = (int64_t)tt_get_u64(head + MAGIC_BYTES);
    make_head(want, start);
    if (memcmp(head, want, sizeof head) != 0 || start < HEAD_BYTES) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "store %s: the head at offset 0 is damaged", file->path);
    }
    file->start = start;
    if (file->replayed < start) {
        TT_TRY(forget_table(file));
        file->replayed = start;
    }
    return TUTTI_OK;
}

static tutti_status_t replay(file_t *file, int64_t size)
{
    if (file->replayed == size) {
        return TUTTI_OK;
    }
    TT_TRY(read_start(file));
    tutti_status_t status = TUTTI_OK;
    while (status == TUTTI_OK && file->replayed < size) {
        status = replay_one(file, size);
    }
    if (status == TUTTI_ERR_FORMAT) {
        char why[TT_ERROR_TEXT_BYTES];
        tt_bytes_print(tutti_text(tutti_last_error()), why, sizeof why);
        return TT_FAIL(TUTTI_ERR_FORMAT, "store %s: bad record at offset %" PRId64 ": %s",
                       file->path, file->replayed, why);
    }
    return status;
}

/* Behind the last whole record; what a dead writer left there is cut off first. */
static tutti_status_t append(file_t *file, const tt_store_request_t *request, int64_t size)
{
    tutti_buffer_t message;
    TT_TRY(tt_store_request_pack(request, 0, &message));
    uint8_t sum[SUM_BYTES];
    tt_put_u64(sum, XXH3_64bits(message.data, message.bytes));
    tutti_status_t status = TUTTI_OK;
    const int64_t end = file->replayed + (int64_t)message.bytes;
    if (size > file->replayed && ftruncate(file->fd, file->replayed) != 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "store %s: cannot truncate", file->path);
    }
    if (status >= 0) {
        status = write_at(file, message.data, message.bytes, file->replayed);
    }
    if (status >= 0) {
        status = write_at(file, sum, sizeof sum, end);
    }
    tutti_buffer_release(&message);
    file->replayed += status >= 0 ? end + SUM_BYTES - file->replayed : 0;
    return status;
}

/* What is behind the last whole record. If it stays, the next writer cuts it off. */
static void cut_tail(const file_t *file)
{
    const bool is_cut = ftruncate(file->fd, file->replayed) == 0;
    (void)is_cut;
}

static tutti_status_t append_key(void *user, tutti_bytes_t key, tutti_bytes_t value)
{
    file_t *file = user;
    const tt_store_request_t request = {
        .op = TT_STORE_SET, .key_count = 1, .keys = &key, .values = &value};
    return append(file, &request, file->replayed);
}

/* Under both locks, and the table is the log's. A file system without holes keeps the old bytes,
 * but they are not read any more. */
static tutti_status_t compact(file_t *file)
{
    const int64_t start = file->replayed;
    uint8_t head[HEAD_BYTES];
    TT_TRY(tt_table_visit(file->table, append_key, file));
    make_head(head, start);
    TT_TRY(write_at(file, head, sizeof head, 0));
    file->start = start;
    const int code = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HEAD_BYTES,
                               start - HEAD_BYTES);
    if (code != 0) {
        tt_log(TT_LOG_DEBUG, "store %s: %s; its old bytes stay", file->path, strerror(errno));
    }
    return TUTTI_OK;
}

/* What cannot be done now, on a full disk for example, is tried again when the log is twice as
 * long; the records that were appended say nothing new. */
static void compact_if_worthwhile(file_t *file)
{
    const int64_t bytes = file->replayed - file->start;
    const int64_t needed =
        (int64_t)tt_table_record_bytes(file->table, TT_STORE_REQUEST_HEAD + 2 * 4 + SUM_BYTES);
    if (bytes < GARBAGE_MIN + GARBAGE_FACTOR * needed || bytes < file->compact_at) {
        return;
    }
    file->compact_at = 0;
    if (compact(file) < 0) {
        tt_log(TT_LOG_DEBUG, "not compacted: %s", tutti_last_error());
        file->compact_at = 2 * bytes;
        cut_tail(file);
    }
}

/* Under both locks. What was applied but could not be appended did not happen. */
static tutti_status_t write_once(file_t *file, const tt_store_request_t *request,
                                 tt_store_reply_t *reply)
{
    int64_t size;
    TT_TRY(size_of(file, &size));
    TT_TRY(replay(file, size));
    TT_TRY(tt_table_apply(file->table, request, reply));
    const tutti_status_t status = append(file, request, size);
    if (status < 0) {
        if (reply->values != NULL) {
            tutti_buffer_release(&reply->values[0]);
        }
        cut_tail(file);
        TT_TRY(forget_table(file));
        return status;
    }
    compact_if_worthwhile(file);
    return TUTTI_OK;
}

static tutti_status_t read_once(file_t *file, const tt_store_request_t *request,
                                tt_deadline_t deadline, tt_store_reply_t *reply)
{
    TT_TRY(lock(file, false, deadline));
    int64_t size;
    tutti_status_t status = size_of(file, &size);
    const bool is_new = status >= 0 && size > file->replayed;
    if (is_new) {
        unlock(file, false);
        TT_TRY(lock(file, true, deadline));
        status = size_of(file, &size);
        status = status < 0 ? status : replay(file, size);
    }
    if (status >= 0) {
        status = tt_table_apply(file->table, request, reply);
    }
    if (status == TUTTI_PENDING && tt_deadline_is_past(deadline)) {
        status = tt_table_fail_missing(file->table, request);
    }
    unlock(file, is_new);
    return status;
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    file_t *file = state;
    if (tt_store_rule(request->op)->is_write) {
        TT_TRY(lock(file, true, deadline));
        const tutti_status_t status = write_once(file, request, reply);
        unlock(file, true);
        return status;
    }
    for (int64_t us = 1000;; us = us < 10000 ? us * 2 : 10000) {
        const tutti_status_t status = read_once(file, request, deadline, reply);
        if (status != TUTTI_PENDING) {
            return status;
        }
        tt_clock_sleep(us * 1000, deadline);
    }
}

static void abort_calls(void *state)
{
    file_t *file = state;
    file->is_aborted = true;
}

static void close_store(void *state)
{
    file_t *file = state;
    tt_socket_close_file(file->fd);
    tt_table_release(file->table);
    pthread_mutex_destroy(&file->mutex);
    tt_free(file->path);
}

const tt_store_ops_t tt_store_file_ops = {
    .name = "file",
    .about = "one file, shared by the processes of a host",
    .state_bytes = sizeof(file_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
};

/* Under the lock: write the head of a new file, or check it. A head that is cut short is that of a
 * process that died while it made the file. */
static tutti_status_t check_head(file_t *file)
{
    uint8_t head[HEAD_BYTES], fresh[HEAD_BYTES];
    int64_t size;
    file->replayed = 0;
    TT_TRY(size_of(file, &size));
    const size_t bytes = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
    make_head(fresh, HEAD_BYTES);
    TT_TRY(read_at(file, head, bytes, 0));
    if (memcmp(head, fresh, bytes < HEAD_BYTES ? bytes : MAGIC_BYTES) != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "store %s: not a store's file; want \"tutti log 1\" at offset 0",
                       file->path);
    }
    if (bytes < HEAD_BYTES) {
        TT_TRY(write_at(file, fresh, HEAD_BYTES, 0));
    }
    return read_start(file);
}

static tutti_status_t fail_open(const char *path)
{
    return errno == ELOOP
               ? TT_FAIL(TUTTI_ERR_ARG,
                         "store_file_open: path \"%s\" is a symbolic link, or leads "
                         "through a circle of them; name the file itself",
                         path)
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "store_file_open: cannot open path \"%s\"", path);
}

static tutti_status_t check_kind(const file_t *file)
{
    struct stat info;
    if (fstat(file->fd, &info) == 0 && S_ISREG(info.st_mode)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_ARG,
                   "store_file_open: path \"%s\" is no regular file; name one, or a new name",
                   file->path);
}

static tutti_status_t open_file(file_t *file, const char *path)
{
    pthread_mutex_init(&file->mutex, NULL);
    file->fd = -1;
    file->path = tt_strdup(path, "store path");
    TT_TRY_ALLOC(file->path);
    TT_TRY(tt_table_create(&file->table));
    /* a child that lives on would keep the lock */
    file->fd = tt_socket_open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (file->fd < 0) {
        return fail_open(path);
    }
    TT_TRY(check_kind(file));
    TT_TRY(lock(file, true, tt_deadline_in_ms(TUTTI_STORE_TIMEOUT_MS_DEFAULT)));
    const tutti_status_t status = check_head(file);
    unlock(file, true);
    return status;
}

tutti_status_t tutti_store_file_open(const char *path, tutti_store_t **out)
{
    TT_WANT("store_file_open", path);
    TT_WANT("store_file_open", out);
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_file_ops, &store));
    const tutti_status_t status = open_file(store->state, path);
    if (status < 0) {
        close_store(store->state);
        tt_store_discard(store);
        return status;
    }
    *out = store;
    return TUTTI_OK;
}
