/* Lesson 18: a checkpoint that fits any layout.
 *
 *     tutti run -n 3 build/bin/18_layouts DIR rows         # steps 1 to 3
 *     tutti run -n 2 build/bin/18_layouts DIR columns      # steps 4 to 6, on other ranks
 *     build/bin/18_layouts DIR whole                       # steps 7 to 9, alone
 *     build/bin/tutti checkpoint show DIR --slices         # who has written what
 *
 * A table of 6 x 8 numbers is spread over the ranks: each has some rows, some columns, or all of
 * it. A step adds 1 to every number. What is saved is a rank's slice, a box of the table; what is
 * loaded is a slice, too, of whatever was saved by however many ranks: each rank reads only the
 * blocks of the files in which its slice is.
 *
 *     rows             columns          whole
 *     0 0 0 0 0 0 0 0  0 0 0 0 1 1 1 1  0 0 0 0 0 0 0 0
 *     1 1 1 1 1 1 1 1  0 0 0 0 1 1 1 1  0 0 0 0 0 0 0 0
 *
 * So a training may go on with more ranks or fewer, and what sharded training spreads is loaded by
 * one rank that wants to use it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/checkpoint.h>
#include <tutti/collectives.h>
#include <tutti/launch.h>

enum { ROWS = 6, COLUMNS = 8, STEPS = 3 };

typedef struct {
    int64_t first, count;
} part_t;

typedef struct {
    tutti_group_t *world;
    part_t rows, columns;  /* of this rank */
    tutti_tensor_t *x;     /* [rows, columns] f64 */
    tutti_tensor_t *wrong; /* [1] i64: numbers that are not what they should be */
} table_t;

/* As even as it goes. */
static part_t part_of(int64_t count, int rank, int ranks)
{
    const int64_t first = count * rank / ranks;
    return (part_t){first, count * (rank + 1) / ranks - first};
}

static tutti_status_t prepare(table_t *t, const char *layout)
{
    TUTTI_CHECK(tutti_init(NULL, &t->world));
    const int rank = tutti_group_rank(t->world), ranks = tutti_group_size(t->world);
    t->rows = strcmp(layout, "rows") == 0 ? part_of(ROWS, rank, ranks) : (part_t){0, ROWS};
    t->columns =
        strcmp(layout, "columns") == 0 ? part_of(COLUMNS, rank, ranks) : (part_t){0, COLUMNS};
    TUTTI_CHECK(
        tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(t->rows.count, t->columns.count), &t->x));
    return tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &t->wrong);
}

/* The number that an element begins with. */
static double first_value(const table_t *t, int64_t i)
{
    const int64_t row = t->rows.first + i / t->columns.count;
    const int64_t column = t->columns.first + i % t->columns.count;
    return (double)(row * COLUMNS + column);
}

static void begin(table_t *t)
{
    double *x = tutti_tensor_data(t->x);
    for (int64_t i = 0; i < tutti_tensor_numel(t->x); i++) {
        x[i] = first_value(t, i);
    }
}

static void step(table_t *t)
{
    double *x = tutti_tensor_data(t->x);
    for (int64_t i = 0; i < tutti_tensor_numel(t->x); i++) {
        x[i] += 1;
    }
}

/* Of all ranks. */
static tutti_status_t count_wrong(table_t *t, int64_t steps, int64_t *wrong)
{
    int64_t *own = tutti_tensor_data(t->wrong);
    *own = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(t->x); i++) {
        *own += tutti_tensor_at(t->x, i) != first_value(t, i) + (double)steps;
    }
    TUTTI_CHECK(tutti_all_reduce(t->world, t->wrong, TUTTI_SUM, NULL));
    *wrong = *own;
    return TUTTI_OK;
}

static tutti_status_t train(table_t *t, const char *folder)
{
    /* A slice says where it is in the whole; ranks that have the same one share the writing. */
    const tutti_slice_t slice = tutti_slice_box("table", t->x, TUTTI_SHAPE(ROWS, COLUMNS),
                                                (int64_t[]){t->rows.first, t->columns.first});
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = t->world, .slices = &slice, .slice_count = 1};
    const int rank = tutti_group_rank(t->world);
    int64_t done = 0, wrong;
    begin(t);
    TUTTI_CHECK(tutti_checkpoint_load(&checkpoint, &done));
    printf("rank %d has [%d:%d, %d:%d] and begins at step %d\n", rank, (int)t->rows.first,
           (int)(t->rows.first + t->rows.count), (int)t->columns.first,
           (int)(t->columns.first + t->columns.count), (int)done);
    fflush(stdout);
    for (int i = 0; i < STEPS; i++) {
        step(t);
        done++;
        TUTTI_CHECK(tutti_checkpoint_save(&checkpoint, done));
    }
    TUTTI_CHECK(count_wrong(t, done, &wrong));
    if (rank == 0) {
        printf("step %d: %d numbers are wrong\n", (int)done, (int)wrong);
    }
    return TUTTI_OK;
}

static bool is_layout(const char *name)
{
    return strcmp(name, "rows") == 0 || strcmp(name, "columns") == 0 || strcmp(name, "whole") == 0;
}

int main(int argc, char **argv)
{
    table_t t = {0};
    if (argc != 3 || !is_layout(argv[2])) {
        fprintf(stderr, "usage: 18_layouts DIR rows|columns|whole\n");
        return EXIT_FAILURE;
    }
    tutti_status_t status = prepare(&t, argv[2]);
    if (status >= 0) {
        status = train(&t, argv[1]);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_tensor_release(t.wrong);
    tutti_tensor_release(t.x);
    tutti_group_release(t.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
