/* .npy and CSV: what is read, what is written, and what is refused with which sentence. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/data_files.h>
#include <tutti/pictures.h>

#include "compute/data/byte_sink.h"
#include "core/base/comma_testing.h"
#include "core/base/folder.h"
#include "core/tensor/scope_testing.h"

typedef struct {
    tt_fixture_t *f;
    char folder[64];
} place_t;

static int setup(void **state)
{
    static place_t place;
    void *fixture;
    snprintf(place.folder, sizeof place.folder, "/tmp/tutti-files-XXXXXX");
    assert_non_null(mkdtemp(place.folder));
    assert_int_equal(tt_fixture_open(&fixture, (tutti_context_options_t){.threads = 1}), 0);
    place.f = fixture;
    *state = &place;
    return 0;
}

static int teardown(void **state)
{
    place_t *place = *state;
    void *fixture = place->f;
    assert_int_equal(tt_folder_remove(place->folder), 0);
    return tt_fixture_close(&fixture);
}

static const char *path_of(const place_t *place, const char *name)
{
    static char paths[2][200];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", place->folder, name);
    return path;
}

/* ---- .npy ------------------------------------------------------------------------------------ */

static void arrays_are_read_as_they_were_written(void **state)
{
    const place_t *place = *state;
    const tutti_shape_t shapes[] = {TUTTI_SCALAR, TUTTI_SHAPE(5), TUTTI_SHAPE(2, 0, 3),
                                    TUTTI_SHAPE(1, 2, 1, 2, 1, 2, 1, 3)};
    const char *path = path_of(place, "x.npy");
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        for (int i = 0; i < 4 && dtype != TUTTI_BF16; i++) {
            tutti_tensor_t *x = tutti_zeros(place->f->s, (tutti_dtype_t)dtype, shapes[i]), *y;
            for (int64_t k = 0; k < tutti_tensor_numel(x); k++) {
                memset((char *)tutti_tensor_data(x) +
                           (size_t)k * tutti_dtype_bytes((tutti_dtype_t)dtype),
                       k % 2 == 1, 1);
            }
            assert_int_equal(tutti_npy_write(path, x), 0);
            assert_int_equal(tutti_npy_read(path, &y), 0);
            assert_int_equal(tutti_tensor_dtype(y), dtype);
            assert_true(tutti_shape_equal(tutti_tensor_shape(y), shapes[i]));
            assert_memory_equal(tutti_tensor_data(x), tutti_tensor_data(y), tutti_tensor_bytes(x));
            tutti_tensor_release(y);
        }
    }
    tutti_tensor_t *half = tutti_zeros(place->f->s, TUTTI_BF16, TUTTI_SHAPE(1));
    assert_int_equal(tutti_npy_write(path, half), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("NumPy has no bf16: copy it to f32 before");
    tutti_device_t *device;
    tutti_tensor_t *far;
    assert_int_equal(tutti_device_open("strict:0", NULL, &device), 0);
    assert_int_equal(tt_tensor_new(device, TUTTI_F32, TUTTI_SHAPE(2), true, &far), 0);
    assert_int_equal(tutti_npy_write(path, far), TUTTI_ERR_ARG);
    tt_expect_error("x.npy: what is written lies on strict:0: copy it to the host before");
    assert_int_equal(tutti_picture_write("x.png", far, 0), TUTTI_ERR_ARG);
    tt_expect_error("x.png: what is written lies on strict:0");
    tutti_tensor_release(far);
    tutti_device_release(device);
}

