"""docs/formats/dump.md, tune.md and dataloader.md against the files that this build writes."""
import glob
import json
import os
import re
import struct
import subprocess
import tempfile
import unittest

from clear_records import crc32c
from format_job import BINARIES
from layouts import tables

TUTTI = os.path.join(BINARIES, "bin", "tutti")
HANG = os.path.join(BINARIES, "tests", "hang")
FILES = os.path.join(BINARIES, "tests", "format_files")
TYPES = {"text": str, "number": int, "list": list}


class Schema:
    """A table of fields: {field: (type or None, what it says)}."""

    def __init__(self, name, which):
        self.fields = {}
        for names, kind, what in tables(name)[which]:
            for field in re.findall(r"`(\w+)`", names):
                self.fields[field] = (TYPES.get(kind.split(" ")[0]), what)

    def words(self, field):
        """The values that a row lists."""
        return re.findall(r"`([^`]+)`", self.fields[field][1])


class Dumps(unittest.TestCase):
    MAIN, GROUP, CALL = (Schema("dump.md", which) for which in ("dump", "group", "call"))

    def check(self, value, schema, missing=()):
        self.assertEqual(set(schema.fields) - set(missing), set(value))
        for field, item in value.items():
            kind = schema.fields[field][0]
            if kind is not None:
                self.assertIs(type(item), kind, field)

    def check_call(self, call):
        of_messages = call["kind"] != "call"
        self.check(call, self.CALL, ("call", "sequence", "reduction", "root") if of_messages
                   else ("peer",))
        self.assertIn(call["kind"], self.CALL.words("kind"))
        self.assertIn(call["state"], self.CALL.words("state"))
        numbers = tables("shm.md")["numbers"]
        self.assertIn(f"`{call['dtype']}`", [row[2] for row in numbers])
        if not of_messages:
            self.assertIn(f"`{call['call']}`", [row[1] for row in numbers])
            self.assertIn(f"`{call['reduction']}`", [row[3] for row in numbers])

    def check_group(self, group):
        self.check(group, self.GROUP)
        self.assertEqual(len(group["ranks"]), group["size"])
        self.assertLessEqual(len(group["calls"]), 64)
        self.assertEqual([call["number"] for call in group["calls"]],
                         sorted(call["number"] for call in group["calls"]))
        for call in group["calls"]:
            self.check_call(call)
        for seen in group["seen"]:
            self.assertLessEqual({"rank"}, set(seen))
            self.assertLessEqual(set(seen), set(self.GROUP.words("seen")))
            self.assertIn(seen["rank"], range(group["size"]))
            if "last" in seen:
                self.check_call(seen["last"])
            self.assertIs(type(seen.get("where", "")), str)

    def test_every_field(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        environment = dict(os.environ, TUTTI_TIMEOUT_MS="2000", TUTTI_DUMP=folder)
        for how in ("counts", "elsewhere"):
            subprocess.run([TUTTI, "run", "-n", "4", HANG, how], env=environment, timeout=60,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            paths = glob.glob(folder + "/*.json")
            self.assertTrue(paths)
            for path in paths:
                with open(path, encoding="utf-8") as file:
                    dump = json.load(file)
                self.check(dump, self.MAIN)
                self.assertEqual((dump["format"], dump["version"]),
                                 (self.MAIN.words("format")[0], 1))
                self.assertEqual(os.path.basename(path), f"world-rank{dump['rank']}.json")
                self.assertEqual(dump["groups"][0]["rank"], dump["rank"])
                for group in dump["groups"]:
                    self.check_group(group)
                os.unlink(path)


class TuningFiles(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "tune")

    def bench(self, *args, **settings):
        return subprocess.run([TUTTI, "bench", "all_reduce", "-n", "2", "--bytes", "4:1k:x16",
                               "--calls", "3", "--batches", "1", *args],
                              env=dict(os.environ, **settings), capture_output=True, text=True,
                              timeout=60)

    def check_line(self, line):
        ranks, wire, rule = line.split()
        self.assertIn(int(ranks), range(1, 1048577))
        self.assertIn(wire, re.findall(r"`([^`]+)`", dict(
            (row[0], row[1]) for row in tables("tune.md")["words"])["WIRE"]))
        self.assertRegex(rule, r"^(\w+:)?(\d+[kKmMgG]?-(\d+[kKmMgG]?)?:)?\w+$")
        return int(ranks), wire, rule

    def test_what_bench_writes(self):
        done = self.bench("--tune", "--out", self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        rules = [self.check_line(line) for line in lines if line and not line.startswith("#")]
        self.assertTrue(rules)
        for ranks, wire, rule in rules:
            self.assertEqual((ranks, wire, rule.split(":")[0]), (2, "shm", "all_reduce"))

    def test_what_the_document_allows_is_read(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("# a comment\n\n2 shm all_reduce:0-2048:flag\n"
                       "2   shm   all_reduce:2048-:direct\n1048576 shm+tcp ring\n"
                       "1 self nought\n")
        self.assertEqual(self.bench(TUTTI_TUNE=self.path).returncode, 0)

    def test_what_it_does_not_allow_is_an_error(self):
        for line in ("0 shm ring", "1048577 shm ring", "2 pipe ring", "2 shm", "2 shm x:ring",
                     "2 shm ring more", "# " + "x" * (256 << 10)):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(line + "\n")
            done = self.bench(TUTTI_TUNE=self.path)
            self.assertNotEqual(done.returncode, 0, line)


class LoaderStates(unittest.TestCase):
    SAMPLES, BATCH, EPOCH, FIRST = 100, 8, 2, 64

    def state(self, steps):
        done = subprocess.run([FILES, "loader", str(steps)], capture_output=True, text=True,
                              timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_every_word(self):
        words = [row[0].strip("`") for row in tables("dataloader.md")["state"]]
        steps = -(-self.SAMPLES // self.BATCH)
        order = b"".join(struct.pack("<q", sample) for sample in range(self.FIRST))
        for step in (0, 3, steps):
            values = (1, self.EPOCH, step, steps, self.BATCH, 1, self.SAMPLES, crc32c(order))
            line = " ".join(f"{word} {value}" for word, value in zip(words, values)) + "\n"
            self.assertEqual(self.state(step), line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
