"""`tutti run --max-restarts`: all ranks begin again, with nothing of before."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
DEADLINE = 60


def run(script, restarts, flags=(), ranks=2):
    return subprocess.run([TUTTI, "run", "-n", str(ranks), "--grace", "5", "--max-restarts",
                           str(restarts), *flags, "sh", "-c", script], text=True,
                          capture_output=True, timeout=DEADLINE)


class Restarts(unittest.TestCase):
    def test_all_ranks_begin_again_until_none_fails(self):
        done = run("echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS;"
                   " [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && kill -9 $$;"
                   " exec sleep 60", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = done.stdout.splitlines()  # rank 0 may have been ended before its first word
        self.assertEqual([line for line in said if line.startswith("[rank 1]")],
                         [f"[rank 1] {attempt} of 3" for attempt in range(3)])
        self.assertIn("[rank 0] 2 of 3", said)
        self.assertEqual(done.stderr.splitlines(),
                         ["rank 1: killed by SIGKILL; restart 1 of 3",
                          "rank 1: killed by SIGKILL; restart 2 of 3"])

    def test_the_last_failure_counts(self):
        done = run("[ $RANK = 0 ] && exit $((5 + TORCHELASTIC_RESTART_COUNT)); exec sleep 60", 2)
        self.assertEqual(done.returncode, 7)
        self.assertEqual(done.stderr.splitlines(), ["rank 0: exit code 5; restart 1 of 2",
                                                    "rank 0: exit code 6; restart 2 of 2",
                                                    "rank 0: exit code 7"])

    def test_the_grace_of_an_attempt_ends_with_it(self):
        done = run("[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; sleep 1; echo end", 1,
                   ["--grace", "0.2"], ranks=1)
        self.assertEqual([done.returncode, done.stdout], [0, "end\n"], done.stderr)

    def test_without_the_flag_nothing_is_tried_again(self):
        done = run("echo once; exit 3", 0, ranks=1)
        self.assertEqual([done.returncode, done.stdout.count("once")], [3, 1])

    def test_an_attempt_has_a_store_and_a_key_of_its_own(self):
        code = ("import os, sys\n"
                "fd = int(os.environ['TUTTI_KEY_FD'])\n"
                "print(os.pread(fd, 100, 0).hex(), os.environ['MASTER_PORT'], flush=True)\n"
                "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] != '2')")
        done = subprocess.run([TUTTI, "run", "-n", "1", "--max-restarts", "2", sys.executable, "-c",
                               code], text=True, capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr)
        keys, ports = zip(*(line.split() for line in done.stdout.splitlines()))
        self.assertEqual([len(set(keys)), len(set(ports))], [3, 3])
        self.assertEqual({len(key) for key in keys}, {64})

    def test_a_key_of_the_users_is_not_the_later_attempts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "key")
            subprocess.run([TUTTI, "key", path], check=True)
            done = run("echo fd ${TUTTI_KEY_FD:-none}; exit 1", 1, ["--key-file", path], ranks=1)
        self.assertRegex(done.stdout, r"^fd none\nfd \d+\n$")

    def test_nothing_of_an_attempt_is_left_in_the_next(self):
        name = "tutti-" + uuid.uuid4().hex
        done = run(f"if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then"
                   f" setsid sh -c 'sleep 61; : {name}' & sleep 0.1; exit 1; fi;"
                   f" for f in /proc/[0-9]*/cmdline; do"
                   f" tr '\\0' ' ' <$f 2>/dev/null | grep -q '^sh -c sleep 61; : {name}' &&"
                   f" echo left; done; exit 0", 1, ranks=1)
        self.assertEqual([done.returncode, done.stdout], [0, ""], done.stderr)

    def test_a_job_that_is_stopped_is_not_started_again(self):
        job = subprocess.Popen([TUTTI, "run", "-n", "2", "--max-restarts", "5", "sh", "-c",
                                "echo ready; exec sleep 60"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        for _ in range(2):
            job.stdout.readline()
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=DEADLINE)
        self.assertEqual([job.returncode, out], [143, ""])
        self.assertIn("stopped by SIGTERM", err)
        self.assertNotIn("restart", err)

    def test_a_stop_in_a_later_attempt_ends_the_job(self):
        job = subprocess.Popen([TUTTI, "run", "-n", "2", "--max-restarts", "5", "sh", "-c",
                                "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1; echo ready;"
                                " exec sleep 60"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        job.stdout.readline()
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 130)
        self.assertRegex(err, r"^rank [01]: exit code 1; restart 1 of 5\n")

    def test_logs_are_kept_by_attempt(self):
        with tempfile.TemporaryDirectory() as folder:
            run("echo $TORCHELASTIC_RESTART_COUNT; exit 1", 1,
                ["--log-dir", folder, "--rdzv-id", "r"], ranks=1)
            for attempt in range(2):
                with open(f"{folder}/r/attempt_{attempt}/0/stdout.log") as file:
                    self.assertEqual(file.read(), f"{attempt}\n")

    def test_logs_of_all_attempts_are_in_the_folder_that_is_named(self):
        done = run("echo $TORCHELASTIC_RESTART_COUNT; exit 1", 2, ["--tee", "1"], ranks=1)
        folder = re.search("^logs are in (.+)$", done.stderr, re.M)[1]
        said = [pathlib.Path(folder, f"attempt_{attempt}", "0", "stdout.log").read_text()
                for attempt in range(3)]
        shutil.rmtree(folder)
        self.assertEqual(said, ["0\n", "1\n", "2\n"])

    def test_a_failure_to_start_is_final(self):
        done = subprocess.run([TUTTI, "run", "--max-restarts", "5", "no-such-command"], text=True,
                              capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 127)
        self.assertNotIn("restart", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
