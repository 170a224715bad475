/**
 * @file transforms.h
 * What is done to pictures before they are trained on: cutting, turning, coloring, normalising,
 * one after another; and mixing those of a batch.
 *
 * Example:
 *
 *     static const tutti_resized_crop_options_t crop = {.height = 224, .width = 224};
 *     static const tutti_flip_options_t flip = {.probability = 0.5};
 *     static const tutti_normalize_options_t scale = {.mean = {0.485, 0.456, 0.406},
 *                                                     .std = {0.229, 0.224, 0.225}};
 *     static const tutti_transform_t steps[] = {{&tutti_resized_crop_transform, &crop},
 *                                               {&tutti_flip_transform, &flip},
 *                                               {&tutti_normalize_transform, &scale}};
 *
 *     tutti_dataset_t *files, *train;
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_folder_dataset,
 *         &(tutti_folder_options_t){.folder = "flowers"}, &files));
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_transform_dataset, &(tutti_transform_options_t){
 *         .dataset = files, .steps = steps, .step_count = 3, .seed = seed}, &train));
 *
 * What comes out depends on (seed, epoch, position, sample) alone: ranks, workers and a resume
 * change no bit. Each step has random numbers of its own, so that one step more does not change
 * what another draws.
 *
 * Pictures are planes [channels, height, width], u8, or f32 in 0 … 1, of 1 to 2^28 pixels. Steps
 * that only move pixels (crops, flips, nearest neighbors) keep the dtype; all others give f32, and
 * take a byte b as b / 255. So where PIL rounds to bytes after each step, nothing is rounded here:
 * numbers are as torchvision's of float tensors.
 */
#ifndef TUTTI_TRANSFORMS_H
#define TUTTI_TRANSFORMS_H

#include <tutti/dataloader.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A picture on its way. */
typedef struct tutti_picture {
    tutti_dtype_t dtype; /**< u8 or f32 */
    int64_t channels, height, width;
    void *data;
    tutti_buffer_t own;     /**< memory that the picture owns */
    tutti_sample_t *sample; /**< whose field it is; NULL: it lies in memory of its own */
    int field;
    bool is_mask;            /**< its bytes are classes: they move, and are never blended */
    unsigned char mask_fill; /**< the class of what comes from outside a mask */
} tutti_picture_t;

/** Say what a picture is to be, before it is written. @param picture  its data are then memory for
 *  it @thread one at a time per picture @errors ARG (sizes that a step did not plan, or more than
 *  2^28 pixels), NOMEM */
TUTTI_API tutti_status_t tutti_picture_resize(tutti_picture_t *picture, tutti_dtype_t dtype,
                                              int64_t channels, int64_t height, int64_t width);

/** What a kind of step can do. */
typedef struct tutti_transform_ops {
    const char *name;  /**< "flip" */
    const char *about; /**< one line */

    /** Check the options (NULL: none were given), and say what comes out of [channels, height,
     *  width], of which sizes may be TUTTI_ANY. */
    tutti_status_t (*plan)(const void *options, const tutti_field_t *from, tutti_field_t *to);

    /** Resize and write `to`. TUTTI_END: the picture stays as it is; `to` is not touched then. Any
     *  threads at once. */
    tutti_status_t (*run)(const void *options, tutti_random_t *random, const tutti_picture_t *from,
                          tutti_picture_t *to);

    /** It moves pixels, and masks go through it, too: `run` then keeps the bytes of a picture that
     *  `is_mask`, and draws the same random numbers for it. False: masks stay as they are. */
    bool moves_pixels;
} tutti_transform_ops_t;

/** A step. */
typedef struct tutti_transform {
    const tutti_transform_ops_t *kind;
    const void *options; /**< of that kind; borrowed, must outlive the data set */
} tutti_transform_t;

enum { TUTTI_TRANSFORM_STEPS_MAX = 32 };

