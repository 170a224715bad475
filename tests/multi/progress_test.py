"""The line that moves: on a terminal (a pseudo-terminal here), under `tutti run` on one, and plain
lines elsewhere; with and without colours, and cut to the terminal's width."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import tempfile
import termios
import time
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
DEADLINE = 110
STEPS = 30
TEXT = re.compile(r"step (\d+)  loss \d+\.\d{4}  lr \d\.\d\de[-+]\d\d  \d+ tokens/s")
REST = re.compile(r"  \d+ s left  [\d.]+ MiB$")


class Progress(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="progress_"))
        self.text = os.path.join(self.folder, "text")
        with open(self.text, "w", encoding="ascii") as file:
            file.write("In the beginning God created the heaven and the earth. " * 40)

    def gpt(self):
        return [GPT, "--data", self.text, "--layers", "1", "--width", "16", "--heads", "2",
                "--context", "16", "--batch", "1", "--threads", "1", "--shards", "2", "--steps",
                str(STEPS)]

    @staticmethod
    def environment(**more):
        plain = {name: value for name, value in os.environ.items()
                 if name not in ("NO_COLOR", "TERM")}
        return {**plain, **more}

    def on_terminal(self, command, columns=120, **more):
        """All that a terminal is given."""
        ours, theirs = pty.openpty()
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                  env=self.environment(**more)) as process:
                os.close(theirs)
                theirs = -1
                said = self.read_all(ours, process)
                self.assertEqual(process.wait(DEADLINE), 0, said)
            return said
        finally:
            os.close(ours)
            if theirs >= 0:
                os.close(theirs)

    def read_all(self, terminal, process):
        """Until nobody has its other end any more (EIO)."""
        parts, until = [], time.monotonic() + DEADLINE
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([terminal], [], [], left)[0]:
                process.kill()
                self.fail("not ended in time: " + b"".join(parts).decode())
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:
                part = b""
            if not part:
                return b"".join(parts).decode()
            parts.append(part)

    def check_last(self, line):
        self.assertRegex(line, TEXT)
        self.assertRegex(line, REST)
        self.assertEqual(TEXT.search(line).group(1), str(STEPS))

    def test_a_terminal_has_one_line_that_moves(self):
        said = self.on_terminal(self.gpt(), TERM="xterm", NO_COLOR="1")
        self.assertNotIn("\033[2m", said)
        moving = said.split("\r\n")[0]
        texts = [text.removesuffix("\033[K") for text in moving.split("\r") if text]
        self.assertGreaterEqual(len(texts), 2)
        self.assertTrue(all(TEXT.match(text) for text in texts), said)
        self.check_last(texts[-1])

    def test_colours(self):
        said = self.on_terminal(self.gpt(), TERM="xterm")
        self.assertRegex(said, r"\033\[2m  \d+ s left  [\d.]+ MiB\033\[0m\033\[K")

    def test_a_narrow_terminal_has_one_line_too(self):
        for columns in (30, 1):
            with self.subTest(columns):
                said = self.on_terminal(self.gpt(), columns=columns, TERM="xterm")
                for text in said.split("\r\n")[0].split("\r"):
                    self.assertLess(len(re.sub(r"\033\[\d*[mK]", "", text)), columns)
                self.assertIn("step 30  loss"[:columns - 1], said)

    def test_plain_lines(self):
        terminal = self.on_terminal(self.gpt(), TERM="dumb").replace("\r\n", "\n")
        piped = subprocess.run(self.gpt(), capture_output=True, text=True, timeout=DEADLINE,
                               check=True, env=self.environment(TERM="xterm")).stdout
        for said in (terminal, piped):
            self.assertNotRegex(said, r"[\r\033]")
            lines = [line for line in said.splitlines() if line.startswith("step ")]
            self.assertRegex(lines[0], r"^step 1 ")
            self.check_last(lines[-1])

    def test_rank_0_alone_under_the_launcher(self):
        command = [TUTTI, "run", "-n", "2", *self.gpt()]
        said = self.on_terminal(command, TERM="xterm")
        self.assertNotIn("[rank 1] step", said)
        lines = [line.split("\033[K")[-1] for line in said.replace("\r\n", "\n").split("\n")
                 if "step" in line]
        self.check_last(lines[-1].split("\r")[-1])
        self.assertIn("[rank 0] step", said)
        piped = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE,
                               check=True, env=self.environment(TERM="xterm"))
        lines = [line for line in piped.stdout.splitlines() if "step" in line]
        self.assertTrue(all(line.startswith("[rank 0] step") for line in lines), piped.stdout)
        self.check_last(lines[-1])


if __name__ == "__main__":
    unittest.main()
