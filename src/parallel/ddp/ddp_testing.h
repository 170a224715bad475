/* A module for tests of DDP, with parameters, buffers and random numbers. For *_test.c only.
 *
 *     TUTTI_CHECK(tt_test_net(ctx, (int64_t[]){IN, HIDDEN, OUT}, NULL, &model));
 */
#ifndef TT_DDP_TESTING_H
#define TT_DDP_TESTING_H

#include <tutti/nn_layers.h>

/* linear [in, hidden], batch norm, a layer of the test's own (NULL: none), dropout, linear
 * [hidden, out]. */
static inline tutti_status_t tt_test_net(tutti_context_t *ctx, const int64_t sizes[3],
                                         const tutti_module_ops_t *own, tutti_module_t **out)
{
    const tutti_linear_options_t up = {.in = sizes[0], .out = sizes[1]};
    const tutti_batch_norm_layer_options_t norm = {.width = sizes[1]};
    const tutti_dropout_options_t dropout = {.p = 0.25F};
    const tutti_linear_options_t down = {.in = sizes[1], .out = sizes[2]};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_batch_norm_layer, &norm, NULL));
    TUTTI_CHECK(own == NULL ? TUTTI_OK : tutti_sequential_add(*out, own, NULL, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_dropout_layer, &dropout, NULL));
    return tutti_sequential_add(*out, &tutti_linear_layer, &down, NULL);
}

#endif
