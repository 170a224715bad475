/* The key that `tutti run` makes when the user has none: 32 random bytes in sealed memory, handed
 * to the ranks as a descriptor (TUTTI_KEY_FD), so that it is in no command line, no environment and
 * no file. On several hosts the user hands the key around, as a file. When the ranks are started
 * again, they get a key that is made from the job's and the number of the attempt.
 */
#include "runtime/elastic/launch_key.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "core/base/config.h"

/* The ranks inherit the descriptor; it may be read again and again. */
static tutti_status_t hand_over(const tt_job_key_t *key, int *fd)
{
    TT_TRY(tt_job_key_to_fd(key, fd));
    if (fcntl(*fd, F_SETFD, 0) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "the job's key");
    }
    return TUTTI_OK;
}

tutti_status_t tutti_key_create(const char *path)
{
    tt_job_key_t key;
    TT_TRY(tt_job_key_make(&key));
    const tutti_status_t status = tt_job_key_write_file(path, &key);
    explicit_bzero(&key, sizeof key);
    return status;
}

tutti_status_t tt_launch_key_find(tt_launch_key_t *out)
{
    *out = (tt_launch_key_t){.has_key = strcmp(tt_config_text(TT_CONFIG_PROTECT), "off") != 0};
    if (!out->has_key) {
        return TUTTI_OK;
    }
    TT_TRY(tt_job_key_find(&out->key, &out->is_given));
    return out->is_given ? TUTTI_OK : tt_job_key_make(&out->key);
}

tutti_status_t tt_launch_key_open(const tt_launch_key_t *key, int attempt, const char *address,
                                  int *fd, tt_credentials_t **out)
{
    tt_job_key_t own = key->key;
    tutti_status_t status = TUTTI_OK;
    *fd = -1;
    if (!key->has_key) {
        return tt_credentials_choose(NULL, address, 0, out);
    }
    if (attempt > 0) {
        status = tt_job_key_of_attempt(&key->key, (uint32_t)attempt, &own);
    }
    if (status >= 0 && (attempt > 0 || !key->is_given)) {
        status = hand_over(&own, fd);
    }
    if (status >= 0) {
        status = tt_credentials_choose(&own, address, 0, out);
    }
    explicit_bzero(&own, sizeof own);
    if (status < 0 && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}
