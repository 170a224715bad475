/* Canonical algorithms give the same bits over every wire: shared memory, tcp, both (two hosts with
 * shared memory inside and tcp between), and the simulator's.
 *
 * The same calls are made in worlds that differ in nothing but their wires, by every algorithm that
 * can carry them out there. What a rank gets is hashed; the first world's hashes are what all the
 * others must find. Contributions are random floats, so that another order of adding up shows. It
 * does in the ring's sums, which are not canonical: a test that could not see that would prove
 * nothing. A reduction of the program's own that does not commute is never given to such an
 * algorithm. What the right results are is the conformance suite's business.
 */
#include <stdlib.h>

#include "comm/algorithm/algorithms.h"
#include "comm/backend/native_backend.h"
#include "comm/backend/backend.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/rng.h"
#include "sim.h"

enum {
    RANKS_MAX = 5,
    CASES_MAX = 400,
    ALGORITHMS_MAX = 32,
    COUNT_MAX = 3001,
    LEAVES = 8,
    PIECES_MAX = 3,
    TIMEOUT_MS = 60000,
    SEED = 20
};

/* FOREIGN: shared memory, but what half of the ranks pass lies elsewhere. */
typedef enum { SHM, FOREIGN, TCP, MIXED, SIMULATED, WIRES } wire_t;

static const char *const wire_names[] = {"shm", "shm", "tcp", "shm+tcp", "simulated"};

typedef struct {
    tt_collective_t collective;
    tutti_dtype_t dtype;
    tutti_reduction_t reduction;
    size_t count;
    int root, leaves;
} case_t;

/* Of one number of ranks; a rank writes its own places alone. */
typedef struct {
    tutti_store_t *store;
    wire_t wire;
    int size, case_count;
    case_t cases[CASES_MAX];
    bool is_known; /* the first world has left its digests */
    uint64_t digests[CASES_MAX][RANKS_MAX];
    long used[WIRES][ALGORITHMS_MAX]; /* rank 0's calls that an algorithm carried out */
    long others[RANKS_MAX];           /* sums that are not canonical: with other bits */
    char failures[RANKS_MAX][600];
} book_t;

typedef struct {
    book_t *book;
    int rank;
    void *native;
    void *pieces[PIECES_MAX], *out;
} member_t;

static book_t book;

static void note(member_t *m, const case_t *at, const char *algorithm, const char *what)
{
    char *text = m->book->failures[m->rank];
    if (text[0] == 0) {
        snprintf(text, sizeof m->book->failures[0],
                 "rank %d of %d over %s: %s %s of %s[%zu], %d leaves, by %s: %s", m->rank,
                 m->book->size, wire_names[m->book->wire], tutti_reduction_name(at->reduction),
                 tt_collective_name(at->collective), tutti_dtype_name(at->dtype), at->count,
                 at->leaves, algorithm, what);
    }
}

/* ---- one call ---- */

/* Maps x -> a x + b, one after the other. */
static void combine_maps(void *inout, const void *in, int64_t count, tutti_dtype_t dtype,
                         void *user)
{
    (void)user;
    for (int64_t i = 0; i < 2 * count; i += 2) {
        if (dtype == TUTTI_F32) {
            float *x = inout;
            const float *y = in;
            x[i + 1] += x[i] * y[i + 1];
            x[i] *= y[i];
        } else {
            double *x = inout;
            const double *y = in;
            x[i + 1] += x[i] * y[i + 1];
            x[i] *= y[i];
        }
    }
}

static const tutti_custom_reduction_t maps = {.name = "maps", .combine = combine_maps, .width = 2};

static tt_plan_request_t request_of(const member_t *m, const case_t *at)
{
    return (tt_plan_request_t){.collective = at->collective,
                               .rank = m->rank,
                               .size = m->book->size,
                               .root = at->root,
                               .leaves = at->leaves,
                               .count = at->count};
}

