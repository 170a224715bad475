/* Calls on tensors whose memory has been taken away, or is another one than when they were
 * prepared. */
#include "comm/group/group_team.h"

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/prepared.h>

#include "core/tensor/tensor_impl.h"

static const char reason[] = "w is sharded: gather it";

static bool is_absent(tutti_status_t status, const char *call)
{
    return status == TUTTI_ERR_STATE && strstr(tutti_last_error(), reason) != NULL &&
           strstr(tutti_last_error(), call) != NULL;
}

static tutti_status_t fill_again(tutti_tensor_t *x, float value)
{
    TT_TRY(tt_storage_refill(x->storage, NULL));
    for (int i = 0; i < 4; i++) {
        ((float *)x->storage->data)[i] = value;
    }
    return tt_storage_publish(x->storage);
}

static void call_without_memory(tt_member_t *m)
{
    tutti_tensor_t *x, *y;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == 0);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4 * m->size), &y) == 0);
    TT_EXPECT(m, tt_storage_evict(x->storage, reason) == 0);
    TT_EXPECT(m, is_absent(tutti_all_reduce(m->group, x, TUTTI_SUM, NULL), "all_reduce"));
    TT_EXPECT(m, is_absent(tutti_all_gather(m->group, y, x, NULL), "all_gather"));
    TT_EXPECT(m, is_absent(tutti_reduce_scatter(m->group, x, y, TUTTI_SUM, NULL), "reduce_sc"));
    TT_EXPECT(m, is_absent(tutti_broadcast(m->group, x, 0, NULL), "broadcast"));
    TT_EXPECT(m, is_absent(tutti_send(m->group, x, 0, 0, NULL), "send"));
    TT_EXPECT(m, fill_again(x, 3) == 0);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == 0); /* the group goes on */
    TT_EXPECT(m, tutti_tensor_at(x, 3) == 3.0 * m->size);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void calls_name_what_is_away(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 0, call_without_memory, NULL).text, "");
}

/* Memory that comes back elsewhere, and memory that another tensor had. */
static void start_elsewhere(tt_member_t *m)
{
    tutti_tensor_t *x, *y;
    tutti_prepared_t *prepared;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == 0);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &y) == 0);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &prepared) == 0);
    for (int i = 0; i < 3; i++) {
        TT_EXPECT(m, tutti_tensor_fill(x, 1) == 0);
        TT_EXPECT(m, tutti_prepared_start(prepared, NULL) == 0);
        TT_EXPECT(m, tutti_tensor_at(x, 3) == m->size);
        if (i == 0) {
            TT_EXPECT(m, tt_storage_evict(x->storage, reason) == 0);
            TT_EXPECT(m, is_absent(tutti_prepared_start(prepared, NULL), "all_reduce"));
            tutti_tensor_t *other; /* lies where x lay, or somewhere else */
            TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &other) == 0);
            TT_EXPECT(m, fill_again(x, 2) == 0);
            TT_EXPECT(m, tutti_prepared_rebind(prepared, x) == 0);
            tutti_tensor_release(other);
        } else {
            tt_tensor_swap(x, y);
            TT_EXPECT(m, tutti_prepared_start(prepared, NULL) == TUTTI_ERR_STATE);
            TT_EXPECT(m, strstr(tutti_last_error(), "prepared all_reduce of group") != NULL);
            TT_EXPECT(m, strstr(tutti_last_error(), "f32[4] lies in other memory") != NULL);
            TT_EXPECT(m, tutti_prepared_rebind(prepared, x) == 0);
        }
    }
    tutti_prepared_release(prepared);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void a_prepared_call_starts_in_no_memory_of_others(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 0, start_elsewhere, NULL).text, "");
}

/* STATE: the calls before it have not started, so that the others need not make them. */
static void start_all_or_none(tt_member_t *m)
{
    tutti_tensor_t *x, *y;
    tutti_prepared_t *calls[2];
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x) == 0);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &y) == 0);
    TT_EXPECT(m, tutti_tensor_fill(x, 1) == 0);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &calls[0]) == 0);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, y, TUTTI_SUM, &calls[1]) == 0);
    TT_EXPECT(m, tt_storage_evict(y->storage, reason) == 0);
    TT_EXPECT(m, is_absent(tutti_prepared_start_all(calls, 2, NULL), "all_reduce"));
    TT_EXPECT(m, tutti_prepared_start(calls[0], NULL) == 0);
    TT_EXPECT(m, tutti_tensor_at(x, 3) == m->size);
    tutti_prepared_release(calls[0]);
    tutti_prepared_release(calls[1]);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void of_several_prepared_calls_all_start_or_none(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 0, start_all_or_none, NULL).text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_name_what_is_away),
        cmocka_unit_test(a_prepared_call_starts_in_no_memory_of_others),
        cmocka_unit_test(of_several_prepared_calls_all_start_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
