/* Nodes that can run, the latest made first: a binary heap whose room its owner made. */
#ifndef TT_READY_HEAP_H
#define TT_READY_HEAP_H

#include "compute/autograd/node.h"

typedef struct {
    tt_node_t **nodes;
    size_t count;
} tt_ready_heap_t;

static inline void tt_ready_swap(tt_node_t **a, tt_node_t **b)
{
    tt_node_t *kept = *a;
    *a = *b;
    *b = kept;
}

static inline void tt_ready_push(tt_ready_heap_t *heap, tt_node_t *node)
{
    tt_node_t **nodes = heap->nodes;
    size_t i = heap->count++;
    nodes[i] = node;
    for (; i > 0 && nodes[(i - 1) / 2]->sequence < nodes[i]->sequence; i = (i - 1) / 2) {
        tt_ready_swap(&nodes[(i - 1) / 2], &nodes[i]);
    }
}

static inline tt_node_t *tt_ready_pop(tt_ready_heap_t *heap)
{
    tt_node_t **nodes = heap->nodes, *top = nodes[0];
    nodes[0] = nodes[--heap->count];
    for (size_t i = 0;;) {
        size_t largest = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap->count; child++) {
            if (nodes[child]->sequence > nodes[largest]->sequence) {
                largest = child;
            }
        }
        if (largest == i) {
            return top;
        }
        tt_ready_swap(&nodes[i], &nodes[largest]);
        i = largest;
    }
}

#endif
