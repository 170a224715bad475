/* A shm all_reduce in the steady state allocates nothing and makes no system call.
 *
 * Two ranks, each a process. Once warm, a rank stops its clock, so that the waiting rank spins and
 * goes on spinning however late the other one is: what is counted depends on no scheduler. Then a
 * filter of the kernel's traps every system call, and the first one ends the rank, which leaves its
 * number and its place. Allocations are counted by the library's allocator and beneath it, where
 * malloc itself can be watched. The same with one call or allocation too many must be noticed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/prepared.h>

#include "core/base/clock.h"
#include "core/base/site.h"
#include "core/base/testing.h"

enum { RANKS = 2, WARM = 100, CALLS = 100, LOOKS = 10, DEADLINE_S = 60 };

typedef enum { NOTHING, A_SYSTEM_CALL, A_MALLOC, A_BLOCK } too_many_t;

/* What the ranks tell the test, which waits for their end. */
typedef struct {
    atomic_int trapped[RANKS]; /* number of the system call, and one */
    void *trapped_at[RANKS];
    size_t blocks[RANKS], mallocs[RANKS];
    atomic_uint looks[RANKS]; /* at the clock, since it stands still */
    atomic_bool has_ended;    /* a rank has, before its time: the other one need not spin on */
    bool is_unfiltered;       /* the kernel has no filter for us */
    char failure[RANKS][600];
} report_t;

typedef struct {
    size_t elements;
    bool is_foreign; /* memory that is not of the group's heap */
    bool is_prepared;
    too_many_t extra;
} case_t;

static report_t *report;
static int my_rank;
static tutti_prepared_t *prepared; /* or NULL: plain calls */

/* ---- malloc itself ---- */

static atomic_size_t mallocs;

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *block, size_t bytes)
{
    (void)block, (void)bytes;
    atomic_fetch_add(&mallocs, 1);
}

static void on_free(const volatile void *block)
{
    (void)block;
}

static void watch_malloc(void)
{
    assert_true(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0);
}
#define WATCHES_MALLOC 1
#elif defined(__GLIBC__)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&mallocs, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&mallocs, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    atomic_fetch_add(&mallocs, 1);
    return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&mallocs, 1);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&mallocs, 1);
    *out = __libc_memalign(alignment, bytes);
    return *out != NULL ? 0 : ENOMEM;
}

static void watch_malloc(void)
{
}
#define WATCHES_MALLOC 1
#else
static void watch_malloc(void)
{
}
#define WATCHES_MALLOC 0
#endif

/* ---- a rank ---- */

/* ThreadSanitizer's runtime keeps books of every access, and asks the system for more memory for
 * them now and then, with all signals blocked. */
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WHY_NO_FILTER "ThreadSanitizer makes system calls of its own"
#define HAS_FILTER 0
#else
#define WHY_NO_FILTER "the kernel lets nobody filter system calls"
#define HAS_FILTER 1
#endif

/* As _exit(), which AddressSanitizer precedes with a system call of its own. */
static void end(int status)
{
    (void)syscall(SYS_exit_group, status);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    report->trapped_at[my_rank] = info->si_call_addr;
    atomic_store(&report->trapped[my_rank], info->si_syscall + 1);
    atomic_store(&report->has_ended, true);
    end(0);
}

/* From here on a rank can only end. */
static bool trap_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    const struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    return HAS_FILTER && sigaction(SIGSYS, &action, NULL) == 0 &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int64_t stopped_clock(void *user)
{
    if (atomic_load(&report->has_ended)) {
        end(0);
    }
    atomic_fetch_add(&report->looks[my_rank], 1);
    return *(const int64_t *)user;
}

static void do_too_much(too_many_t extra)
{
    void *volatile block = NULL;
    switch (extra) {
    case NOTHING:
        break;
    case A_SYSTEM_CALL:
        (void)syscall(SYS_getppid);
        break;
    case A_MALLOC:
        block = malloc(1);
        free(block);
        break;
    case A_BLOCK:
        block = tt_alloc(1, "test");
        tt_free(block);
        break;
    }
}

