/* Two ranks of which one falls silent, for silence_full_test.py: its host is cut off, and no reset
 * says so. Each says when it is ready, then makes the calls of its argument until one fails:
 *
 *     both    all_reduces: both ranks send and receive
 *     send    rank 0 sends large messages, and hears nothing but acknowledgements
 *     recv    rank 0 waits for a message that is never sent, on a connection that is at rest
 */
#include <stdio.h>
#include <string.h>

#include <tutti/messages.h>
#include <tutti/tutti.h>

enum { ELEMENTS = 1 << 20, TAG = 3 };

static tutti_status_t call(const char *how, tutti_group_t *world, tutti_tensor_t *x)
{
    const int rank = tutti_group_rank(world);
    if (strcmp(how, "both") == 0) {
        return tutti_all_reduce(world, x, TUTTI_MAX, NULL);
    }
    if (strcmp(how, "send") == 0) {
        return rank == 0 ? tutti_send(world, x, 1, TAG, NULL) : tutti_recv(world, x, 0, TAG, NULL);
    }
    return tutti_recv(world, x, 1 - rank, TAG, NULL);
}

int main(int argc, char **argv)
{
    tutti_group_t *world;
    tutti_tensor_t *x = NULL;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status == TUTTI_OK) {
        status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(ELEMENTS), &x);
    }
    if (status == TUTTI_OK) {
        status = tutti_all_reduce(world, x, TUTTI_MAX, NULL);
    }
    if (status == TUTTI_OK) {
        printf("ready\n");
        fflush(stdout);
    }
    while (status == TUTTI_OK) {
        status = call(argc > 1 ? argv[1] : "both", world, x);
    }
    printf("%s\n", tutti_last_error());
    fflush(stdout); /* now: leaving may take its time */
    tutti_tensor_release(x);
    tutti_group_release(world);
    return 0;
}
