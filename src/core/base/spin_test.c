/* Spins: that they see a word move, and that they stop where they are in vain. */
#include "core/base/spin.h"

#include <pthread.h>

#include "core/base/testing.h"

enum { MOST = 5 };

static void wait_in_vain(tt_spin_t *spin, int count)
{
    _Atomic uint32_t word = 7;
    for (int i = 0; i < count; i++) {
        assert_false(tt_spin_sees_move(spin, MOST, &word, 7));
    }
}

static void a_word_that_has_moved_is_seen_at_once(void **state)
{
    (void)state;
    tt_spin_t spin = {0};
    _Atomic uint32_t word = 7;
    assert_true(tt_spin_sees_move(&spin, 0, &word, 6));
    wait_in_vain(&spin, 3);
    assert_true(tt_spin_sees_move(&spin, MOST, &word, 6)); /* that says nothing of spins */
    assert_false(tt_spin_sees_move(&spin, 0, &word, 7));   /* nor does it of a wait without one */
    assert_int_equal(spin.in_vain, 3);
}

static void spins_in_vain_become_few(void **state)
{
    (void)state;
    tt_spin_t spin = {0};
    for (int wait = 0; wait < 5 * TT_SPIN_TRIES; wait++) {
        const bool spins = wait < TT_SPIN_IN_VAIN_MAX || wait % TT_SPIN_TRIES == 0;
        assert_int_equal(tt_spin_looks(&spin, MOST), spins ? MOST : 0);
        wait_in_vain(&spin, 1);
    }
}

static _Atomic uint32_t moving;

static void *move(void *user)
{
    (void)user;
    atomic_fetch_add(&moving, 1);
    return NULL;
}

/* It looks until the word has moved: that takes as long as the other thread does. */
static void a_spin_that_sees_a_move_brings_all_back(void **state)
{
    (void)state;
    tt_spin_t spin = {0};
    pthread_t thread;
    wait_in_vain(&spin, TT_SPIN_TRIES);
    assert_int_equal(tt_spin_looks(&spin, MOST), MOST);
    atomic_store(&moving, 0);
    atomic_store(&spin.in_vain, 2 * TT_SPIN_TRIES);
    while (atomic_load(&spin.in_vain) > 0) { /* it may have moved before the first look */
        const uint32_t seen = atomic_load(&moving);
        assert_int_equal(pthread_create(&thread, NULL, move, NULL), 0);
        assert_true(tt_spin_sees_move(&spin, INT32_MAX, &moving, seen));
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(tt_spin_looks(&spin, MOST), MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_that_has_moved_is_seen_at_once),
        cmocka_unit_test(spins_in_vain_become_few),
        cmocka_unit_test(a_spin_that_sees_a_move_brings_all_back),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
