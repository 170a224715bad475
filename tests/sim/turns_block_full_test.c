/* Many seeds of a host block whose ranks take turns. */
#include "turns_block.h"

int main(void)
{
    return turns_block_main(400);
}
