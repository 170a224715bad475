/* A module as text: a line for each, with the parameters in it and below it, and the bytes of these
 * and of the buffers. Source: torchinfo. */
#include <tutti/nn.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compute/nn/module_impl.h"

typedef struct {
    char *text;
    size_t bytes, length; /* of the whole text, also of what has no room */
} page_t;

static tutti_status_t add_bytes(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(uint64_t *)user += tutti_tensor_bytes(x);
    return TUTTI_OK;
}

static tutti_status_t add_line(void *user, const char *name, tutti_module_t *m)
{
    page_t *page = user;
    uint64_t bytes = 0;
    TT_TRY(tutti_module_each_parameter(m, add_bytes, &bytes));
    TT_TRY(tutti_module_each_buffer(m, add_bytes, &bytes));
    const char *dot = strrchr(name, '.');
    int depth = name[0] == 0 ? 0 : 1;
    for (const char *p = name; *p != 0; p++) {
        depth += *p == '.';
    }
    char title[128];
    snprintf(title, sizeof title, "%*s%s%s%s", 2 * depth, "", dot == NULL ? name : dot + 1,
             name[0] == 0 ? "" : ": ", m->ops->name);
    const size_t used = page->length < page->bytes ? page->length : page->bytes;
    const int n = snprintf(page->text == NULL ? NULL : page->text + used, page->bytes - used,
                           "%-40s %16" PRId64 " parameters %18" PRIu64 " bytes\n", title,
                           tutti_module_numel(m), bytes);
    page->length += (size_t)n;
    return TUTTI_OK;
}

size_t tutti_module_describe(tutti_module_t *m, char *text, size_t bytes)
{
    page_t page = {text, bytes, 0};
    return tutti_module_apply(m, add_line, &page) < 0 ? 0 : page.length;
}
