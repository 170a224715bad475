"""A host that is gone without a word: its cable is pulled, and no connection is reset. Whoever
waits for its rank hears of it from keep-alives or from missing acknowledgements, after about 5 s,
long before the call's deadline; what is reported to it names the rank and the cause."""
import os
import subprocess
import tempfile
import time
import unittest

import netns

BUILD = os.environ["TUTTI_BINARY_DIR"]
PROGRAM = os.path.join(BUILD, "tests", "silence")
PORT = "29400"
AT_LEAST, AT_MOST = 3.0, 9.0


@unittest.skipIf(netns.why_not(), netns.why_not())
class Silence(unittest.TestCase):
    def setUp(self):
        self.hosts = self.enterContext(netns.Hosts(2))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.key = os.path.join(folder, "key")
        with open(self.key, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(os.urandom(32).hex() + "\n")

    def start(self, rank, how, protect):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1",
                       "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": PORT,
                       "TUTTI_KEY_FILE": self.key, "TUTTI_TIMEOUT_MS": "60000",
                       "TUTTI_PROTECT": protect}
        return self.hosts.popen(rank, [PROGRAM, how], text=True, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def fall_silent(self, how, protect):
        """What both ranks say, and how long after the cut."""
        ranks = [self.start(rank, how, protect) for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        time.sleep(0.5)
        self.hosts.cut(1)
        start = time.monotonic()
        ends = []
        for rank in ranks:
            ends.append((rank.stdout.readline(), time.monotonic() - start))
        for rank in ranks:
            rank.communicate(timeout=60)
        return ends

    def check(self, how, protect="encrypt"):
        for rank, (said, seconds) in enumerate(self.fall_silent(how, protect)):
            with self.subTest(how=how, rank=rank, seconds=seconds):
                self.assertRegex(said, rf"silence\.c:\d+\): rank {1 - rank} is gone: its host has "
                                       "not answered for 5 s")
                self.assertGreater(seconds, AT_LEAST)
                self.assertLess(seconds, AT_MOST)

    def test_ranks_that_send_and_receive(self):
        self.check("both")

    def test_a_rank_that_only_sends(self):
        self.check("send")

    def test_ranks_that_wait_for_each_other_at_rest(self):
        self.check("recv")

    def test_ranks_at_rest_that_do_not_encrypt(self):
        self.check("recv", "auth")

    def test_a_process_that_is_killed_is_no_silent_host(self):
        ranks = [self.start(rank, "both", "encrypt") for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        start = time.monotonic()
        ranks[1].kill()
        self.assertIn("rank 1 is gone: its connections are closed", ranks[0].stdout.readline())
        self.assertLess(time.monotonic() - start, AT_LEAST)
        for rank in ranks:
            rank.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