/** What a field is to the steps. */
typedef enum tutti_transform_role {
    TUTTI_ROLE_STAYS,   /**< it is copied, as a label is */
    TUTTI_ROLE_MASK,    /**< a class for each pixel: u8 [channels, height, width]. Steps that move
                             pixels are done to it, by the nearest neighbor; others are not */
    TUTTI_ROLE_PICTURE, /**< one more picture, as the other eye's: every step is done to it */
} tutti_transform_role_t;

typedef struct tutti_transform_options {
    tutti_dataset_t *dataset;       /**< whose field 0 are pictures; retained */
    const tutti_transform_t *steps; /**< [step_count], copied */
    int step_count;
    uint64_t seed;
    tutti_transform_role_t roles[TUTTI_FIELDS_MAX]; /**< of fields but field 0 */
    int mask_fill; /**< 0 … 255: the class of what comes from outside a mask (255: "ignore") */
} tutti_transform_options_t;

/* A picture and its mask, or several pictures, go through the same: each step draws the same random
 * numbers for all fields of a sample, which must have the same height and width.
 *
 *     tutti_dataset_t *scenes, *train;
 *     static const tutti_resized_crop_options_t crop = {.height = 512, .width = 512};
 *     static const tutti_transform_t steps[] = {{&tutti_resized_crop_transform, &crop},
 *                                               {&tutti_normalize_transform, NULL}};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_tensor_dataset,
 *         &(tutti_tensor_data_options_t){.input = x, .target = y}, &scenes));
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_transform_dataset, &(tutti_transform_options_t){
 *         .dataset = scenes, .steps = steps, .step_count = 2, .seed = seed,
 *         .roles = {[TUTTI_TARGET] = TUTTI_ROLE_MASK}, .mask_fill = 255}, &train));
 */

/** Pictures that go through steps. @source torchvision.transforms.Compose,
 *  torchvision.transforms.v2.Compose of images and masks (tv_tensors) */
TUTTI_API extern const tutti_dataset_ops_t tutti_transform_dataset;

/* ---- cutting --------------------------------------------------------------------------------- */

typedef struct tutti_crop_options {
    int64_t height, width;
    int64_t padding; /**< pixels added on each side before */
    double fill;     /**< their value, in 0 … 1 */
} tutti_crop_options_t;

/** The middle; a smaller picture is padded. @source torchvision.transforms.CenterCrop */
TUTTI_API extern const tutti_transform_ops_t tutti_center_crop_transform;

/** A part anywhere; a picture must be large enough. @source torchvision.transforms.RandomCrop */
TUTTI_API extern const tutti_transform_ops_t tutti_random_crop_transform;

/** How a picture gets other sizes. */
typedef enum tutti_resample {
    TUTTI_RESAMPLE_BILINEAR, /**< a triangle, as wide as a new pixel is (antialias=True) */
    TUTTI_RESAMPLE_BICUBIC,  /**< the same with the cubic of a = -1/2 */
    TUTTI_RESAMPLE_NEAREST,  /**< the pixel under the middle */
} tutti_resample_t;

typedef struct tutti_resize_options {
    int64_t height, width; /**< or: */
    int64_t shorter;       /**< pixels of the shorter side; the other follows */
    tutti_resample_t resample;
} tutti_resize_options_t;

/** Other sizes. @source torchvision.transforms.Resize of a float tensor with antialias=True */
TUTTI_API extern const tutti_transform_ops_t tutti_resize_transform;

typedef struct tutti_resized_crop_options {
    int64_t height, width;
    double scale[2]; /**< least and largest share of the area; {0, 0} is {0.08, 1} */
    double ratio[2]; /**< least and largest width / height; {0, 0} is {3/4, 4/3} */
    tutti_resample_t resample;
} tutti_resized_crop_options_t;

/** A part of any size, resized. @source torchvision.transforms.RandomResizedCrop */
TUTTI_API extern const tutti_transform_ops_t tutti_resized_crop_transform;

/* ---- turning --------------------------------------------------------------------------------- */

typedef struct tutti_flip_options {
    double probability;
    bool vertical; /**< upside down, instead of left to right */
} tutti_flip_options_t;

