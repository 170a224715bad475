/**
 * @file pictures.h
 * Pictures: reading and writing PNG and JPEG, and data sets of them. What is done to pictures is
 * transforms.h's.
 *
 * Example:
 *
 *     // flowers/rose/1.jpg, flowers/rose/2.jpg, flowers/tulip/1.png, …
 *     tutti_dataset_t *flowers;
 *     const tutti_folder_options_t files = {.folder = "flowers"};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_folder_dataset, &files, &flowers));
 *     printf("class 0 is %s\n", tutti_folder_class(flowers, 0)); // rose
 *
 * A picture is planes of bytes, u8 [channels, height, width], of red, green and blue, or of gray.
 */
#ifndef TUTTI_PICTURES_H
#define TUTTI_PICTURES_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Read a PNG or JPEG file; which of them it is, its first bytes say. Transparency is left out, 16
 * bits become 8, palettes become colors.
 *
 * @param channels  3: red, green, blue; 1: gray, (19595 r + 38470 g + 7471 b + 32768) / 65536
 * @param out       owned by the caller: u8 [channels, height, width]
 * @thread          any
 * @errors          IO, FORMAT (path, and what is wrong with it; a file that is cut), UNSUPPORTED
 *                  (CMYK; more than 2^28 pixels; a JPEG of more than 100 scans), ARG (channels),
 *                  NOMEM
 * @source          torchvision.io.decode_image; PIL.Image.convert
 */
TUTTI_API tutti_status_t tutti_picture_read(const char *path, int channels, tutti_tensor_t **out);

/** The same from bytes in memory. @param name stands for the path in messages @thread any
 *  @errors FORMAT, UNSUPPORTED, ARG, NOMEM */
TUTTI_API tutti_status_t tutti_picture_parse(const char *name, tutti_bytes_t data, int channels,
                                             tutti_tensor_t **out);

/**
 * Write a picture: PNG if the path ends in .png, JPEG if in .jpg or .jpeg.
 *
 * @param x        u8 [3 or 1, height, width], contiguous, of the host
 * @param quality  of a JPEG, 1 to 100; 0: 75
 * @thread         any
 * @errors         ARG (the name, quality), SHAPE, IO, NOMEM
 * @source         torchvision.io.write_jpeg
 */
TUTTI_API tutti_status_t tutti_picture_write(const char *path, const tutti_tensor_t *x,
                                             int quality);

/* ---- data sets ------------------------------------------------------------------------------- */

typedef struct tutti_folder_options {
    const char *folder; /**< with a folder for each class */
    int channels;       /**< 0: 3 */
} tutti_folder_options_t;

/** A folder for each class: input u8 [channels, TUTTI_ANY, TUTTI_ANY], target i64 [], the number of
 *  the class. Classes are numbered in the order of their names, byte by byte; pictures of a class
 *  in that of the paths of their folders, which may lie below it, and in a folder in that of their
 *  names. They are files whose names end in .png, .jpg or .jpeg, in large or small letters; what
 *  begins with a point is passed by. Pictures are read each time they are asked for.
 *  Links are followed; one that leads to a folder that the class has already is an error (ARG).
 *  @source torchvision.datasets.ImageFolder */
TUTTI_API extern const tutti_dataset_ops_t tutti_folder_dataset;

/** The name of a class of a tutti_folder_dataset; NULL if there is no such. @thread any
 *  @errors none */
TUTTI_API const char *tutti_folder_class(tutti_dataset_t *d, int64_t index);

/** The path of a sample of a tutti_folder_dataset; NULL if there is no such. @thread any
 *  @errors none */
TUTTI_API const char *tutti_folder_path(tutti_dataset_t *d, int64_t sample);

typedef struct tutti_cifar_options {
    const char *folder; /**< of the binary version's files: data_batch_1.bin … data_batch_5.bin and
                             test_batch.bin, or train.bin and test.bin */
    bool is_100;        /**< CIFAR-100 */
    bool is_coarse;     /**< of CIFAR-100: targets are the 20 superclasses */
    bool is_test;
} tutti_cifar_options_t;

/** CIFAR-10 and CIFAR-100: input u8 [3, 32, 32], target u8 []; in memory. @source
 *  https://www.cs.toronto.edu/~kriz/cifar.html, "binary version" */
TUTTI_API extern const tutti_dataset_ops_t tutti_cifar_dataset;

typedef struct tutti_mnist_options {
    const char *folder; /**< of the four files train-images-idx3-ubyte, t10k-labels-idx1-ubyte, …,
                             plain or with .gz behind their names */
    bool is_test;       /**< t10k instead of train */
    double mean;        /**< of the normalisation; of Fashion-MNIST 0.286 */
    double std;         /**< 0: 1; of Fashion-MNIST 0.353 */
} tutti_mnist_options_t;

/** MNIST, Fashion-MNIST and others of their format: input f32 [1, height, width], which is
 *  (byte / 255 - mean) / std, target u8 []. @source torchvision.datasets.FashionMNIST */
TUTTI_API extern const tutti_dataset_ops_t tutti_mnist_dataset;

#ifdef __cplusplus
}
#endif

#endif
