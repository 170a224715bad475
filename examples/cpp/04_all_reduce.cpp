/* Lesson 4 in C++: processes that compute together.
 *
 *     tutti run -n 3 ./04_all_reduce
 *     tutti run -n 3 ./04_all_reduce --mismatch
 *     ./04_all_reduce                            # alone: a world of one
 */
#include <cstdio>
#include <cstring>
#include <exception>

#include <tutti/tutti.hpp>

static const int64_t count = 4;

static void print_tensor(int rank, const char *what, const tutti_tensor_t *x)
{
    char line[160];
    int used = std::snprintf(line, sizeof line, "rank %d: %s", rank, what);
    for (int64_t i = 0; i < tutti_tensor_numel(x) && used < static_cast<int>(sizeof line); i++) {
        used += std::snprintf(line + used, sizeof line - static_cast<size_t>(used), " %g",
                              tutti_tensor_at(x, i));
    }
    std::puts(line); // in one piece, since the others print too
}

/* Every rank contributes its rank + 1; every rank gets the sum. */
static void sum_up(tutti_group_t *world, tutti_tensor_t *x)
{
    const int rank = tutti_group_rank(world);
    tutti::check(tutti_tensor_fill(x, rank + 1));
    tutti::check(tutti_all_reduce(world, x, TUTTI_SUM, nullptr)); // no work: waits here
    print_tensor(rank, "the sum is", x);
}

/* A call can be started, and waited for when its result is needed. */
static void sum_up_meanwhile(tutti_group_t *world, tutti_tensor_t *x)
{
    tutti::check(tutti_tensor_fill(x, tutti_group_rank(world)));
    auto work = tutti::make(tutti_all_reduce, world, x, TUTTI_AVG);
    // … here this rank computes something else; x must be left alone …
    tutti::check(tutti_work_wait(work, 0));
    print_tensor(tutti_group_rank(world), "the average is", x);
}

/* The last rank passes another number of elements. */
static void disagree(tutti_group_t *world)
{
    const bool is_last = tutti_group_rank(world) == tutti_group_size(world) - 1;
    const tutti_shape_t shape = TUTTI_SHAPE(is_last ? 2 * count : count);
    auto x = tutti::make(tutti_group_tensor, world, TUTTI_F32, shape);
    tutti::check(tutti_all_reduce(world, x, TUTTI_SUM, nullptr));
}

int main(int argc, char **argv)
{
    try {
        const bool mismatch = argc > 1 && std::strcmp(argv[1], "--mismatch") == 0;
        auto world = tutti::make(tutti_init, nullptr);
        // Memory that all ranks of this host see: peers read and write it in place.
        auto x = tutti::make(tutti_group_tensor, world, TUTTI_F32, TUTTI_SHAPE(count));
        sum_up(world, x);
        sum_up_meanwhile(world, x);
        if (mismatch) {
            disagree(world);
        }
        tutti::check(tutti_barrier(world, nullptr));
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
