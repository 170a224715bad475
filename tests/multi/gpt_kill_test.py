"""`gpt` saves each of its steps in the background and is killed with SIGKILL at random moments, one
rank, both, or the whole job: it goes on from a whole checkpoint, none older than the one
that it went on from before, and ends with the digest of the training that nobody killed.

`tutti run` starts ranks again; the test starts jobs again, with --resume. 200 moments;
TUTTI_TEST_SHARE=20 takes a 20th of them, TUTTI_TEST_TIMES=5 five times as many, TUTTI_SEED names
them."""
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

from draws import SEED, SHARE

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
TIMES = int(os.environ.pop("TUTTI_TEST_TIMES", "1"))
MOMENTS = max(200 * TIMES // SHARE, 1)
MOMENTS_EACH = 50  # of a training
MOMENT_S = 0.12  # the latest, from when the ranks are there; they load, take a few steps and save
GUARD_S = 60
STEPS, KEEP = 24, 3
SMALL = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "1",
         "--shards", "4", "--threads", "1", "--steps", str(STEPS), "--dropout", "0.1", "--digest"]


def ranks_of(run_id):
    """The processes that are its ranks; those that have ended are none."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read() != "gpt\n":
                    continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"TORCHELASTIC_RUN_ID={run_id}".encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return sorted(found)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile


class Training:
    """One folder of checkpoints, and the jobs that follow each other there."""

    def __init__(self, folder, number, command):
        self.checkpoints = os.path.join(folder, f"checkpoints-{number}")
        self.command = [*command, "--every", "1", "--keep", str(KEEP), "--checkpoint",
                        self.checkpoints, "--resume"]
        self.path = os.path.join(folder, f"out-{number}")
        self.kills, self.known = 0, []
        self.begin()

    def begin(self):
        self.run_id = "test-" + uuid.uuid4().hex[:12]
        with open(self.path, "a") as file:
            self.job = subprocess.Popen(
                [TUTTI, "run", "-n", "2", "--max-restarts", str(MOMENTS), "--rdzv-id", self.run_id,
                 *self.command], stdout=file, stderr=file, stdin=subprocess.DEVNULL)

    def said(self):
        with open(self.path) as file:
            return file.read()

    def wait_for_ranks(self):
        """Two that were not there before; False: the job has ended."""
        until = time.monotonic() + GUARD_S
        while True:
            ranks = ranks_of(self.run_id)
            if len(ranks) == 2 and not set(ranks) & set(self.known):
                self.known = ranks
                return True
            if self.job.poll() is not None:
                return False
            if time.monotonic() > until:
                raise AssertionError(f"no ranks: {self.said()}")
            time.sleep(0.002)

    def kill(self, victims):
        if victims == "job":
            self.job.kill()
        for rank in [self.known[i] for i in victims] if victims != "job" else self.known:
            kill(rank)
        self.kills += 1
        if victims == "job":
            self.job.wait(timeout=GUARD_S)
            self.begin()

    def end(self):
        for rank in ranks_of(self.run_id) if self.job.poll() is None else []:
            kill(rank)
        self.job.kill()
        self.job.wait()


def run_killed(training, moments, draw):
    """Until it has been killed so often, or has done its steps."""
    while training.kills < moments and training.wait_for_ranks():
        time.sleep(draw.uniform(0, MOMENT_S))
        training.kill(draw.choice([[0], [1], [0, 1], "job"]))
    training.job.wait(timeout=GUARD_S)


class GptKill(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        text = os.path.join(self.folder, "text")
        with open(text, "wb") as file:
            file.write(b"In the beginning God created the heaven and the earth. " * 400)
        self.command = [GPT, "--data", text, *SMALL]

    def digest(self, said):
        found = re.search(r"digest ([0-9a-f]{32})\b", said, re.M)
        self.assertIsNotNone(found, said)
        return found.group(1)

    def check(self, training, unbroken):
        said = training.said()
        self.assertEqual(training.job.returncode, 0, said)
        begins = [int(at) for at in re.findall(r"\bbegins at step (\d+)$", said, re.M)]
        self.assertNotEqual(begins, [], said)
        self.assertEqual(begins, sorted(begins), said)
        self.assertEqual(self.digest(said), unbroken)
        found = sorted(name for name in os.listdir(training.checkpoints)
                       if name.startswith("step-"))
        if STEPS in begins:  # killed behind its last publishing: nothing prunes then
            found = found[-KEEP:]
        self.assertEqual(found, [f"step-{step:012}" for step in range(STEPS - KEEP + 1, STEPS + 1)])

    def test_kill(self):
        print(f"TUTTI_SEED={SEED}, {MOMENTS} moments")
        draw = random.Random(SEED)
        unbroken = self.digest(subprocess.run(self.command, text=True, capture_output=True,
                                              check=True, timeout=GUARD_S).stdout)
        kills, trainings = 0, 0
        while kills < MOMENTS:
            training = Training(self.folder, trainings, self.command)
            try:
                run_killed(training, min(MOMENTS - kills, MOMENTS_EACH), draw)
                self.check(training, unbroken)
            finally:
                training.end()
            kills, trainings = kills + training.kills, trainings + 1
        print(f"{kills} kills in {trainings} trainings")


if __name__ == "__main__":
    unittest.main(verbosity=2)
