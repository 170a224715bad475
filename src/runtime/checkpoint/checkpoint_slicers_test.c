/* Those that deal tensors out are asked and told one after another, all of them, whatever the ones
 * before have said. */
#include "comm/group/group_team.h"

#include <string.h>

#include <tutti/checkpoint.h>
#include <tutti/nn_layers.h>

#include "core/base/place_testing.h"
#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/checkpoint_slicers.h"

enum { COUNT = 3 };

typedef struct {
    tt_slicer_t slicer;
    tutti_status_t own;       /* how it fares */
    bool is_late;             /* that is seen at the end */
    tutti_status_t heard;     /* how the others did */
    int begun, agreed, ended; /* how often it was asked */
} fake_t;

static fake_t *fake_of(tt_slicer_t *slicer)
{
    return (fake_t *)slicer;
}

static tutti_status_t fare(const fake_t *fake)
{
    return fake->own < 0 ? TT_FAIL(fake->own, "its own") : TUTTI_OK;
}

static tutti_status_t begin(tt_slicer_t *slicer)
{
    fake_of(slicer)->begun++;
    return fake_of(slicer)->is_late ? TUTTI_OK : fare(fake_of(slicer));
}

static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    fake_of(slicer)->agreed++;
    fake_of(slicer)->heard = status;
    return status;
}

static tutti_status_t step(tt_slicer_t *slicer, tutti_status_t status)
{
    fake_of(slicer)->ended++;
    fake_of(slicer)->heard = status;
    return status < 0 ? TT_FAIL(status, "a text of its own") : fare(fake_of(slicer));
}

static fake_t fakes[COUNT];
static tt_slicer_t *slicers[COUNT];
static tt_checkpoint_slicers_t list;

/* `failing`: one of them; COUNT: none. */
static void set_up(int failing)
{
    for (int i = 0; i < COUNT; i++) {
        fakes[i] = (fake_t){.slicer = {.begin = begin, .agree = agree, .stepped = step},
                            .own = i == failing ? TUTTI_ERR_NOMEM : TUTTI_OK};
        slicers[i] = &fakes[i].slicer;
    }
    list = (tt_checkpoint_slicers_t){.slicers = slicers, .count = COUNT};
}

static void all_are_asked_whoever_has_failed(void **state)
{
    (void)state;
    for (int failing = 0; failing <= COUNT; failing++) {
        set_up(failing);
        assert_int_equal(tt_checkpoint_slicers_claim(&list),
                         failing < COUNT ? TUTTI_ERR_NOMEM : TUTTI_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(fakes[i].begun, 1);
            assert_int_equal(fakes[i].agreed, 1);
            assert_int_equal(fakes[i].heard, i >= failing ? TUTTI_ERR_NOMEM : TUTTI_OK);
        }
    }
}

static void all_are_told_whoever_fails(void **state)
{
    (void)state;
    for (int failing = 0; failing <= COUNT; failing++) {
        set_up(failing);
        assert_int_equal(tt_checkpoint_slicers_publish(&list, TUTTI_OK),
                         failing < COUNT ? TUTTI_ERR_NOMEM : TUTTI_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(fakes[i].ended, 1);
            assert_int_equal(fakes[i].heard, i > failing ? TUTTI_ERR_NOMEM : TUTTI_OK);
        }
    }
}

enum { TENSORS_MAX = 32 };

/* Of a module's tensors: every `of_each` of them that follow each other have one slicer. */
typedef struct {
    tt_slicer_t slicers[TENSORS_MAX];
    tt_tensor_slice_t slices[TENSORS_MAX];
    tutti_tensor_t *tensors[TENSORS_MAX];
    int count, of_each;
} dealt_t;

static tutti_status_t deal(void *user, const char *name, tutti_tensor_t *x)
{
    dealt_t *dealt = user;
    const int i = dealt->count++;
    (void)name;
    assert_true(i < TENSORS_MAX);
    dealt->slices[i].slicer = &dealt->slicers[i / dealt->of_each];
    dealt->tensors[i] = x;
    x->slice = &dealt->slices[i];
    return TUTTI_OK;
}

