"""Two hosts in network namespaces, with a disk each, save until one of them is killed: the other
one hears who it was, and the next start goes on from what all had saved."""
import os
import random
import re
import subprocess
import tempfile
import time
import unittest

import netns

PROGRAM = os.path.join(os.environ["TUTTI_BINARY_DIR"], "tests", "save_forever")
SEED = int(os.environ.get("TUTTI_SEED", time.time_ns() % 2**32))
ROUNDS, GUARD_S, PORT = 6, 60, "29411"


@unittest.skipIf(netns.why_not(), netns.why_not())
class Disks(unittest.TestCase):
    def setUp(self):
        self.hosts = self.enterContext(netns.Hosts(2))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.key = os.path.join(self.folder, "key")
        with open(self.key, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(os.urandom(32).hex() + "\n")

    def start(self, attempt):
        settings = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "TUTTI_KEY_FILE": self.key,
                    "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": PORT,
                    "TORCHELASTIC_RESTART_COUNT": str(attempt)}
        self.outputs = [os.path.join(self.folder, f"out-{attempt}-{rank}") for rank in range(2)]
        ranks = []
        for rank, path in enumerate(self.outputs):
            with open(path, "w") as file:
                ranks.append(self.hosts.popen(
                    rank, [PROGRAM, os.path.join(self.folder, "disks"), "hosts"], stdout=file,
                    stderr=subprocess.STDOUT, env={**os.environ, **settings, "RANK": str(rank)}))
        return ranks

    def said(self, rank):
        with open(self.outputs[rank]) as file:
            return file.read()

    def step(self, rank, verb):
        return int((re.findall(rf"^{verb} (\d+)\n", self.said(rank), re.M) or ["-1"])[-1])

    def wait_for(self, ranks, rank, verb, step):
        until = time.monotonic() + GUARD_S
        while self.step(rank, verb) < step:
            said = self.said(rank)
            if time.monotonic() > until or ranks[rank].poll() is not None or "wrong" in said:
                self.fail(f"not {verb}: {said}")
            time.sleep(0.001)

    def test_a_host_is_killed(self):
        print(f"TUTTI_SEED={SEED}")
        draw, saved = random.Random(SEED), 0
        for attempt in range(ROUNDS):
            ranks = self.start(attempt)
            for rank in range(2):
                self.wait_for(ranks, rank, "loaded", saved)
            self.wait_for(ranks, 0, "saved", self.step(0, "loaded") + draw.randint(1, 3))
            victim = draw.randrange(2)
            ranks[victim].kill()
            for rank in ranks:
                rank.wait(GUARD_S)
            self.assertRegex(self.said(1 - victim), rf"failed: .*rank {victim}\b")
            saved = max(saved, self.step(0, "saved"), self.step(1, "saved"))
        self.assertGreater(saved, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
