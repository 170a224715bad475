/* Pictures: what is written is read again, what is damaged is refused, and folders and CIFAR's
 * files as data sets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/dataloader.h>
#include <tutti/pictures.h>

#include <jpeglib.h>
#include <zlib.h>

#include "compute/data/picture_codec.h"
#include "core/base/folder.h"
#include "core/tensor/scope_testing.h"

enum { SIDE = 16 };

typedef struct {
    char folder[64];
} place_t;

static int setup(void **state)
{
    static place_t place;
    snprintf(place.folder, sizeof place.folder, "/tmp/tutti-picture-XXXXXX");
    assert_non_null(mkdtemp(place.folder));
    *state = &place;
    return 0;
}

static int teardown(void **state)
{
    const place_t *place = *state;
    assert_int_equal(tt_folder_remove(place->folder), 0);
    return tt_nothing_is_left(state);
}

static const char *path_of(const place_t *place, const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", place->folder, name);
    return path;
}

/* Bytes that go up along both sides, differently in each channel. */
static tutti_tensor_t *make_picture(int channels, int height, int width)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(channels, height, width), &x), 0);
    unsigned char *bytes = tutti_tensor_data(x);
    for (int c = 0; c < channels; c++) {
        for (int i = 0; i < height * width; i++) {
            *bytes++ = (unsigned char)(50 * c + 7 * (i / width) + 3 * (i % width));
        }
    }
    return x;
}

static void expect_equal(const tutti_tensor_t *x, const tutti_tensor_t *y, int most)
{
    assert_true(tutti_shape_equal(tutti_tensor_shape(x), tutti_tensor_shape(y)));
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double far = tutti_tensor_at(x, i) - tutti_tensor_at(y, i);
        if (far > most || far < -most) {
            fail_msg("element %lld is off by %g", (long long)i, far);
        }
    }
}

static void pictures_are_read_as_they_were_written(void **state)
{
    static const char *const names[] = {"a.png", "b.JPG", "c.jpeg"};
    for (int i = 0; i < 6; i++) {
        tutti_tensor_t *x = make_picture(i < 3 ? 3 : 1, SIDE, SIDE + 1), *y;
        const char *path = path_of(*state, names[i % 3]);
        assert_int_equal(tutti_picture_write(path, x, i % 3 == 0 ? 0 : 98), 0);
        assert_int_equal(tutti_picture_read(path, i < 3 ? 3 : 1, &y), 0);
        expect_equal(x, y, i % 3 == 0 ? 0 : 8);
        tutti_tensor_release(y);
        tutti_tensor_release(x);
    }
}

static void colors_become_gray_and_gray_becomes_colors(void **state)
{
    const char *path = path_of(*state, "a.png");
    tutti_tensor_t *x = make_picture(3, 2, 5), *y;
    assert_int_equal(tutti_picture_write(path, x, 0), 0);
    assert_int_equal(tutti_picture_read(path, 1, &y), 0);
    const unsigned char *from = tutti_tensor_data(x), *gray = tutti_tensor_data(y);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(
            gray[i], (19595 * from[i] + 38470 * from[i + 10] + 7471 * from[i + 20] + 32768) >> 16);
    }
    assert_int_equal(tutti_picture_write(path, y, 0), 0);
    tutti_tensor_release(x);
    assert_int_equal(tutti_picture_read(path, 3, &x), 0);
    assert_memory_equal(tutti_tensor_data(x), gray, 10);
    assert_memory_equal((char *)tutti_tensor_data(x) + 20, gray, 10);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

/* Pictures of other programs: 2 x 2, interlaced, a palette of four colors with transparency; and 2
 * x 1 of 16-bit gray with alpha. */
