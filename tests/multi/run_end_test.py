"""`tutti run` before its ranks begin and after they have ended: keys, logs that cannot be, output
that waits for its reader."""
import os
import signal
import time
import unittest

from run_test import DEADLINE, Job, processes_of, run, shell, wait_until

LINES = 30000  # more than a pipe holds, and less than the launcher keeps


class Begin(unittest.TestCase):
    def test_without_protection_there_is_no_key(self):
        result = shell("echo ${TUTTI_KEY_FD:-none}", ranks=1,
                       env={**os.environ, "TUTTI_PROTECT": "off"})
        self.assertEqual(result.stdout, "none\n", result.stderr)

    def test_a_folder_for_logs_that_cannot_be_is_named(self):
        result = run("--log-dir", "/dev/null/logs", "cat", input="to nobody\n")
        self.assertEqual([result.returncode, result.stdout], [1, ""], result.stderr)
        self.assertRegex(result.stderr, "cannot make the folder /dev/null: Not a directory\n$")

    def test_a_closed_input_is_at_its_end(self):
        result = run("cat", ranks=1, preexec_fn=lambda: os.close(0))
        self.assertEqual([result.returncode, result.stdout, result.stderr], [0, "", ""])


class Open(unittest.TestCase):
    def test_a_last_line_without_an_end_is_shown_though_its_stream_stays_open(self):
        result = shell("setsid sleep 60 & printf out; printf err >&2", ranks=1)
        self.assertEqual([result.returncode, result.stdout, result.stderr], [0, "out\n", "err\n"])


class End(unittest.TestCase):
    """A rank has failed, and what it printed waits."""

    def setUp(self):
        self.job = Job(f"seq {LINES}; exit 3", ranks=1, flags=("--grace", "0.2"), ready=0)
        self.first = os.read(self.job.process.stdout.fileno(), 1).decode()
        wait_until(lambda: not processes_of(self.job.id), "the rank is gone")
        time.sleep(1)  # longer than the grace

    def test_it_waits_for_its_reader_without_an_end(self):
        code, out, err = self.job.end()
        self.assertEqual(code, 3, err)
        self.assertEqual((self.first + out).split(), [str(i) for i in range(1, LINES + 1)])

    def test_after_a_signal_it_waits_for_the_grace(self):
        self.job.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.job.process.wait(DEADLINE), 128 + signal.SIGTERM)
        self.job.end()


if __name__ == "__main__":
    unittest.main(verbosity=2)
