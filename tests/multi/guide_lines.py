"""Every command line of docs/guide, taken out of the document itself, and a place to run it in.

A line is a command if it stands in a block and begins with a program of COMMANDS, after a prompt
and settings of variables. Each must be run by a test: guide_lines_test.py or
guide_lines_full_test.py claim it by a pattern, and the first of them checks that none is left.
"""
import glob
import os
import re
import subprocess
import tempfile

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
BINARY = os.environ["TUTTI_BINARY_DIR"]
COMMANDS = ("tutti", "./train", "mpicc", "mpirun", "srun", "torchrun", "scp", "bench/run",
            "tools/digests", "cat", "echo", "sudo")
BLOCK = re.compile(r"^```(?:\n)(.*?)^```$|((?:^    .*\n|^\n(?=    ))+)", re.MULTILINE | re.DOTALL)
DEADLINE = 100

# Who runs which line.
QUICK = (r"\./train$", r"tutti run -n 4 (--max-restarts 3 )?\./train$", r"tutti run .* gpt ",
         r"tutti key ", r"scp ", r"tutti run --nnodes 3 ", r".* hang elsewhere$",
         r"tutti verdict ", r"echo \$\?$", r"tutti run -n 4 16_reductions$",
         r"tutti checkpoint ", r"tutti explain (?!.* --svg )", r"cat \w+\.csv$",
         r"tutti explain .* --svg ", r"tutti run .*--host", r"tutti (profile|report) ")
FULL = (r"tutti bench |cat tune$|TUTTI_TUNE=tune ", r"mpirun ", r"mpicc |TUTTI_BACKEND=mpi ",
        r"(TUTTI_KEY_FILE=\S+ )?srun ", r"torchrun ", r"tools/digests$", r"bench/run ")


def lines():
    """[(chapter, line)], continued lines joined, without prompt and comment."""
    found = []
    for path in sorted(glob.glob(os.path.join(SOURCE, "docs", "guide", "*.md"))):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"^```c\n.*?^```$", "", file.read(), flags=re.MULTILINE | re.DOTALL)
        for fenced, indented in BLOCK.findall(text):
            block = re.sub(r"\\\n\s*", "", fenced or indented)
            for line in block.splitlines():
                line = re.sub(r"\s{2,}# .*$", "", re.sub(r"^\s*(\$ )?", "", line))
                if is_command(line):
                    found.append((os.path.basename(path), line))
    return found


def is_command(line):
    words = [word for word in line.split() if not re.match(r"\w+=\S*$", word)]
    is_error = len(words) > 1 and words[1].endswith(":")  # "tutti explain: …" is what it said
    return bool(words) and words[0] in COMMANDS and not is_error


def claimed(pattern):
    """The lines that a pattern claims, in the document's order."""
    return [line for _, line in lines() if re.match(pattern, line)]


def sums(ranks):
    """What ./train prints on so many ranks."""
    total = ranks * (ranks + 1) // 2
    return [f"rank {rank}: the sum is {total} {total} {total} {total}" for rank in range(ranks)]


class Place:
    """A folder with the guide's programs: ./train is an example that sums over all ranks."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti_guide_")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("TUTTI_KEY")}
        self.environment |= {"HOME": self.folder.name, "PATH": ":".join(
            [self.path("bin"), os.path.join(BINARY, "bin"), os.path.join(BINARY, "tests"),
             os.environ["PATH"]])}
        os.mkdir(self.path("bin"))
        os.symlink(os.path.join(BINARY, "bin", "04_all_reduce"), self.path("train"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", opener=lambda path, flags: os.open(path, flags, mode)) as f:
            f.write(text)

    def start(self, line, **variables):
        return subprocess.Popen(["bash", "-c", line], cwd=self.folder.name, text=True,
                                env=self.environment | variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, line, **variables):
        """(code, stdout, stderr)"""
        job = self.start(line, **variables)
        try:
            out, err = job.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            job.kill()
            raise
        return job.returncode, out, err