/* What numpy.save writes for np.arange(3, dtype='<i4'), byte by byte. */
static void files_are_those_of_numpy(void **state)
{
    const place_t *place = *state;
    static const char text[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
    char expected[128 + 12];
    memset(expected, ' ', sizeof expected);
    memcpy(expected, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(expected + 10, text, strlen(text));
    expected[127] = '\n';
    memcpy(expected + 128, (const int32_t[]){0, 1, 2}, 12);
    tutti_buffer_t file;
    const char *path = path_of(place, "x.npy");
    assert_int_equal(tutti_npy_write(path, tutti_arange(place->f->s, TUTTI_I32, 0, 1, 3)), 0);
    assert_int_equal(tt_file_bytes(path, "test", &file), 0);
    assert_int_equal(file.bytes, sizeof expected);
    assert_memory_equal(file.data, expected, sizeof expected);
    tt_free(file.data);
}

/* A file of a version, with a header and elements. */
static tutti_status_t parse(int version, const char *header, const void *elements, size_t bytes,
                            tutti_tensor_t **out)
{
    unsigned char file[512] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version};
    const size_t length = strlen(header), begin = version == 1 ? 10 : 12;
    file[8] = (unsigned char)length;
    memcpy(file + begin, header, length);
    memcpy(file + begin + length, elements, bytes);
    return tutti_npy_parse("x.npy", tutti_bytes_of(file, begin + length + bytes), out);
}

static void orders_of_bytes_and_indices_are_turned(void **state)
{
    static const unsigned char swapped[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    static const unsigned char numbers[] = {1, 2, 3, 4, 5, 6};
    static const char *const headers[] = {
        "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n",
        "{ \"shape\":(2L,3L,),\"fortran_order\":True, 'descr':'|u1' }   \n"};
    tutti_tensor_t *x;
    (void)state;
    for (int version = 1; version <= 3; version++) {
        assert_int_equal(parse(version, headers[version % 2], numbers, 6, &x), 0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(x), TUTTI_SHAPE(2, 3)));
        assert_memory_equal(tutti_tensor_data(x), ((unsigned char[]){1, 3, 5, 2, 4, 6}), 6);
        tutti_tensor_release(x);
    }
    assert_int_equal(
        parse(1, "{'descr': '>i4', 'fortran_order': False, 'shape': (3,)}", swapped, 12, &x), 0);
    assert_true(tutti_tensor_at(x, 0) == 65538 && tutti_tensor_at(x, 2) == 327686);
    tutti_tensor_release(x);
    assert_int_equal(
        parse(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", "\x00\x01\x02", 3, &x),
        0);
    assert_memory_equal(tutti_tensor_data(x), "\x00\x01\x01", 3);
    tutti_tensor_release(x);
}

static void malformed_arrays_say_what_was_expected(void **state)
{
    static const struct {
        const char *header;
        tutti_status_t status;
        const char *error;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", TUTTI_ERR_FORMAT,
         "truncated: expected 8 bytes from offset 65 on for f32[2], there are 4"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", TUTTI_ERR_FORMAT,
         "too long: expected 2 bytes"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", TUTTI_ERR_UNSUPPORTED,
         "Python's objects, which are code, are not loaded"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", TUTTI_ERR_UNSUPPORTED,
         "records of several fields"},
        {"{'descr': '<u4', 'fortran_order': False, 'shape': (1,)}", TUTTI_ERR_UNSUPPORTED,
         "dtype <u4: f2, f4, f8"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", TUTTI_ERR_FORMAT,
         "the header at offset 44: expected True or False"},
        {"{'descr': '<f4', 'fortran_order': False}", TUTTI_ERR_FORMAT,
         "expected 'descr', 'fortran_order' and 'shape' before the end"},
        {"{'descr': '<f4', 'descr': '<f4'}", TUTTI_ERR_FORMAT, "each once, before"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", TUTTI_ERR_FORMAT,
         "expected its end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", TUTTI_ERR_FORMAT,
         "expected a size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         TUTTI_ERR_FORMAT, "expected a size below 2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
         TUTTI_ERR_FORMAT, "more than memory can address"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         TUTTI_ERR_UNSUPPORTED, "more than 8 dimensions"},
        {"'descr'", TUTTI_ERR_FORMAT, "at offset 10: expected '{'"},
    };
    tutti_tensor_t *x;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(1, cases[i].header, "\x00\x00\x80\x3f", 4, &x), cases[i].status);
        tt_expect_error(cases[i].error);
    }
    assert_int_equal(parse(4, "{}", "", 0, &x), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("x.npy: version 4.0 at offset 6: expected 1.0 to 3.0");
    assert_int_equal(tutti_npy_parse("x.npy", tutti_text("PK and so on"), &x), TUTTI_ERR_FORMAT);
    tt_expect_error("bytes 50 4b 20 at offset 0: expected 93 4e 55");
    assert_int_equal(tutti_npy_parse("x.npy", tutti_text("\x93NUM"), &x), TUTTI_ERR_FORMAT);
    assert_int_equal(tutti_npy_read("/nonexistent", &x), TUTTI_ERR_IO);
}

