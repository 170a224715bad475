/* Lists of hooks that change while they are walked. See hook_list.h. */
#include "compute/autograd/hook_list.h"

#include <stddef.h>

#include "core/base/alloc.h"

void tt_hooks_add(tt_hook_list_t *list, tt_hook_link_t *hook)
{
    tt_hook_link_t **end = &list->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = hook;
}

void tt_hooks_free_removed(tt_hook_list_t *list)
{
    for (tt_hook_link_t **link = &list->first; *link != NULL && list->walks == 0;) {
        tt_hook_link_t *hook = *link;
        if (hook->is_removed) {
            *link = hook->next;
            tt_free(hook);
        } else {
            link = &hook->next;
        }
    }
}

void tt_hooks_free(tt_hook_list_t *list)
{
    for (tt_hook_link_t *hook = list->first; hook != NULL; hook = hook->next) {
        hook->is_removed = true;
    }
    tt_hooks_free_removed(list);
}

tt_hook_walk_t tt_hooks_begin(tt_hook_list_t *list)
{
    tt_hook_link_t *last = list->first;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    list->walks++;
    return (tt_hook_walk_t){list, list->first, last};
}

tt_hook_link_t *tt_hooks_next(tt_hook_walk_t *walk)
{
    tt_hook_link_t *hook;
    do {
        hook = walk->next;
        walk->next = hook == NULL || hook == walk->last ? NULL : hook->next;
    } while (hook != NULL && hook->is_removed);
    return hook;
}

void tt_hooks_end(tt_hook_walk_t *walk)
{
    walk->list->walks--;
    tt_hooks_free_removed(walk->list);
}
