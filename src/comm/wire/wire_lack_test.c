/* What this process or host lacks for a moment, descriptors or local ports, says nothing about the
 * peer: a wire tries again, and the message arrives. */
#include "core/base/testing.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/wire/peers_impl.h"
#include "comm/wire/peers_team_test.h"

enum { PORTS = 20 };

/* What rank 0 takes away, and gives back. */
typedef struct {
    struct rlimit files;
    int hogs[4 * PORTS], hog_count;
} lack_t;

static void take_files(lack_t *lack)
{
    getrlimit(RLIMIT_NOFILE, &lack->files);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, lack->files.rlim_max});
}

static void give_files(const lack_t *lack)
{
    setrlimit(RLIMIT_NOFILE, &lack->files);
}

static void take_ports(lack_t *lack)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (; lack->hog_count < 4 * PORTS; lack->hog_count++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0) {
            close(fd);
            return;
        }
        lack->hogs[lack->hog_count] = fd;
    }
}

static void give_ports(const lack_t *lack)
{
    for (int i = 0; i < lack->hog_count; i++) {
        close(lack->hogs[i]);
    }
}

/* The first byte finds no connection and no room for one. */
static void send_in_need(tt_peer_t *self, void (*take)(lack_t *), void (*give)(const lack_t *))
{
    lack_t lack = {.hog_count = 0};
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, 77);
    unsigned char byte = 7;
    tt_peer_step(self, 1);
    if (self->rank == 0) {
        const tt_span_t span = {&byte, 1};
        size_t done = 0;
        take(&lack);
        const tutti_status_t sent = wire.ops->send(wire.state, &span, 1, &done);
        const tutti_status_t probed = wire.ops->probe(wire.state);
        give(&lack);
        TT_EXPECT_PEER(self, sent == TUTTI_OK && done == 0);
        TT_EXPECT_PEER(self, probed == TUTTI_OK);
        TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &byte, 1));
    } else {
        byte = 0;
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &byte, 1) && byte == 7);
    }
    tt_peer_step(self, 2);
    tt_wire_close(&wire);
}

static void send_without_files(tt_peer_t *self)
{
    send_in_need(self, take_files, give_files);
}

static void send_without_ports(tt_peer_t *self)
{
    send_in_need(self, take_ports, give_ports);
}

static void a_lack_of_descriptors_is_waited_for(void **state)
{
    (void)state;
    tt_run_two_peers(send_without_files);
}

/* A network of its own with few ports, on which the rest of the machine does not depend. */
static bool has_few_ports(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (unshare(CLONE_NEWNET) != 0) {
        return false;
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_up = ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    const bool is_written = file != NULL && fprintf(file, "40000 %d", 40000 + PORTS - 1) > 0;
    return file != NULL && fclose(file) == 0 && is_written && is_up;
}

static void a_lack_of_ports_is_no_death(void **state)
{
    (void)state;
    if (!has_few_ports()) {
        print_message("skipped: no network namespace with few ports can be made here\n");
        skip();
    }
    tt_run_two_peers(send_without_ports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lack_of_descriptors_is_waited_for),
        cmocka_unit_test(a_lack_of_ports_is_no_death), /* last, for it leaves the network */
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