static void rows_of_arrays_are_samples(void **state)
{
    const place_t *place = *state;
    tutti_scope_t *s = place->f->s;
    const char *paths[] = {path_of(place, "x.npy"), path_of(place, "y.npy")};
    const float numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    assert_int_equal(
        tutti_npy_write(paths[0], tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(4, 2), numbers)), 0);
    FILE *file = fopen(paths[1], "wb");
    assert_non_null(file);
    assert_true(fwrite("\x93NUMPY\x01\x00\x3a\x00"
                       "{'descr': '|u1', 'fortran_order': True, 'shape': (4, 2)}  ",
                       1, 68, file) == 68);
    assert_true(fwrite("\x00\x02\x04\x06\x01\x03\x05\x07", 1, 8, file) == 8);
    assert_int_equal(fclose(file), 0);
    tutti_dataset_t *d;
    tutti_npy_options_t o = {paths, 2};
    if (tutti_dataset_create(&tutti_npy_dataset, &o, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(tutti_dataset_info(d).count, 4);
    float x[2];
    unsigned char y[2];
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(
            tutti_dataset_read(d, i, (tutti_draw_t){0}, &(tutti_sample_t){.data = {x, y}}), 0);
        assert_true(x[0] == 2 * (float)i && x[1] == 2 * (float)i + 1);
        assert_true(y[0] == 2 * i && y[1] == 2 * i + 1);
    }
    tutti_dataset_release(d);
    assert_int_equal(tutti_npy_write(paths[0], tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3))), 0);
    assert_int_equal(tutti_dataset_create(&tutti_npy_dataset, &o, &d), TUTTI_ERR_SHAPE);
    tt_expect_error("y.npy has 4 rows, the first file 3");
    assert_int_equal(tutti_npy_write(paths[0], tutti_zeros(s, TUTTI_F32, TUTTI_SCALAR)), 0);
    assert_int_equal(tutti_dataset_create(&tutti_npy_dataset, &o, &d), TUTTI_ERR_SHAPE);
    tt_expect_error("x.npy is one number: rows are expected");
    o.path_count = 0;
    assert_int_equal(tutti_dataset_create(&tutti_npy_dataset, &o, &d), TUTTI_ERR_ARG);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static const char *const sizes[] = {"width", "height"}, *const kinds[] = {"kind"},
                         *const notes[] = {"a \"note\""};
static const char *const classes[] = {"rose", "tulip"};
static const tutti_csv_field_t flower_fields[] = {
    {.columns = sizes, .column_count = 2, .dtype = TUTTI_F32},
    {.columns = kinds, .column_count = 1, .dtype = TUTTI_U8, .classes = classes, .class_count = 2},
    {.columns = notes, .column_count = 1, .is_text = true, .dtype = TUTTI_U8},
};

static tutti_status_t open_text(const char *text, tutti_dataset_t **out)
{
    const tutti_csv_options_t o = {
        .path = "flowers.csv", .data = tutti_text(text), .fields = flower_fields, .field_count = 3};
    return tutti_dataset_create(&tutti_csv_dataset, &o, out);
}

static void lines_are_samples_of_typed_fields(void **state)
{
    static const char text[] = "\xef\xbb\xbfheight,kind,\"a \"\"note\"\"\",width,unused\r\n"
                               "1.5,rose,\"two\nlines, \"\"so\"\"\",-2e3,x\r\n\r\n"
                               "inf,tulip,,0,\n"
                               "3,\"rose\",plain,nan,y";
    tutti_dataset_t *d;
    (void)state;
    if (open_text(text, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    const tutti_dataset_info_t info = tutti_dataset_info(d);
    assert_true(info.count == 3 && info.field_count == 3);
    assert_true(tutti_shape_equal(info.fields[0].shape, TUTTI_SHAPE(2)));
    assert_true(tutti_shape_equal(info.fields[1].shape, TUTTI_SCALAR));
    static const char *const texts[] = {"two\nlines, \"so\"", "", "plain"};
    tutti_sample_t x = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_dataset_read(d, i, (tutti_draw_t){0}, &x), 0);
        assert_int_equal(*(const unsigned char *)x.data[1], i == 1);
        assert_int_equal(x.shapes[2].dims[0], strlen(texts[i]));
        assert_memory_equal(x.data[2], texts[i], strlen(texts[i]));
        const float *numbers = x.data[0];
        assert_true(i != 0 || (numbers[0] == -2000 && numbers[1] == 1.5F));
        assert_true(i != 1 || (numbers[0] == 0 && numbers[1] > 1e38F));
        assert_true(i != 2 || (numbers[0] != numbers[0] && numbers[1] == 3));
    }
    tutti_sample_clear(&x);
    tutti_dataset_release(d);
}

