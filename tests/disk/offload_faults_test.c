/* A disk under an optimizer that fails in each system call, once or from then on, or gives less
 * than it was asked for. A step that fails has changed nothing and can be tried again, or
 * everything says so until a state is loaded; the training ends with the bits that it would have
 * had. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/offload.h>

#include "core/base/place_testing.h"
#include "core/device/disk_ring.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"

/* ---- a disk that fails ----------------------------------------------------------------------- */

int __real_open(const char *path, int flags, ...);
ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
int __real_fallocate(int fd, int mode, off_t at, off_t bytes);

int __wrap_fsync(int fd);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);

typedef enum { ONCE, LASTING, SHORT, FAULTS, STUCK } fault_t;

/* What file systems lack. */
enum {
    NO_DIRECT_OPEN = 1,
    NO_DIRECT_TRANSFER = 2,
    NO_TMPFILE = 4,
    NO_HOLES = 8,
    NO_RESERVE = 16, /* and no holes */
    LACKS_ALL = 31,
    NO_TRANSFER = 32 /* with O_DIRECT or without */
};

enum { STUCK_BYTES = 100 }; /* that each write takes */

static char folder[TT_PLACE_BYTES];
static _Atomic long calls, fail_at; /* 0: none */
static _Atomic fault_t fault;
static _Atomic int lacks;
static _Atomic uint64_t blocks_read; /* of the first 64, those that were asked for */

static bool is_ours(int fd)
{
    char link[64], path[256];
    const int code = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    errno = code;
    return strncmp(path, folder, strlen(folder)) == 0 && strstr(path, "(deleted)") != NULL;
}

static bool fails_now(void)
{
    const long call = ++calls, at = fail_at;
    return at > 0 && (call == at || ((fault == LASTING || fault == STUCK) && call > at));
}

static bool fails_of(int fd)
{
    return is_ours(fd) && fails_now();
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    const bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
    const int code = is_nameless && (lacks & NO_TMPFILE) != 0 ? EOPNOTSUPP
                     : is_nameless && (flags & O_DIRECT) != 0 && (lacks & NO_DIRECT_OPEN) != 0
                         ? EINVAL
                     : is_nameless && fails_now() ? EMFILE
                                                  : 0;
    errno = code;
    return code != 0 ? -1 : __real_open(path, flags, mode);
}

/* What is saved here need not last. */
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

/* Something of it, down to nothing. */
static size_t part_of(size_t bytes)
{
    return bytes / 2 / 4096 * 4096;
}

static bool is_refused(int fd)
{
    return is_ours(fd) && ((lacks & NO_TRANSFER) != 0 || ((lacks & NO_DIRECT_TRANSFER) != 0 &&
                                                          (fcntl(fd, F_GETFL) & O_DIRECT) != 0));
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at)
{
    if (at / TT_DISK_BLOCK < 64) {
        blocks_read |= UINT64_C(1) << at / TT_DISK_BLOCK;
    }
    if (is_refused(fd)) {
        errno = EINVAL;
        return -1;
    }
    if (!fails_of(fd)) {
        return __real_pread(fd, data, bytes, at);
    }
    errno = EIO;
    return fault == SHORT ? __real_pread(fd, data, part_of(bytes), at) : -1;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (is_refused(fd)) {
        errno = EINVAL;
        return -1;
    }
    if (!fails_of(fd)) {
        return __real_pwrite(fd, data, bytes, at);
    }
    const ssize_t n = __real_pwrite(fd, data, part_of(bytes), at);
    errno = EIO;
    return fault == SHORT ? n : fault == STUCK ? STUCK_BYTES : -1;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    const int missing = mode == 0 ? NO_RESERVE : NO_RESERVE | NO_HOLES;
    const bool is_lacking = (lacks & missing) != 0 && is_ours(fd);
    if (is_lacking || fails_of(fd)) {
        errno = is_lacking ? EOPNOTSUPP : mode == 0 ? ENOSPC : EIO;
        return -1;
    }
    return __real_fallocate(fd, mode, at, bytes);
}

