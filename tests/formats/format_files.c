/* Writes the files that store_format_test.py and loader_format_test.py read, and reads theirs:
 *
 *     format_files store FILE          calls that change a file's store, in a fixed order
 *     format_files read FILE KEY       the value of a key of a file's store
 *     format_files loader STEPS        the state of a loader after so many steps of its epochs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SAMPLES = 100, BATCH = 8, SHARDS = 1, READ_MS = 1000 };

static tutti_status_t write_store(tutti_store_t *store)
{
    tutti_buffer_t now = {0};
    bool existed;
    TUTTI_CHECK(tutti_store_set(store, tutti_text("name"), tutti_text("tutti")));
    TUTTI_CHECK(tutti_store_add(store, tutti_text("count"), 41, NULL));
    TUTTI_CHECK(tutti_store_add(store, tutti_text("count"), -43, NULL));
    TUTTI_CHECK(tutti_store_compare_set(store, tutti_text("name"), tutti_text("tutti"),
                                        tutti_text("other"), &now));
    tutti_buffer_release(&now);
    TUTTI_CHECK(tutti_store_append(store, tutti_text("name"), tutti_text(" end")));
    TUTTI_CHECK(tutti_store_set(store, tutti_text("gone"), tutti_text("")));
    TUTTI_CHECK(tutti_store_delete(store, tutti_text("gone"), &existed));
    const tutti_bytes_t keys[] = {tutti_text("a"), tutti_text("bb")};
    const tutti_bytes_t values[] = {tutti_text("1"), tutti_text("22")};
    return tutti_store_multi_set(store, keys, values, 2);
}

static tutti_status_t read_store(tutti_store_t *store, const char *key)
{
    tutti_buffer_t value;
    TUTTI_CHECK(tutti_store_get(store, tutti_text(key), READ_MS, &value));
    printf("%.*s\n", (int)value.bytes, (const char *)value.data);
    tutti_buffer_release(&value);
    return TUTTI_OK;
}

static tutti_status_t use_store(const char *path, const char *key)
{
    tutti_store_t *store;
    TUTTI_CHECK(tutti_store_file_open(path, &store));
    const tutti_status_t status = key != NULL ? read_store(store, key) : write_store(store);
    tutti_store_release(store);
    return status;
}

static tutti_status_t step(tutti_dataloader_t *loader, tutti_context_t *ctx)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    const tutti_status_t status = tutti_dataloader_next(loader, s, &batch);
    TUTTI_CHECK(tutti_scope_close(s));
    return status;
}

static tutti_status_t print_state(tutti_dataloader_t *loader, tutti_context_t *ctx, int steps)
{
    TUTTI_CHECK(tutti_dataloader_set_epoch(loader, 2));
    for (int i = 0; i < steps; i++) {
        TUTTI_CHECK(step(loader, ctx));
    }
    tutti_buffer_t state;
    TUTTI_CHECK(tutti_dataloader_save_state(loader, &state));
    fwrite(state.data, 1, state.bytes, stdout);
    tutti_buffer_release(&state);
    return TUTTI_OK;
}

static tutti_status_t use_loader(int steps)
{
    tutti_context_t *ctx;
    tutti_tensor_t *x;
    tutti_dataset_t *dataset;
    tutti_dataloader_t *loader;
    TUTTI_CHECK(tutti_context_create(NULL, &ctx));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), &x));
    TUTTI_CHECK(tutti_dataset_create(&tutti_tensor_dataset,
                                     &(tutti_tensor_data_options_t){.input = x}, &dataset));
    TUTTI_CHECK(tutti_dataloader_create(
        dataset, &(tutti_dataloader_options_t){.batch = BATCH, .shards = SHARDS}, &loader));
    const tutti_status_t status = print_state(loader, ctx, steps);
    tutti_dataloader_release(loader);
    tutti_dataset_release(dataset);
    tutti_tensor_release(x);
    tutti_context_release(ctx);
    return status;
}

int main(int argc, char **argv)
{
    tutti_status_t status = TUTTI_ERR_ARG;
    if (argc > 2 && strcmp(argv[1], "store") == 0) {
        status = use_store(argv[2], NULL);
    } else if (argc > 3 && strcmp(argv[1], "read") == 0) {
        status = use_store(argv[2], argv[3]);
    } else if (argc > 2 && strcmp(argv[1], "loader") == 0) {
        status = use_loader((int)strtol(argv[2], NULL, 10));
    }
    if (status < 0) {
        fprintf(stderr, "format_files: %s\n", tutti_last_error());
    }
    return status == TUTTI_OK ? 0 : 1;
}
