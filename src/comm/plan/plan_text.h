/* Text that grows to any length in a buffer that may be too short for it. */
#ifndef TT_PLAN_TEXT_H
#define TT_PLAN_TEXT_H

#include <stddef.h>

typedef struct {
    char *text;
    size_t capacity, length; /* what the whole text has; what does not fit is left out */
} tt_plan_text_t;

__attribute__((format(printf, 2, 3))) void tt_plan_put(tt_plan_text_t *text, const char *format,
                                                       ...);

#endif
