/* Lists of hooks, in the order of their registration, that change while they are walked: a hook may
 * add and remove hooks, itself too. What is removed is not called any more, and freed when no walk
 * is under way. What is added during a walk is called from the next walk on.
 *
 *     tt_hook_walk_t walk = tt_hooks_begin(&list);
 *     while ((hook = tt_hooks_next(&walk)) != NULL) {
 *         …
 *     }
 *     tt_hooks_end(&walk);
 *
 * Source: torch, which walks a copy of the list. */
#ifndef TT_HOOK_LIST_H
#define TT_HOOK_LIST_H

#include <stdbool.h>

/* The head of each kind of hook. */
typedef struct tt_hook_link {
    struct tt_hook_link *next;
    void *user;
    bool is_removed;
} tt_hook_link_t;

typedef struct {
    tt_hook_link_t *first;
    int walks; /* under way */
} tt_hook_list_t;

typedef struct {
    tt_hook_list_t *list;
    tt_hook_link_t *next, *last; /* last: of those that were there when the walk began */
} tt_hook_walk_t;

/* The list owns the hook, and frees it by tt_free. */
void tt_hooks_add(tt_hook_list_t *list, tt_hook_link_t *hook);

/* To be called after is_removed was set. */
void tt_hooks_free_removed(tt_hook_list_t *list);

void tt_hooks_free(tt_hook_list_t *list);

tt_hook_walk_t tt_hooks_begin(tt_hook_list_t *list);
tt_hook_link_t *tt_hooks_next(tt_hook_walk_t *walk); /* NULL: there is no other */
void tt_hooks_end(tt_hook_walk_t *walk);

#endif
