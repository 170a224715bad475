"""A job whose ranks do not agree is diagnosed: while it waits, at its deadline, from its dumps."""
import glob
import json
import os
import re
import subprocess
import tempfile
import unittest

BINARIES = os.environ["TUTTI_BINARY_DIR"]
TUTTI = os.path.join(BINARIES, "bin", "tutti")
HANG = os.path.join(BINARIES, "tests", "hang")
SITE = r"\((hang\.c:\d+|\w+\+0x[0-9a-f]+ in hang)\)"


class Hang(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def run_job(self, how, **settings):
        environment = dict(os.environ, TUTTI_TIMEOUT_MS="2000", TUTTI_REPORT_MS="400",
                           TUTTI_DUMP=self.folder, **settings)
        job = subprocess.run([TUTTI, "run", "-n", "4", HANG, *how], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return job.returncode, job.stdout

    def test_a_folder_for_dumps_is_made(self):
        self.folder = os.path.join(self.folder, "not", "there")
        self.check_elsewhere()

    def test_a_folder_for_dumps_that_cannot_be_made_is_an_error_at_the_start(self):
        path = os.path.join(self.folder, "file")
        with open(path, "w"):
            pass
        for self.folder in (path, path + "/below"):
            code, output = self.run_job(["elsewhere"])
            self.assertNotEqual(code, 0)
            self.assertIn(f"TUTTI_DUMP={self.folder}: cannot make the folder {path}: "
                          "Not a directory", output)
            self.assertNotIn("has been waiting", output)

    def verdict(self, files=None):
        files = files if files is not None else sorted(glob.glob(self.folder + "/*.json"))
        done = subprocess.run([TUTTI, "verdict", *files], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=20)
        return done.returncode, done.stdout, done.stderr

    def check_elsewhere(self, **settings):
        code, output = self.run_job(["elsewhere"], **settings)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"rank \d has been waiting for 0\.\d s in "
                                 r"all_reduce #\d+ f32\[1024\] of group world " + SITE)
        self.assertRegex(output, r"rank 3 never entered it: it waits in barrier #\d of group "
                                 r"world\S+ " + SITE)
        # the first that gave up, or one that heard of it and ended the job before that one spoke
        self.assertRegex(output, r"gave up (after 2000 ms|waiting for rank \d)")
        files = sorted(glob.glob(self.folder + "/*.json"))
        self.assertTrue(files, output)
        for path in files:
            with open(path) as file:
                dump = json.load(file)
            self.assertEqual(dump["format"], "tutti-dump")
            self.assertEqual([group["size"] for group in dump["groups"]], [4, 2])
            self.assertTrue(all(call["site"] for call in dump["groups"][0]["calls"]))
        code, text, errors = self.verdict()
        self.assertEqual(code, 1, errors)
        # over tcp only its own file says where it is; the launcher may have ended it before
        where = r"(it (is|was seen waiting) in barrier #\d+ of group world\S+ " + SITE
        where += r"|it left no file)" if settings else ")"
        self.assertRegex(text, r"group world: rank 3 never entered all_reduce #\d+ f32\[1024\] " +
                         SITE + "; " + where)
        # what ranks said themselves: those of world, or those of the group that rank 3 waits in
        self.assertRegex(text, r"rank \d says: .*(rank 3 never entered it: it waits in barrier|"
                               r"rank 0 never entered it: it waits in all_reduce)")

    def test_a_rank_in_another_group(self):
        self.check_elsewhere()

    def test_a_rank_in_another_group_over_tcp(self):
        self.check_elsewhere(TUTTI_WIRES="tcp")

    def test_other_counts(self):
        code, output = self.run_job(["counts"])
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"rank 3 passed f32\[512\], rank 0 passed f32\[1024\] "
                                 r"\(rank 3 at (hang\.c:\d+|\w+\+0x.*), rank 0 at ")
        code, text, errors = self.verdict()
        self.assertEqual(code, 1, errors)
        self.assertRegex(text, r"group world: rank 3 called all_reduce #\d+ f32\[512\] " + SITE +
                         r", rank 0 called all_reduce #\d+ f32\[1024\]")

    def test_a_stopped_rank(self):
        code, output = self.run_job(["stop"])
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"rank 3 never entered it: it is in no call that waits; its last "
                                 r"here is all_reduce #\d+ f32\[1024\] " + SITE)
        code, text, errors = self.verdict()  # rank 3 has left no file, but was seen
        self.assertEqual(code, 1, errors)
        self.assertRegex(text, r"rank 3 never entered all_reduce #\d+ f32\[1024\] " + SITE +
                         r"; its last call is all_reduce #\d+ f32\[1024\] " + SITE)

    def test_a_job_that_is_well_leaves_no_file(self):
        code, output = self.run_job([])
        self.assertEqual(code, 0, output)
        self.assertEqual(os.listdir(self.folder), [])

    def test_files_that_are_no_dumps(self):
        for content in ("", "{}", "[1]", '{"format": "tutti-dump", "version": 2}'):
            path = os.path.join(self.folder, "x.json")
            with open(path, "w") as file:
                file.write(content)
            code, _, errors = self.verdict([path])
            self.assertEqual(code, 2)
            self.assertRegex(errors, re.escape(path))
        self.assertEqual(self.verdict([])[0], 2)
        self.assertEqual(self.verdict([self.folder + "/missing"])[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
