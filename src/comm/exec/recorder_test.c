/* The ring of records: order, wrapping, what becomes of a record, reading beside the writer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include <tutti/dtype.h>

#include "comm/exec/call_text.h"
#include "comm/exec/recorder.h"
#include "comm/plan/plan.h"
#include "core/base/testing.h"

static uint64_t note_call(tt_records_t *records, uint64_t sequence)
{
    return tt_record_start(records, sequence, sequence * 3, sequence * 5, NULL,
                           tt_record_what(TT_RECORD_CALL, 4, 5, 6, -7));
}

static void a_record_is_read_as_it_was_written(void **state)
{
    (void)state;
    static tt_records_t records;
    tt_record_t record;
    assert_int_equal(tt_records_last_call(&records).number, 0);
    assert_false(tt_records_at(&records, 0, &record));
    assert_false(tt_records_at(&records, 1, &record));
    assert_int_equal(note_call(&records, 812), 1);
    assert_true(tt_records_at(&records, 1, &record));
    assert_int_equal(record.sequence, 812);
    assert_int_equal(record.count, 812 * 3);
    assert_int_equal(record.tag, 812 * 5);
    assert_int_equal(record.collective, 4);
    assert_int_equal(record.dtype, 5);
    assert_int_equal(record.reduction, 6);
    assert_int_equal(record.root, -7);
    assert_int_equal(record.kind, TT_RECORD_CALL);
    assert_int_equal(record.state, TT_RECORD_STARTED);
    assert_int_equal(record.round, -1);
    tt_record_progress(&records, 1, TT_RECORD_RUNNING, 2);
    assert_true(tt_records_at(&records, 1, &record));
    assert_int_equal(record.state, TT_RECORD_RUNNING);
    assert_int_equal(record.round, 2);
}

static void the_ring_keeps_the_last_ones(void **state)
{
    (void)state;
    static tt_records_t records;
    tt_record_t record;
    for (uint64_t i = 1; i <= 3 * TT_RECORDS + 5; i++) {
        assert_int_equal(note_call(&records, i), i);
    }
    const uint64_t newest = 3 * TT_RECORDS + 5;
    assert_false(tt_records_at(&records, newest - TT_RECORDS, &record));
    for (uint64_t i = newest - TT_RECORDS + 1; i <= newest; i++) {
        assert_true(tt_records_at(&records, i, &record));
        assert_int_equal(record.sequence, i);
    }
    tt_record_progress(&records, 5, TT_RECORD_FAILED, -1); /* written over long ago */
    assert_true(tt_records_at(&records, newest, &record));
    assert_int_equal(record.state, TT_RECORD_STARTED);
}

static void the_last_call_is_found_behind_messages(void **state)
{
    (void)state;
    static tt_records_t records;
    note_call(&records, 7);
    for (int i = 0; i < TT_RECORDS - 1; i++) {
        tt_record_start(&records, 0, 1, 2, NULL, tt_record_what(TT_RECORD_SEND, 0, 0, 0, 1));
    }
    assert_int_equal(tt_records_last_call(&records).sequence, 7);
    tt_record_start(&records, 0, 1, 2, NULL, tt_record_what(TT_RECORD_RECV, 0, 0, 0, 1));
    assert_int_equal(tt_records_last_call(&records).number, 0);
}

static void *write_many(void *records)
{
    for (uint64_t i = 1; i <= 200000; i++) {
        tt_record_progress(records, note_call(records, i), TT_RECORD_DONE, -1);
    }
    return NULL;
}

static void a_reader_never_sees_half_a_record(void **state)
{
    (void)state;
    static tt_records_t records;
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_many, &records), 0);
    uint64_t last = 0, bad = 0;
    while (last < 200000 && bad == 0) {
        const tt_record_t record = tt_records_last_call(&records);
        bad += record.count != record.sequence * 3 || record.tag != record.sequence * 5 ||
               record.sequence != record.number;
        last = atomic_load(&records.count);
    }
    pthread_join(writer, NULL);
    assert_int_equal(bad, 0);
}

/* What another rank wrote becomes a name if it is one. */
static void numbers_of_other_ranks_become_names(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        assert_string_equal(tt_dtype_text(dtype), tutti_dtype_name((tutti_dtype_t)dtype));
    }
    assert_string_equal(tt_dtype_text(-1), "?");
    assert_string_equal(tt_dtype_text(TUTTI_DTYPE_COUNT), "?");
    for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
        assert_string_equal(tt_collective_text(c), tt_collective_name((tt_collective_t)c));
    }
    assert_string_equal(tt_collective_text(-1), "?");
    assert_string_equal(tt_collective_text(TT_COLLECTIVE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_read_as_it_was_written),
        cmocka_unit_test(the_ring_keeps_the_last_ones),
        cmocka_unit_test(the_last_call_is_found_behind_messages),
        cmocka_unit_test(a_reader_never_sees_half_a_record),
        cmocka_unit_test(numbers_of_other_ranks_become_names),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
