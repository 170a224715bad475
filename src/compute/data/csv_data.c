/* CSV as samples: the file is read once, cell by cell, into the rows of its fields.
 *
 * A plan says which column goes where: to which field, and which number of it. Columns that no
 * field names are passed by.
 */
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/data_files.h>

#include "compute/data/csv_reader.h"
#include "compute/data/dataset.h"
#include "compute/data/row_data.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/reals.h"
#include "core/tensor/tensor_impl.h"

/* A number of a field, out of a column. One column may have several. */
typedef struct {
    int column, field, number;
} target_t;

typedef struct {
    const tutti_csv_options_t *options;
    tt_csv_t csv;
    char **names; /* of columns, if there is a header */
    int column_count;
    target_t *targets; /* in the order of their columns */
    int target_count;
    double *values; /* of one line, for all fields */
    int64_t *integers;
    int firsts[TUTTI_FIELDS_MAX]; /* where those of a field begin */
    tt_sink_t rows[TUTTI_FIELDS_MAX], offsets[TUTTI_FIELDS_MAX];
    int64_t count;
} work_t;

static const char *label(const work_t *w)
{
    return w->options->path == NULL ? "CSV" : w->options->path;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Most classes whose numbers a dtype holds; those of floats are whole. */
static int64_t classes_of(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BOOL:
        return 2;
    case TUTTI_I8:
        return INT64_C(1) << 7;
    case TUTTI_U8:
    case TUTTI_BF16:
        return INT64_C(1) << 8;
    case TUTTI_F16:
        return INT64_C(1) << 11;
    case TUTTI_F32:
        return INT64_C(1) << 24;
    default:
        return INT64_C(1) << 31;
    }
}

static tutti_status_t check_field(const tutti_csv_field_t *field, int index)
{
    if (field->column_count < 1 || field->columns == NULL ||
        (field->is_text && field->column_count != 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set csv: field %d has %d columns: %s", index,
                       field->column_count,
                       field->is_text ? "a text has one" : "at least one is required");
    }
    for (int i = 0; i < field->column_count; i++) {
        if (field->columns[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set csv: field %d: name %d of %d is missing", index,
                           i, field->column_count);
        }
    }
    if (field->classes != NULL && (field->class_count < 1 || field->is_text)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set csv: field %d has %lld classes: at least one is "
                       "required, and no text",
                       index, (long long)field->class_count);
    }
    for (int64_t i = 0; field->classes != NULL && i < field->class_count; i++) {
        if (field->classes[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set csv: field %d: class %lld of %lld is missing",
                           index, (long long)i, (long long)field->class_count);
        }
    }
    if (field->classes != NULL && field->class_count > classes_of(field->dtype)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set csv: field %d has %lld classes: %s holds the numbers of at most "
                       "%lld",
                       index, (long long)field->class_count, tutti_dtype_name(field->dtype),
                       (long long)classes_of(field->dtype));
    }
    return TUTTI_OK;
}

static tutti_status_t check(const tutti_csv_options_t *o)
{
    if ((o->path == NULL && o->data.data == NULL) || o->fields == NULL || o->field_count < 1 ||
        o->field_count > TUTTI_FIELDS_MAX || o->separator == '"' || o->separator == '\n') {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set csv: path %s, %d fields: a path and 1 to %d fields are required, "
                       "and a separator that is no quote",
                       o->path == NULL ? "missing" : o->path, o->field_count, TUTTI_FIELDS_MAX);
    }
    for (int i = 0; i < o->field_count; i++) {
        TT_TRY(check_field(&o->fields[i], i));
    }
    return TUTTI_OK;
}

static tutti_status_t read_header(work_t *w)
{
    bool is_last = false;
    TT_TRY(tt_csv_line(&w->csv));
    if (w->csv.at == w->csv.end) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: no line: a header is expected", label(w));
    }
    while (!is_last) {
        TT_TRY(tt_csv_cell(&w->csv, &is_last));
        char **grown =
            tt_realloc(w->names, ((size_t)w->column_count + 1) * sizeof *grown, "CSV columns");
        TT_TRY_ALLOC(grown);
        w->names = grown;
        w->names[w->column_count] = tt_strdup(w->csv.cell.bytes.data, "CSV column");
        TT_TRY_ALLOC(w->names[w->column_count]);
        w->column_count++;
    }
    return TUTTI_OK;
}