static const unsigned char interlaced[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x04, 0x03, 0x00, 0x00, 0x01, 0xf7, 0x9f, 0x20,
    0x81, 0x00, 0x00, 0x00, 0x0c, 0x50, 0x4c, 0x54, 0x45, 0x0a, 0x14, 0x1e, 0x28, 0x32, 0x3c, 0x46,
    0x50, 0x5a, 0xfa, 0xf0, 0xe6, 0xc9, 0xb0, 0xfb, 0xf2, 0x00, 0x00, 0x00, 0x02, 0x74, 0x52, 0x4e,
    0x53, 0x00, 0x80, 0x9b, 0x2b, 0x4e, 0x18, 0x00, 0x00, 0x00, 0x0e, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0x60, 0x60, 0x10, 0x60, 0x50, 0x06, 0x00, 0x00, 0x59, 0x00, 0x34, 0xd0, 0x20, 0xff,
    0xa8, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static const unsigned char deep[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x10, 0x04, 0x00, 0x00, 0x00, 0x0e,
    0xbb, 0x6b, 0x42, 0x00, 0x00, 0x00, 0x11, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x10,
    0x32, 0xf9, 0xff, 0x7f, 0xf5, 0x59, 0x06, 0x06, 0x00, 0x12, 0x0d, 0x03, 0xbd, 0x4a, 0x3a,
    0x3a, 0x80, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static void all_kinds_of_png_become_bytes_of_colors(void **state)
{
    static const unsigned char colors[] = {10, 40, 70, 250, 20, 50, 80, 240, 30, 60, 90, 230};
    static const unsigned char grays[] = {0x12, 0xab};
    tutti_tensor_t *x;
    (void)state;
    assert_int_equal(tutti_picture_parse("x", tutti_bytes_of(interlaced, sizeof interlaced), 3, &x),
                     0);
    assert_memory_equal(tutti_tensor_data(x), colors, sizeof colors);
    tutti_tensor_release(x);
    assert_int_equal(tutti_picture_parse("x", tutti_bytes_of(deep, sizeof deep), 1, &x), 0);
    assert_true(tutti_shape_equal(tutti_tensor_shape(x), TUTTI_SHAPE(1, 1, 2)));
    assert_memory_equal(tutti_tensor_data(x), grays, sizeof grays);
    tutti_tensor_release(x);
}

/* Every prefix, and every byte changed: refused with a text, or a picture. */
static void damaged_pictures_are_refused(void **state)
{
    static const char *const names[] = {"a.png", "b.jpg"};
    for (int i = 0; i < 2; i++) {
        const char *path = path_of(*state, names[i]);
        tutti_tensor_t *x = make_picture(3, SIDE, SIDE), *y;
        tutti_buffer_t file;
        assert_int_equal(tutti_picture_write(path, x, 0), 0);
        assert_int_equal(tt_file_bytes(path, "test", &file), 0);
        for (size_t bytes = 0; bytes < file.bytes - 2; bytes++) {
            assert_int_equal(tutti_picture_parse("x", tutti_bytes_of(file.data, bytes), 3, &y),
                             TUTTI_ERR_FORMAT);
            tt_expect_error("x: ");
        }
        unsigned char *data = file.data;
        for (size_t at = 0; at < file.bytes; at++) {
            data[at] ^= 0x55;
            if (tutti_picture_parse("x", tutti_bytes_of(data, file.bytes), 3, &y) >= 0) {
                tutti_tensor_release(y);
            }
            data[at] ^= 0x55;
        }
        tt_free(file.data);
        tutti_tensor_release(x);
    }
    tutti_tensor_t *y;
    assert_int_equal(tutti_picture_parse("x", tutti_text("GIF89a"), 3, &y), TUTTI_ERR_FORMAT);
    tt_expect_error("x: 6 bytes that begin with 47 49 46 38: expected a PNG (89 50 4e 47) or JPEG");
    assert_int_equal(tutti_picture_parse("x", tutti_text(""), 3, &y), TUTTI_ERR_FORMAT);
    tt_expect_error("x: 0 bytes that begin with none");
    assert_int_equal(tutti_picture_parse("x", tutti_text("GIF89a"), 2, &y), TUTTI_ERR_ARG);
}

/* A chunk of a PNG: length, type, data, checksum. */
static size_t put_chunk(unsigned char *to, const char type[5], const unsigned char *data,
                        size_t bytes)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(bytes >> (24 - 8 * i));
    }
    memcpy(to + 4, type, 4);
    memcpy(to + 8, data, bytes);
    const unsigned long sum = crc32(0, to + 4, (unsigned)bytes + 4);
    for (int i = 0; i < 4; i++) {
        to[8 + bytes + (size_t)i] = (unsigned char)(sum >> (24 - 8 * i));
    }
    return bytes + 12;
}

