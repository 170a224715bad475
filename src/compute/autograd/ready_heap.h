/* Visits of nodes that can run, the latest made first: a binary heap whose room its owner made. */
#ifndef TT_READY_HEAP_H
#define TT_READY_HEAP_H

#include "compute/autograd/visit.h"

typedef struct {
    tt_visit_t **visits;
    size_t count;
} tt_ready_heap_t;

static inline void tt_ready_swap(tt_visit_t **a, tt_visit_t **b)
{
    tt_visit_t *kept = *a;
    *a = *b;
    *b = kept;
}

static inline void tt_ready_push(tt_ready_heap_t *heap, tt_visit_t *visit)
{
    tt_visit_t **visits = heap->visits;
    size_t i = heap->count++;
    visits[i] = visit;
    for (; i > 0 && visits[(i - 1) / 2]->node->sequence < visits[i]->node->sequence;
         i = (i - 1) / 2) {
        tt_ready_swap(&visits[(i - 1) / 2], &visits[i]);
    }
}

static inline tt_visit_t *tt_ready_pop(tt_ready_heap_t *heap)
{
    tt_visit_t **visits = heap->visits, *top = visits[0];
    visits[0] = visits[--heap->count];
    for (size_t i = 0;;) {
        size_t largest = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap->count; child++) {
            if (visits[child]->node->sequence > visits[largest]->node->sequence) {
                largest = child;
            }
        }
        if (largest == i) {
            return top;
        }
        tt_ready_swap(&visits[i], &visits[largest]);
        i = largest;
    }
}

#endif
