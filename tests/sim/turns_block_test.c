/* Some seeds of a host block whose ranks take turns. TUTTI_SEED=N looks at one alone. */
#include "turns_block.h"

int main(void)
{
    return turns_block_main(12);
}