static void columns_without_a_header_have_numbers(void **state)
{
    const place_t *place = *state;
    static const char *const columns[] = {"3", "1"}, *const far[] = {"4"}, *const odd[] = {"x"};
    tutti_csv_field_t field = {.columns = columns, .column_count = 2, .dtype = TUTTI_I64};
    const char *path = path_of(place, "numbers.csv");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("1;2;9223372036854775807\n-4;5;-9223372036854775808\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    const tutti_csv_options_t o = {
        .path = path, .fields = &field, .field_count = 1, .separator = ';', .no_header = true};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_csv_dataset, &o, &d), 0);
    int64_t numbers[2];
    tutti_sample_t sample = {.data = {numbers}};
    assert_int_equal(tutti_dataset_read(d, 1, (tutti_draw_t){0}, &sample), 0);
    assert_true(numbers[0] == INT64_MIN && numbers[1] == -4);
    tutti_dataset_release(d);
    field = (tutti_csv_field_t){.columns = far, .column_count = 1, .dtype = TUTTI_I64};
    assert_int_equal(tutti_dataset_create(&tutti_csv_dataset, &o, &d), TUTTI_ERR_ARG);
    tt_expect_error("numbers.csv has 3");
    field.columns = odd;
    assert_int_equal(tutti_dataset_create(&tutti_csv_dataset, &o, &d), TUTTI_ERR_ARG);
    tt_expect_error("column x: without a header it is a number from 1 on");
}

/* A name of 189 bytes behind two short ones: too long for an error. */
#define COLUMNS_200                                                                                \
    "c,c,"                                                                                         \
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"  \
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
    "nnnnnn"

static void malformed_lines_are_named(void **state)
{
    static const struct {
        const char *text, *error;
        tutti_status_t status;
    } cases[] = {
        {"", "flowers.csv: no line: a header is expected", TUTTI_ERR_FORMAT},
        {"height,kind,a \"note\"\n", "no column is named width: there are height, kind, a \"note\"",
         TUTTI_ERR_ARG},
        {COLUMNS_200 "\n", "no column is named width: there are c, c, …", TUTTI_ERR_ARG},
        {"width,height,kind,a \"note\"\n1,2,rose,x\n1,abc,rose,x\n",
         "flowers.csv: line 3, column 2 (height): 'abc' is no number", TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,2,rose,\"a\nb\"\n1,,rose,x\n",
         "line 4, column 2 (height): '' is no number", TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,0x10,rose,x\n", "'0x10' is no number", TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,2,lily,x\n", "(kind): 'lily' is no class",
         TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,2,rose\n", "line 2 has 3 columns: the header has 4",
         TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n\n1,2,rose,x,y\n", "line 3 has 5 columns: the header has 4",
         TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,2,rose,\"x\ny\n",
         "line 2, column 4: a quote that is opened here is not closed", TUTTI_ERR_FORMAT},
        {"width,height,kind,a \"note\"\n1,2,\"rose\"x,y\n",
         "line 2, column 3: text behind the closing quote", TUTTI_ERR_FORMAT},
    };
    tutti_dataset_t *d;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(open_text(cases[i].text, &d), cases[i].status);
        tt_expect_error(cases[i].error);
    }
    static const char *const column[] = {"1"};
    static const struct {
        tutti_dtype_t dtype;
        const char *text, *error;
    } ranges[] = {{TUTTI_U8, "256", "'256' is no integer from 0 to 255"},
                  {TUTTI_I8, "-129", "no integer from -128 to 127"},
                  {TUTTI_I32, "2147483648", "no integer of 32 bits"},
                  {TUTTI_BOOL, "2", "no 0 or 1"},
                  {TUTTI_I64, "1.0", "no integer of 64 bits"}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const tutti_csv_field_t field = {
            .columns = column, .column_count = 1, .dtype = ranges[i].dtype};
        const tutti_csv_options_t o = {.data = tutti_text(ranges[i].text),
                                       .fields = &field,
                                       .field_count = 1,
                                       .no_header = true};
        assert_int_equal(tutti_dataset_create(&tutti_csv_dataset, &o, &d), TUTTI_ERR_FORMAT);
        tt_expect_error(ranges[i].error);
    }
}

static void numbers_have_a_point_in_every_locale(void **state)
{
    (void)state;
    static const char *const column[] = {"1"};
    const tutti_csv_field_t field = {.columns = column, .column_count = 1, .dtype = TUTTI_F64};
    const tutti_csv_options_t o = {.data = tutti_text("0.1\n-2.5e3\nnan\n-inf\n"),
                                   .fields = &field,
                                   .field_count = 1,
                                   .no_header = true};
    double number;
    tutti_dataset_t *d;
    tutti_sample_t sample = {.data = {&number}};
    tt_comma_begin();
    const tutti_status_t status = tutti_dataset_create(&tutti_csv_dataset, &o, &d);
    tt_comma_end();
    assert_int_equal(status, 0);
    static const double want[] = {0.1, -2500, NAN, -INFINITY};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tutti_dataset_read(d, i, (tutti_draw_t){0}, &sample), 0);
        assert_true(isnan(want[i]) ? isnan(number) : number == want[i]);
    }
    tutti_dataset_release(d);
}