/* Texts in a file, each of which is a thousandth of what it becomes, are passed by. */
static void texts_in_a_picture_take_no_memory(void **state)
{
    enum { TEXTS = 20, TEXT_BYTES = 4000000, HEADER_BYTES = 33 };
    static unsigned char packed[8192] = "note\0", file[TEXTS * 8192 + sizeof deep];
    unsigned char *text = tt_alloc(TEXT_BYTES, "test");
    uLongf bytes = sizeof packed - 6;
    assert_non_null(text);
    assert_int_equal(compress2(packed + 6, &bytes, text, TEXT_BYTES, 9), Z_OK);
    tt_free(text);
    memcpy(file, deep, HEADER_BYTES);
    size_t at = HEADER_BYTES, most = 0;
    for (int i = 0; i < TEXTS; i++) {
        at += put_chunk(file + at, "zTXt", packed, bytes + 6);
    }
    memcpy(file + at, deep + HEADER_BYTES, sizeof deep - HEADER_BYTES);
    at += sizeof deep - HEADER_BYTES;
    tutti_tensor_t *x;
    (void)state;
    tt_alloc_watch(true);
    assert_int_equal(tutti_picture_parse("x", tutti_bytes_of(file, at), 1, &x), 0);
    (void)tt_alloc_peak(&most, NULL, 0);
    tt_alloc_watch(false);
    assert_in_range(most, 1, 1 << 20);
    tutti_tensor_release(x);
}

/* A progressive JPEG of a scan for each coefficient of each color; libjpeg's own memory. */
static tutti_buffer_t make_scans(void)
{
    enum { SCANS = 1 + 3 * 63 };
    static jpeg_scan_info scans[SCANS] = {{.comps_in_scan = 3, .component_index = {0, 1, 2}}};
    for (int i = 1; i < SCANS; i++) {
        const int k = 1 + (i - 1) / 3;
        scans[i] = (jpeg_scan_info){
            .comps_in_scan = 1, .component_index = {(i - 1) % 3}, .Ss = k, .Se = k};
    }
    struct jpeg_error_mgr errors;
    struct jpeg_compress_struct out = {.err = jpeg_std_error(&errors)};
    unsigned char *bytes = NULL, row[3 * SIDE] = {0};
    unsigned long count = 0;
    jpeg_create_compress(&out);
    jpeg_mem_dest(&out, &bytes, &count);
    out.image_width = out.image_height = SIDE;
    out.input_components = 3;
    out.in_color_space = JCS_RGB;
    jpeg_set_defaults(&out);
    out.scan_info = scans;
    out.num_scans = SCANS;
    jpeg_start_compress(&out, TRUE);
    for (int i = 0; i < SIDE; i++) {
        unsigned char *rows[] = {row};
        jpeg_write_scanlines(&out, rows, 1);
    }
    jpeg_finish_compress(&out);
    jpeg_destroy_compress(&out);
    return (tutti_buffer_t){bytes, count};
}