/* Between -1 and 1, of all magnitudes. */
static void fill(void *data, tutti_dtype_t dtype, size_t count, uint64_t stream)
{
    const tt_rng_t rng = tt_rng_stream(SEED, stream, 0, 0, 0);
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(int32_t)tt_rng_below(rng, i, UINT64_C(1) << 32) * 0x1p-31f;
        union {
            float real;
            uint32_t bits;
        } as = {.real = value};
        if (dtype == TUTTI_F64) {
            ((double *)data)[i] = (double)value * (double)value;
        } else if (dtype == TUTTI_BF16) {
            ((uint16_t *)data)[i] = (uint16_t)(as.bits >> 16);
        } else {
            ((float *)data)[i] = value;
        }
    }
}

static uint64_t hash(const unsigned char *data, size_t bytes)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++) {
        value = (value ^ data[i]) * UINT64_C(0x100000001b3);
    }
    return value;
}

static int piece_count(const tt_plan_request_t *request)
{
    return tt_collective_reduces(request->collective) ? tt_plan_pieces_of(request, request->rank)
                                                      : 1;
}

static tutti_status_t perform(const member_t *m, const case_t *at, size_t out)
{
    const bool is_broadcast = at->collective == TT_BROADCAST;
    const void *pieces[PIECES_MAX] = {is_broadcast ? m->out : m->pieces[0], m->pieces[1],
                                      m->pieces[2]};
    const tt_plan_request_t request = request_of(m, at);
    const tt_call_t what = {.collective = at->collective,
                            .reduction = at->reduction,
                            .custom = at->reduction == TUTTI_CUSTOM ? &maps : NULL,
                            .dtype = at->dtype,
                            .out_dtype = at->dtype,
                            .count = at->count,
                            .root = at->root,
                            .leaves = at->leaves,
                            .pieces = pieces,
                            .piece_count = tt_collective_reduces(at->collective)
                                               ? tt_plan_pieces_of(&request, m->rank)
                                               : 1,
                            .out = out > 0 ? m->out : NULL};
    tt_run_t run;
    TT_TRY(tt_backend_native.start(m->native, &what, &run));
    return tt_backend_native.wait(m->native, &run.op, TT_NEVER);
}

static void compare(member_t *m, int index, const tt_algorithm_t *algorithm, uint64_t digest)
{
    const case_t *at = &m->book->cases[index];
    uint64_t *known = &m->book->digests[index][m->rank];
    if (!algorithm->is_canonical && at->reduction == TUTTI_CUSTOM) {
        note(m, at, algorithm->name, "the order of ranks is not kept");
    }
    if (!algorithm->is_canonical && tt_collective_reduces(at->collective)) {
        m->book->others[m->rank] += digest != *known;
    } else if (*known == 0) {
        *known = digest;
    } else if (*known != digest) {
        note(m, at, algorithm->name, "other bits than elsewhere");
    }
}

/* NULL: it failed. */
static const tt_algorithm_t *check_case(member_t *m, int index)
{
    const case_t *at = &m->book->cases[index];
    const tt_plan_request_t request = request_of(m, at);
    const size_t in = tt_plan_piece_elements(&request), out = tt_plan_out_elements(&request);
    for (int piece = 0; piece < piece_count(&request); piece++) {
        fill(m->pieces[piece], at->dtype, in, (uint64_t)(m->rank * PIECES_MAX + piece));
    }
    fill(m->out, at->dtype, out, (uint64_t)m->rank + 1000);
    if (perform(m, at, out) != TUTTI_OK) {
        note(m, at, "?", tutti_last_error());
        return NULL;
    }
    const tt_algorithm_t *algorithm = tt_coll_last_algorithm(tt_native_coll(m->native));
    for (int i = 0; m->rank == 0 && tt_algorithms[i] != NULL; i++) {
        m->book->used[m->book->wire][i] += tt_algorithms[i] == algorithm;
    }
    compare(m, index, algorithm, hash(m->out, out * tutti_dtype_bytes(at->dtype)) | 1);
    return algorithm;
}

