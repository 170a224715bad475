/* Lookups of host names: numbers at once, names by a resolver that is slow, silent or knows
 * nothing, and a store whose host has several addresses.
 *
 * This program has a getaddrinfo of its own, which the library calls in place of libc's.
 */
#include "core/base/testing.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/net/address.h"
#include "comm/net/lookup.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

static sem_t is_released; /* for each lookup of silent.test that shall end */
static sem_t has_ended;   /* for each that is about to */
static _Atomic int lookups;

static struct addrinfo *add(struct addrinfo *rest, const char *address, const char *service)
{
    struct addrinfo *item = calloc(1, sizeof *item);
    struct sockaddr_storage *at = calloc(1, sizeof *at);
    const bool is_four = strchr(address, ':') == NULL;
    assert_non_null(item);
    assert_non_null(at);
    at->ss_family = is_four ? AF_INET : AF_INET6;
    inet_pton(at->ss_family, address,
              is_four ? (void *)&((struct sockaddr_in *)at)->sin_addr
                      : (void *)&((struct sockaddr_in6 *)at)->sin6_addr);
    ((struct sockaddr_in *)at)->sin_port = htons((uint16_t)strtol(service, NULL, 10));
    item->ai_family = at->ss_family;
    item->ai_addr = (struct sockaddr *)at;
    item->ai_addrlen = is_four ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    item->ai_next = rest;
    return item;
}

/* Ends the one lookup of silent.test there is. Returns when it has heard that: else the next one
 * might take its place, and end in its stead. */
static void release_lookup(void)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 20;
    sem_post(&is_released);
    assert_int_equal(sem_timedwait(&has_ended, &deadline), 0);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    const bool is_number = inet_addr(host) != INADDR_NONE || strchr(host, ':') != NULL;
    if (is_number) {
        *out = add(NULL, host, service);
        return 0;
    }
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) {
        return EAI_NONAME;
    }
    lookups++;
    if (strcmp(host, "silent.test") == 0) {
        while (sem_wait(&is_released) != 0) {
        }
        sem_post(&has_ended);
        return EAI_AGAIN;
    }
    if (strcmp(host, "both.test") == 0) {
        *out = add(add(NULL, "127.0.0.1", service), "::1", service);
        return 0;
    }
    if (strcmp(host, "moved.test") == 0) { /* the first is no address of this host */
        *out = add(add(NULL, "127.0.0.1", service), "192.0.2.7", service);
        return 0;
    }
    if (strcmp(host, "twice.test") == 0) { /* both are addresses of this host */
        *out = add(add(NULL, "127.0.0.9", service), "127.0.0.1", service);
        return 0;
    }
    if (strcmp(host, "closed.test") == 0) { /* nobody listens at the first two */
        *out = add(add(add(NULL, "127.0.0.1", service), "::1", service), "127.0.0.9", service);
        return 0;
    }
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list != NULL) {
        struct addrinfo *next = list->ai_next;
        free(list->ai_addr);
        free(list);
        list = next;
    }
}

static void numbers_are_known_at_once(void **state)
{
    (void)state;
    const char *const numbers[][2] = {
        {"192.0.2.7", "192.0.2.7"}, {"::1", "::1"}, {"localhost", "127.0.0.1"}};
    const int before = lookups;
    for (int i = 0; i < 3; i++) {
        tt_addresses_t list;
        char text[TT_ADDRESS_TEXT_BYTES];
        assert_int_equal(tt_addresses_find(numbers[i][0], 80, tt_deadline_in_ms(0), &list), 0);
        assert_int_equal(list.count, 1);
        assert_int_equal(tt_address_print(&list, 0, text), TUTTI_OK);
        assert_string_equal(text, numbers[i][1]);
    }
    assert_int_equal(lookups, before);
}

static void all_addresses_come_in_the_resolvers_order(void **state)
{
    (void)state;
    tt_addresses_t list;
    char text[TT_ADDRESS_TEXT_BYTES];
    assert_int_equal(tt_addresses_find("both.test", 80, tt_deadline_in_ms(20000), &list), 0);
    assert_int_equal(list.count, 2);
    assert_int_equal(tt_address_print(&list, 0, text), TUTTI_OK);
    assert_string_equal(text, "::1");
    assert_int_equal(tt_address_print(&list, 1, text), TUTTI_OK);
    assert_string_equal(text, "127.0.0.1");
    tt_addresses_set_port(&list, 81);
    assert_int_equal(((struct sockaddr_in *)&list.address[1])->sin_port, htons(81));
}

static void an_unknown_name_is_an_error_at_once(void **state)
{
    (void)state;
    tt_addresses_t list;
    assert_int_equal(tt_addresses_find("unknown.test", 80, TT_NEVER, &list), TUTTI_ERR_ARG);
    tt_expect_error("host unknown.test cannot be resolved: ");
    tt_expect_error(gai_strerror(EAI_NONAME));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(tt_addresses_find(longest, 80, TT_NEVER, &list), TUTTI_ERR_ARG);
    tt_expect_error("299 characters");
    assert_int_equal(tt_addresses_find("", 80, TT_NEVER, &list), TUTTI_ERR_ARG);
}