/* A scan of some bytes costs a walk over the whole picture. */
static void pictures_of_many_scans_are_refused(void **state)
{
    tutti_buffer_t file = make_scans();
    tutti_tensor_t *x;
    (void)state;
    assert_int_equal(tutti_picture_parse("x", tutti_bytes_of(file.data, file.bytes), 3, &x),
                     TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("x: a JPEG of more than 100 scans");
    free(file.data);
}

static void what_is_no_picture_is_not_written(void **state)
{
    tutti_tensor_t *x = make_picture(3, 2, 2);
    assert_int_equal(tutti_picture_write(path_of(*state, "a.gif"), x, 0), TUTTI_ERR_ARG);
    tt_expect_error("a picture's name ends in .png, .jpg or .jpeg");
    assert_int_equal(tutti_picture_write(path_of(*state, "a.jpg"), x, 101), TUTTI_ERR_ARG);
    tt_expect_error("quality 101");
    assert_int_equal(tutti_picture_write("/nonexistent/a.jpg", x, 0), TUTTI_ERR_IO);
    tutti_tensor_release(x);
    x = make_picture(2, 2, 2);
    assert_int_equal(tutti_picture_write(path_of(*state, "a.png"), x, 0), TUTTI_ERR_SHAPE);
    tt_expect_error("not u8[2, 2, 2]");
    tutti_tensor_release(x);
}

static void no_allocation_of_a_picture_that_fails_is_lost(void **state)
{
    static const char *const names[] = {"a.png", "b.jpg"};
    for (int i = 0; i < 2; i++) {
        const char *path = path_of(*state, names[i]);
        tutti_tensor_t *x = make_picture(3, SIDE, SIDE);
        bool has_failed = true;
        for (size_t n = 1; has_failed; n++) {
            tutti_tensor_t *y = NULL;
            tt_alloc_fail_at(n);
            tutti_status_t status = tutti_picture_write(path, x, 0);
            status = status < 0 ? status : tutti_picture_read(path, 3, &y);
            has_failed = tt_alloc_has_failed();
            tt_alloc_fail_at(0);
            tutti_tensor_release(y);
            assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        }
        tutti_tensor_release(x);
    }
}

/* ---- folders --------------------------------------------------------------------------------- */

static void put(const place_t *place, const char *name, int height, int width)
{
    tutti_tensor_t *x = make_picture(3, height, width);
    assert_int_equal(tutti_picture_write(path_of(place, name), x, 0), 0);
    tutti_tensor_release(x);
}

static void a_folder_is_a_class(void **state)
{
    const place_t *place = *state;
    static const char *const folders[] = {"tulip", "rose", "rose/more", "Zinnia"};
    static const char *const paths[] = {"Zinnia/9.png", "rose/10.PNG", "rose/2.jpg",
                                        "rose/more/1.jpeg", "tulip/1.png"};
    static const int64_t classes[] = {0, 1, 1, 1, 2};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mkdir(path_of(place, folders[i]), 0700), 0);
    }
    for (int i = 0; i < 5; i++) {
        put(place, paths[4 - i], 4 + i, 9 - i);
    }
    FILE *notes = fopen(path_of(place, "rose/notes.txt"), "w");
    assert_non_null(notes);
    assert_int_equal(fclose(notes), 0);
    tutti_dataset_t *d;
    const tutti_folder_options_t options = {.folder = place->folder};
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 5);
    assert_string_equal(tutti_folder_class(d, 0), "Zinnia");
    assert_string_equal(tutti_folder_class(d, 2), "tulip");
    assert_null(tutti_folder_class(d, 3));
    tutti_sample_t sample = {0};
    for (int i = 0; i < 5; i++) {
        assert_string_equal(tutti_folder_path(d, i), path_of(place, paths[i]));
        assert_int_equal(tutti_dataset_read(d, i, (tutti_draw_t){0}, &sample), 0);
        assert_true(tutti_shape_equal(sample.shapes[0], TUTTI_SHAPE(3, 8 - i, 5 + i)));
        assert_int_equal(*(const int64_t *)sample.data[1], classes[i]);
    }
    tutti_sample_clear(&sample);
    tutti_dataset_release(d);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(unlink(path_of(place, paths[i])), 0);
    }
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), TUTTI_ERR_FORMAT);
    tt_expect_error("class Zinnia has no picture");
    assert_int_equal(unlink(path_of(place, "rose/notes.txt")), 0);
    for (int i = 3; i >= 0; i--) {
        assert_int_equal(rmdir(path_of(place, folders[i])), 0);
    }
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), TUTTI_ERR_FORMAT);
    tt_expect_error("holds no folder: one for each class is expected");
    const tutti_folder_options_t none = {.folder = "/nonexistent"};
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &none, &d), TUTTI_ERR_IO);
    tt_expect_error("/nonexistent");
    const tutti_folder_options_t odd = {.folder = place->folder, .channels = 4};
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &odd, &d), TUTTI_ERR_ARG);
}

