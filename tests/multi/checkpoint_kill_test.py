"""Two ranks that save without end are killed with SIGKILL, one of them or both, at a random moment:
the next start finds a whole checkpoint with the right values, which is none older than the last
that a rank had saved; a rank that lives on hears at once who died. The ranks have one folder, or
each has its own, as hosts with disks of their own, and saves each step twice.

200 moments; TUTTI_TEST_SHARE=32 takes a 32nd of them, TUTTI_SEED names them."""
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

from draws import SEED, SHARE
from jobs import hold_port

PROGRAM = os.path.join(os.environ["TUTTI_BINARY_DIR"], "tests", "save_forever")
MOMENTS = 200
GUARD_S = 60
PORT, HELD = hold_port()  # names the meeting
SAVES = 2  # at most, before the moment; at least one in the first attempt, whatever is drawn


class Rank:
    def __init__(self, folder, number, attempt, options):
        self.path = os.path.join(folder, f"out-{attempt}-{number}")
        settings = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                    "MASTER_PORT": PORT,
                    "TORCHELASTIC_RESTART_COUNT": str(attempt)}
        with open(self.path, "w") as file:
            self.process = subprocess.Popen(
                [PROGRAM, os.path.join(folder, "checkpoints"), *options], stdout=file, stderr=file,
                stdin=subprocess.DEVNULL, env={**os.environ, **settings})

    def said(self):
        with open(self.path) as file:
            return file.read()

    def step(self, verb):
        """The last one of which it has said so; -1."""
        return int((re.findall(rf"^{verb} (\d+)\n", self.said(), re.M) or ["-1"])[-1])

    def wait_for(self, verb, step):
        until = time.monotonic() + GUARD_S
        while self.step(verb) < step:
            said = self.said()
            if time.monotonic() > until or self.process.poll() is not None or "wrong" in said:
                raise AssertionError(f"not {verb}: {said}")
            time.sleep(0.001)


class CheckpointKill(unittest.TestCase):
    def end(self, ranks, victims):
        """Kill some; the others end by themselves."""
        for i in victims:
            ranks[i].process.kill()
        for i, rank in enumerate(ranks):
            rank.process.wait(timeout=GUARD_S)
            if i not in victims:
                self.assertRegex(rank.said(), rf"failed: .*rank {victims[0]}\b")
                self.assertNotIn("cannot", rank.said())  # nothing half is looked for in vain

    def kill_at(self, moments, *options):
        print(f"TUTTI_SEED={SEED}, one moment of {SHARE} {' '.join(options)}")
        draw = random.Random(f"{SEED} {options}")
        saved, ranks, save_s = 0, [], 0.02
        with tempfile.TemporaryDirectory() as folder:
            try:
                for attempt in range(max(moments // SHARE, 1) + 1):
                    ranks = [Rank(folder, i, attempt, options) for i in range(2)]
                    for rank in ranks:
                        rank.wait_for("loaded", 0)
                        self.assertGreaterEqual(rank.step("loaded"), saved, attempt)
                    for step in range(1, draw.randint(int(attempt == 0), SAVES) + 1):
                        begun = time.monotonic()
                        ranks[0].wait_for("saved", ranks[0].step("loaded") + step)
                        save_s = time.monotonic() - begun
                    time.sleep(draw.uniform(0, save_s))
                    self.end(ranks, draw.choice([[0], [1], [0, 1]]))
                    saved = max(saved, *(rank.step("saved") for rank in ranks))
            finally:
                for rank in ranks:
                    rank.process.kill()
                    rank.process.wait()
        print(f"{saved} saves")
        self.assertGreater(saved, 0)

    def test_kill_of_a_rank_that_sends_slices(self):
        """Each has the other one's disk: rank 1 reads for rank 0 alone."""
        draw = random.Random(f"{SEED} sender")
        reads = sorted(draw.sample(range(1, 7), 2 if SHARE > 1 else 6))
        print(f"TUTTI_SEED={SEED}, killed at read {reads}")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [Rank(folder, i, 0, ["hosts"]) for i in range(2)]
            try:
                ranks[0].wait_for("saved", 2)
                self.end(ranks, [0, 1])
                for attempt, read in enumerate(reads, 1):
                    ranks = [Rank(folder, i, attempt, ["hosts", "swapped", "die", str(read)])
                             for i in range(2)]
                    for rank in ranks:
                        rank.process.wait(timeout=GUARD_S)
                    self.assertEqual(ranks[1].process.returncode, -signal.SIGKILL)
                    self.assertNotIn("loaded", ranks[0].said())
                    self.assertRegex(ranks[0].said(), r"failed: .*rank 1\b")
                ranks = [Rank(folder, i, 99, ["hosts", "swapped"]) for i in range(2)]
                for rank in ranks:
                    rank.wait_for("loaded", 2)
            finally:
                for rank in ranks:
                    rank.process.kill()
                    rank.process.wait()

    def test_kill(self):
        self.kill_at(MOMENTS)

    def test_kill_hosts(self):
        self.kill_at(MOMENTS // 2, "hosts")

    def test_kill_saver(self):
        self.kill_at(MOMENTS // 2, "saver")

    def test_kill_hosts_saver(self):
        self.kill_at(MOMENTS // 2, "hosts", "saver")


if __name__ == "__main__":
    unittest.main(verbosity=2)
