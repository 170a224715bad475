/* A store with as many keys as it may have: what is there can still be changed; and one that is no
 * server. */
#include "comm/store/store_table.h"

#include "core/base/testing.h"

enum { BATCH = TUTTI_STORE_BATCH_KEYS_MAX };

static tutti_status_t set_batch(tt_table_t *table, int first)
{
    static uint32_t names[BATCH];
    static tutti_bytes_t keys[BATCH], values[BATCH];
    const tt_store_request_t request = {
        .op = TT_STORE_SET, .key_count = BATCH, .keys = keys, .values = values};
    for (int i = 0; i < BATCH; i++) {
        names[i] = (uint32_t)(first + i);
        keys[i] = tutti_bytes_of(&names[i], sizeof names[i]);
        values[i] = tutti_text("1");
    }
    return tt_table_apply(table, &request, &(tt_store_reply_t){0});
}

static tutti_status_t add(tt_table_t *table, uint32_t name, int64_t *sum)
{
    const tutti_bytes_t key = tutti_bytes_of(&name, sizeof name);
    const tt_store_request_t request = {
        .op = TT_STORE_ADD, .key_count = 1, .keys = &key, .number = 41};
    tt_store_reply_t reply = {0};
    const tutti_status_t status = tt_table_apply(table, &request, &reply);
    *sum = reply.number;
    return status;
}

static void keys_of_a_full_store_can_be_changed(void **state)
{
    (void)state;
    tt_table_t *table;
    int64_t sum;
    assert_int_equal(tt_table_create(&table), TUTTI_OK);
    for (int first = 0; first < TUTTI_STORE_KEYS_MAX; first += BATCH) {
        assert_int_equal(set_batch(table, first), TUTTI_OK);
    }
    assert_int_equal(add(table, 7, &sum), TUTTI_OK);
    assert_int_equal(sum, 42);
    assert_int_equal(set_batch(table, TUTTI_STORE_KEYS_MAX / 2), TUTTI_OK);
    assert_int_equal(add(table, TUTTI_STORE_KEYS_MAX, &sum), TUTTI_ERR_NOMEM);
    tt_expect_error("store is full: 1048576 keys of 1048576");
    assert_int_equal(set_batch(table, TUTTI_STORE_KEYS_MAX - BATCH / 2), TUTTI_ERR_NOMEM);
    tt_table_release(table);
}

static void a_store_without_a_server_has_port_0(void **state)
{
    (void)state;
    tutti_store_t *store;
    assert_int_equal(tutti_store_port(NULL), 0);
    assert_int_equal(tutti_store_hash_create(&store), TUTTI_OK);
    assert_int_equal(tutti_store_port(store), 0);
    tutti_store_release(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_a_full_store_can_be_changed),
        cmocka_unit_test(a_store_without_a_server_has_port_0),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