/* In turns alone, as one of several, and waited for at once. */
static tutti_status_t repeat_prepared(int calls)
{
    for (int i = 0; i < calls; i++) {
        tutti_work_t *work;
        if (i % 3 == 2) {
            TT_TRY(tutti_prepared_start(prepared, NULL));
            continue;
        }
        TT_TRY(i % 3 == 0 ? tutti_prepared_start(prepared, &work)
                          : tutti_prepared_start_all(&prepared, 1, &work));
        TT_TRY(tutti_work_wait(work, 0));
        tutti_work_release(work);
    }
    return TUTTI_OK;
}

static tutti_status_t repeat(tutti_group_t *world, tutti_tensor_t *x, int calls)
{
    if (prepared != NULL) {
        return repeat_prepared(calls);
    }
    for (int i = 0; i < calls; i++) {
        TT_TRY(tutti_all_reduce(world, x, TUTTI_SUM, NULL));
    }
    return TUTTI_OK;
}

static tutti_status_t open_world(const char *folder, const case_t *at, tutti_group_t **world,
                                 tutti_tensor_t **x)
{
    char url[200];
    snprintf(url, sizeof url, "file://%s/store?rank=%d&world_size=%d", folder, my_rank, RANKS);
    TT_TRY(tutti_init(&(tutti_init_options_t){.url = url}, world));
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)at->elements);
    return at->is_foreign ? tutti_tensor_create(TUTTI_F32, shape, x)
                          : tutti_group_tensor(*world, TUTTI_F32, shape, x);
}

/* A rank that waits long looks for trouble once in some ms, by a poll. Each rank is made to wait so
 * long that it has done so, and on its clock it is never time for the next. */
static tutti_status_t wait_for_each_other(tutti_group_t *world, tutti_tensor_t *x)
{
    for (int late = 0; late < RANKS; late++) {
        const unsigned enough = atomic_load(&report->looks[1 - late]) + LOOKS;
        while (my_rank == late && atomic_load(&report->looks[1 - late]) < enough &&
               !atomic_load(&report->has_ended)) {
            sched_yield();
        }
        TT_TRY(repeat(world, x, 1));
    }
    return TUTTI_OK;
}

/* Counts between two marks, and ends. */
static tutti_status_t measure(tutti_group_t *world, tutti_tensor_t *x, too_many_t extra)
{
    int64_t now = tt_clock_ns();
    tt_clock_set_source(stopped_clock, &now);
    TT_TRY(wait_for_each_other(world, x));
    do_too_much(extra); /* malloc's first may ask the system for memory */
    const size_t blocks = tt_alloc_stats().allocations, all = atomic_load(&mallocs);
    if (!trap_system_calls()) {
        report->is_unfiltered = true;
        atomic_store(&report->has_ended, true);
        end(0);
    }
    TT_TRY(repeat(world, x, CALLS));
    do_too_much(my_rank == 1 ? extra : NOTHING);
    report->blocks[my_rank] = tt_alloc_stats().allocations - blocks;
    report->mallocs[my_rank] = atomic_load(&mallocs) - all;
    end(0);
    return TUTTI_OK;
}

/* Nothing is left to leave the world with: neither the ranks nor what they hold is released. */
static void be_rank(int rank, const char *folder, const case_t *at)
{
    tutti_group_t *world;
    tutti_tensor_t *x;
    my_rank = rank;
    alarm(DEADLINE_S);
    watch_malloc();
    tutti_status_t status = open_world(folder, at, &world, &x);
    if (status >= 0 && at->is_prepared) {
        status = tutti_prepare_all_reduce(world, x, TUTTI_SUM, &prepared);
    }
    if (status >= 0) {
        status = repeat(world, x, WARM);
    }
    if (status >= 0) {
        status = measure(world, x, at->extra);
    }
    (void)status;
    snprintf(report->failure[rank], sizeof report->failure[rank], "%s", tutti_last_error());
    atomic_store(&report->has_ended, true);
    end(1);
}

