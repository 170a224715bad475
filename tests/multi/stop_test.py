"""`gpt` and `fashion` are stopped by a signal: they finish the step, save, and leave together; and
they try their outputs before they train."""
import os
import pty
import re
import signal
import subprocess
import tempfile
import termios
import unittest

import jobs
from fashion_test import setUpModule as make_pictures, tearDownModule as remove_pictures
import fashion_test

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
DEADLINE = 60
FOREVER = "1000000000"


def setUpModule():
    global FOLDER, PROGRAMS
    make_pictures()
    unittest.addModuleCleanup(remove_pictures)
    FOLDER = unittest.enterModuleContext(tempfile.TemporaryDirectory())
    text = os.path.join(FOLDER, "text")
    with open(text, "wb") as file:
        file.write(bytes(range(32, 127)) * 40)
    common = ["--threads", "1", "--shards", "2", "--batch", "1", "--steps"]
    PROGRAMS = {
        "gpt": [os.path.join(BIN, "gpt"), "--data", text, "--layers", "1", "--width", "8",
                "--heads", "1", "--context", "8", "--schedule", "constant", *common],
        "fashion": [os.path.join(BIN, "fashion"), "--data", fashion_test.folder.name, "--model",
                    "mlp", *common]}


def path(name):
    return os.path.join(FOLDER, name)


