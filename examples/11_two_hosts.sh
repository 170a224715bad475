#!/bin/sh
# Lesson 11: one job on two hosts.
#
#     sudo examples/11_two_hosts.sh [BUILD]      # BUILD: the build folder; default: build
#
# The hosts are two network namespaces on this machine with a cable between them; abstract sockets
# and shared memory of one are out of the other's sight, so that all goes over tcp. On real hosts
# the same four steps remain: a key, the same program and key on both, and on each
#
#     tutti run --nnodes 2 --node-rank 0|1 -n 2 --rdzv-endpoint HOST0:29400 --key-file KEY PROGRAM
set -eu
build=${1:-$(dirname "$0")/../build}
tutti=$build/bin/tutti
program=$build/bin/05_ddp
first=tutti$$a second=tutti$$b # the hosts
endpoint=10.84.0.1:29400       # an address of node 0, and any free port

fail() {
    echo "11_two_hosts: $*" >&2
    exit 1
}

[ -x "$tutti" ] && [ -x "$program" ] || fail "$build has no bin/tutti: build it first"
[ "$(id -u)" = 0 ] || fail "network namespaces want root: run it with sudo"
[ -n "$(command -v ip)" ] || fail "ip is missing: install iproute2"

folder=$(mktemp -d)
clean_up() { # however it ends: the launchers, the hosts, the key
    for host in "$first" "$second"; do
        ip netns pids "$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        ip netns del "$host" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for host in "$first" "$second"; do
    ip netns add "$host" || fail "no namespaces here: in a container without them?"
    ip -n "$host" link set lo up
done
ip -n "$first" link add eth0 type veth peer name eth0 netns "$second"
ip -n "$first" addr add 10.84.0.1/24 dev eth0
ip -n "$second" addr add 10.84.0.2/24 dev eth0
ip -n "$first" link set eth0 up
ip -n "$second" link set eth0 up

# 1. One key for the job, readable by its owner alone. Real hosts get a copy, by scp.
"$tutti" key "$folder/key"

# 2. A launcher on each host. They meet at the endpoint, and each starts two ranks.
start() { # host node
    ip netns exec "$1" "$tutti" run --nnodes 2 --node-rank "$2" -n 2 \
        --rdzv-endpoint "$endpoint" --key-file "$folder/key" "$program"
}
start "$first" 0 >"$folder/output" &
node0=$!
start "$second" 1 &
wait $! || fail "node 1 failed"
wait "$node0" || fail "node 0 failed"
cat "$folder/output"

# 3. The same on one host has the same bits.
digest_of() {
    sed -n 's/.*digest \([0-9a-f]*\)$/\1/p'
}
two=$(digest_of <"$folder/output")
one=$("$tutti" run -n 4 "$program" | digest_of)
echo "two hosts: digest $two"
echo "one host:  digest $one"
[ -n "$one" ] && [ "$one" = "$two" ] || fail "the digests differ"
