/* What an option wants, in words. */
#ifndef TT_OPTIONS_TEXT_H
#define TT_OPTIONS_TEXT_H

#include <tutti/options.h>

/* "an integer from 1 to 64", "f32 or bf16"; cut to the room in text. */
void tt_option_wanted(const tutti_option_t *option, char *text, size_t text_bytes);

#endif