def start(program, *options, steps=FOREVER, ranks=1, **how):
    launcher = [TUTTI, "run", "-n", str(ranks), "--grace", "50"] if ranks > 1 else []
    return subprocess.Popen([*launcher, *PROGRAMS[program], steps, *options], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def run(program, *options, **how):
    (code,), (out,), (err,) = jobs.end([start(program, *options, **how)], DEADLINE)
    return code, out, err


def await_step(job):
    while not re.search(r"step [1-9]", line := job.stdout.readline()):
        assert line != "", job.stderr.read()


def ranks_of(job):
    """Processes of a launcher's ranks."""
    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    return children(children(job.pid)[0])


def digest_of(out):
    return re.findall(r"digest ([0-9a-f]{8,})", out)[0]


class Stops(unittest.TestCase):
    def end(self, program, job, number):
        (code,), (out,), (err,) = jobs.end([job], DEADLINE)
        self.assertEqual(code, 128 + number, err)
        self.assertRegex(err, rf"{program}: stopped by {number.name} behind step \d+")
        lines = [line for line in err.splitlines()
                 if not re.match(r"(\[rank 0\] )?\w+: stopped by|stopped by|rank \d: exit code|rank"
                                 r" \d, last lines|  \| \w+: stopped by", line)]
        self.assertEqual(lines, [])  # nobody speaks of another's end
        return int(re.findall(r"behind step (\d+)", err)[0]), out

    def test_alone(self):
        for program in PROGRAMS:
            for number in (signal.SIGINT, signal.SIGTERM):
                weights = path(f"{program}-{number}")
                job = start(program, "--save", weights)
                await_step(job)
                job.send_signal(number)
                self.end(program, job, number)
                code, _, err = run(program, "--load", weights, steps="1")
                self.assertEqual(code, 0, err)

    def test_all_ranks_stop_behind_one_step_and_go_on_from_there(self):
        for program in PROGRAMS:
            folder, weights = path(program + "-checkpoints"), path(program + "-all")
            save = ["--checkpoint", folder, "--every", FOREVER, "--digest"]
            job = start(program, *save, "--save", weights, ranks=2)
            await_step(job)
            job.send_signal(signal.SIGINT)
            step, out = self.end(program, job, signal.SIGINT)
            self.assertIn(step, [int(digits) for name in os.listdir(folder)
                                 for digits in re.findall(r"\d+", name)])
            if program == "gpt":  # fashion's learning rate depends on all steps to do
                code, on, err = run(program, *save, "--resume", steps=str(step + 2), ranks=2)
                self.assertEqual(code, 0, err)
                self.assertIn(f"begins at step {step}\n", on)
                code, whole, err = run(program, "--digest", steps=str(step + 2), ranks=2)
                self.assertEqual(digest_of(on), digest_of(whole))
            else:
                code, on, err = run(program, *save, "--resume", steps=str(step), ranks=2)
                self.assertEqual(digest_of(on), digest_of(out), err)

    def test_a_signal_to_one_rank_stops_all(self):
        for program in PROGRAMS:
            job = start(program, ranks=3)
            await_step(job)
            os.kill(ranks_of(job)[1], signal.SIGTERM)
            (code,), _, (err,) = jobs.end([job], DEADLINE)
            self.assertEqual(code, 128 + signal.SIGTERM, err)
            self.assertRegex(err, f"{program}: stopped by SIGTERM behind step")
            self.assertNotRegex(err, r"rank \d:? (closed|was|killed)|PEER|killed by")

    def test_a_second_signal_ends_at_once(self):
        for program in PROGRAMS:
            weights = path(program + "-none")
            job = start(program, "--save", weights)
            await_step(job)
            for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                job.send_signal(number)  # both arrive together
            (code,), _, _ = jobs.end([job], DEADLINE)
            self.assertIn(code, (-signal.SIGINT, -signal.SIGTERM))
            self.assertFalse(os.path.exists(weights))

    def test_the_terminal_stays_as_it_was(self):
        for program in PROGRAMS:
            master, slave = pty.openpty()
            before = termios.tcgetattr(slave)
            job = subprocess.Popen([*PROGRAMS[program], FOREVER], stdout=slave,
                                   stderr=subprocess.PIPE, text=True)
            said = b""
            while b"step 1" not in said:
                said += os.read(master, 4096)
            job.send_signal(signal.SIGINT)
            os.set_blocking(master, False)
            while job.poll() is None:
                try:
                    said += os.read(master, 65536)
                except BlockingIOError:
                    pass
            try:
                said += os.read(master, 65536)
            except BlockingIOError:
                pass
            self.assertEqual(job.returncode, 130)
            self.assertIn("stopped by SIGINT", job.stderr.read())
            job.stderr.close()
            self.assertTrue(said.endswith(b"\r\n"), said[-80:])
            self.assertEqual(termios.tcgetattr(slave), before)
            os.close(master)
            os.close(slave)


class Outputs(unittest.TestCase):
    """Each path is tried before the first step, and nothing is made or changed by that."""

    def refuse(self, program, flag, where, why, *options, ranks=1):
        left = sorted(os.listdir(FOLDER))
        code, out, err = run(program, f"--{flag}", where, *options, ranks=ranks)
        self.assertEqual(code, 1, err)
        self.assertNotRegex(out, "step [1-9]")
        told = f"{program}: --{flag} {where}: {why}"
        self.assertEqual([line for line in err.splitlines() if told in line],
                         [told] if ranks == 1 else [f"[rank 0] {told}", f"  | {told}"]
                         if f"  | {told}" in err else [f"[rank 0] {told}"], err)
        self.assertEqual(sorted(os.listdir(FOLDER)), left)

    def setUp(self):
        self.file = path("file")
        with open(self.file, "w") as file:
            file.write("kept")

    def test_files_of_gpt_and_fashion(self):
        for program, flags in (("gpt", ("save", "log", "summary", "trace")),
                               ("fashion", ("save", "log"))):
            for flag in flags:
                self.refuse(program, flag, path("none/file"), "No such file or directory")
            self.refuse(program, flag, FOLDER, "Is a directory")
            self.refuse(program, flag, path("new") + "/", "Is a directory")
            self.refuse(program, flag, self.file + "/file", "Not a directory")
            self.refuse(program, flag, path("x" * 300), "File name too long")

    def test_what_is_replaced_is_a_file(self):
        pipe = path("pipe")
        os.mkfifo(pipe)
        for program in PROGRAMS:
            self.refuse(program, "save", pipe, "not a regular file")

    def test_folders_of_gpt_and_fashion(self):
        for program in PROGRAMS:
            for flag in ("metrics", "offload"):
                self.refuse(program, flag, self.file, "Not a directory")
                self.refuse(program, flag, self.file + "/a/b", "Not a directory")
            self.refuse(program, "checkpoint", self.file, "Not a directory", "--every", "5")

    def test_others_say_nothing(self):
        self.refuse("gpt", "save", path("none/file"), "No such file or directory", ranks=2)

    def test_what_is_there_stays_as_it_is(self):
        self.refuse("gpt", "log", path("none/file"), "No such file or directory", "--save",
                    self.file, "--metrics", path("numbers"))
        with open(self.file) as file:
            self.assertEqual(file.read(), "kept")

    @unittest.skipIf(os.geteuid() == 0 and not os.path.exists("/proc/sys"), "root may write")
    def test_a_place_that_may_not_be_written_is_named(self):
        where = "/proc/sys/none" if os.geteuid() == 0 else "/none"
        code, _, err = run("gpt", "--save", where)
        self.assertEqual(code, 1)
        self.assertRegex(err, f"gpt: --save {where}: (Permission denied|Read-only file system)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
