/* A job in which one rank branches wrong, for hang_test.py and docs/guide/hangs.md: steps of an
 * all_reduce over all ranks and a barrier over pairs; in the third step the last rank goes another
 * way, as its argument says: "elsewhere", "counts", "stop", or not at all. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

static tutti_status_t average(tutti_group_t *world, tutti_tensor_t *gradient)
{
    return tutti_all_reduce(world, gradient, TUTTI_AVG, NULL);
}

/* What the last rank does in the third step. */
static tutti_status_t go_wrong(const char *how, tutti_group_t *world, tutti_group_t *pair,
                               tutti_tensor_t *other)
{
    if (strcmp(how, "elsewhere") == 0) {
        return tutti_barrier(pair, NULL);
    }
    if (strcmp(how, "counts") == 0) {
        return average(world, other);
    }
    raise(SIGSTOP);
    return average(world, other);
}

static tutti_status_t train(const char *how, tutti_group_t *world, tutti_group_t *pair)
{
    tutti_tensor_t *gradient, *other = NULL;
    tutti_status_t status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(1024), &gradient);
    if (status == TUTTI_OK) {
        status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(512), &other);
    }
    const bool is_last = tutti_group_rank(world) == tutti_group_size(world) - 1;
    for (int step = 0; step < 5 && status == TUTTI_OK; step++) {
        const bool is_wrong = step == 2 && is_last && how[0] != 0;
        status = is_wrong ? go_wrong(how, world, pair, other) : average(world, gradient);
        if (status == TUTTI_OK && step % 2 == 1) {
            status = tutti_barrier(pair, NULL);
        }
    }
    if (status < 0) {
        fprintf(stderr, "hang: %s\n", tutti_last_error());
    }
    tutti_tensor_release(other);
    tutti_tensor_release(gradient);
    return status;
}

int main(int argc, char **argv)
{
    tutti_group_t *world, *pair;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status == TUTTI_OK) {
        status = tutti_group_subgroups(world, 2, &pair);
        if (status == TUTTI_OK) {
            status = train(argc > 1 ? argv[1] : "", world, pair);
            tutti_group_release(pair);
        }
        tutti_group_release(world);
    } else {
        fprintf(stderr, "hang: %s\n", tutti_last_error());
    }
    return status == TUTTI_OK ? 0 : 1;
}
