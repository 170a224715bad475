/* A signal only notes its number: ranks agree after each step whether to go on, so that all end
 * behind the same one, and none sees another go.
 */
#include "common.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t noted;
static struct sigaction before[2];
static const int numbers[2] = {SIGINT, SIGTERM};

static void note(int number)
{
    if (noted != 0) {
        signal(number, SIG_DFL);
        raise(number); /* it arrives when this returns */
    }
    noted = number;
}

/* System calls go on where they were. */
void stopping_begin(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    noted = 0;
    for (int i = 0; i < 2; i++) {
        sigaction(numbers[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) { /* who started us does not want it heard */
            sigaction(numbers[i], &action, NULL);
        }
    }
}

int stopping_noted(void)
{
    return noted;
}

void stopping_end(void)
{
    for (int i = 0; i < 2; i++) {
        sigaction(numbers[i], &before[i], NULL);
    }
}

tutti_status_t stopping_leave(tutti_group_t *world)
{
    for (int i = 0; i < 2; i++) {
        signal(numbers[i], SIG_IGN);
    }
    return tutti_barrier(world, NULL);
}

const char *stopping_name(int number)
{
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}
