/* tutti checkpoint merge, split and convert: which tensors are written, and as what dtype. */
#include <string.h>

#include "cli/checkpoint_parts.h"

enum { PATTERNS_MAX = 64, LIST_BYTES = 4096 };

static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64};
const char *const tt_checkpoint_dtypes[] = {"keep", "f32", "bf16", "f16", "f64", NULL};

typedef struct {
    char text[LIST_BYTES];
    const char *items[PATTERNS_MAX];
    size_t count;
} patterns_t;

/* "a,b" into two; false: one is empty, or there are too many. */
static bool split_list(const char *list, patterns_t *out)
{
    out->count = 0;
    if (list == NULL) {
        return true;
    }
    if (strlen(list) >= sizeof out->text) {
        return false;
    }
    memcpy(out->text, list, strlen(list) + 1);
    for (char *item = out->text; item != NULL;) {
        char *comma = strchr(item, ',');
        if (comma != NULL) {
            *comma++ = 0;
        }
        if (*item == 0 || out->count == PATTERNS_MAX) {
            return false;
        }
        out->items[out->count++] = item;
        item = comma;
    }
    return true;
}

static tutti_status_t choose(tutti_saved_t *saved, const tt_checkpoint_choice_t *choice)
{
    patterns_t include, exclude;
    (void)split_list(choice->include, &include);
    (void)split_list(choice->exclude, &exclude);
    return tutti_saved_select(saved, include.items, include.count, exclude.items, exclude.count);
}

tutti_status_t tt_checkpoint_choose(tutti_saved_t *saved, const tt_checkpoint_choice_t *choice)
{
    if (choice->include != NULL || choice->exclude != NULL) {
        TUTTI_CHECK(choose(saved, choice));
    }
    return choice->dtype == 0 ? TUTTI_OK : tutti_saved_cast(saved, dtypes[choice->dtype - 1]);
}

int tt_checkpoint_check_choice(const char *verb, const tt_checkpoint_choice_t *choice)
{
    patterns_t patterns;
    const bool is_include = !split_list(choice->include, &patterns);
    if (!is_include && split_list(choice->exclude, &patterns)) {
        return -1;
    }
    char name[32];
    snprintf(name, sizeof name, "checkpoint %s", verb);
    return tt_cli_refuse(name, is_include ? "include" : "exclude",
                         is_include ? choice->include : choice->exclude,
                         "up to 64 patterns with commas between them, as in 'optim.*,*.bias'");
}
