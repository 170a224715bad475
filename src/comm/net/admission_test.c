/* Connections that come in: what their network says of them. */
#include "core/base/testing.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/net/admission.h"

/* The C library's, which hands a connection's failure on when that is wanted. */
static int failure, failures;

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict bytes, int flags)
{
    if (failures > 0) {
        failures--;
        errno = failure;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, address.__sockaddr__, bytes, flags);
}

static int call(const tt_admission_t *admission)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &admission->where.any, sizeof admission->where.four), 0);
    return fd;
}

/* A silent caller is there, and another one comes behind one that failed. */
static void admit_behind(int code)
{
    tt_admission_t admission = {.name = "test", .first_bytes = 4, .most = 8};
    tt_channel_t *channel;
    char first[TT_FIRST_BYTES_MAX];
    assert_int_equal(tt_credentials_create(NULL, 0, TT_PROTECT_OFF, &admission.credentials),
                     TUTTI_OK);
    assert_int_equal(tt_admission_open(&admission, "127.0.0.1", 0), TUTTI_OK);
    const int silent = call(&admission);
    assert_int_equal(tt_admission_next(&admission, first, &channel), TUTTI_PENDING);
    assert_int_equal(admission.count, 1);

    const int next = call(&admission);
    failure = code;
    failures = 1;
    assert_int_equal(tt_admission_next(&admission, first, &channel), TUTTI_PENDING);
    assert_int_equal(failures, 0);
    assert_int_equal(admission.count, 2); /* nobody made room */
    assert_int_equal(admission.strangers, 0);
    assert_false(admission.is_resting);
    assert_false(admission.has_warned);
    close(silent);
    close(next);
    tt_admission_close(&admission);
    tt_credentials_release(admission.credentials);
}

static void a_connection_that_failed_costs_no_other(void **state)
{
    (void)state;
    const int codes[] = {ECONNABORTED, ENETDOWN,   EPROTO,       ENOPROTOOPT, EHOSTDOWN,
                         ENONET,       EOPNOTSUPP, EHOSTUNREACH, ENETUNREACH, EPERM};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        admit_behind(codes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_that_failed_costs_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
