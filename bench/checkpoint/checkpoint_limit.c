/* The least that the files of a checkpoint can take: the same names, sizes, writes, flushes and
 * renames, and nothing else. */
#include "checkpoint_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A call moves so much: written at once, a tensor takes the system longer than in parts. */
enum { PATH_BYTES = 4200, SMALL_BYTES = 8 << 20, CALL_BYTES = 1 << 20 };

/* Headers, digests and manifests are written from here, and read to here. */
static char small[SMALL_BYTES];

typedef char path_t[PATH_BYTES];

static void name_file(path_t path, const char *folder, const char *kind, int64_t step,
                      const char *file)
{
    snprintf(path, PATH_BYTES, "%s/%s%012lld/%s", folder, kind, (long long)step, file);
}

static int flush(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int result = fd < 0 ? -1 : fsync(fd);
    close(fd);
    return result;
}

static int move_all(int fd, char *data, size_t bytes, ssize_t (*move)(int, void *, size_t))
{
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done;
        const ssize_t n = move(fd, data + done, left < CALL_BYTES ? left : CALL_BYTES);
        if (n <= 0) {
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

static ssize_t write_some(int fd, void *data, size_t bytes)
{
    return write(fd, data, bytes);
}

static int move_state(const state_t *state, int fd, ssize_t (*move)(int, void *, size_t))
{
    int result = 0;
    for (size_t i = 0; i < state->count && result == 0; i++) {
        tutti_tensor_t *x = state->slices[i].tensor;
        result = move_all(fd, tutti_tensor_data(x), tutti_tensor_bytes(x), move);
    }
    return result;
}

static size_t state_bytes(const state_t *state)
{
    size_t bytes = 0;
    for (size_t i = 0; i < state->count; i++) {
        bytes += tutti_tensor_bytes(state->slices[i].tensor);
    }
    return bytes;
}

/* `bytes` of a header or so, and the state behind it if it is asked for. */
static int write_file(const path_t folder, const char *name, size_t bytes, const state_t *state)
{
    char from[PATH_BYTES + 64], to[PATH_BYTES + 64];
    snprintf(to, sizeof to, "%s/%s", folder, name);
    snprintf(from, sizeof from, "%s/%s.tmp", folder, name);
    const int fd = open(from, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int result = fd < 0 ? -1 : move_all(fd, small, bytes, write_some);
    if (state != NULL && result == 0) {
        result = move_state(state, fd, write_some);
    }
    result = result == 0 ? fsync(fd) : result;
    close(fd);
    result = result == 0 ? rename(from, to) : result;
    return result == 0 ? flush(folder) : result;
}

static void name_own(const state_t *state, char name[64], const char *kind)
{
    snprintf(name, 64, "rank-%05d-0.%s", state->rank, kind);
}

/* Sizes of what the state's own checkpoint has beside the state. */
static int look_up(const state_t *state, int64_t like, size_t sizes[3])
{
    char names[3][64] = {"", "", "manifest.json"};
    name_own(state, names[0], "safetensors");
    name_own(state, names[1], "digests");
    for (int i = 0; i < 3; i++) {
        path_t path;
        struct stat about;
        name_file(path, state->checkpoint.folder, "step-", like, names[i]);
        if (stat(path, &about) != 0) {
            return -1;
        }
        sizes[i] = (size_t)about.st_size - (i == 0 ? state_bytes(state) : 0);
        if (sizes[i] > SMALL_BYTES) {
            errno = EFBIG;
            return -1;
        }
    }
    return 0;
}

/* Under a name that is none first, as a crash in the middle must leave none. */
static int remove_step(const state_t *state, const char *folder, int64_t step)
{
    path_t from, to, file;
    name_file(from, folder, "step-", step, "");
    name_file(to, folder, ".half-", step, "");
    if (rename(from, to) != 0) {
        return errno == ENOENT ? 0 : -1;
    }
    for (int rank = 0; rank < state->ranks; rank++) {
        char name[64];
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "rank-%05d-0.%s", rank, i == 0 ? "safetensors" : "digests");
            name_file(file, folder, ".half-", step, name);
            (void)unlink(file);
        }
    }
    name_file(file, folder, ".half-", step, "manifest.json");
    (void)unlink(file);
    return rmdir(to);
}

static int publish(const state_t *state, const char *folder, size_t manifest_bytes, int64_t step)
{
    path_t from, to;
    name_file(from, folder, ".half-", step, "");
    name_file(to, folder, "step-", step, "");
    int result = write_file(from, "manifest.json", manifest_bytes, NULL);
    result = result == 0 ? flush(from) : result;
    result = result == 0 ? rename(from, to) : result;
    result = result == 0 ? flush(folder) : result;
    return result == 0 ? remove_step(state, folder, step - 1) : result;
}

int limit_save(const state_t *state, const char *folder, int64_t like, int64_t step)
{
    path_t half;
    char name[64];
    size_t sizes[3] = {0};
    int result = look_up(state, like, sizes);
    name_file(half, folder, ".half-", step, "");
    if (state->rank == 0 && result == 0) {
        (void)mkdir(folder, 0777);
        result = mkdir(half, 0777);
    }
    (void)tutti_barrier(state->world, NULL);
    name_own(state, name, "safetensors");
    result = result == 0 ? write_file(half, name, sizes[0], state) : result;
    name_own(state, name, "digests");
    result = result == 0 ? write_file(half, name, sizes[1], NULL) : result;
    (void)tutti_barrier(state->world, NULL);
    return result == 0 && state->rank == 0 ? publish(state, folder, sizes[2], step) : result;
}

static int read_file(const state_t *state, const char *folder, int64_t step, const char *name,
                     size_t bytes, bool has_state)
{
    path_t path;
    name_file(path, folder, "step-", step, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int result = fd < 0 ? -1 : 0;
    if (has_state && result == 0) { /* who has the manifest needs no header */
        result = lseek(fd, (off_t)bytes, SEEK_SET) < 0 ? -1 : move_state(state, fd, read);
    } else if (result == 0) {
        result = move_all(fd, small, bytes, read);
    }
    close(fd);
    return result;
}

int limit_load(const state_t *state, const char *folder, int64_t step)
{
    char name[64];
    size_t sizes[3] = {0};
    int result = look_up(state, step, sizes);
    if (state->rank == 0 && result == 0) {
        result = read_file(state, folder, step, "manifest.json", sizes[2], false);
    }
    name_own(state, name, "digests");
    result = result == 0 ? read_file(state, folder, step, name, sizes[1], false) : result;
    name_own(state, name, "safetensors");
    return result == 0 ? read_file(state, folder, step, name, sizes[0], true) : result;
}
