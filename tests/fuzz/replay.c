/* The fuzz targets without a fuzzer: feeds every file of a corpus, each of its prefixes, and each
 * of its bytes changed in a few ways, so that `make check` meets malformed input with any compiler.
 *
 * Cost: about 5 × the bytes of the corpus in calls; a long file is cut to CHANGES_MAX places.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FILE_BYTES_MAX = 1 << 20, CHANGES_MAX = 4096, PATH_BYTES = 4096 };

/* An exact copy, so that AddressSanitizer sees a read behind the end. */
static void feed(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void feed_changed(uint8_t *data, size_t bytes)
{
    static const uint8_t masks[] = {0x01, 0x20, 0x80, 0xff};
    const size_t stride = bytes / CHANGES_MAX + 1;
    feed(data, bytes);
    for (size_t i = 0; i < bytes; i += stride) {
        feed(data, i);
        for (size_t m = 0; m < sizeof masks; m++) {
            data[i] ^= masks[m];
            feed(data, bytes);
            data[i] ^= masks[m];
        }
    }
}

static int replay_file(const char *path)
{
    static uint8_t data[FILE_BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    const size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    feed_changed(data, bytes);
    return 0;
}

static int replay_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        perror(folder);
        return -1;
    }
    int files = 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && replay_file(path) == 0) {
            files++;
        }
    }
    closedir(entries);
    printf("replayed %d files of %s\n", files, folder);
    return files;
}

int main(int argc, char **argv)
{
    if (argc != 2 || replay_folder(argv[1]) <= 0) {
        fprintf(stderr, "usage: %s CORPUS, a folder with at least one file\n", argv[0]);
        return 1;
    }
    return 0;
}