/* ---- a rank ---- */

/* What an algorithm does not fit with the first dtype, the built-in choice carries out, and it is
 * not tried with the others. */
static bool check_algorithm(member_t *m, const tt_algorithm_t *asked, bool is_first)
{
    bool fits[TT_COLLECTIVE_COUNT] = {false};
    tt_coll_rules_t *rules = tt_coll_change_rules(tt_native_coll(m->native));
    rules->count = 0;
    if (tt_coll_rules_add(rules, asked->name, "the test") < 0) {
        note(m, &m->book->cases[0], asked->name, tutti_last_error());
        return false;
    }
    for (int index = 0; index < m->book->case_count; index++) {
        const case_t *at = &m->book->cases[index];
        if (at->dtype == TUTTI_F32 || fits[at->collective] || is_first) {
            const tt_algorithm_t *algorithm = check_case(m, index);
            if (algorithm == NULL) {
                return false;
            }
            fits[at->collective] = fits[at->collective] || algorithm == asked;
        }
    }
    return true;
}

static void check_all(member_t *m)
{
    bool is_well = true;
    for (int i = 0; tt_algorithms[i] != NULL && is_well; i++) {
        is_well = check_algorithm(m, tt_algorithms[i], i == 0);
    }
}

static bool take_memory(member_t *m, bool is_shared)
{
    const size_t bytes = (size_t)COUNT_MAX * RANKS_MAX * sizeof(double);
    tt_device_t *heap = tt_backend_native.memory(m->native);
    bool has_all = true;
    for (int i = 0; i <= PIECES_MAX; i++) {
        void **at = i < PIECES_MAX ? &m->pieces[i] : &m->out;
        *at = is_shared ? tt_device_alloc(heap, bytes, "test") : tt_alloc(bytes, "test");
        has_all = has_all && *at != NULL;
    }
    return has_all;
}

static void give_memory_back(member_t *m, bool is_shared)
{
    const size_t bytes = (size_t)COUNT_MAX * RANKS_MAX * sizeof(double);
    for (int i = 0; i <= PIECES_MAX; i++) {
        void *at = i < PIECES_MAX ? m->pieces[i] : m->out;
        if (is_shared) {
            tt_device_free(tt_backend_native.memory(m->native), at, bytes);
        } else {
            tt_free(at);
        }
    }
}

static void live(int rank, tt_peers_t *peers)
{
    member_t m = {.book = &book, .rank = rank};
    const tt_backend_options_t options = {.name = "world",
                                          .rank = rank,
                                          .size = book.size,
                                          .store = book.store,
                                          .timeout_ms = TIMEOUT_MS,
                                          .peers = peers};
    m.native = tt_alloc(tt_backend_native.state_bytes, "test");
    if (tt_backend_native.open(m.native, &options) < 0) {
        note(&m, &book.cases[0], "?", tutti_last_error());
    } else {
        const bool is_shared = book.wire != FOREIGN || rank % 2 == 0;
        if (take_memory(&m, is_shared)) {
            check_all(&m);
        }
        if (book.wire != SIMULATED &&
            strcmp(wire_names[book.wire], tt_coll_wires(tt_native_coll(m.native))) != 0) {
            note(&m, &book.cases[0], "?", tt_coll_wires(tt_native_coll(m.native)));
        }
        give_memory_back(&m, is_shared);
        tt_backend_native.close(m.native);
    }
    tt_free(m.native);
}

static void live_as_peer(tt_peer_t *self)
{
    live(self->rank, self->peers);
}

static void live_simulated(sim_t *sim, int rank, void *user)
{
    (void)user;
    tt_peers_t *peers;
    if (tt_peers_simulate(rank, sim->size, &sim->ranks[rank].hooks, &peers) == TUTTI_OK) {
        live(rank, peers);
        tt_peers_release(peers);
    }
}

/* ---- worlds ---- */