/* What a test of links has made, the newest last. */
typedef struct {
    char names[64][32];
    int count;
} made_t;

static const char *note(made_t *made, const char *name)
{
    assert_in_range(made->count, 0, 63);
    snprintf(made->names[made->count], sizeof made->names[0], "%s", name);
    return made->names[made->count++];
}

static void make_folder(const place_t *place, made_t *made, const char *name)
{
    assert_int_equal(mkdir(path_of(place, note(made, name)), 0700), 0);
}

static void make_link(const place_t *place, made_t *made, const char *target, const char *name)
{
    assert_int_equal(symlink(target, path_of(place, note(made, name))), 0);
}

static void remove_to(const place_t *place, made_t *made, int count)
{
    while (made->count > count) {
        assert_int_equal(remove(path_of(place, made->names[--made->count])), 0);
    }
}

/* In the order of torchvision's ImageFolder: folders as texts, so that "a-b" is before "a/z". */
static void pictures_stand_in_the_order_of_their_folders(void **state)
{
    const place_t *place = *state;
    static const char *const folders[] = {"c", "c/a", "c/a-b", "c/a.b", "c/a/z"};
    static const char *const paths[] = {"c/b.png",     "c/z.png",     "c/a/1.png",
                                        "c/a-b/2.png", "c/a.b/3.png", "c/a/z/9.png"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(mkdir(path_of(place, folders[i]), 0700), 0);
    }
    for (int i = 0; i < 6; i++) {
        put(place, paths[i], 2, 2);
    }
    put(place, "c/a/._1.png", 2, 2); /* macOS leaves such */
    tutti_dataset_t *d;
    const tutti_folder_options_t options = {.folder = place->folder};
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(tutti_folder_path(d, i), path_of(place, paths[i]));
        assert_int_equal(unlink(path_of(place, paths[i])), 0);
    }
    tutti_dataset_release(d);
    assert_int_equal(unlink(path_of(place, "c/a/._1.png")), 0);
    for (int i = 4; i >= 0; i--) {
        assert_int_equal(rmdir(path_of(place, folders[i])), 0);
    }
}

/* Each folder of a chain leads to the next one in two ways. */
static void make_chain(const place_t *place, made_t *made, int folders)
{
    char name[32], target[32];
    for (int i = 0; i < folders; i++) {
        snprintf(name, sizeof name, ".chain%d", i);
        make_folder(place, made, name);
        snprintf(target, sizeof target, "../.chain%d", i + 1);
        for (int link = 0; link < 2 && i + 1 < folders; link++) {
            snprintf(name, sizeof name, ".chain%d/%d", i, link);
            make_link(place, made, target, name);
        }
    }
}

static void expect_count(const place_t *place, int64_t count)
{
    tutti_dataset_t *d;
    const tutti_folder_options_t options = {.folder = place->folder};
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, count);
    tutti_dataset_release(d);
}

