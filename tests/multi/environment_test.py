"""Environment variables: one table in the source, which `tutti info`, the guide and every reader of
variables agree with; invalid values are errors, and names that are not known are reported."""
import json
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
PROGRAM = os.path.join(BIN, "04_all_reduce")
DEADLINE = 60
NAME = re.compile(r"\bTUTTI_[A-Z0-9_]*[A-Z0-9]\b")
# Made by the Makefile, CMake or the tests' scripts, and read by them alone.
NOT_READ_BY_TUTTI = {"TUTTI_APT", "TUTTI_FUZZ", "TUTTI_FUZZ_SECONDS", "TUTTI_TEST_DEVICE",
                     "TUTTI_TEST_SHARE", "TUTTI_TEST_TIMEOUT",
                     "TUTTI_WITH_DNNL"}


def run(*args, **variables):
    return subprocess.run(args, text=True, capture_output=True, timeout=DEADLINE,
                          env=os.environ | variables)


def table():
    return json.loads(run(TUTTI, "info", "--json").stdout)["environment"]


def read(*parts):
    with open(os.path.join(SOURCE, *parts), encoding="utf-8") as file:
        return file.read()


def files(folders, endings):
    for folder in folders:
        for where, _, names in os.walk(os.path.join(SOURCE, folder)):
            for name in names:
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(where, name), SOURCE)


def public_names():
    return {name for path in files(["include"], (".h", ".def"))
            for name in NAME.findall(read(path))}


class Table(unittest.TestCase):
    maxDiff = None

    def test_the_guide_has_the_table(self):
        chapter = read("docs", "guide", "launching.md")
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", chapter, re.MULTILINE)
        shown = [(name, entry["allowed"], entry["default"], entry["about"])
                 for name, entry in table().items()]
        self.assertEqual(rows, [tuple(text.replace("|", "\\|") for text in row) for row in shown])

    def test_programs_ask_for_known_variables_only(self):
        known = set(table())
        literal = re.compile(r'"(TUTTI_[A-Z0-9_]+)(?:=[^"]*)?"')
        found = set()
        for path in files(["src", "examples", "bench"], (".c", ".h", ".def")):
            if path.endswith(("_test.c", "_testing.h")):
                continue
            for name in literal.findall(read(path)):
                self.assertIn(name, known, path)
                found.add(name)
        self.assertGreater(len(found), 5)

    def test_what_is_written_of_a_variable_exists(self):
        known = set(table()) | public_names() | NOT_READ_BY_TUTTI
        for path in files(["docs"], (".md",)):
            if "decisions" in path:
                continue
            for name in NAME.findall(read(path)):
                self.assertTrue(name in known or any(one.startswith(name + "_") for one in known),
                                f"{path}: {name}")


class Values(unittest.TestCase):
    bad = {"TUTTI_LOG": "verbose", "TUTTI_ISA": "avx1024", "TUTTI_TIMEOUT_MS": "1s",
           "TUTTI_THREADS": "-1", "TUTTI_PROTECT": "yes", "TUTTI_EXACT": "2", "TUTTI_MPI": "intel",
           "TUTTI_TCP_STREAMS": "5", "TUTTI_CACHE": "on", "TUTTI_OBJECT_BYTES_MAX": "0",
           "TUTTI_MEMORY_LIMIT": "4GB"}

    def test_an_invalid_value_is_an_error_of_a_program(self):
        for program in (PROGRAM, os.path.join(BIN, "03_train")):
            for name, value in self.bad.items():
                with self.subTest(program, name=name):
                    result = run(program, **{name: value})
                    self.assertNotEqual(result.returncode, 0)
                    self.assertRegex(result.stderr, f"{name}={value}: want ")

    def test_an_invalid_value_is_an_error_of_every_verb(self):
        for verb in (["run", "true"], ["info"], ["info", "--environment"], ["explain", "ring"],
                     ["bench"], ["verdict", "/nonexistent"], ["key", "/nonexistent/x"]):
            result = run(TUTTI, *verb, TUTTI_LOG="verbose")
            self.assertEqual(result.returncode, 2, verb)
            self.assertIn("TUTTI_LOG=verbose: want off, error, warn, info or debug", result.stderr)

    def test_rank_0_tells_of_an_unknown_name_once(self):
        result = run(TUTTI, "run", "-n", "3", PROGRAM, TUTTI_TIMEOUTMS="5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("TUTTI_TIMEOUTMS is set, but Tutti knows no such "
                                             "variable; did you mean TUTTI_TIMEOUT_MS?"), 1)
        self.assertEqual(result.stderr.count("TUTTI_TIMEOUTMS"), 1, result.stderr)
        self.assertIn("[rank 0]", result.stderr)

    def test_a_usual_environment_is_not_told_of(self):
        self.assertEqual(run(TUTTI, "run", "-n", "2", PROGRAM).stderr, "")


class Temporary(unittest.TestCase):
    """TMPDIR, for what goes into no folder of the user's."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="environment_"))

    def tutti(self, *args, folder):
        return run(TUTTI, *args, TMPDIR=folder)

    def test_profiles_are_made_there_and_go(self):
        for folder, want in ((self.folder, self.folder), ("", "/tmp")):
            result = self.tutti("profile", "--", "sh", "-c", "echo $TUTTI_PROFILE", folder=folder)
            self.assertRegex(result.stdout,
                             f"^{re.escape(want)}/tutti-profile-[A-Za-z0-9]{{6}}/profile\n$")
            self.assertEqual(os.listdir(self.folder), [])
            self.assertFalse(os.path.exists(os.path.dirname(result.stdout)))

    def test_logs_are_made_there_and_stay(self):
        result = self.tutti("run", "-n", "1", "--rdzv-id", "job", "--redirects", "1", "echo", "hi",
                            folder=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        [name] = os.listdir(self.folder)
        self.assertRegex(name, "^tutti_job_[A-Za-z0-9]{6}$")
        self.assertIn(f"logs are in {self.folder}/{name}\n", result.stderr)
        with open(os.path.join(self.folder, name, "attempt_0", "0", "stdout.log"),
                  encoding="ascii") as file:
            self.assertEqual(file.read(), "hi\n")

    def test_a_folder_that_is_not_there_is_named(self):
        for folder, why in ((f"{self.folder}/none", "No such file or directory"),
                            ("/" + "x" * 4090, "File name too long")):
            for command in (["profile", "--", "echo", "hi"],
                            ["run", "-n", "1", "--redirects", "1", "echo", "hi"]):
                with self.subTest(command, folder=folder):
                    result = self.tutti(*command, folder=folder)
                    is_refused = command[0] == "run" and "none" not in folder
                    self.assertEqual((result.returncode, result.stdout),
                                     (2 if is_refused else 1, ""))
                    for text in ["log directory: a path of 41"] if is_refused else [folder, why]:
                        self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