/** Mirrored. @source torchvision.transforms.RandomHorizontalFlip, RandomVerticalFlip */
TUTTI_API extern const tutti_transform_ops_t tutti_flip_transform;

typedef struct tutti_affine_options {
    double degrees[2];         /**< least and largest angle, clockwise */
    double translate[2];       /**< most by which it moves, in shares of width and height */
    double scale[2];           /**< least and largest factor; {0, 0} is {1, 1} */
    double shear[2];           /**< least and largest angle along x, in degrees */
    double fill;               /**< of what comes from outside, in 0 … 1 */
    tutti_resample_t resample; /**< bilinear (of four pixels) or nearest */
} tutti_affine_options_t;

/** Rotated, moved, scaled and sheared around the middle. @source
 *  torchvision.transforms.RandomAffine, RandomRotation */
TUTTI_API extern const tutti_transform_ops_t tutti_affine_transform;

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct tutti_jitter_options {
    double brightness, contrast, saturation; /**< a factor from 1 - it, at least 0, to 1 + it */
    double hue; /**< a turn of the circle of colors by at most this share, 0 … 0.5 */
} tutti_jitter_options_t;

/** Brightness, contrast, saturation and hue, in a random order; the last two of three channels.
 *  @source torchvision.transforms.ColorJitter */
TUTTI_API extern const tutti_transform_ops_t tutti_jitter_transform;

typedef struct tutti_grayscale_options {
    double probability;
} tutti_grayscale_options_t;

/** Gray, 0.2989 r + 0.587 g + 0.114 b, in all three channels. @source
 *  torchvision.transforms.RandomGrayscale */
TUTTI_API extern const tutti_transform_ops_t tutti_grayscale_transform;

typedef struct tutti_normalize_options {
    double mean[4], std[4]; /**< of each channel; all of both 0: bytes become b / 255, no more */
} tutti_normalize_options_t;

/** (x - mean) / std, f32. @source torchvision.transforms.Normalize, ToTensor */
TUTTI_API extern const tutti_transform_ops_t tutti_normalize_transform;

typedef struct tutti_erase_options {
    double probability;
    double scale[2]; /**< least and largest share of the area; {0, 0} is {0.02, 0.33} */
    double ratio[2]; /**< least and largest height / width; {0, 0} is {0.3, 3.3} */
    double value;    /**< of what is erased, on the picture's own scale */
    bool is_random;  /**< normal numbers instead */
} tutti_erase_options_t;

/** A rectangle erased; f32. @source torchvision.transforms.RandomErasing */
TUTTI_API extern const tutti_transform_ops_t tutti_erase_transform;

/* ---- batches --------------------------------------------------------------------------------- */

typedef struct tutti_mix_options {
    double alpha;    /**< of the Beta(alpha, alpha) that shares are drawn from; above 0 */
    int64_t classes; /**< of the targets */
} tutti_mix_options_t;

/**
 * As tutti_dataloader_options_t.batch_call: each input becomes share × itself + (1 - share) × the
 * one before it in the batch, and targets, integers [size], become f32 [size, classes].
 *
 * @thread  any, at once
 * @errors  ARG (options), SHAPE (f32 inputs and integer targets are expected), FORMAT (a target
 *          that is no class), NOMEM
 * @source  torchvision.transforms.v2.MixUp; Zhang et al., ICLR 2018
 */
TUTTI_API tutti_status_t tutti_mixup(const void *options, tutti_random_t *random,
                                     tutti_batch_t *batch);

/** The same, but a rectangle of [..., height, width] comes from the one before, whose share is that
 *  of its area. @thread any, at once @errors as tutti_mixup @source
 *  torchvision.transforms.v2.CutMix; Yun et al., ICCV 2019 */
TUTTI_API tutti_status_t tutti_cutmix(const void *options, tutti_random_t *random,
                                      tutti_batch_t *batch);

#ifdef __cplusplus
}
#endif

#endif
