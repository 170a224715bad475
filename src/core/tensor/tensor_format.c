/* A tensor's numbers as text. Widths are found by a first pass over what will be shown, then the
 * same elements are written. Source: numpy/core/arrayprint.py, for the layout alone. */
#include <tutti/tensor.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/default.h"
#include "core/base/reals.h"
#include "core/kernel/elementwise/convert.h"
#include "core/tensor/tensor_impl.h"

enum { PRECISION = 8, THRESHOLD = 1000, EDGE_ITEMS = 3, LINE_WIDTH = 75, WORD_BYTES = 400 };

typedef struct {
    char *text;
    size_t bytes, length; /* of the whole text, also of what has no room */
} page_t;

/* How numbers are written: columns before and behind the point, or width in all. */
typedef struct {
    bool has_exponent;
    int precision, left, right, exponent, width;
} form_t;

typedef struct {
    const tutti_tensor_t *x; /* on the host, contiguous */
    int precision, line_width;
    int64_t edge_items; /* 0: all are shown */
    bool is_float;
    form_t form;
    page_t page;
} printer_t;

/* ---- a number -------------------------------------------------------------------------------- */

/* "-12" and "5" of -12.5, or of -1.25e+01 "-1", "25" and "+01". */
typedef struct {
    char whole[WORD_BYTES], fraction[WORD_BYTES], exponent[16];
} parts_t;

static const char *element(const printer_t *p, int64_t index)
{
    return (const char *)p->x->storage->data +
           (size_t)(p->x->offset + index) * tutti_dtype_bytes(p->x->dtype);
}

static double number(const printer_t *p, int64_t index)
{
    double value;
    tt_convert_to(TT_CLASS_F64, p->x->dtype)(&value, element(p, index), 1);
    return value;
}

static int64_t integer(const printer_t *p, int64_t index)
{
    int64_t value;
    tt_convert_to(TT_CLASS_I64, p->x->dtype)(&value, element(p, index), 1);
    return value;
}

/* Digits behind the first one that tell it from its neighbours. */
static int digits_of(const printer_t *p, double value)
{
    char text[32], narrow[8];
    int digits = 0;
    for (double back = NAN; digits < 17; digits++) {
        tt_format(text, sizeof text, "%.*e", digits, value);
        double near = value;
        (void)tt_parse_real(text, &near);
        tt_convert_from(TT_CLASS_F64, p->x->dtype)(narrow, &near, 1);
        tt_convert_to(TT_CLASS_F64, p->x->dtype)(&back, narrow, 1);
        if (back == value) {
            break;
        }
    }
    return digits;
}

static void trim(char *fraction)
{
    for (size_t n = strlen(fraction); n > 0 && fraction[n - 1] == '0'; n--) {
        fraction[n - 1] = 0;
    }
}

/* Splits "-12.50e+01". */
static void split(const char *text, parts_t *out)
{
    const size_t whole = strcspn(text, ".e");
    const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
    const size_t length = strcspn(fraction, "e");
    snprintf(out->whole, sizeof out->whole, "%.*s", (int)whole, text);
    snprintf(out->fraction, sizeof out->fraction, "%.*s", (int)length, fraction);
    snprintf(out->exponent, sizeof out->exponent, "%s",
             fraction[length] == 'e' ? fraction + length + 1 : "");
    trim(out->fraction);
}

static void write_number(const printer_t *p, double value, bool has_exponent, parts_t *out)
{
    char text[WORD_BYTES];
    const int digits = digits_of(p, value);
    if (has_exponent) {
        tt_format(text, sizeof text, "%.*e", digits < p->precision ? digits : p->precision, value);
    } else {
        const int first = value == 0 ? 0 : (int)floor(log10(fabs(value)));
        const int behind = digits - first + 1; /* one more, if log10 has rounded up */
        const int most = behind < 0 ? 0 : behind;
        char shortest[WORD_BYTES];
        double shown = value;
        tt_format(shortest, sizeof shortest, "%.*e", digits, value);
        (void)tt_parse_real(shortest, &shown);
        tt_format(text, sizeof text, "%.*f", most < p->precision ? most : p->precision,
                  most <= p->precision ? shown : value);
    }
    split(text, out);
}