static void a_folder_counts_once_in_a_class(void **state)
{
    const place_t *place = *state;
    made_t made = {.count = 0};
    tutti_dataset_t *d;
    const tutti_folder_options_t options = {.folder = place->folder};
    make_folder(place, &made, "rose");
    put(place, note(&made, "rose/1.png"), 3, 3);
    make_folder(place, &made, ".more");
    put(place, note(&made, ".more/2.png"), 3, 3);
    make_link(place, &made, "../.more", "rose/a");
    expect_count(place, 2); /* one link is as good as a folder */
    const int good = made.count;
    make_link(place, &made, "rose", "tulip");
    expect_count(place, 4); /* and each class has its own */
    remove_to(place, &made, good);
    make_chain(place, &made, 12);
    make_link(place, &made, "../.chain0", "rose/b");
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), TUTTI_ERR_ARG);
    tt_expect_error("is a folder that its class has already: a link leads to it again");
    remove_to(place, &made, good);
    make_link(place, &made, ".", "rose/self");
    assert_int_equal(tutti_dataset_create(&tutti_folder_dataset, &options, &d), TUTTI_ERR_ARG);
    tt_expect_error("rose/self is a folder that its class has already");
    remove_to(place, &made, 0);
}

/* ---- CIFAR ----------------------------------------------------------------------------------- */

static void put_records(const place_t *place, const char *name, int labels, int records, int first)
{
    FILE *file = fopen(path_of(place, name), "wb");
    assert_non_null(file);
    for (int i = 0; i < records; i++) {
        for (int k = 0; k < labels + 3072; k++) {
            assert_true(fputc(k < labels ? first + i + k : (i + k - labels) & 255, file) >= 0);
        }
    }
    assert_int_equal(fclose(file), 0);
}

static void cifar_is_read_from_its_binary_files(void **state)
{
    const place_t *place = *state;
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        put_records(place, name, 1, 2, i);
    }
    put_records(place, "test.bin", 2, 3, 17);
    put_records(place, "train.bin", 2, 3, 18);
    tutti_dataset_t *d;
    unsigned char pixels[3072], label;
    tutti_sample_t sample = {.data = {pixels, &label}};
    tutti_cifar_options_t o = {.folder = place->folder};
    assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 10);
    assert_int_equal(tutti_dataset_read(d, 7, (tutti_draw_t){0}, &sample), 0);
    assert_int_equal(label, 5);
    assert_int_equal(pixels[0], 1);
    assert_int_equal(pixels[3071], (1 + 3071) & 255);
    tutti_dataset_release(d);
    o.is_100 = o.is_test = true;
    for (int i = 0; i < 2; i++) {
        o.is_coarse = i == 1;
        assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), 0);
        assert_int_equal(tutti_dataset_info(d).count, 3);
        assert_int_equal(tutti_dataset_read(d, 2, (tutti_draw_t){0}, &sample), 0);
        assert_int_equal(label, i == 1 ? 19 : 20);
        tutti_dataset_release(d);
    }
    o.is_test = false;
    assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), TUTTI_ERR_FORMAT);
    tt_expect_error("train.bin: label 20 at offset 6148: expected below 20");
    o.is_100 = false;
    assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), TUTTI_ERR_ARG);
    o.is_coarse = false;
    o.is_test = true;
    assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), TUTTI_ERR_IO);
    tt_expect_error("test_batch.bin");
    put_records(place, "test_batch.bin", 2, 1, 1);
    assert_int_equal(tutti_dataset_create(&tutti_cifar_dataset, &o, &d), TUTTI_ERR_FORMAT);
    tt_expect_error("test_batch.bin: 3074 bytes: expected records of 3073");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pictures_are_read_as_they_were_written),
        TEST(colors_become_gray_and_gray_becomes_colors),
        TEST(all_kinds_of_png_become_bytes_of_colors),
        TEST(damaged_pictures_are_refused),
        TEST(texts_in_a_picture_take_no_memory),
        TEST(pictures_of_many_scans_are_refused),
        TEST(what_is_no_picture_is_not_written),
        TEST(no_allocation_of_a_picture_that_fails_is_lost),
        TEST(a_folder_is_a_class),
        TEST(pictures_stand_in_the_order_of_their_folders),
        TEST(a_folder_counts_once_in_a_class),
        TEST(cifar_is_read_from_its_binary_files),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
