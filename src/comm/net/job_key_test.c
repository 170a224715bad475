/* Keys: files that are private, files that are not, descriptors, epochs. */
#include "comm/net/job_key_test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char folder[32], path[64];
} place_t;

static place_t make_place(void)
{
    place_t place = {.folder = "/tmp/tutti_key_XXXXXX"};
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.path, sizeof place.path, "%s/key", place.folder);
    return place;
}

static void remove_place(const place_t *place)
{
    unlink(place->path);
    rmdir(place->folder);
}

static void write_text(const char *path, const char *text, size_t bytes, mode_t mode)
{
    unlink(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void a_key_outlives_a_file_and_a_descriptor(void **state)
{
    (void)state;
    const place_t place = make_place();
    tt_job_key_t key, again;
    int fd;
    assert_int_equal(tt_job_key_make(&key), TUTTI_OK);
    assert_int_equal(tt_job_key_make(&again), TUTTI_OK);
    assert_memory_not_equal(&key, &again, sizeof key);
    assert_int_equal(tt_job_key_write_file(place.path, &key), TUTTI_OK);
    assert_int_equal(tt_job_key_read_file(place.path, &again), TUTTI_OK);
    assert_memory_equal(&key, &again, sizeof key);
    assert_int_equal(tt_job_key_write_file(place.path, &key), TUTTI_ERR_IO); /* never over one */
    assert_int_equal(tt_job_key_to_fd(&key, &fd), TUTTI_OK);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    remove_place(&place);
}

static void both_notations_are_read(void **state)
{
    (void)state;
    const place_t place = make_place();
    const char *const hex = "00112233445566778899aAbBcCdDeEfF00112233445566778899aabbccddeeff\n";
    tt_job_key_t key;
    write_text(place.path, hex, 65, 0600);
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_OK);
    assert_int_equal(key.bytes[15], 0xff);
    write_text(place.path, hex, 64, 0400);
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_OK);
    assert_int_equal(key.bytes[17], 0x11);
    write_text(place.path, hex, 32, 0600);
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_OK);
    assert_memory_equal(key.bytes, hex, 32);
    const size_t bad[] = {0, 1, 31, 33, 63};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(place.path, hex, bad[i], 0600);
        assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_FORMAT);
        tt_expect_error(place.path);
    }
    char wrong[65];
    snprintf(wrong, sizeof wrong, "%.64s", hex);
    wrong[40] = 'g';
    write_text(place.path, wrong, 64, 0600);
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_FORMAT);
    assert_null(strstr(tutti_last_error(), "0011")); /* no part of a key in a text */
    remove_place(&place);
}

static void what_others_could_read_is_refused(void **state)
{
    (void)state;
    const place_t place = make_place();
    tt_job_key_t key;
    char text[64];
    memset(text, '7', sizeof text);
    const mode_t modes[] = {0640, 0604, 0660, 0644, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        write_text(place.path, text, sizeof text, modes[i]);
        assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_AUTH);
        tt_expect_error("chmod 600");
    }
    assert_int_equal(tt_job_key_read_file(place.folder, &key), TUTTI_ERR_AUTH);
    unlink(place.path);
    assert_int_equal(mkfifo(place.path, 0600), 0); /* does not wait for a writer */
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_AUTH);
    unlink(place.path);
    assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_IO);
    if (geteuid() == 0) { /* somebody else's */
        write_text(place.path, text, sizeof text, 0600);
        assert_int_equal(chown(place.path, 65534, 65534), 0);
        assert_int_equal(tt_job_key_read_file(place.path, &key), TUTTI_ERR_AUTH);
    }
    remove_place(&place);
}

static void the_settings_name_a_key(void **state)
{
    (void)state;
    const place_t place = make_place();
    tt_job_key_t key, again;
    bool found = true;
    assert_int_equal(tt_job_key_find(&key, &found), TUTTI_OK);
    assert_false(found);
    assert_int_equal(tt_job_key_make(&key), TUTTI_OK);
    assert_int_equal(tt_job_key_write_file(place.path, &key), TUTTI_OK);
    setenv("TUTTI_KEY_FILE", place.path, 1);
    assert_int_equal(tt_job_key_find(&again, &found), TUTTI_OK);
    assert_true(found);
    assert_memory_equal(&key, &again, sizeof key);
    tt_take_key(state); /* the launcher's descriptor comes first */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_job_key_find(&again, &found), TUTTI_OK);
        assert_memory_not_equal(&key, &again, sizeof key);
    }
    setenv("TUTTI_KEY_FD", "999", 1);
    assert_int_equal(tt_job_key_find(&again, &found), TUTTI_ERR_IO);
    setenv("TUTTI_KEY_FD", "x", 1);
    assert_int_equal(tt_job_key_find(&again, &found), TUTTI_ERR_ARG);
    unsetenv("TUTTI_KEY_FD");
    unsetenv("TUTTI_KEY_FILE");
    remove_place(&place);
}

/* The last value is from another implementation: Python's hmac, by RFC 5869 without a salt. */
static void each_epoch_has_a_key_of_its_own(void **state)
{
    (void)state;
    tt_job_key_t job, first, second;
    for (int i = 0; i < TT_JOB_KEY_BYTES; i++) {
        job.bytes[i] = (unsigned char)i;
    }
    assert_int_equal(tt_job_key_of_epoch(&job, 0, &first), TUTTI_OK);
    assert_int_equal(tt_job_key_of_epoch(&job, 258, &second), TUTTI_OK);
    assert_memory_not_equal(&first, &second, sizeof first);
    assert_memory_not_equal(&first, &job, sizeof first);
    const unsigned char want[] = {0x2d, 0x60, 0x41, 0x3d, 0x68, 0xbb, 0x59, 0x63, 0xd8, 0x77, 0x96,
                                  0x16, 0x58, 0x36, 0xc1, 0x68, 0x01, 0x69, 0xc6, 0x2e, 0x7c, 0x13,
                                  0x7d, 0x93, 0xcc, 0x54, 0x3d, 0x30, 0x10, 0x83, 0xaa, 0xa0};
    assert_memory_equal(second.bytes, want, sizeof want);
}

/* As above, from Python's hmac. */
static void each_attempt_has_a_key_that_is_no_epochs(void **state)
{
    (void)state;
    tt_job_key_t job, again;
    for (int i = 0; i < TT_JOB_KEY_BYTES; i++) {
        job.bytes[i] = (unsigned char)i;
    }
    assert_int_equal(tt_job_key_of_attempt(&job, 258, &again), TUTTI_OK);
    const unsigned char want[] = {0x5a, 0xc6, 0xbe, 0x2f, 0xbd, 0x0d, 0xa4, 0xbe, 0x3f, 0x34, 0xea,
                                  0xf9, 0x91, 0xa1, 0x1c, 0xeb, 0xbe, 0xe4, 0x0b, 0xe9, 0x4a, 0x4e,
                                  0x38, 0x04, 0x18, 0xf5, 0x40, 0xa5, 0x50, 0x11, 0x92, 0xe5};
    assert_memory_equal(again.bytes, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_outlives_a_file_and_a_descriptor),
        cmocka_unit_test(both_notations_are_read),
        cmocka_unit_test(what_others_could_read_is_refused),
        cmocka_unit_test(the_settings_name_a_key),
        cmocka_unit_test(each_epoch_has_a_key_of_its_own),
        cmocka_unit_test(each_attempt_has_a_key_that_is_no_epochs),
    };
    unsetenv("TUTTI_KEY_FD");
    unsetenv("TUTTI_KEY_FILE");
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