/* ---- the form of all ------------------------------------------------------------------------- */

typedef void (*visit_t)(printer_t *p, int64_t index, void *user);

/* Those that will be shown, in order. */
static void each_shown(printer_t *p, int dim, int64_t index, visit_t visit, void *user)
{
    const tutti_shape_t shape = p->x->shape;
    if (dim == shape.rank) {
        visit(p, index, user);
        return;
    }
    const int64_t n = shape.dims[dim], edge = p->edge_items;
    for (int64_t i = 0; i < n; i++) {
        if (edge > 0 && n > 2 * edge && i == edge) {
            i = n - edge;
        }
        each_shown(p, dim + 1, index * n + i, visit, user);
    }
}

typedef struct {
    double least, most; /* of what is not 0 */
    bool has_finite, has_nan, has_infinity, has_negative;
} range_t;

static void measure(printer_t *p, int64_t index, void *user)
{
    range_t *range = user;
    const double value = number(p, index), size = fabs(value);
    range->has_nan = range->has_nan || isnan(value);
    range->has_infinity = range->has_infinity || isinf(value);
    range->has_negative = range->has_negative || (isinf(value) && value < 0);
    range->has_finite = range->has_finite || isfinite(value);
    if (isfinite(value) && size > 0) {
        range->least = range->least == 0 || size < range->least ? size : range->least;
        range->most = size > range->most ? size : range->most;
    }
}

static int larger(int a, size_t b)
{
    return a > (int)b ? a : (int)b;
}

static void fit_number(printer_t *p, int64_t index, void *user)
{
    parts_t parts;
    form_t *form = user;
    const double value = number(p, index);
    if (isfinite(value)) {
        write_number(p, value, form->has_exponent, &parts);
        form->left = larger(form->left, strlen(parts.whole));
        form->right = larger(form->right, strlen(parts.fraction));
        form->exponent = larger(form->exponent, strlen(parts.exponent));
    }
}

static void fit_integer(printer_t *p, int64_t index, void *user)
{
    char text[32];
    form_t *form = user;
    form->width = larger(form->width,
                         (size_t)snprintf(text, sizeof text, "%lld", (long long)integer(p, index)));
}

static void find_form(printer_t *p)
{
    range_t range = {0};
    form_t *form = &p->form;
    if (p->x->dtype == TUTTI_BOOL) {
        form->width = p->x->shape.rank > 0 ? 5 : 4;
        return;
    }
    if (!p->is_float) {
        each_shown(p, 0, 0, fit_integer, form);
        return;
    }
    each_shown(p, 0, 0, measure, &range);
    form->has_exponent =
        range.most >= 1e8 ||
        (range.least > 0 && (range.least < 1e-4 || range.most / range.least > 1000));
    each_shown(p, 0, 0, fit_number, form);
    form->precision = form->right;
    form->width = form->left + 1 + form->right + (form->has_exponent ? 1 + form->exponent : 0);
    form->width = !range.has_finite ? 0 : form->width;
    form->width = larger(form->width, range.has_nan ? 3 : 0);
    form->width = larger(form->width, range.has_negative ? 4 : range.has_infinity ? 3 : 0);
}

