/* Names and sizes of dtypes. */
#include "core/base/testing.h"

#include <tutti/dtype.h>

#include "core/base/dtype_names.h"

static void sizes_are_those_of_the_c_types(void **state)
{
    (void)state;
    assert_int_equal(tutti_dtype_bytes(TUTTI_F32), sizeof(float));
    assert_int_equal(tutti_dtype_bytes(TUTTI_F64), sizeof(double));
    assert_int_equal(tutti_dtype_bytes(TUTTI_BF16), 2);
    assert_int_equal(tutti_dtype_bytes(TUTTI_F16), 2);
    assert_int_equal(tutti_dtype_bytes(TUTTI_I64), sizeof(int64_t));
    assert_int_equal(tutti_dtype_bytes(TUTTI_I32), sizeof(int32_t));
    assert_int_equal(tutti_dtype_bytes(TUTTI_I8), 1);
    assert_int_equal(tutti_dtype_bytes(TUTTI_U8), 1);
    assert_int_equal(tutti_dtype_bytes(TUTTI_BOOL), 1);
}

static void names_are_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        const tutti_dtype_t dtype = (tutti_dtype_t)i;
        tutti_dtype_t found = TUTTI_DTYPE_COUNT;
        assert_int_equal(tutti_dtype_parse(tutti_dtype_name(dtype), &found), TUTTI_OK);
        assert_int_equal(found, dtype);
        found = TUTTI_DTYPE_COUNT;
        const char *name = tt_dtype_safetensors_name(dtype);
        assert_int_equal(tt_dtype_parse_safetensors(name, &found), TUTTI_OK);
        assert_int_equal(found, dtype);
    }
}

static void floats_are_told_from_the_others(void **state)
{
    (void)state;
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        const bool is_float = strchr(tutti_dtype_name((tutti_dtype_t)i), 'f') != NULL;
        assert_int_equal(tutti_dtype_is_float((tutti_dtype_t)i), is_float);
    }
}

static void an_unknown_name_is_refused_with_the_known_ones(void **state)
{
    (void)state;
    tutti_dtype_t found = TUTTI_I8;
    assert_int_equal(tutti_dtype_parse("float", &found), TUTTI_ERR_ARG);
    tt_expect_error("unknown dtype \"float\"");
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        tt_expect_error(tutti_dtype_name((tutti_dtype_t)i));
    }
    assert_int_equal(tt_dtype_parse_safetensors("f32", &found), TUTTI_ERR_ARG);
    assert_int_equal(found, TUTTI_I8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_c_types),
        cmocka_unit_test(names_are_read_back),
        cmocka_unit_test(floats_are_told_from_the_others),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
