/* Some dozen seeds of calls through shared memory whose ranks take turns. TUTTI_SEED=N looks at
 * one alone. */
#include "turns_calls.h"

int main(void)
{
    return turns_main(60);
}
