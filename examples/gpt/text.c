/* A text, mapped into memory. */
#include "gpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tutti_status_t map_file(const char *path, int fd, int64_t least, text_t *text)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        fprintf(stderr, "gpt: cannot read %s: %s\n", path, strerror(errno));
        return TUTTI_ERR_IO;
    }
    if (info.st_size < least) {
        fprintf(stderr,
                "gpt: %s has %lld bytes, this --context needs %lld: choose a shorter one, or a "
                "longer text\n",
                path, (long long)info.st_size, (long long)least);
        return TUTTI_ERR_ARG;
    }
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        fprintf(stderr, "gpt: cannot map %s: %s\n", path, strerror(errno));
        return TUTTI_ERR_IO;
    }
    *text = (text_t){bytes, info.st_size};
    return TUTTI_OK;
}

tutti_status_t text_open(const char *path, int64_t least, text_t *text)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "gpt: cannot open %s: %s\n", path, strerror(errno));
        return TUTTI_ERR_IO;
    }
    const tutti_status_t status = map_file(path, fd, least, text);
    close(fd);
    return status;
}

void text_close(text_t *text)
{
    const union {
        const uint8_t *bytes;
        void *mapping;
    } as = {.bytes = text->bytes};
    munmap(as.mapping, (size_t)text->count);
}
