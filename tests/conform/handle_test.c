/* A call without its module, optimizer, loader or data set is ARG and says which argument is NULL:
 * who has not looked at the status of a create hears of it in the next call.
 */
#include <tutti/checkpoint.h>
#include <tutti/data_files.h>
#include <tutti/dataloader.h>
#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/nn_vocabulary.h>
#include <tutti/optim.h>

#include "core/base/testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x;
} world_t;

static const tutti_linear_options_t linear = {.in = 2, .out = 2};

static tutti_status_t create_module_without_context(world_t *w)
{
    tutti_module_t *m;
    (void)w;
    return tutti_module_create(NULL, &tutti_linear_layer, &linear, &m);
}

static tutti_status_t create_module_of_no_kind(world_t *w)
{
    tutti_module_t *m;
    return tutti_module_create(w->ctx, NULL, NULL, &m);
}

static tutti_status_t create_module_for_nobody(world_t *w)
{
    return tutti_module_create(w->ctx, &tutti_linear_layer, &linear, NULL);
}

static tutti_status_t forward(world_t *w)
{
    (void)tutti_forward(w->s, NULL, w->x);
    return tutti_scope_status(w->s);
}

static tutti_status_t forward_many(world_t *w)
{
    tutti_tensor_t *y[2];
    tutti_forward_many(w->s, NULL, &w->x, 1, y, 2);
    assert_int_equal(tutti_tensor_status(y[0]), TUTTI_ERR_ARG);
    return tutti_tensor_status(y[1]);
}

static tutti_status_t log_prob(world_t *w)
{
    return tutti_tensor_status(tutti_adaptive_log_prob(w->s, NULL, w->x));
}

static tutti_status_t predict(world_t *w)
{
    return tutti_tensor_status(tutti_adaptive_predict(w->s, NULL, w->x));
}

static tutti_status_t add_to_no_sequence(world_t *w)
{
    (void)w;
    return tutti_sequential_add(NULL, &tutti_linear_layer, &linear, NULL);
}

static tutti_status_t new_child_of_none(world_t *w)
{
    (void)w;
    return tutti_module_new_child(NULL, "up", &tutti_linear_layer, &linear, NULL);
}

static tutti_status_t add_child_to_none(world_t *w)
{
    (void)w;
    return tutti_module_add_child(NULL, "up", NULL);
}

static tutti_status_t new_parameter_of_none(world_t *w)
{
    (void)w;
    return tutti_module_new_parameter(NULL, "w", TUTTI_SHAPE(2), (tutti_init_t){0}, NULL);
}

static tutti_status_t save(world_t *w)
{
    (void)w;
    return tutti_module_save(NULL, "nothing.safetensors", NULL, 0);
}

static tutti_status_t load(world_t *w)
{
    (void)w;
    return tutti_module_load(NULL, "nothing.safetensors");
}

static tutti_status_t load_from(world_t *w)
{
    (void)w;
    return tutti_module_load_from(NULL, NULL);
}

static tutti_status_t digest(world_t *w)
{
    char text[TUTTI_DIGEST_BYTES];
    (void)w;
    return tutti_module_digest(NULL, text);
}

static tutti_status_t visit(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name, (void)x;
    return TUTTI_OK;
}

static tutti_status_t each_parameter(world_t *w)
{
    (void)w;
    return tutti_module_each_parameter(NULL, visit, NULL);
}

static tutti_status_t find(world_t *w)
{
    (void)w;
    return tutti_module_find(NULL, "weight") == NULL ? TUTTI_ERR_ARG : TUTTI_OK;
}

static tutti_status_t create_optimizer(world_t *w)
{
    tutti_optim_t *opt;
    (void)w;
    return tutti_optim_create(NULL, &tutti_adam, NULL, &opt);
}

static tutti_status_t add_no_module(world_t *w)
{
    tutti_optim_t *opt;
    TUTTI_CHECK(tutti_optim_create(w->ctx, &tutti_adam, NULL, &opt));
    const tutti_status_t status = tutti_optim_add_module(opt, NULL, NULL, NULL);
    tutti_optim_release(opt);
    return status;
}

static tutti_status_t add_module_to_none(world_t *w)
{
    (void)w;
    return tutti_optim_add_module(NULL, NULL, NULL, NULL);
}

static tutti_status_t add_parameter(world_t *w)
{
    return tutti_optim_add_parameter(NULL, 0, "x", w->x);
}

static tutti_status_t step(world_t *w)
{
    (void)w;
    return tutti_optim_step(NULL);
}

static tutti_status_t clip(world_t *w)
{
    (void)w;
    return tutti_clip_grad_norm(NULL, 1, 2, NULL);
}

static tutti_status_t create_dataset(world_t *w)
{
    tutti_dataset_t *d;
    (void)w;
    return tutti_dataset_create(NULL, &linear, &d);
}

