/* The environment of a rank: ours, with torchrun's variables over it, and the user's over those.
 *
 * One block: the pointers, then the texts that are new; what is inherited is pointed to.
 */
#include "runtime/elastic/launch_environment.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/reals.h"

enum { SETTINGS_MAX = 24, SETTING_BYTES = 192 };

typedef struct {
    char text[SETTINGS_MAX][SETTING_BYTES]; /* NAME=value */
    int count;
} settings_t;

__attribute__((format(printf, 2, 3))) static void set(settings_t *settings, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    TT_ASSERT(settings->count < SETTINGS_MAX);
    tt_format_list(settings->text[settings->count++], SETTING_BYTES, format, args);
    va_end(args);
}

static void set_all(settings_t *settings, const tt_rank_facts_t *facts)
{
    set(settings, "RANK=%d", facts->rank);
    set(settings, "WORLD_SIZE=%d", facts->world_size);
    set(settings, "ROLE_RANK=%d", facts->rank);
    set(settings, "ROLE_WORLD_SIZE=%d", facts->world_size);
    set(settings, "LOCAL_RANK=%d", facts->local_rank);
    set(settings, "LOCAL_WORLD_SIZE=%d", facts->local_count);
    set(settings, "GROUP_RANK=%d", facts->node_rank);
    set(settings, "GROUP_WORLD_SIZE=%d", facts->node_count);
    set(settings, "ROLE_NAME=default");
    set(settings, "MASTER_ADDR=%s", facts->master_host);
    set(settings, "MASTER_PORT=%d", facts->master_port);
    set(settings, "TORCHELASTIC_RESTART_COUNT=%d", facts->attempt);
    set(settings, "TORCHELASTIC_MAX_RESTARTS=%d", facts->max_restarts);
    set(settings, "TORCHELASTIC_RUN_ID=%s", facts->run_id);
    set(settings, "TUTTI_AGENT_STORE=1");
    set(settings, "TUTTI_JOB_BEGIN=%lld", (long long)facts->begin_s);
    set(settings, "TUTTI_TERMINAL=%d", facts->is_watched);
    if (facts->key_fd >= 0) {
        set(settings, "TUTTI_KEY_FD=%d", facts->key_fd);
    }
    if (!tt_config_is_set(TT_CONFIG_THREADS)) {
        set(settings, "TUTTI_THREADS=%d", facts->cores);
    }
}

static bool has_same_name(const char *variable, const char *other)
{
    const char *equals = strchr(other, '=');
    return equals != NULL && strncmp(variable, other, (size_t)(equals - other) + 1) == 0;
}

static size_t count_texts(const char *const *list)
{
    size_t count = 0;
    while (list != NULL && list[count] != NULL) {
        count++;
    }
    return count;
}

static bool is_in_list(const char *const *list, const char *variable)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        if (has_same_name(variable, list[i])) {
            return true;
        }
    }
    return false;
}

static bool is_overridden(const settings_t *settings, const char *variable)
{
    for (int i = 0; i < settings->count; i++) {
        if (has_same_name(variable, settings->text[i])) {
            return true;
        }
    }
    return false;
}

tutti_status_t tt_environment_create(const tt_rank_facts_t *facts, char ***out)
{
    const size_t inherited = count_texts((const char *const *)environ);
    const size_t more = count_texts(facts->more);
    const size_t pointers = (inherited + SETTINGS_MAX + more + 1) * sizeof(char *);
    char **list = tt_alloc(pointers + sizeof(settings_t), "environment");
    TT_TRY_ALLOC(list);
    settings_t *settings = (settings_t *)(void *)((char *)list + pointers);
    set_all(settings, facts);
    size_t count = 0;
    for (size_t i = 0; i < inherited; i++) {
        if (!is_overridden(settings, environ[i]) && !is_in_list(facts->more, environ[i])) {
            list[count++] = environ[i];
        }
    }
    for (int i = 0; i < settings->count; i++) {
        if (!is_in_list(facts->more, settings->text[i])) {
            list[count++] = settings->text[i];
        }
    }
    for (size_t i = 0; i < more; i++) {
        list[count++] = (char *)(uintptr_t)facts->more[i];
    }
    *out = list;
    return TUTTI_OK;
}

tutti_status_t tt_environment_with(const char *const *more, char ***out)
{
    const size_t inherited = count_texts((const char *const *)environ), added = count_texts(more);
    char **list = tt_alloc_array(inherited + added + 1, sizeof *list, "environment");
    TT_TRY_ALLOC(list);
    size_t count = 0;
    for (size_t i = 0; i < inherited; i++) {
        if (!is_in_list(more, environ[i])) {
            list[count++] = environ[i];
        }
    }
    for (size_t i = 0; i < added; i++) {
        list[count++] = (char *)(uintptr_t)more[i];
    }
    *out = list;
    return TUTTI_OK;
}