/* The names of columns, as many as have room. */
static const char *list_columns(const work_t *w, char *text, size_t bytes)
{
    size_t end = 0;
    text[0] = 0;
    for (int i = 0; i < w->column_count; i++) {
        const char *comma = i == 0 ? "" : ", ";
        const size_t more = strlen(w->names[i]) + 2;
        if (end + more + 6 > bytes) {
            (void)snprintf(text + end, bytes - end, "%s…", comma);
            return text;
        }
        end += (size_t)snprintf(text + end, bytes - end, "%s%s", comma, w->names[i]);
    }
    return text;
}

static tutti_status_t find_column(const work_t *w, const char *name, int *out)
{
    int64_t number;
    if (w->options->no_header) {
        if (!tt_parse_int(name, &number) || number < 1 || number > INT32_MAX) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "data set csv: column %s: without a header it is a number from 1 on",
                           name);
        }
        *out = (int)number - 1;
        return TUTTI_OK;
    }
    for (int i = 0; i < w->column_count; i++) {
        if (strcmp(w->names[i], name) == 0) {
            *out = i;
            return TUTTI_OK;
        }
    }
    char there[200];
    return TT_FAIL(TUTTI_ERR_ARG, "%s: no column is named %s: there are %s", label(w), name,
                   list_columns(w, there, sizeof there));
}

static int compare_columns(const void *a, const void *b)
{
    const target_t *first = a, *second = b;
    return (first->column > second->column) - (first->column < second->column);
}

static tutti_status_t make_plan(work_t *w)
{
    const tutti_csv_options_t *o = w->options;
    for (int i = 0; i < o->field_count; i++) {
        w->firsts[i] = w->target_count;
        w->target_count += o->fields[i].column_count;
    }
    const size_t count = (size_t)w->target_count;
    w->targets = tt_alloc_array(count, sizeof *w->targets, "CSV plan");
    TT_TRY_ALLOC(w->targets);
    w->values = tt_alloc_array(count, sizeof *w->values, "CSV plan");
    TT_TRY_ALLOC(w->values);
    w->integers = tt_alloc_array(count, sizeof *w->integers, "CSV plan");
    TT_TRY_ALLOC(w->integers);
    for (int i = 0, at = 0; i < o->field_count; i++) {
        for (int k = 0; k < o->fields[i].column_count; k++, at++) {
            w->targets[at] = (target_t){.field = i, .number = k};
            TT_TRY(find_column(w, o->fields[i].columns[k], &w->targets[at].column));
        }
    }
    qsort(w->targets, count, sizeof *w->targets, compare_columns);
    return TUTTI_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static tutti_status_t refuse(const work_t *w, const char *what)
{
    const tt_csv_t *csv = &w->csv;
    const bool has_name = w->names != NULL && csv->column <= w->column_count;
    char text[64];
    snprintf(text, sizeof text, "%s", (const char *)csv->cell.bytes.data);
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: line %lld, column %d%s%s%s: '%s' is no %s", label(w),
                   (long long)csv->cell_line, csv->column, has_name ? " (" : "",
                   has_name ? w->names[csv->column - 1] : "", has_name ? ")" : "", text, what);
}

static tutti_status_t take_class(const work_t *w, const tutti_csv_field_t *field, int64_t *out)
{
    for (int64_t i = 0; i < field->class_count; i++) {
        if (strcmp(field->classes[i], w->csv.cell.bytes.data) == 0) {
            *out = i;
            return TUTTI_OK;
        }
    }
    return refuse(w, "class");
}

static tutti_status_t take_integer(const work_t *w, tutti_dtype_t dtype, int64_t *out)
{
    static const struct {
        tutti_dtype_t dtype;
        int64_t least, most;
        const char *name;
    } ranges[] = {{TUTTI_I64, INT64_MIN, INT64_MAX, "integer of 64 bits"},
                  {TUTTI_I32, INT32_MIN, INT32_MAX, "integer of 32 bits"},
                  {TUTTI_I8, INT8_MIN, INT8_MAX, "integer from -128 to 127"},
                  {TUTTI_U8, 0, UINT8_MAX, "integer from 0 to 255"},
                  {TUTTI_BOOL, 0, 1, "0 or 1"}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].dtype == dtype) {
            const bool is_one = tt_parse_int(w->csv.cell.bytes.data, out) &&
                                *out >= ranges[i].least && *out <= ranges[i].most;
            return is_one ? TUTTI_OK : refuse(w, ranges[i].name);
        }
    }
    return TUTTI_OK;
}

