"""A rank that is killed leaves a child behind, which holds all that it inherited: the others hear
of the death at once all the same, over shared memory and tcp, with the launcher and without."""
import os
import re
import signal
import subprocess
import tempfile
import unittest

from jobs import hold_port

BINARIES = os.environ["TUTTI_BINARY_DIR"]
TUTTI = os.path.join(BINARIES, "bin", "tutti")
PROGRAM = os.path.join(BINARIES, "tests", "left_child")
TIMEOUT_S = 20
AT_MOST = 2.0  # a guard: it takes some 10 ms
PORT, HELD = hold_port()  # names the meeting


class LeftChild(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.environment = dict(os.environ, TUTTI_TIMEOUT_MS=str(TIMEOUT_S * 1000))

    def run_all(self, commands, waits_for_last=False):
        """What they print, into files: the child that is left holds pipes open."""
        paths = [os.path.join(self.folder, f"out{i}") for i in range(len(commands))]
        jobs = []
        for path, (command, settings) in zip(paths, commands):
            with open(path, "w") as file:
                jobs.append(subprocess.Popen(command, env={**self.environment, **settings},
                                             stdin=subprocess.DEVNULL, stdout=file, stderr=file))
        try:
            for job in reversed(jobs):
                job.wait(timeout=2 * TIMEOUT_S)
                if waits_for_last:
                    break
        finally:
            for job in jobs:
                job.kill()
                job.wait()
            said = ""
            for path in paths:
                with open(path) as file:
                    said += file.read()
            for child in re.findall(r"child (\d+)", said):
                try:
                    os.kill(int(child), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return said

    def check(self, said, how):
        killed = re.search(r"killed at (\S+)", said)
        heard = re.search(r"heard at (\S+): (.*)", said)
        self.assertTrue(killed and heard, said)
        self.assertRegex(heard[2], how)
        self.assertLess(float(heard[1]) - float(killed[1]), AT_MOST, said)

    def by_hand(self, how, **settings):
        key = os.path.join(self.folder, "key")
        with open(key, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(os.urandom(32).hex() + "\n")
        ranks = [{"RANK": str(i), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": PORT,
                  "TUTTI_KEY_FILE": key, **settings} for i in range(2)]
        return self.run_all([([PROGRAM, how], rank) for rank in ranks], how == "stop")

    def launched(self, how, **settings):
        return self.run_all([([TUTTI, "run", "-n", "2", PROGRAM, how], settings)])

    def test_by_hand(self):
        self.check(self.by_hand("fork"), r"rank 1 \(process \d+\) died")

    def test_by_hand_without_fork(self):
        self.check(self.by_hand("clone"), r"rank 1 \(process \d+\) died")

    def test_by_hand_over_tcp(self):
        self.check(self.by_hand("fork", TUTTI_WIRES="tcp"), "rank 1 is gone")

    def test_a_store_that_is_stopped_delays_a_verdict_by_a_second_at_most(self):
        said = self.by_hand("stop", TUTTI_WIRES="tcp", TUTTI_TIMEOUT_MS="500")
        stopped = float(re.search(r"killed at (\S+)", said)[1])
        heard = re.search(r"heard at (\S+): (.*)", said)
        self.assertRegex(heard[2], "rank 0 never entered it.*gave up after 500 ms")
        self.assertLess(float(heard[1]) - stopped, 0.5 + 1 + 0.3, said)  # and some scheduling

    def test_launched(self):
        self.check(self.launched("fork"), r"rank 1 \(process \d+\) died")

    def test_launched_without_fork(self):
        self.check(self.launched("clone"), r"rank 1 \(process \d+\) died")

    def test_launched_over_tcp(self):
        self.check(self.launched("fork", TUTTI_WIRES="tcp"), "rank 1 is gone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