/* ---- the test ---- */

static void run_ranks(const case_t *at)
{
    char folder[] = "/tmp/tutti-steady-XXXXXX", path[64];
    pid_t ranks[RANKS];
    memset(report, 0, sizeof *report);
    assert_non_null(mkdtemp(folder));
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        assert_true(ranks[rank] >= 0);
        if (ranks[rank] == 0) {
            be_rank(rank, folder, at);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int how;
        assert_int_equal(waitpid(ranks[rank], &how, 0), ranks[rank]);
        if (!WIFEXITED(how) && report->failure[rank][0] == 0) {
            snprintf(report->failure[rank], sizeof report->failure[rank], "rank %d: signal %d",
                     rank, WTERMSIG(how));
        }
    }
    snprintf(path, sizeof path, "%s/store", folder);
    unlink(path);
    rmdir(folder);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(report->failure[rank], "");
    }
}

/* Ranks that outnumber the cores give theirs away by a system call, and do not spin. */
static void skip_unless_ranks_spin(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) < RANKS) {
        print_message("skipped: %d ranks do not spin on fewer cores\n", RANKS);
        skip();
    }
}

static void run(const case_t *at)
{
    skip_unless_ranks_spin();
    run_ranks(at);
    if (report->is_unfiltered) {
        print_message("skipped: " WHY_NO_FILTER "\n");
        skip();
    }
}

static void expect_nothing(const case_t *at)
{
    run(at);
    for (int rank = 0; rank < RANKS; rank++) {
        if (report->trapped[rank] != 0) {
            fail_msg("%zu elements: rank %d made system call %d (%s)", at->elements, rank,
                     report->trapped[rank] - 1, tt_site_name(report->trapped_at[rank]).text);
        }
        assert_int_equal(report->blocks[rank], 0);
        assert_int_equal(report->mallocs[rank], 0);
    }
}

static void all_reduce_neither_allocates_nor_calls_the_system(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4096, 262144};
    for (int i = 0; i < 3; i++) {
        expect_nothing(&(case_t){.elements = sizes[i]});
    }
}

static void nor_does_it_with_memory_of_the_callers_own(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4096, 262144};
    for (int i = 0; i < 3; i++) {
        expect_nothing(&(case_t){.elements = sizes[i], .is_foreign = true});
    }
}

static void nor_do_prepared_calls(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4096, 262144};
    for (int i = 0; i < 3; i++) {
        expect_nothing(&(case_t){.elements = sizes[i], .is_prepared = true});
    }
}

static void one_system_call_would_be_noticed(void **state)
{
    (void)state;
    run(&(case_t){.elements = 16, .extra = A_SYSTEM_CALL});
    assert_int_equal(report->trapped[0], 0);
    assert_int_equal(report->trapped[1], SYS_getppid + 1);
}

static void one_allocation_would_be_noticed(void **state)
{
    (void)state;
    run(&(case_t){.elements = 16, .extra = A_BLOCK});
    assert_int_equal(report->blocks[1], 1);
    if (WATCHES_MALLOC) {
        run(&(case_t){.elements = 16, .extra = A_MALLOC});
        assert_int_equal(report->blocks[1], 0);
        assert_int_equal(report->mallocs[1], 1);
    }
}

int main(void)
{
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_neither_allocates_nor_calls_the_system),
        cmocka_unit_test(nor_does_it_with_memory_of_the_callers_own),
        cmocka_unit_test(nor_do_prepared_calls),
        cmocka_unit_test(one_system_call_would_be_noticed),
        cmocka_unit_test(one_allocation_would_be_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