static void write_word(const printer_t *p, int64_t index, char word[WORD_BYTES])
{
    parts_t parts;
    const form_t *form = &p->form;
    char text[3 * WORD_BYTES];
    if (p->x->dtype == TUTTI_BOOL) {
        snprintf(word, WORD_BYTES, "%*s", form->width, integer(p, index) != 0 ? "True" : "False");
        return;
    }
    if (!p->is_float) {
        snprintf(word, WORD_BYTES, "%*lld", form->width, (long long)integer(p, index));
        return;
    }
    const double value = number(p, index);
    if (!isfinite(value)) {
        snprintf(word, WORD_BYTES, "%*s", form->width,
                 isnan(value) ? "nan"
                 : value < 0  ? "-inf"
                              : "inf");
        return;
    }
    write_number(p, value, form->has_exponent, &parts);
    if (form->has_exponent) {
        snprintf(text, sizeof text, "%s.%s%.*se%s", parts.whole, parts.fraction,
                 form->right - (int)strlen(parts.fraction), "00000000000000000", parts.exponent);
    } else {
        snprintf(text, sizeof text, "%s.%-*s", parts.whole, form->right, parts.fraction);
    }
    snprintf(word, WORD_BYTES, "%*.*s", form->width, WORD_BYTES - 1, text);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put(page_t *page, const char *text)
{
    const size_t used = page->length < page->bytes ? page->length : page->bytes;
    page->length += (size_t)snprintf(page->text == NULL ? NULL : page->text + used,
                                     page->bytes - used, "%s", text);
}

static void put_spaces(page_t *page, int count)
{
    for (int i = 0; i < count; i++) {
        put(page, " ");
    }
}

/* A row of the last dimension; `indent` columns stand before each of its lines. */
static void write_row(printer_t *p, int64_t first, int64_t n, int indent, int width)
{
    int used = indent;
    const int64_t edge = p->edge_items;
    for (int64_t i = 0; i < n; i++) {
        char word[WORD_BYTES];
        const bool is_gap = edge > 0 && n > 2 * edge && i == edge;
        if (is_gap) {
            snprintf(word, sizeof word, "...");
            i = n - edge - 1;
        } else {
            write_word(p, first + i, word);
        }
        const int length = (int)strlen(word);
        if (used > indent && used + length > width) {
            put(&p->page, "\n");
            put_spaces(&p->page, indent);
            used = indent;
        } else if (used > indent) {
            put(&p->page, " ");
        }
        put(&p->page, word);
        used += length + 1;
    }
}

static void write_block(printer_t *p, int dim, int64_t index, int indent)
{
    const tutti_shape_t shape = p->x->shape;
    const int64_t n = shape.dims[dim], edge = p->edge_items;
    put(&p->page, "[");
    if (dim == shape.rank - 1) {
        write_row(p, index * n, n, indent, p->line_width - shape.rank);
        put(&p->page, "]");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int line = 0; line < (i > 0 ? shape.rank - dim - 1 : 0); line++) {
            put(&p->page, "\n");
        }
        put_spaces(&p->page, i > 0 ? indent : 0);
        if (edge > 0 && n > 2 * edge && i == edge) {
            put(&p->page, "...");
            i = n - edge - 1;
        } else {
            write_block(p, dim + 1, index * n + i, indent + 1);
        }
    }
    put(&p->page, "]");
}

static void write_all(printer_t *p)
{
    char word[WORD_BYTES];
    if (p->x->numel == 0) {
        put(&p->page, "[]");
    } else if (p->x->shape.rank == 0) {
        find_form(p);
        write_word(p, 0, word);
        put(&p->page, word);
    } else {
        find_form(p);
        write_block(p, 0, 0, 1);
    }
}

size_t tutti_tensor_format(const tutti_tensor_t *x, const tutti_format_options_t *options,
                           char *text, size_t bytes)
{
    tutti_tensor_t *host;
    const tutti_format_options_t o = options == NULL ? (tutti_format_options_t){0} : *options;
    if (text != NULL && bytes > 0) {
        text[0] = 0;
    }
    if (tt_tensor_on_host(x, &host) < 0) {
        return 0;
    }
    const int64_t threshold = o.threshold > 0 ? o.threshold : THRESHOLD;
    printer_t p = {.x = host,
                   .precision = o.precision > 0 && o.precision < 16 ? o.precision : PRECISION,
                   .line_width = o.line_width > 0 ? o.line_width : LINE_WIDTH,
                   .edge_items = o.edge_items > 0 ? o.edge_items : EDGE_ITEMS,
                   .is_float = tutti_dtype_is_float(host->dtype),
                   .page = {text, bytes, 0}};
    p.edge_items = host->numel > threshold ? p.edge_items : 0;
    write_all(&p);
    tutti_tensor_release(host);
    return p.page.length;
}
