/* Which tensor of a source a tensor here is: by rules that rename, and patterns that choose. */
#ifndef TT_LOAD_NAMES_H
#define TT_LOAD_NAMES_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/manifest.h"

/* Errors: ARG names the rule or pattern. */
tutti_status_t tt_load_options_check(const tutti_load_options_t *options);

/* Whether include and exclude choose a name. */
bool tt_load_takes(const tutti_load_options_t *options, const char *name);

/* In front of the names of an optimizer's state: "optim.<parameter>.<moment>". */
#define TT_OPTIM_PREFIX "optim."
#define TT_AVERAGED_PREFIX "averaged."

/* What a rule calls a name there, into `stored`; false: it says nothing of it, or there is no room.
 * An optimizer's state goes by its parameter's name, but where the rule itself is of such names. */
bool tt_load_rename(const tutti_load_rule_t *rule, const char *name, char *stored, size_t bytes);

/* Whether a rule transposes a tensor of a source: of an optimizer's state not the count of steps.
 */
bool tt_load_transposes(const tutti_load_rule_t *rule, const tt_saved_tensor_t *saved);

/* A tensor of the source that is one here. */
typedef struct {
    const tt_saved_tensor_t *saved; /* NULL: there is none */
    bool is_transposed;
} tt_fit_t;

/* By the first rule that leads to a tensor of the manifest which is not excluded; else by its own
 * name. */
tt_fit_t tt_load_find(const tutti_load_options_t *options, const tt_manifest_t *manifest,
                      const char *name);

#endif
