#!/usr/bin/env python3
"""tools/run_tests and tools/draw_tests, on a folder of tests that are made for it: what fails once,
what fails always, what a sanitizer reported; which tests a seed draws."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SOURCE = os.environ["TUTTI_SOURCE_DIR"]

# A test that fails when it is run first: its mark is not there yet.
SCRIPTS = {
    "starts.py": "run(os.path.join('tests', 'foo_test'), 'no_such_test')",
    "passes": "exit 0",
    "fails_once": "[ -e marks/once ] || { touch marks/once; exit 1; }",
    "fails_always": "echo it always does; exit 1",
    "reports_once": "[ -e marks/report ] || { touch marks/report; "
                    "echo 'WARNING: ThreadSanitizer: data race'; exit 1; }",
    "fails_thrice": "echo x >>marks/thrice; [ $(wc -l <marks/thrice) -ne 3 ]",
    "fails_twice": "echo x >>marks/twice; [ $(wc -l <marks/twice) -gt 3 ] || "
                   "[ $(wc -l <marks/twice) -eq 2 ]",
}


class Folder:
    """A build folder with the scripts that are named."""

    def __init__(self, names, labels="quick"):
        self.place = tempfile.TemporaryDirectory(prefix="run_tests_")
        os.mkdir(os.path.join(self.place.name, "marks"))
        lines = []
        for name in names:
            path = os.path.join(self.place.name, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + SCRIPTS.get(name, "exit 0") + "\n")
            os.chmod(path, 0o755)
            lines.append(f'add_test([=[{name}]=] "{path}")\n'
                         f'set_tests_properties([=[{name}]=] PROPERTIES  LABELS "{labels}")\n')
        with open(os.path.join(self.place.name, "CTestTestfile.cmake"), "w",
                  encoding="utf-8") as file:
            file.write("".join(lines))

    def run(self, again, *arguments):
        environment = dict(os.environ, CHECK_AGAIN=again)
        done = subprocess.run(["tools/run_tests", self.place.name, *arguments], cwd=SOURCE,
                              env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def close(self):
        self.place.cleanup()


class RunTests(unittest.TestCase):
    def run_folder(self, names, again="1", *arguments):
        folder = Folder(names)
        try:
            return folder.run(again, *arguments)
        finally:
            folder.close()

    def counts(self, said):
        done = subprocess.run(["tools/count_tests", "/dev/stdin"], cwd=SOURCE, input=said,
                              capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def test_all_pass(self):
        status, said = self.run_folder(["passes"])
        self.assertEqual((status, self.counts(said)), (0, "1 passed, 0 failed"))

    def test_what_fails_once_is_unstable_and_named(self):
        status, said = self.run_folder(["passes", "fails_once"])
        self.assertEqual((status, self.counts(said)), (0, "2 passed, 0 failed"), said)
        self.assertIn("unstable: fails_once: failed beside others", said)

    def test_without_the_setting_the_first_failure_stands(self):
        status, said = self.run_folder(["passes", "fails_once"], "0")
        self.assertNotEqual(status, 0)
        self.assertEqual(self.counts(said), "1 passed, 1 failed")

    def test_what_fails_alone_stands(self):
        status, said = self.run_folder(["passes", "fails_always", "fails_once"])
        self.assertEqual((status, self.counts(said)), (1, "2 passed, 1 failed"), said)
        self.assertIn("stands: fails_always: fails alone, too", said)
        self.assertIn("it always does", said)

    def test_alone_it_must_pass_three_times(self):
        status, said = self.run_folder(["fails_twice"])
        self.assertEqual((status, self.counts(said)), (1, "0 passed, 1 failed"), said)

    def test_what_a_sanitizer_reported_stands(self):
        status, said = self.run_folder(["reports_once", "passes"])
        self.assertEqual((status, self.counts(said)), (1, "1 passed, 1 failed"), said)
        self.assertIn("stands: reports_once: a sanitizer reported", said)

    def test_a_report_stands_behind_another_failure(self):
        status, said = self.run_folder(["fails_once", "reports_once", "fails_always"])
        self.assertEqual((status, self.counts(said)), (1, "1 passed, 2 failed"), said)
        self.assertIn("unstable: fails_once", said)
        self.assertIn("stands: reports_once: a sanitizer reported", said)

    def test_a_ctest_that_dies_is_a_failure(self):
        folder = Folder(["passes"])
        with open(os.path.join(folder.place.name, "ctest"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nkill -9 $$\n")
        os.chmod(file.name, 0o755)
        path = folder.place.name + ":" + os.environ["PATH"]
        try:
            with unittest.mock.patch.dict(os.environ, PATH=path):
                status, said = folder.run("1")
        finally:
            folder.close()
        self.assertNotEqual(status, 0)
        self.assertEqual(self.counts(said), "0 passed, 1 failed", said)


class CheckAll(unittest.TestCase):
    """tools/check_all in a copy of a tree whose builds are made up."""

    def run_tiers(self, *tiers, counts="0 tests failed out of 3", share="6", fuzzers=()):
        with tempfile.TemporaryDirectory(prefix="check_all_") as place:
            os.makedirs(os.path.join(place, "tools"))
            os.makedirs(os.path.join(place, "build"))
            for name in ("check_all", "count_tests"):
                shutil.copy(os.path.join(SOURCE, "tools", name), os.path.join(place, "tools"))
            closing = f"echo '9% tests passed, {counts}'; exit {counts[0]}"
            draw = '[ "$1" = build ] && echo x >build/drawn_tests'  # others break
            for name, text in (("tools/draw_tests", draw), ("tools/run_tests", closing),
                               ("bin/cmake", "exit 0"), ("bin/ninja", "exit 0"),
                               *((f"build/fuzz/fuzz/{name}_fuzz", text) for name, text in fuzzers)):
                path = os.path.join(place, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\n" + text + "\n")
                os.chmod(path, 0o755)
            path = os.path.join(place, "bin") + ":" + os.environ["PATH"]
            done = subprocess.run([os.path.join(place, "tools", "check_all"), *tiers],
                                  env=dict(os.environ, PATH=path, CHECK_SHARE=share),
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_a_tier_that_draws_nothing_has_failed(self):
        status, last, said = self.run_tiers("full", "asan")
        self.assertEqual((status, last), (1, "3 passed, 1 failed"), said)

    def test_a_tier_that_there_is_not_has_failed(self):
        status, last, said = self.run_tiers("full", "assan")
        self.assertEqual((status, last), (1, "3 passed, 1 failed"), said)

    def test_a_failure_counts_once(self):
        status, last, said = self.run_tiers("full", counts="1 tests failed out of 3")
        self.assertEqual((status, last), (1, "2 passed, 1 failed"), said)

    def test_fuzzers_that_run_at_once_are_all_counted(self):
        fuzzers = [(f"f{number}", f"echo {number}; exit {number % 4 // 3}") for number in range(9)]
        status, last, said = self.run_tiers("fuzz", share="1", fuzzers=fuzzers)
        self.assertEqual((status, last), (1, "8 passed, 2 failed"), said)
        self.assertIn("\n3\nfuzz f3: failed\n", said)  # what it said goes before
        self.assertIn("\nfuzz f8: passed\n", said)

    def test_a_share_draws_fuzzers(self):
        fuzzers = [(f"f{number}", "exit 0") for number in range(64)]
        for share, part, range_ok in (("6", 2, range(16, 49)), ("9", 3, range(8, 36))):
            status, last, said = self.run_tiers("fuzz", share=share, fuzzers=fuzzers)
            self.assertEqual(status, 0, said)
            self.assertIn(f"fuzz: one of {part} fuzzers", said)
            self.assertIn(said.count("passed\nfuzz"), range_ok)

    def test_tiers_that_pass(self):
        status, last, said = self.run_tiers("full")
        self.assertEqual((status, last), (0, "3 passed, 0 failed"), said)


class DrawTests(unittest.TestCase):
    def drawn(self, share, seed, names=tuple(f"test_{number}" for number in range(64))):
        folder = Folder(names)
        # A build file in which ninja finds what is linked.
        with open(os.path.join(folder.place.name, "build.ninja"), "w", encoding="utf-8") as file:
            file.write("rule C_EXECUTABLE_LINKER__x\n command = true\n"
                       "rule CMAKE_SYMLINK_LIBRARY\n command = true\n"
                       "build lib/libtutti.so: CMAKE_SYMLINK_LIBRARY\n"
                       "build bin/gpt: C_EXECUTABLE_LINKER__x\n"
                       "build bench/speed: C_EXECUTABLE_LINKER__x\n"
                       "build tests/hang: C_EXECUTABLE_LINKER__x\n"
                       "build tests/foo_test: C_EXECUTABLE_LINKER__x\n")
        try:
            done = subprocess.run(["tools/draw_tests", folder.place.name, str(share), str(seed)],
                                  cwd=SOURCE, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            texts = []
            for name in ("drawn_tests", "drawn_targets"):
                with open(os.path.join(folder.place.name, name), encoding="utf-8") as file:
                    texts.append(file.read())
            return done.stdout, *texts
        finally:
            folder.close()

    def test_a_share_of_one_is_all(self):
        said, tests, targets = self.drawn(1, 5)
        self.assertIn("64 of 64", said)
        self.assertEqual(tests.count("test_"), 64)
        self.assertEqual(targets, "bin/gpt\nlib/libtutti.so\ntests/hang")

    def test_what_a_drawn_script_starts_is_built(self):
        _, _, targets = self.drawn(1, 5, ["starts.py"])
        self.assertEqual(targets, "bin/gpt\nlib/libtutti.so\ntests/foo_test\ntests/hang")

    def test_a_seed_repeats_its_draw_and_another_draws_others(self):
        first, again, other = self.drawn(4, 5), self.drawn(4, 5), self.drawn(4, 6)
        self.assertEqual(first, again)
        self.assertNotEqual(first[1], other[1])
        self.assertTrue(4 <= first[1].count("test_") <= 32, first[0])
        self.assertIn("CHECK_SEED=5", first[0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
