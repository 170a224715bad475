"""Hosts in network namespaces: one job of several launchers over tcp. Three hosts of two ranks
each; the conformance suite on hosts of any shape."""
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import jobs
import netns

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
TESTS = os.path.join(os.environ["TUTTI_BINARY_DIR"], "tests")
PROGRAM = os.path.join(BIN, "04_all_reduce")
PORT = "29400"


def write_key(path):
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(os.urandom(32).hex() + "\n")
    return path


@unittest.skipIf(netns.why_not(), netns.why_not())
class Hosts(unittest.TestCase):
    def setUp(self):
        self.hosts = self.enterContext(netns.Hosts(3, rate="200mbit"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.key = write_key(os.path.join(self.folder, "key"))

    def start(self, *command, keys=None):
        keys = keys or [self.key] * 3
        return [self.hosts.popen(
            node, [TUTTI, "run", "--nnodes", "3", "--node-rank", str(node), "-n", "2",
                   "--rdzv-endpoint", f"{self.hosts.address(0)}:{PORT}", "--key-file", key,
                   "--join-timeout", "8", "--grace", "5", *command],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for node, key in enumerate(keys)]

    def test_six_ranks_reduce_over_three_hosts(self):
        codes, outputs, errors = jobs.end(self.start(PROGRAM))
        self.assertEqual(codes, [0, 0, 0], errors)
        for rank in range(6):
            self.assertIn(f"rank {rank}: the sum is 21 21 21 21", outputs[rank // 2])

    def test_only_the_named_address_is_listened_on(self):
        launchers = self.start("sh", "-c", "echo up; exec sleep 60")
        for launcher in launchers:
            launcher.stdout.readline()
        listening = self.hosts.run(0, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]).stdout
        port = f":{int(PORT):04X}"
        locals_ = [line.split()[1] for line in listening.splitlines()
                   if " 0A " in line and port in line]
        octets = self.hosts.address(0).split(".")
        self.assertEqual(locals_, ["".join(f"{int(o):02X}" for o in reversed(octets)) + port])
        launchers[0].send_signal(signal.SIGTERM)
        jobs.end(launchers)

    def test_a_host_that_is_cut_off_is_lost(self):
        launchers = self.start("sh", "-c", "echo up; exec sleep 100")
        for launcher in launchers:
            launcher.stdout.readline()
        self.hosts.cut(2)
        start = time.monotonic()
        codes, _, errors = jobs.end(launchers)
        self.assertEqual(codes, [1, 1, 1], errors)
        self.assertLess(time.monotonic() - start, 25)
        for node in (0, 1):
            self.assertRegex(errors[node], r"node 2 \(\S+\): lost")
        self.assertRegex(errors[2], r"node 0 \(\S+\): lost")

    def test_another_key_is_not_let_in(self):
        other = write_key(os.path.join(self.folder, "other"))
        codes, _, errors = jobs.end(self.start("true", keys=[self.key, self.key, other]))
        self.assertNotIn(0, codes)
        # whichever of the two others gives up first
        self.assertRegex(errors[0], "waited for node 2|a node left before node 2 came")
        self.assertIn("key", errors[2])

    def test_variables_by_hand_are_enough(self):
        ranks = [self.hosts.popen(rank, [PROGRAM], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE,
                                  env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3",
                                       "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": PORT,
                                       "TUTTI_KEY_FILE": self.key, "LOCAL_WORLD_SIZE": "1"})
                 for rank in range(3)]
        codes, outputs, errors = jobs.end(ranks)
        self.assertEqual(codes, [0, 0, 0], errors)
        for rank in range(3):
            self.assertIn(f"rank {rank}: the sum is 6 6 6 6", outputs[rank])


@unittest.skipIf(netns.why_not(), netns.why_not())
class Names(unittest.TestCase):
    """Each host has an /etc/hosts of its own, in which the first host is called node0."""

    def setUp(self):
        self.hosts = self.enterContext(netns.Hosts(2))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.key = write_key(os.path.join(self.folder, "key"))

    def start(self, host, names, *args, **variables):
        """names: the addresses of node0, as this host knows them."""
        table = os.path.join(self.folder, f"hosts{host}")
        with open(table, "w") as file:
            file.writelines(f"{address} node0\n" for address in names)
        script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        return self.hosts.popen(host, ["sh", "-c", script, "sh", table, *args], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "TUTTI_KEY_FILE": self.key, **variables})

    def launch(self, host, names, *flags):
        return self.start(host, names, TUTTI, "run", "--nnodes", "2", "--node-rank", str(host),
                          *flags, "-n", "2", PROGRAM)

    def test_launchers_and_ranks_meet_at_a_name(self):
        here = self.hosts.address(0)
        for flags in (["--rdzv-endpoint", f"node0:{PORT}"],
                      ["--master-addr", "node0", "--master-port", PORT]):
            codes, outputs, errors = jobs.end(
                [self.launch(host, [here], *flags) for host in range(2)])
            self.assertEqual(codes, [0, 0], errors)
            self.assertEqual("".join(outputs).count("the sum is 10 10 10 10"), 4)

    def test_ranks_without_a_launcher_meet_at_a_name(self):
        codes, outputs, errors = jobs.end([
            self.start(rank, [self.hosts.address(0)], PROGRAM, RANK=str(rank), WORLD_SIZE="2",
                       LOCAL_WORLD_SIZE="1", MASTER_ADDR="node0", MASTER_PORT=PORT)
            for rank in range(2)])
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual("".join(outputs).count("the sum is 3 3 3 3"), 2)

    def test_addresses_are_tried_one_after_the_other(self):
        """At the first of them there is nobody."""
        nobody = self.hosts.address(76)
        codes, outputs, errors = jobs.end(
            [self.launch(host, [nobody, self.hosts.address(0)], "--rdzv-endpoint",
                         f"node0:{PORT}") for host in range(2)])
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual("".join(outputs).count("the sum is 10 10 10 10"), 4)

    def test_a_name_of_the_loopback_is_refused_where_it_is_one(self):
        job = self.launch(0, ["127.0.1.1"], "--rdzv-endpoint", f"node0:{PORT}")
        codes, _, errors = jobs.end([job])
        self.assertEqual(codes, [2])
        self.assertIn("host node0 is 127.0.1.1 here, a loopback that other hosts cannot reach",
                      errors[0])


@unittest.skipIf(netns.why_not(), netns.why_not())
class Shapes(unittest.TestCase):
    """Every collective and memory (backend_conform.h), with other numbers of ranks on each host."""

    def run_shape(self, ranks, hosts, key):
        launchers = [hosts.popen(
            node, [TUTTI, "run", "--nnodes", str(len(ranks)), "--node-rank", str(node), "-n",
                   str(count), "--rdzv-endpoint", f"{hosts.address(0)}:{PORT}", "--key-file", key,
                   "--", os.path.join(TESTS, "hosts_conform_test"), "--world"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for node, count in enumerate(ranks)]
        codes, outputs, errors = jobs.end(launchers)
        self.assertEqual(codes, [0] * len(ranks), outputs + errors)
        said = re.search(r"conform: (\d+) ranks, \d+ checks, 0 wrong, digest (\w+)", outputs[0])
        self.assertIsNotNone(said, outputs)
        self.assertEqual(int(said[1]), sum(ranks))
        return said[2]

    def test_every_shape_gives_the_bits_of_every_other(self):
        digests = {}
        with netns.Hosts(3) as hosts, tempfile.TemporaryDirectory() as folder:
            key = write_key(os.path.join(folder, "key"))
            for ranks in [(2, 1), (1, 2), (3, 1), (1, 1, 2), (1, 4), (3, 2)]:
                with self.subTest(ranks):
                    digest = self.run_shape(ranks, hosts, key)
                    self.assertEqual(digests.setdefault(sum(ranks), digest), digest)


if __name__ == "__main__":
    unittest.main(verbosity=2)