/* ---- a training ------------------------------------------------------------------------------ */

enum { PARAMS = 3, STEPS = 3, TRIES = 3, FLAT = 270000 };

typedef struct {
    const tutti_optim_ops_t *kind;
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    tutti_tensor_t *params[PARAMS], *saved[PARAMS];
    int saved_step, failures;
} training_t;

static void path_of(char path[128])
{
    snprintf(path, 128, "%s/saved", folder);
}

static void fill(tutti_tensor_t *x, int seed)
{
    tutti_tensor_t *values;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, tutti_tensor_shape(x), &values), 0);
    float *at = tutti_tensor_data(values);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        at[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1000 - 1;
    }
    assert_int_equal(tutti_tensor_copy(x, values), 0);
    tutti_tensor_release(values);
}

static tutti_tensor_t *new_like(const tutti_tensor_t *x)
{
    tutti_tensor_t *made;
    assert_int_equal(tutti_tensor_create(tutti_tensor_dtype(x), tutti_tensor_shape(x), &made), 0);
    return made;
}

static void begin_training(training_t *t, const tutti_optim_ops_t *kind)
{
    const tutti_shape_t shapes[PARAMS] = {TUTTI_SHAPE(FLAT), TUTTI_SHAPE(13),
                                          TUTTI_SHAPE(300, 200)};
    *t = (training_t){.kind = kind};
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &t->ctx), 0);
    assert_int_equal(tutti_optim_create(t->ctx, kind, NULL, &t->opt), 0);
    for (int i = 0; i < PARAMS; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(
            tutti_tensor_create(i == 2 ? TUTTI_BF16 : TUTTI_F32, shapes[i], &t->params[i]), 0);
        fill(t->params[i], i);
        t->saved[i] = new_like(t->params[i]);
        assert_int_equal(tutti_tensor_copy(t->saved[i], t->params[i]), 0);
        assert_int_equal(tutti_tensor_set_requires_grad(t->params[i], true), 0);
        assert_int_equal(tutti_optim_add_parameter(t->opt, 0, name, t->params[i]), 0);
    }
}

static void end_training(training_t *t)
{
    tutti_optim_release(t->opt);
    tt_tensors_release(t->params, PARAMS);
    tt_tensors_release(t->saved, PARAMS);
    tutti_context_release(t->ctx);
}

static void set_gradients(const training_t *t, int step)
{
    for (int i = 0; i < PARAMS; i++) {
        tutti_tensor_t *g = new_like(t->params[i]);
        fill(g, 10 * step + i);
        assert_int_equal(tutti_tensor_set_grad(t->params[i], g), 0);
        tutti_tensor_release(g);
    }
}

