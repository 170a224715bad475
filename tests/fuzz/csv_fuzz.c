/* CSV of arbitrary bytes, with and without a header: refused with a text, or every line of it can
 * be read. */
#include <stddef.h>
#include <stdint.h>

#include <tutti/data_files.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(tutti_dataset_t *d)
{
    tutti_sample_t sample = {0};
    for (int64_t i = 0; i < tutti_dataset_info(d).count; i++) {
        TT_ASSERT(tutti_dataset_read(d, i, (tutti_draw_t){0}, &sample) == TUTTI_OK);
        TT_ASSERT(sample.shapes[2].dims[0] >= 0);
    }
    tutti_sample_clear(&sample);
}

static void try_options(const tutti_csv_options_t *options)
{
    tutti_dataset_t *d;
    if (tutti_dataset_create(&tutti_csv_dataset, options, &d) >= 0) {
        read_all(d);
        tutti_dataset_release(d);
    } else {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"a", "b", "c"}, *const numbers[] = {"1", "2", "3"};
    static const char *const classes[] = {"rose", "tulip"};
    for (int i = 0; i < 2; i++) {
        const char *const *columns = i == 0 ? names : numbers;
        const tutti_csv_field_t fields[] = {
            {.columns = columns, .column_count = 1, .dtype = TUTTI_F32},
            {.columns = columns + 1,
             .column_count = 1,
             .dtype = TUTTI_I64,
             .classes = classes,
             .class_count = 2},
            {.columns = columns + 2, .column_count = 1, .dtype = TUTTI_U8, .is_text = true}};
        const tutti_csv_options_t options = {.path = "fuzz",
                                             .data = tutti_bytes_of(data, bytes),
                                             .fields = fields,
                                             .field_count = 3,
                                             .no_header = i == 1};
        try_options(&options);
    }
    return 0;
}
