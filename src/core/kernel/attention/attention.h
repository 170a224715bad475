/* Scaled-dot-product attention on raw pointers, blocked: no Tq×Tk matrix is ever in memory.
 *
 *     out[b,tq,h,:] = sum over tk of softmax(scale · q·k)[tk] · v[b,tk,h,:]
 *
 *     // q, k, v in place in the output of one linear, qkv[B,T,3,H,D]; out[B,T,H,D]
 *     const tt_heads_t q = {qkv, T * 3 * H * D, D, 3 * H * D};
 *     tt_attention_forward(exec, &(tt_attention_t){.batch = B, .heads = H, .tq = T, .tk = T,
 *         .d = D, .causal = true, .scale = 1 / sqrt(D), .q = q, …, .out = …, .max_sum = pairs});
 *
 * Heads of queries may share keys and values (Ainslie et al., "GQA", 2023; Shazeer, "Fast
 * Transformer Decoding", 2019, of one for all): query head h has those of h / group. Nothing is
 * repeated in memory, and the bits forward are those of keys and values that are.
 *
 * Bits: blocks are fixed and (b,h) pairs are independent, backward those that
 * share keys, so threads, batch and strides change none. Products of bf16 are of bf16 where the CPU
 * has such (AVX512_BF16): weights and gradients of scores are rounded to it then, once, as
 * FlashAttention does; sums stay f32. Source: Dao et al., "FlashAttention" (2022); Milakov and
 * Gimelshein, "Online normalizer calculation for softmax" (2018).
 */
#ifndef TT_ATTENTION_H
#define TT_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/base/rng.h"
#include "core/exec/exec.h"

/* [B,H,T,D] with any strides, in elements; the last dimension is contiguous. Of keys and values,
 * which `group` heads of queries share, H is so much smaller. */
typedef struct {
    void *data;
    int64_t stride_b, stride_h, stride_t;
} tt_heads_t;

/* Of the scaled scores s of a query, whose weights are e^(s - max) / sum. Not in one number, the
 * log-sum-exp: where scores are large it has no digits behind the point. sum 0: no key seen. */
typedef struct {
    float max, sum;
} tt_max_sum_t;

typedef struct {
    int64_t batch, heads, tq, tk, d;
    int64_t group;       /* heads of queries that share keys and values; divides heads; 0: 1 */
    tutti_dtype_t dtype; /* of q k v out and their gradients: f32, f64, bf16, f16 */
    double scale;
    bool causal;                /* query i sees keys 0 … i, also where Tq != Tk (torch's rule) */
    const uint8_t *key_padding; /* [B,Tk] or NULL; non-zero: this key is ignored */
    float dropout;              /* probability in [0,1) that a weight is zeroed; 0: none */
    tt_rng_t rng;               /* of the dropout; counter = ((b·H + h)·Tq + tq)·Tk + tk */
    int64_t all_heads;     /* where these are heads first_head … of so many: H and h in the */
    int64_t first_head;    /* counter are of all of them; all_heads 0: these are all */
    tt_heads_t q, k, v;    /* [B,H,Tq,D], [B,H/group,Tk,D], the same; read */
    tt_heads_t out;        /* [B,H,Tq,D]; written by forward, read by backward */
    tt_max_sum_t *max_sum; /* [B,H,Tq]; same */
    tt_heads_t dout;       /* [B,H,Tq,D]; read by backward */
    tt_heads_t dq, dk, dv; /* written by backward, not added to */
} tt_attention_t;

/* A query that sees no key gives zeros. What a direction does not use is NULL.
 * Errors: DTYPE, ARG, UNSUPPORTED (D); NOMEM (scratch); those of a launch. */
TT_LAUNCHES tutti_status_t tt_attention_forward(tt_exec_t *exec, const tt_attention_t *attention);
TT_LAUNCHES tutti_status_t tt_attention_backward(tt_exec_t *exec, const tt_attention_t *attention);

/* Which keys a query does not see, for causal and key_padding: u8 [B,Tq,Tk] into out.data. */
TT_LAUNCHES tutti_status_t tt_attention_hidden(tt_exec_t *exec, const tt_attention_t *attention);

#endif