static uint64_t sum_of(const tutti_tensor_t *x)
{
    uint64_t sum = 0;
    const uint8_t *at = tutti_tensor_data(x);
    for (size_t i = 0; i < tutti_tensor_bytes(x); i++) {
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static uint64_t sum_of_params(const training_t *t)
{
    return sum_of(t->params[0]) ^ sum_of(t->params[1]) * 3 ^ sum_of(t->params[2]) * 5;
}

static tutti_status_t add_state(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_tensor_t *host;
    (void)name;
    TT_TRY(tt_tensor_on_host(x, &host));
    *(uint64_t *)user = *(uint64_t *)user * 31 + sum_of(host);
    tutti_tensor_release(host);
    return TUTTI_OK;
}

/* ---- going on behind failures ---------------------------------------------------------------- */

static void expect_told(training_t *t, tutti_status_t status)
{
    t->failures++;
    if (status == TUTTI_ERR_STATE) {
        tt_expect_error("load both");
    }
    tt_expect_error(folder);
}

static tutti_status_t save(training_t *t, int step)
{
    char path[128];
    path_of(path);
    TT_TRY(tutti_optim_save(t->opt, path));
    for (int i = 0; i < PARAMS; i++) {
        assert_int_equal(tutti_tensor_copy(t->saved[i], t->params[i]), 0);
    }
    t->saved_step = step;
    return TUTTI_OK;
}

/* Before the first step there is nothing to load: a new optimizer. */
static tutti_status_t restore(training_t *t)
{
    char path[128];
    path_of(path);
    for (int i = 0; i < PARAMS; i++) {
        assert_int_equal(tutti_tensor_copy(t->params[i], t->saved[i]), 0);
    }
    if (t->saved_step > 0) {
        return tutti_optim_load(t->opt, path);
    }
    tutti_optim_release(t->opt);
    assert_int_equal(tutti_optim_create(t->ctx, t->kind, NULL, &t->opt), 0);
    for (int i = 0; i < PARAMS; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(tutti_optim_add_parameter(t->opt, 0, name, t->params[i]), 0);
    }
    return tutti_optim_offload(t->opt, folder);
}

/* A step that fails and changes a parameter must say so when it is tried again. */
static tutti_status_t step_or_fail(training_t *t, int step)
{
    const uint64_t before = sum_of_params(t);
    set_gradients(t, step);
    tutti_status_t status = tutti_optim_step(t->opt);
    for (int try = 1; status < 0 && try < TRIES; try++) {
        const bool is_changed = sum_of_params(t) != before;
        expect_told(t, status);
        status = tutti_optim_step(t->opt);
        assert_false(is_changed && status != TUTTI_ERR_STATE);
    }
    return status < 0 ? status : save(t, step);
}

static uint64_t train(training_t *t)
{
    int left = 8;
    uint64_t sum = 0;
    tutti_status_t status = tutti_optim_offload(t->opt, folder);
    for (int step = 1; step <= STEPS; step++) {
        status = status < 0 ? status : step_or_fail(t, step);
        while (status < 0) {
            expect_told(t, status);
            assert_true(left-- > 0);
            fail_at = left < 4 ? 0 : (long)fail_at; /* somebody mends the disk */
            status = restore(t);
            step = t->saved_step;
        }
    }
    fail_at = 0;
    assert_int_equal(tutti_optim_each_state(t->opt, add_state, &sum), 0);
    return sum ^ sum_of_params(t);
}

static uint64_t train_on(const tutti_optim_ops_t *kind, fault_t how, long at, int *failures)
{
    training_t t;
    begin_training(&t, kind);
    fault = how;
    calls = 0;
    fail_at = at;
    const uint64_t sum = train(&t);
    *failures = t.failures;
    end_training(&t);
    return sum;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const tutti_optim_ops_t *const kinds[] = {&tutti_adamw, &tutti_lamb};

static void each_call_fails_once_or_from_then_on(void **state)
{
    (void)state;
    int failures;
    long runs = 0, failed = 0;
    for (int k = 0; k < 2; k++) {
        const uint64_t want = train_on(kinds[k], ONCE, 0, &failures);
        const long count = calls;
        assert_int_equal(failures, 0);
        assert_true(count > 50);
        for (long i = 0; i < count * FAULTS; i++) {
            const long at = i / FAULTS + 1;
            if (tt_test_takes((uint64_t)(i * 2 + k)) || i + 1 == FAULTS) {
                const uint64_t sum = train_on(kinds[k], (fault_t)(i % FAULTS), at, &failures);
                if (sum != want) {
                    fail_msg("call %ld, fault %ld: other bits", at, i % FAULTS);
                }
                runs++;
                failed += failures > 0;
            }
        }
    }
    print_message("%ld runs, %ld with failures\n", runs, failed);
    assert_true(failed > 0);
}

static void what_file_systems_lack_changes_no_bit(void **state)
{
    (void)state;
    int failures;
    const uint64_t want = train_on(&tutti_adamw, ONCE, 0, &failures);
    const int sets[] = {NO_DIRECT_OPEN, NO_DIRECT_TRANSFER, NO_TMPFILE,
                        NO_HOLES,       NO_RESERVE,         LACKS_ALL};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        lacks = sets[i];
        const uint64_t sum = train_on(&tutti_adamw, ONCE, 0, &failures);
        lacks = 0;
        assert_true(sum == want);
        assert_int_equal(failures, 0);
    }
}

/* ---- the file alone -------------------------------------------------------------------------- */

static _Alignas(TT_DISK_BLOCK) char wrote[2 * TT_DISK_BLOCK], has[2 * TT_DISK_BLOCK];

static void begin_file(tt_disk_file_t *file)
{
    for (size_t i = 0; i < sizeof wrote; i++) {
        wrote[i] = (char)(i * 7 + i / 4096);
    }
    assert_int_equal(tt_disk_file_open(folder, file), TUTTI_OK);
    assert_int_equal(tt_disk_file_grow(file, sizeof wrote), TUTTI_OK);
}

static void expect_in(tt_disk_file_t *file)
{
    memset(has, 1, sizeof has);
    assert_int_equal(tt_disk_file_read(file, 0, has, sizeof has), TUTTI_OK);
    assert_memory_equal(has, wrote, sizeof has);
}

static void fail_from_now(fault_t how)
{
    fault = how;
    calls = 0;
    fail_at = 1;
}

/* Nothing of a block: the next try takes it. */
static void what_was_not_taken_is_written_again(void **state)
{
    (void)state;
    tt_disk_file_t file;
    begin_file(&file);
    assert_int_equal(tt_disk_file_write(&file, 0, wrote, TT_DISK_BLOCK), TUTTI_OK);
    fail_from_now(SHORT);
    assert_int_equal(tt_disk_file_write(&file, TT_DISK_BLOCK, wrote + TT_DISK_BLOCK, TT_DISK_BLOCK),
                     TUTTI_OK);
    assert_int_equal(calls, 2);
    fail_at = 0;
    expect_in(&file);
    tt_disk_file_close(&file);
}

static void a_disk_that_takes_no_more_is_no_end_of_the_file(void **state)
{
    (void)state;
    tt_disk_file_t file;
    begin_file(&file);
    fail_from_now(STUCK);
    assert_int_equal(tt_disk_file_write(&file, 0, wrote, sizeof wrote), TUTTI_ERR_IO);
    fail_at = 0;
    tt_expect_error("writing 8192 bytes at offset 0 of the file in ");
    tt_expect_error(": the system has taken 100 of them, and no more");
    tt_disk_file_close(&file);
}

static void an_end_is_told_where_it_is(void **state)
{
    (void)state;
    tt_disk_file_t file;
    begin_file(&file);
    assert_int_equal(ftruncate(file.fd, TT_DISK_BLOCK + 10), 0);
    assert_int_equal(tt_disk_file_read(&file, 0, has, sizeof has), TUTTI_ERR_IO);
    tt_expect_error("reading 4096 bytes at offset 4096 of the file in ");
    tt_expect_error(": it ends there, at 4106 bytes");
    assert_int_equal(ftruncate(file.fd, TT_DISK_BLOCK), 0);
    assert_int_equal(tt_disk_file_read(&file, 0, has, sizeof has), TUTTI_ERR_IO);
    tt_expect_error(": it ends there, at 4096 bytes");
    tt_disk_file_close(&file);
}

/* What a try without O_DIRECT cannot mend is told. */
static void a_transfer_that_is_refused_twice_is_told(void **state)
{
    (void)state;
    tt_disk_file_t file;
    begin_file(&file);
    lacks = NO_TRANSFER;
    assert_int_equal(tt_disk_file_read(&file, 0, has, sizeof has), TUTTI_ERR_IO);
    tt_expect_error("reading 8192 bytes at offset 0 of the file in ");
    tt_expect_error(strerror(EINVAL));
    lacks = 0;
    tt_disk_file_close(&file);
}

/* A file with a name, for a moment, is for file systems that have no others. */
static void a_file_that_cannot_be_opened_has_no_name_instead(void **state)
{
    (void)state;
    tt_disk_file_t file;
    fail_from_now(LASTING);
    assert_int_equal(tt_disk_file_open(folder, &file), TUTTI_ERR_IO);
    fail_at = 0;
    tt_expect_error("cannot make a file in ");
    tt_expect_error(strerror(EMFILE));
}

/* Room is zeros that were written, past the page cache as well; without any left it is as before.
 */
static void a_file_system_that_cannot_reserve_gets_zeros(void **state)
{
    (void)state;
    tt_disk_file_t file;
    lacks = NO_RESERVE;
    begin_file(&file);
    memset(wrote, 0, sizeof wrote);
    expect_in(&file);
    fail_from_now(LASTING);
    assert_int_equal(tt_disk_file_grow(&file, 3 << 20), TUTTI_ERR_IO);
    fail_at = 0;
    tt_expect_error(folder);
    assert_int_equal(file.bytes, sizeof wrote);
    assert_int_equal(lseek(file.fd, 0, SEEK_END), sizeof wrote);
    assert_int_equal(tt_disk_file_grow(&file, (3 << 20) + TT_DISK_BLOCK), TUTTI_OK);
    lacks = 0;
    memset(has, 1, sizeof has);
    assert_int_equal(tt_disk_file_read(&file, 3 << 20, has, sizeof has), TUTTI_OK);
    assert_memory_equal(has, wrote, sizeof has);
    tt_disk_file_close(&file);
}

/* ---- units of the file ----------------------------------------------------------------------- */

enum { UNITS = 8 };

/* Used from the last to the first: so the next round begins with the last. */
static void a_round_is_read_ahead_in_the_order_of_the_one_before(void **state)
{
    (void)state;
    void *memory;
    tt_disk_file_t file;
    tt_disk_ring_t *ring;
    tt_disk_unit_t units[UNITS];
    begin_file(&file);
    assert_int_equal(tt_disk_file_grow(&file, UNITS * TT_DISK_BLOCK - sizeof wrote), TUTTI_OK);
    for (size_t i = 0; i < UNITS; i++) {
        units[i] =
            (tt_disk_unit_t){.ranges = {{i * TT_DISK_BLOCK, TT_DISK_BLOCK, false}}, .count = 1};
    }
    assert_int_equal(tt_disk_ring_open(&file, &ring), TUTTI_OK);
    assert_int_equal(tt_disk_ring_set_units(ring, units, UNITS), TUTTI_OK);
    assert_int_equal(tt_disk_ring_begin(ring), TUTTI_OK);
    for (size_t i = UNITS; i-- > 0;) {
        assert_int_equal(tt_disk_ring_use(ring, i, &memory), TUTTI_OK);
    }
    tt_disk_ring_end(ring);
    assert_int_equal(tt_disk_ring_settle(ring), TUTTI_OK); /* nothing is in memory */
    blocks_read = 0;
    assert_int_equal(tt_disk_ring_begin(ring), TUTTI_OK);
    assert_true((blocks_read & 1 << (UNITS - 1)) != 0);
    assert_true((blocks_read & 1) == 0);
    tt_disk_ring_end(ring);
    tt_disk_ring_close(ring);
    tt_disk_file_close(&file);
}

static int begin(void **state)
{
    (void)state;
    tt_place_make(folder);
    return 0;
}

static int end(void **state)
{
    tt_place_remove(folder);
    return tt_nothing_is_left(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_once_or_from_then_on),
        cmocka_unit_test(what_file_systems_lack_changes_no_bit),
        cmocka_unit_test(what_was_not_taken_is_written_again),
        cmocka_unit_test(a_disk_that_takes_no_more_is_no_end_of_the_file),
        cmocka_unit_test(an_end_is_told_where_it_is),
        cmocka_unit_test(a_transfer_that_is_refused_twice_is_told),
        cmocka_unit_test(a_file_that_cannot_be_opened_has_no_name_instead),
        cmocka_unit_test(a_file_system_that_cannot_reserve_gets_zeros),
        cmocka_unit_test(a_round_is_read_ahead_in_the_order_of_the_one_before),
    };
    (void)tt_test_takes(0);       /* which reads it */
    unsetenv("TUTTI_TEST_SHARE"); /* which the library does not know */
    return cmocka_run_group_tests(tests, begin, end);
}