/* Whether rounding to a dtype, which goes by way of f32, leaves a finite number finite. */
static bool fits(tutti_dtype_t dtype, double value)
{
    const float narrow = fabsf((float)value);
    switch (dtype) {
    case TUTTI_F16:
        return narrow < 65520;
    case TUTTI_BF16:
        return narrow < 0x1.ffp127F;
    case TUTTI_F32:
        return isfinite(narrow);
    default:
        return isfinite(value);
    }
}

/* Those that have no digits. */
static bool find_named(const char *text, double *out)
{
    static const struct {
        const char *name;
        double value;
    } all[] = {{"nan", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(text, all[i].name) == 0) {
            *out = all[i].value;
            return true;
        }
    }
    return false;
}

static tutti_status_t take_number(const work_t *w, tutti_dtype_t dtype, double *out)
{
    const char *text = w->csv.cell.bytes.data;
    const bool is_name = find_named(text, out);
    if (!is_name && !tt_parse_real(text, out)) {
        return refuse(w, "number");
    }
    char what[64];
    snprintf(what, sizeof what, "number that fits into %s", tutti_dtype_name(dtype));
    return is_name || fits(dtype, *out) ? TUTTI_OK : refuse(w, what);
}

/* A text that holds a 0 is longer than C says. */
static tutti_status_t check_zero(const work_t *w)
{
    return strlen(w->csv.cell.bytes.data) + 1 == w->csv.cell.bytes.bytes ? TUTTI_OK
                                                                         : refuse(w, "text of C");
}

static tutti_status_t take_cell(work_t *w, const target_t *target)
{
    const tutti_csv_field_t *field = &w->options->fields[target->field];
    const int at = w->firsts[target->field] + target->number;
    if (field->is_text) {
        return tt_sink_append(&w->rows[target->field], w->csv.cell.bytes.data,
                              w->csv.cell.bytes.bytes - 1);
    }
    TT_TRY(check_zero(w));
    if (field->classes == NULL && tutti_dtype_is_float(field->dtype)) {
        return take_number(w, field->dtype, &w->values[at]);
    }
    TT_TRY(field->classes != NULL ? take_class(w, field, &w->integers[at])
                                  : take_integer(w, field->dtype, &w->integers[at]));
    w->values[at] = (double)w->integers[at];
    return TUTTI_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static tutti_status_t end_text(work_t *w, int field)
{
    const int64_t end = (int64_t)w->rows[field].bytes.bytes;
    return tt_sink_append(&w->offsets[field], &end, sizeof end);
}

/* Numbers are kept in 8 bytes until the file is read: f64, or i64 where the dtype is one. */
static tutti_status_t end_line(work_t *w)
{
    for (int i = 0; i < w->options->field_count; i++) {
        const tutti_csv_field_t *field = &w->options->fields[i];
        const size_t bytes = (size_t)field->column_count * sizeof(double);
        const void *from = tutti_dtype_is_float(field->dtype)
                               ? (const void *)(w->values + w->firsts[i])
                               : (const void *)(w->integers + w->firsts[i]);
        TT_TRY(field->is_text ? end_text(w, i) : tt_sink_append(&w->rows[i], from, bytes));
    }
    w->count++;
    return TUTTI_OK;
}

static tutti_status_t read_line(work_t *w)
{
    bool is_last = false;
    int next = 0;
    const int64_t line = w->csv.line;
    while (!is_last) {
        TT_TRY(tt_csv_cell(&w->csv, &is_last));
        for (; next < w->target_count && w->targets[next].column == w->csv.column - 1; next++) {
            TT_TRY(take_cell(w, &w->targets[next]));
        }
    }
    w->column_count = w->column_count == 0 ? w->csv.column : w->column_count;
    if (w->csv.column != w->column_count) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: line %lld has %d columns: %s has %d", label(w),
                       (long long)line, w->csv.column,
                       w->options->no_header ? "the first line" : "the header", w->column_count);
    }
    if (next < w->target_count) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set csv: column %d: %s has %d",
                       w->targets[next].column + 1, label(w), w->column_count);
    }
    return end_line(w);
}

