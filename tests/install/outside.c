/* A program of somebody else, built against an installed Tutti: touches a function with a result
 * and one with a failure. */
#include <stdio.h>
#include <string.h>

#include <tutti/dtype.h>
#include <tutti/status.h>

int main(void)
{
    tutti_dtype_t dtype;
    if (tutti_dtype_parse("bf16", &dtype) != TUTTI_OK || tutti_dtype_bytes(dtype) != 2) {
        return 1;
    }
    if (tutti_dtype_parse("b17", &dtype) >= 0 || strstr(tutti_last_error(), "b17") == NULL) {
        return 2;
    }
    printf("outside: %s\n", tutti_dtype_name(dtype));
    return 0;
}