/* The thread outlives its caller, and ends when the resolver does. */
static void a_silent_resolver_does_not_hold_its_caller(void **state)
{
    (void)state;
    tt_addresses_t list;
    const int64_t began_ns = tt_clock_ns();
    assert_int_equal(tt_addresses_find("silent.test", 80, tt_deadline_in_ms(50), &list),
                     TUTTI_ERR_TIMEOUT);
    tt_expect_error("host silent.test cannot be resolved");
    assert_true(tt_clock_ns() - began_ns < 10 * TT_NS_PER_S);
    release_lookup();
}

static void a_lookup_is_waited_for_in_steps(void **state)
{
    (void)state;
    tt_lookup_t lookup;
    tt_addresses_t list;
    assert_int_equal(tt_lookup_start("silent.test", 80, &lookup), TUTTI_OK);
    assert_int_equal(tt_lookup_wait(&lookup, tt_deadline_in_ms(10), &list), TUTTI_PENDING);
    assert_int_equal(tt_lookup_wait(&lookup, tt_deadline_in_ms(10), &list), TUTTI_PENDING);
    release_lookup();
    assert_int_equal(tt_lookup_wait(&lookup, tt_deadline_in_ms(20000), &list), TUTTI_ERR_ARG);
    tt_expect_error(gai_strerror(EAI_AGAIN));
    tt_lookup_close(&lookup);
}

static long address_space_mib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) >> 10) >> 10;
}

/* A thread that nobody joins would keep its stack, of some MiB. */
static void a_thread_that_has_looked_up_leaves_nothing(void **state)
{
    (void)state;
    enum { TIMES = 100, MOST_MIB = 200 };
    tt_addresses_t list;
    assert_int_equal(tt_addresses_find("unknown.test", 80, TT_NEVER, &list), TUTTI_ERR_ARG);
    const long before = address_space_mib();
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(tt_addresses_find("unknown.test", 80, TT_NEVER, &list), TUTTI_ERR_ARG);
    }
    assert_true(address_space_mib() - before < MOST_MIB);
}

/* The server takes the first address that can be listened on; the client tries one after another.
 */
static void a_store_is_found_behind_any_of_its_hosts_addresses(void **state)
{
    (void)state;
    tutti_store_t *server, *client;
    setenv("TUTTI_PROTECT", "auth", 1); /* names are not loopbacks: they would be encrypted */
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    assert_int_equal(tutti_store_tcp_listen("127.0.0.1", 0, &server), TUTTI_OK);
    const int port = tutti_store_port(server);
    assert_int_equal(tutti_store_tcp_connect("closed.test", port, 20000, &client), TUTTI_OK);
    assert_int_equal(tutti_store_set(client, tutti_text("a"), tutti_text("b")), TUTTI_OK);
    tutti_store_release(client);
    tutti_store_release(server);
    assert_int_equal(tutti_store_tcp_listen("both.test", 0, &server), TUTTI_OK);
    assert_int_equal(tutti_store_tcp_connect("both.test", tutti_store_port(server), 20000, &client),
                     TUTTI_OK);
    tutti_store_release(client);
    tutti_store_release(server);
    assert_int_equal(tutti_store_tcp_listen("twice.test", 0, &server), TUTTI_OK);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", tutti_store_port(server), 20000, &client),
                     TUTTI_OK);
    tutti_store_release(client);
    assert_true(tutti_store_tcp_connect("127.0.0.9", tutti_store_port(server), 50, &client) < 0);
    tutti_store_release(server);
    assert_int_equal(tutti_store_tcp_listen("moved.test", 0, &server), TUTTI_OK);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", tutti_store_port(server), 20000, &client),
                     TUTTI_OK);
    tutti_store_release(client);
    tutti_store_release(server);
    assert_int_equal(tutti_store_tcp_listen("unknown.test", 0, &server), TUTTI_ERR_ARG);
    tt_expect_error("unknown.test");
    assert_int_equal(tutti_store_tcp_connect("unknown.test", port, 600000, &client), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_tcp_connect("silent.test", port, 50, &client), TUTTI_ERR_TIMEOUT);
    release_lookup();
}

int main(void)
{
    sem_init(&is_released, 0, 0);
    sem_init(&has_ended, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_known_at_once),
        cmocka_unit_test(all_addresses_come_in_the_resolvers_order),
        cmocka_unit_test(an_unknown_name_is_an_error_at_once),
        cmocka_unit_test(a_silent_resolver_does_not_hold_its_caller),
        cmocka_unit_test(a_lookup_is_waited_for_in_steps),
        cmocka_unit_test(a_thread_that_has_looked_up_leaves_nothing),
        cmocka_unit_test(a_store_is_found_behind_any_of_its_hosts_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
