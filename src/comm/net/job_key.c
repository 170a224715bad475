/* Making, keeping, handing over and deriving keys. */
#include "comm/net/job_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "core/base/config.h"

enum { HEX_BYTES = 2 * TT_JOB_KEY_BYTES };

tutti_status_t tt_job_key_make(tt_job_key_t *out)
{
    if (getrandom(out->bytes, sizeof out->bytes, 0) != (ssize_t)sizeof out->bytes) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    return TUTTI_OK;
}

tutti_status_t tt_job_key_parse(char *text, ssize_t bytes, const char *name, tt_job_key_t *out)
{
    if (bytes == TT_JOB_KEY_BYTES) {
        memcpy(out->bytes, text, TT_JOB_KEY_BYTES);
        return TUTTI_OK;
    }
    size_t count = 0;
    if (bytes == HEX_BYTES || (bytes == HEX_BYTES + 1 && text[HEX_BYTES] == '\n')) {
        text[HEX_BYTES] = 0;
        (void)OPENSSL_hexstr2buf_ex(out->bytes, sizeof out->bytes, &count, text, 0);
        ERR_clear_error();
    }
    return count == TT_JOB_KEY_BYTES
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "key %s: want 64 hexadecimal digits or 32 bytes; `tutti key` makes one",
                         name);
}

/* From its beginning, so that it can be read again. */
static tutti_status_t read_fd(int fd, const char *name, tt_job_key_t *out)
{
    char text[HEX_BYTES + 8];
    const ssize_t bytes = pread(fd, text, sizeof text, 0);
    if (bytes < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "key %s", name);
    }
    const tutti_status_t status = tt_job_key_parse(text, bytes, name, out);
    explicit_bzero(text, sizeof text);
    return status;
}

static tutti_status_t check_private(int fd, const char *path)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "key file %s", path);
    }
    if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
        return TT_FAIL(TUTTI_ERR_AUTH,
                       "key file %s must be a regular file of this user that nobody else can read "
                       "(it has mode %03o and user %u): chmod 600",
                       path, (unsigned)(about.st_mode & 0777), (unsigned)about.st_uid);
    }
    return TUTTI_OK;
}

tutti_status_t tt_job_key_read_file(const char *path, tt_job_key_t *out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "key file %s", path);
    }
    tutti_status_t status = check_private(fd, path);
    if (status >= 0) {
        status = read_fd(fd, path, out);
    }
    close(fd);
    return status;
}

tutti_status_t tt_job_key_find(tt_job_key_t *out, bool *found)
{
    *found = true;
    if (tt_config_is_set(TT_CONFIG_KEY_FD)) {
        int64_t fd;
        TT_TRY(tt_config_int(TT_CONFIG_KEY_FD, 0, INT32_MAX, &fd));
        return read_fd((int)fd, "of TUTTI_KEY_FD", out);
    }
    if (tt_config_is_set(TT_CONFIG_KEY_FILE)) {
        return tt_job_key_read_file(tt_config_text(TT_CONFIG_KEY_FILE), out);
    }
    *found = false;
    return TUTTI_OK;
}

void tt_job_key_print(const tt_job_key_t *key, char text[TT_JOB_KEY_TEXT_BYTES])
{
    for (int i = 0; i < TT_JOB_KEY_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    }
}

tutti_status_t tt_job_key_write_file(const char *path, const tt_job_key_t *key)
{
    char text[HEX_BYTES + 2];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "key file %s", path);
    }
    tt_job_key_print(key, text);
    text[HEX_BYTES] = '\n';
    const bool is_written = write(fd, text, HEX_BYTES + 1) == HEX_BYTES + 1;
    explicit_bzero(text, sizeof text);
    const tutti_status_t status =
        is_written ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "key file %s", path);
    close(fd);
    if (status < 0) {
        unlink(path);
    }
    return status;
}

tutti_status_t tt_job_key_to_fd(const tt_job_key_t *key, int *out)
{
    const int fd = memfd_create("tutti-key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "memory for the job's key");
    }
    if (write(fd, key->bytes, sizeof key->bytes) != (ssize_t)sizeof key->bytes ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        const tutti_status_t status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "memory for the job's key");
        close(fd);
        return status;
    }
    *out = fd;
    return TUTTI_OK;
}

/* label has 14 characters. */
static tutti_status_t derive(const tt_job_key_t *key, const char *label, uint32_t number,
                             tt_job_key_t *out)
{
    unsigned char info[18];
    memcpy(info, label, 14);
    for (int i = 0; i < 4; i++) {
        info[14 + i] = (unsigned char)(number >> 8 * i);
    }
    tt_job_key_t copy = *key;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, copy.bytes, sizeof copy.bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, sizeof info),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    const bool is_derived =
        context != NULL && EVP_KDF_derive(context, out->bytes, sizeof out->bytes, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    explicit_bzero(&copy, sizeof copy);
    return is_derived ? TUTTI_OK : TT_FAIL(TUTTI_ERR_IO, "OpenSSL cannot derive a key (HKDF)");
}

tutti_status_t tt_job_key_of_epoch(const tt_job_key_t *key, uint32_t epoch, tt_job_key_t *out)
{
    return derive(key, "tutti v1 epoch", epoch, out);
}

tutti_status_t tt_job_key_of_attempt(const tt_job_key_t *key, uint32_t attempt, tt_job_key_t *out)
{
    return derive(key, "tutti v1 again", attempt, out);
}
