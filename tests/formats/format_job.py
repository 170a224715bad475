"""Two ranks of format_ranks.c that meet in a store of this process."""
import glob
import os
import socket
import subprocess
import time

import store_wire
from layouts import tables

BINARIES = os.environ["TUTTI_BINARY_DIR"]
PROGRAM = os.path.join(BINARIES, "tests", "format_ranks")
DEADLINE = 30
NAMES = {kind: {row[column].strip("`"): int(row[0]) for row in tables("shm.md")["numbers"]}
         for kind, column in (("call", 1), ("dtype", 2), ("reduction", 3))}

# What format_ranks does: name, count, dtype, reduction, root. The first is the group's own barrier.
CALLS = [("barrier", 0, "f32", "sum", 0), ("all_reduce", 10, "f32", "sum", 0),
         ("broadcast", 5, "f64", "sum", 1), ("all_reduce", 1024, "f32", "max", 0),
         ("barrier", 0, "f32", "sum", 0), ("broadcast", 70000, "i64", "sum", 0)]


def content(count, rank):
    """The bytes that format_ranks puts into its tensors."""
    return bytes((i * 7 + rank * 13) % 64 for i in range(count))


def until(find, what):
    """What find() gives, once that is true."""
    end = time.monotonic() + DEADLINE
    while not (found := find()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.001)
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Rank:
    def __init__(self, number, settings):
        environment = dict(os.environ, RANK=str(number), **settings)
        self.process = subprocess.Popen([PROGRAM], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def hear(self, line):
        heard = self.process.stdout.readline().decode().strip()
        if heard != line:
            self.process.kill()
            raise ValueError(f"{heard!r} instead of {line!r}: "
                             f"{self.process.stderr.read().decode()}")

    def go_on(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()

    def heap(self):
        """The segments of the rank's heap, as files."""
        found = []
        for path in glob.glob(f"/proc/{self.process.pid}/fd/*"):
            try:
                if os.readlink(path).startswith("/memfd:tutti-heap"):
                    found.append((int(os.path.basename(path)), path))
            except FileNotFoundError:  # closed meanwhile
                pass
        return [open(path, "r+b", buffering=0) for _, path in sorted(found)]


class Job:
    """Use it in a with statement."""

    def __init__(self, real=(0, 1), rewrite=None, **settings):
        self.store = store_wire.Server(rewrite)
        settings = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(self.store.port), "TUTTI_AGENT_STORE": "1",
                    "TUTTI_KEY_FILE": os.path.join(BINARIES, "tests.key"),
                    "TUTTI_PROTECT": "off", "TUTTI_TIMEOUT_MS": "20000", "TUTTI_ALGO": "auto",
                    "TUTTI_TUNE": "off", **settings}
        self.ranks = {number: Rank(number, {**settings, "LOCAL_RANK": str(number)})
                      for number in real}

    def hear(self, line):
        for rank in self.ranks.values():
            rank.hear(line)

    def go_on(self):
        for rank in self.ranks.values():
            rank.go_on()

    def end(self):
        """Lets the ranks run to their ends; their exit codes."""
        codes = []
        for rank in self.ranks.values():
            rank.process.stdin.close()
        for rank in self.ranks.values():
            codes.append(rank.process.wait(DEADLINE))
        return codes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks.values():
            rank.kill()
        self.store.close()