static tutti_status_t take_back(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name;
    x->slice = NULL;
    return TUTTI_OK;
}

static void each_is_found_once_in_the_order_of_tensors(void **state)
{
    (void)state;
    const tutti_gpt_options_t options = {
        .layers = 1, .width = 4, .heads = 1, .context = 2, .vocab = 3};
    tutti_context_t *ctx;
    tutti_module_t *gpt;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_gpt_layer, &options, &gpt), TUTTI_OK);
    for (int of_each = 1; of_each <= 3; of_each++) {
        dealt_t dealt = {.of_each = of_each};
        tt_checkpoint_slicers_t of_gpt;
        assert_int_equal(tutti_module_each_tensor(gpt, deal, &dealt), TUTTI_OK);
        assert_true(dealt.count > 12);
        assert_int_equal(tt_checkpoint_slicers_find(gpt, &of_gpt), TUTTI_OK);
        assert_int_equal(of_gpt.count, (dealt.count + of_each - 1) / of_each);
        for (size_t i = 0; i < of_gpt.count; i++) {
            assert_ptr_equal(of_gpt.slicers[i], &dealt.slicers[i]);
        }
        assert_true(of_gpt.capacity >= of_gpt.count);
        tt_checkpoint_slicers_release(&of_gpt);
        assert_int_equal(tutti_module_each_tensor(gpt, take_back, NULL), TUTTI_OK);
    }
    tutti_module_release(gpt);
    tutti_context_release(ctx);
}

static void a_failure_before_keeps_its_text(void **state)
{
    (void)state;
    set_up(COUNT);
    assert_int_equal(tt_checkpoint_slicers_publish(&list, TT_FAIL(TUTTI_ERR_IO, "the first one")),
                     TUTTI_ERR_IO);
    assert_string_equal(tutti_last_error(), "the first one");
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(fakes[i].heard, TUTTI_ERR_IO);
    }
}

enum { RANKS = 2, GUARD_MS = 20000 };

static const char *place;

/* The tensors of ranks are dealt out in groups of their own, of which one fails alone. */
static void save_and_load(tt_member_t *m)
{
    const tutti_linear_options_t options = {.in = 2, .out = 3};
    fake_t fake = {.slicer = {.begin = begin, .agree = agree, .stepped = step},
                   .own = m->rank == 1 ? TUTTI_ERR_PEER : TUTTI_OK,
                   .is_late = *(const bool *)m->user};
    dealt_t dealt = {.of_each = TENSORS_MAX};
    tutti_context_t *ctx;
    tutti_module_t *net;
    int64_t at = -1;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_linear_layer, &options, &net) == 0);
    const tutti_checkpoint_t checkpoint = {.folder = place, .group = m->group, .module = net};
    TT_EXPECT(m, tutti_checkpoint_save(&checkpoint, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_each_tensor(net, deal, &dealt) == TUTTI_OK);
    for (int i = 0; i < dealt.count; i++) {
        dealt.slices[i].slicer = &fake.slicer;
        dealt.slices[i].values = dealt.tensors[i];
    }
    TT_EXPECT(m, tutti_checkpoint_load(&checkpoint, &at) == TUTTI_ERR_PEER);
    TT_EXPECT(m, strcmp(tutti_last_error(), m->rank == 1 ? "its own" : "rank 1: its own") == 0);
    TT_EXPECT(m, at == -1 && fake.begun == 1 && fake.ended == 1);
    TT_EXPECT(m, tutti_module_each_tensor(net, take_back, NULL) == TUTTI_OK);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void all_ranks_hear_of_a_slicer_that_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char folder[TT_PLACE_BYTES];
        bool is_late = i > 0;
        tt_place_make(folder);
        place = folder;
        tt_team_expect_quietly(RANKS, GUARD_MS, save_and_load, &is_late);
        tt_place_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_asked_whoever_has_failed),
        cmocka_unit_test(all_are_told_whoever_fails),
        cmocka_unit_test(each_is_found_once_in_the_order_of_tensors),
        cmocka_unit_test(a_failure_before_keeps_its_text),
        cmocka_unit_test(all_ranks_hear_of_a_slicer_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
