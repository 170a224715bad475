/**
 * @file pictures.h
 * Data sets of pictures.
 *
 * Example:
 *
 *     tutti_dataset_t *clothes;
 *     const tutti_mnist_options_t files = {.folder = "fashion-mnist", .mean = 0.286, .std = 0.353};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_mnist_dataset, &files, &clothes));
 *     tutti_dataset_release(clothes);
 */
#ifndef TUTTI_PICTURES_H
#define TUTTI_PICTURES_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

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