static tutti_status_t read_lines(work_t *w)
{
    for (int i = 0; i < w->options->field_count; i++) {
        if (w->options->fields[i].is_text) {
            TT_TRY(end_text(w, i));
        }
    }
    tutti_status_t status;
    while ((status = tt_csv_line(&w->csv)) == TUTTI_OK) {
        TT_TRY(read_line(w));
    }
    return TUTTI_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static tutti_status_t make_tensor(tutti_dtype_t dtype, tutti_shape_t shape, const tt_sink_t *from,
                                  tutti_tensor_t **out)
{
    TT_TRY(tt_tensor_new(NULL, dtype, shape, false, out));
    if (from->bytes.bytes > 0) {
        memcpy(tutti_tensor_data(*out), from->bytes.data, from->bytes.bytes);
    }
    return TUTTI_OK;
}

static tutti_status_t make_numbers(const work_t *w, int index, tutti_tensor_t **out)
{
    const tutti_csv_field_t *field = &w->options->fields[index];
    const tutti_shape_t shape = field->column_count == 1
                                    ? TUTTI_SHAPE(w->count)
                                    : TUTTI_SHAPE(w->count, field->column_count);
    const tutti_dtype_t kept = tutti_dtype_is_float(field->dtype) ? TUTTI_F64 : TUTTI_I64;
    tutti_tensor_t *wide = NULL;
    tutti_status_t status = make_tensor(kept, shape, &w->rows[index], &wide);
    if (status >= 0) {
        status = tt_tensor_new(NULL, field->dtype, shape, false, out);
    }
    if (status >= 0) {
        status = tutti_tensor_copy(*out, wide);
    }
    tutti_tensor_release(wide);
    return status;
}

static tutti_status_t make_field(const work_t *w, int index, tt_rows_t *rows)
{
    if (!w->options->fields[index].is_text) {
        return make_numbers(w, index, &rows->values[index]);
    }
    TT_TRY(make_tensor(TUTTI_I64, TUTTI_SHAPE(w->count + 1), &w->offsets[index],
                       &rows->offsets[index]));
    return make_tensor(TUTTI_U8, TUTTI_SHAPE((int64_t)w->rows[index].bytes.bytes), &w->rows[index],
                       &rows->values[index]);
}

/* ---- the data set ---------------------------------------------------------------------------- */

static tutti_status_t read_all(work_t *w, tutti_bytes_t data, tt_rows_t *rows)
{
    const tutti_csv_options_t *o = w->options;
    tt_csv_begin(&w->csv, label(w), data, o->separator == 0 ? ',' : o->separator);
    if (!o->no_header) {
        TT_TRY(read_header(w));
    }
    TT_TRY(make_plan(w));
    TT_TRY(read_lines(w));
    rows->count = o->field_count;
    for (int i = 0; i < o->field_count; i++) {
        TT_TRY(make_field(w, i, rows));
    }
    return TUTTI_OK;
}

static void release(work_t *w)
{
    for (int i = 0; w->names != NULL && i < w->column_count; i++) {
        tt_free(w->names[i]);
    }
    for (int i = 0; i < TUTTI_FIELDS_MAX; i++) {
        tt_free(w->rows[i].bytes.data);
        tt_free(w->offsets[i].bytes.data);
    }
    tt_free(w->names);
    tt_free(w->targets);
    tt_free(w->values);
    tt_free(w->integers);
    tt_csv_end(&w->csv);
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_csv_options_t *o = options;
    tutti_buffer_t file = {0};
    TT_TRY(check(o));
    if (o->data.data == NULL) {
        TT_TRY(tt_file_bytes(o->path, "CSV file", &file));
    }
    work_t work = {.options = o};
    const tutti_bytes_t data =
        o->data.data == NULL ? tutti_bytes_of(file.data, file.bytes) : o->data;
    const tutti_status_t status = read_all(&work, data, d->state);
    release(&work);
    tt_free(file.data);
    return status < 0 ? status : tt_rows_describe("csv", d->state, info);
}

const tutti_dataset_ops_t tutti_csv_dataset = {
    .name = "csv",
    .about = "lines of a CSV file",
    .state_bytes = sizeof(tt_rows_t),
    .init = init,
    .fini = tt_rows_fini,
    .read = tt_rows_read,
};