/* One cell of one column. */
static tutti_status_t open_cell(const tutti_csv_field_t *field, const char *text,
                                tutti_dataset_t **out)
{
    const tutti_csv_options_t o = {
        .data = tutti_text(text), .fields = field, .field_count = 1, .no_header = true};
    return tutti_dataset_create(&tutti_csv_dataset, &o, out);
}

/* A finite number does not become infinite. */
static void numbers_beyond_their_dtype_are_refused(void **state)
{
    static const char *const column[] = {"1"};
    static const struct {
        tutti_dtype_t dtype;
        const char *largest, *above;
    } cases[] = {{TUTTI_F16, "-65519", "65520"},
                 {TUTTI_BF16, "3.396e38", "-3.397e38"},
                 {TUTTI_F32, "3.4028235e38", "1e39"},
                 {TUTTI_F64, "1.7976931348623157e308", "-1e309"}};
    tutti_dataset_t *d;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tutti_csv_field_t field = {
            .columns = column, .column_count = 1, .dtype = cases[i].dtype};
        assert_int_equal(open_cell(&field, cases[i].largest, &d), 0);
        tutti_dataset_release(d);
        assert_int_equal(open_cell(&field, "-inf", &d), 0);
        tutti_dataset_release(d);
        assert_int_equal(open_cell(&field, cases[i].above, &d), TUTTI_ERR_FORMAT);
        tt_expect_error("is no number that fits into ");
    }
}

static void classes_beyond_their_dtype_are_refused(void **state)
{
    enum { CLASSES = 257 };
    static const char *const column[] = {"1"};
    static const struct {
        tutti_dtype_t dtype;
        int64_t most;
    } cases[] = {{TUTTI_BOOL, 2}, {TUTTI_I8, 128}, {TUTTI_U8, 256}, {TUTTI_I32, CLASSES}};
    char texts[CLASSES][8];
    const char *names[CLASSES];
    tutti_dataset_t *d;
    (void)state;
    for (int i = 0; i < CLASSES; i++) {
        snprintf(texts[i], sizeof texts[i], "c%d", i);
        names[i] = texts[i];
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_csv_field_t field = {.columns = column,
                                   .column_count = 1,
                                   .dtype = cases[i].dtype,
                                   .classes = names,
                                   .class_count = cases[i].most};
        tutti_sample_t sample = {0};
        assert_int_equal(open_cell(&field, names[cases[i].most - 1], &d), 0);
        assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample), 0);
        assert_int_equal(*(const unsigned char *)sample.data[0], (cases[i].most - 1) & 255);
        tutti_sample_clear(&sample);
        tutti_dataset_release(d);
        field.class_count++;
        if (cases[i].most < CLASSES) {
            assert_int_equal(open_cell(&field, "c0", &d), TUTTI_ERR_ARG);
            tt_expect_error("data set csv: field 0 has ");
        }
    }
}

static void no_allocation_that_fails_is_lost(void **state)
{
    const place_t *place = *state;
    const char *path = path_of(place, "x.npy");
    static const char text[] = "width,height,kind,a \"note\"\n1,2,rose,x\n";
    tutti_tensor_t *x = tutti_zeros(place->f->s, TUTTI_F32, TUTTI_SHAPE(2));
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_dataset_t *rows = NULL, *lines = NULL;
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_npy_write(path, x);
        status = status < 0 ? status
                            : tutti_dataset_create(&tutti_npy_dataset,
                                                   &(tutti_npy_options_t){&path, 1}, &rows);
        status = status < 0 ? status : open_text(text, &lines);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_dataset_release(rows);
        tutti_dataset_release(lines);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(arrays_are_read_as_they_were_written),
        TEST(files_are_those_of_numpy),
        TEST(orders_of_bytes_and_indices_are_turned),
        TEST(malformed_arrays_say_what_was_expected),
        TEST(rows_of_arrays_are_samples),
        TEST(lines_are_samples_of_typed_fields),
        TEST(columns_without_a_header_have_numbers),
        TEST(numbers_have_a_point_in_every_locale),
        TEST(malformed_lines_are_named),
        TEST(numbers_beyond_their_dtype_are_refused),
        TEST(classes_beyond_their_dtype_are_refused),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