static tutti_status_t create_loader(world_t *w)
{
    tutti_dataloader_t *loader;
    (void)w;
    return tutti_dataloader_create(NULL, NULL, &loader);
}

static tutti_status_t set_epoch(world_t *w)
{
    (void)w;
    return tutti_dataloader_set_epoch(NULL, 1);
}

/* As after any failure: the fields are null tensors. */
static tutti_status_t next(world_t *w)
{
    tutti_batch_t batch;
    const tutti_status_t status = tutti_dataloader_next(NULL, w->s, &batch);
    assert_int_equal(batch.size, 0);
    assert_int_equal(tutti_tensor_status(batch.input), TUTTI_ERR_ARG);
    assert_int_equal(tutti_tensor_status(batch.target), TUTTI_ERR_ARG);
    return status;
}

static tutti_status_t at(world_t *w)
{
    tutti_batch_t batch;
    const tutti_status_t status = tutti_dataloader_at(NULL, w->s, (tutti_batch_place_t){0}, &batch);
    assert_int_equal(tutti_scope_status(w->s), TUTTI_ERR_ARG);
    return status;
}

static tutti_status_t create_ddp_of_no_group(world_t *w)
{
    tutti_ddp_t *ddp;
    return tutti_ddp_create(w->ctx, NULL, NULL, NULL, &ddp);
}

static tutti_status_t create_ddp_of_no_module(world_t *w)
{
    tutti_ddp_t *ddp;
    tutti_group_t *group;
    TUTTI_CHECK(tutti_init(NULL, &group));
    const tutti_status_t status = tutti_ddp_create(w->ctx, NULL, group, NULL, &ddp);
    tutti_group_release(group);
    return status;
}

static tutti_status_t finish(world_t *w)
{
    assert_null(tutti_ddp_module(NULL));
    return tutti_ddp_next_shard(NULL, w->ctx) ? TUTTI_OK : tutti_ddp_finish(NULL);
}

static tutti_status_t save_checkpoint(world_t *w)
{
    (void)w;
    return tutti_checkpoint_save(NULL, 1);
}

static tutti_status_t load_checkpoint(world_t *w)
{
    int64_t at_step;
    (void)w;
    return tutti_checkpoint_load(NULL, &at_step);
}

static const struct {
    tutti_status_t (*run)(world_t *w);
    const char *says;
} calls[] = {
    {create_module_without_context, "module_create: ctx is NULL"},
    {create_module_of_no_kind, "module_create: ops is NULL"},
    {create_module_for_nobody, "module_create: out is NULL"},
    {forward, "forward: m is NULL"},
    {forward_many, "forward: m is NULL"},
    {log_prob, "adaptive_log_prob: m is NULL"},
    {predict, "adaptive_predict: m is NULL"},
    {add_to_no_sequence, "sequential_add: sequential is NULL"},
    {new_child_of_none, "module_new_child: m is NULL"},
    {add_child_to_none, "module_add_child: m is NULL"},
    {new_parameter_of_none, "module_new_parameter: m is NULL"},
    {save, "module_save: m is NULL"},
    {load, "module_load: m is NULL"},
    {load_from, "module_load: m is NULL"},
    {digest, "module_digest: m is NULL"},
    {each_parameter, "module_each: m is NULL"},
    {find, "module_each_tensor: m is NULL"},
    {create_optimizer, "optim_create: ctx is NULL"},
    {add_no_module, "optim_add_module: m is NULL"},
    {add_module_to_none, "optim_add_module: opt is NULL"},
    {add_parameter, "optim_add_parameter: opt is NULL"},
    {step, "optim_step: opt is NULL"},
    {clip, "clip_grad_norm: opt is NULL"},
    {create_dataset, "dataset_create: kind is NULL"},
    {create_loader, "dataloader_create: d is NULL"},
    {set_epoch, "dataloader_set_epoch: loader is NULL"},
    {next, "dataloader_next: loader is NULL"},
    {at, "dataloader_at: loader is NULL"},
    {create_ddp_of_no_group, "ddp_create: group is NULL"},
    {create_ddp_of_no_module, "ddp_create: module is NULL"},
    {finish, "ddp_finish: ddp is NULL"},
    {save_checkpoint, "checkpoint_save: checkpoint is NULL"},
    {load_checkpoint, "checkpoint_load: checkpoint is NULL"},
};

static void calls_without_their_handle_say_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        world_t w;
        assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &w.ctx), 0);
        assert_int_equal(tutti_scope_open(w.ctx, &w.s), 0);
        w.x = tutti_ones(w.s, TUTTI_F32, TUTTI_SHAPE(2, 2));
        assert_int_equal(calls[i].run(&w), TUTTI_ERR_ARG);
        tt_expect_error(calls[i].says);
        (void)tutti_scope_close(w.s);
        tutti_context_release(w.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_without_their_handle_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
