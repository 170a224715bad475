/* What the tests of docs/formats look at: two ranks whose calls they know. After each
 * part a rank says its name, and waits for a line on its standard input; after a failure as well.
 *
 *     first    all_reduce f32[10] sum, broadcast f64[5] from rank 1, all_reduce f32[1024] max,
 *              a message i32[4] of tag 7 and one i32[4096] of tag 8 from rank 0 to rank 1, barrier
 *     second   broadcast i64[70000] from rank 0
 */
#include <stdio.h>

#include <tutti/messages.h>
#include <tutti/tutti.h>

enum { SHORT_TAG = 7, LONG_TAG = 8 };

static tutti_status_t make(tutti_group_t *world, tutti_dtype_t dtype, int64_t count,
                           tutti_tensor_t **out)
{
    TUTTI_CHECK(tutti_group_tensor(world, dtype, TUTTI_SHAPE(count), out));
    const int rank = tutti_group_rank(world);
    unsigned char *bytes = tutti_tensor_data(*out);
    for (size_t i = 0; i < (size_t)count * tutti_dtype_bytes(dtype); i++) {
        bytes[i] = (unsigned char)((i * 7 + (size_t)rank * 13) % 64);
    }
    return TUTTI_OK;
}

static tutti_status_t exchange(tutti_group_t *world, tutti_tensor_t *x, int tag)
{
    return tutti_group_rank(world) == 0 ? tutti_send(world, x, 1, tag, NULL)
                                        : tutti_recv(world, x, 0, tag, NULL);
}

enum { TENSORS = 6 };

static tutti_status_t call(tutti_group_t *world, tutti_tensor_t **x)
{
    TUTTI_CHECK(make(world, TUTTI_F32, 10, &x[0]));
    TUTTI_CHECK(make(world, TUTTI_F64, 5, &x[1]));
    TUTTI_CHECK(make(world, TUTTI_F32, 1024, &x[2]));
    TUTTI_CHECK(make(world, TUTTI_I32, 4, &x[3]));
    TUTTI_CHECK(make(world, TUTTI_I32, 4096, &x[4]));
    TUTTI_CHECK(make(world, TUTTI_I64, 70000, &x[5]));
    TUTTI_CHECK(tutti_all_reduce(world, x[0], TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_broadcast(world, x[1], 1, NULL));
    TUTTI_CHECK(tutti_all_reduce(world, x[2], TUTTI_MAX, NULL));
    TUTTI_CHECK(exchange(world, x[3], SHORT_TAG));
    TUTTI_CHECK(exchange(world, x[4], LONG_TAG));
    TUTTI_CHECK(tutti_barrier(world, NULL));
    printf("first\n");
    fflush(stdout);
    (void)getchar();
    TUTTI_CHECK(tutti_broadcast(world, x[5], 0, NULL));
    printf("second\n");
    fflush(stdout);
    (void)getchar();
    return TUTTI_OK;
}

int main(void)
{
    tutti_group_t *world = NULL;
    tutti_tensor_t *x[TENSORS] = {NULL};
    tutti_status_t status = tutti_init(NULL, &world);
    status = status == TUTTI_OK ? call(world, x) : status;
    if (status != TUTTI_OK) {
        fprintf(stderr, "format_ranks: %s\n", tutti_last_error());
        printf("failed\n");
        fflush(stdout);
        (void)getchar();
    }
    for (int i = 0; i < TENSORS; i++) {
        tutti_tensor_release(x[i]);
    }
    tutti_group_release(world);
    return status == TUTTI_OK ? 0 : 1;
}