static void add_cases(tt_collective_t collective, tutti_dtype_t dtype)
{
    static const size_t counts[] = {1, 300, COUNT_MAX};
    const bool reduces = tt_collective_reduces(collective);
    const int count = !reduces ? 3 : tt_collective_is_prefix(collective) ? 6 : 7;
    for (int i = 0; i < count; i++) { /* the last: an average, functions, and leaves */
        const bool is_custom = i == 4 || i == 5;
        assert_true(book.case_count < CASES_MAX);
        book.cases[book.case_count++] =
            (case_t){.collective = collective,
                     .dtype = dtype,
                     .reduction = is_custom ? TUTTI_CUSTOM
                                  : i == 3  ? TUTTI_AVG
                                            : TUTTI_SUM,
                     .count = collective == TT_BARRIER ? 0 : counts[i % 3] & ~(size_t)is_custom,
                     .root = i % book.size,
                     .leaves = i == 6 ? LEAVES : 0};
    }
}

static void begin_book(int size)
{
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F64};
    memset(&book, 0, sizeof book);
    book.size = size;
    for (int collective = 0; collective < TT_COLLECTIVE_COUNT; collective++) {
        const bool reduces = tt_collective_reduces((tt_collective_t)collective);
        for (int i = 0; i < (reduces ? 3 : 1); i++) {
            add_cases((tt_collective_t)collective, dtypes[i]);
        }
    }
}

static void run_world(wire_t wire)
{
    static const char *const hosts[WIRES][RANKS_MAX] = {[SHM] = {"a", "a", "a", "a", "a"},
                                                        [FOREIGN] = {"a", "a", "a", "a", "a"},
                                                        [MIXED] = {"a", "a", "b", "b", "a"}};
    static sim_t sim;
    book.wire = wire;
    if (wire == SIMULATED) {
        sim_run(&sim, &(sim_plan_t){.seed = SEED, .size = book.size, .body = live_simulated});
    } else {
        tt_peers_team_t team = {.size = book.size, .body = live_as_peer};
        for (int rank = 0; rank < book.size; rank++) {
            team.hosts[rank] = hosts[wire][rank];
        }
        assert_int_equal(tutti_store_hash_create(&book.store), TUTTI_OK);
        tt_run_peers(&team);
        tutti_store_release(book.store);
        book.store = NULL;
    }
    for (int rank = 0; rank < book.size; rank++) {
        assert_string_equal(book.failures[rank], "");
    }
}

static void run_worlds(int size)
{
    begin_book(size);
    for (int wire = 0; wire < WIRES; wire++) {
        run_world((wire_t)wire);
    }
}

/* Which algorithms a world of four can use: those for one host, those for several, all others. */
static void expect_uses(void)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        const tt_algorithm_t *algorithm = tt_algorithms[i];
        long sum = 0;
        for (int wire = 0; wire < WIRES; wire++) {
            const long used = book.used[wire][i];
            sum += used;
            const bool is_one_host = wire == SHM || wire == FOREIGN;
            if (used > 0 && algorithm->needs_one_host && !is_one_host) {
                fail_msg("%s over %s", algorithm->name, wire_names[wire]);
            }
            if (used == 0 && !algorithm->shares_memory && !is_one_host) {
                fail_msg("%s carried out nothing over %s", algorithm->name, wire_names[wire]);
            }
        }
        if (sum == 0) {
            fail_msg("%s carried out nothing", algorithm->name);
        }
    }
}

static void four_ranks_get_the_same_bits_over_every_wire(void **state)
{
    (void)state;
    run_worlds(4);
    expect_uses();
    assert_true(book.others[0] > 0); /* the ring's */
}

static void five_ranks_get_the_same_bits_over_every_wire(void **state)
{
    (void)state;
    run_worlds(5);
}

int main(void)
{
    setenv("TUTTI_PROTECT", "off", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_ranks_get_the_same_bits_over_every_wire),
        cmocka_unit_test(five_ranks_get_the_same_bits_over_every_wire),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
