"""`gpt --per-host`: ranks in folders of their own, as hosts with a disk each, go on together; and
what `tutti checkpoint` says of one of them."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
SMALL = ["--layers", "1", "--width", "20", "--heads", "2", "--context", "16", "--batch", "1",
         "--shards", "2", "--threads", "1", "--schedule", "constant", "--digest",
         "--checkpoint", "saved"]


def run(*options, per_host=True):
    """Two ranks, each in a folder that has its number, or both in one."""
    place = "host-$RANK" if per_host else "common"
    script = f'mkdir -p "{place}"; cd "{place}"; exec "$@"'
    return subprocess.run([TUTTI, "run", "-n", "2", "sh", "-c", script, "sh", GPT, "--data", text,
                           *SMALL, *options], cwd=folder, capture_output=True, text=True,
                          timeout=50)


def digest(ended):
    return re.search(r"digest ([0-9a-f]{32})\b", ended.stdout, re.M).group(1)


def checkpoint(*options):
    return subprocess.run([TUTTI, "checkpoint", *options], cwd=folder, capture_output=True,
                          text=True, timeout=50)


class PerHost(unittest.TestCase):
    def setUp(self):
        global folder, text
        folder = self.enterContext(tempfile.TemporaryDirectory())
        text = os.path.join(folder, "text")
        with open(text, "wb") as file:
            file.write(b"In the beginning God created the heaven and the earth. " * 100)
        self.begun = run("--per-host", "--steps", "3", "--every", "1", "--keep", "2")
        self.assertEqual(self.begun.returncode, 0, self.begun.stderr)

    def test_it_goes_on(self):
        steps = os.listdir(os.path.join(folder, "host-0/saved"))
        self.assertEqual(sorted(steps)[-2:], ["step-000000000002", "step-000000000003"])
        again = run("--per-host", "--steps", "5", "--resume")
        self.assertIn("begins at step 3\n", again.stdout)
        self.assertEqual(digest(again), digest(run("--steps", "5", "--resume", per_host=False)))

    def test_without_the_option_it_is_named(self):
        ended = run("--steps", "5", "--resume")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("with per_host loads it", ended.stderr)
        refused = run("--steps", "5", "--every", "1", "--checkpoint", "other")
        self.assertNotEqual(refused.returncode, 0)

    def test_a_host_without_its_disk_is_named(self):
        shutil.rmtree(os.path.join(folder, "host-1"))
        ended = run("--per-host", "--steps", "5", "--resume")
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, r"/rank-00001-0\.\S+ of host \S+ is on none of these hosts")

    def test_with_copies_a_host_may_lose_its_disk(self):
        run("--per-host", "--steps", "4", "--resume", "--every", "1", "--copies", "2")
        shutil.rmtree(os.path.join(folder, "host-1"))
        verified = checkpoint("verify", "host-0/saved/step-000000000004")
        self.assertIn(": whole: ", verified.stdout)
        again = run("--per-host", "--steps", "5", "--resume", "--copies", "2")
        self.assertIn("begins at step 4\n", again.stdout)
        self.assertEqual(digest(again), digest(run("--steps", "5", "--resume", per_host=False)))

    def test_one_host_is_a_part(self):
        step = "host-1/saved/step-000000000003"
        listed = checkpoint("list", "host-1/saved")
        self.assertRegex(listed.stdout, r" part: host \S+ of 2, 1 file is on others\n")
        states = json.loads(checkpoint("list", "--json", "host-1/saved").stdout)["steps"]
        self.assertEqual([(s["state"], s["elsewhere"], s["host"]) for s in states],
                         [("part", 1, socket.gethostname())] * 2)
        verified = checkpoint("verify", step)
        self.assertEqual(verified.returncode, 0, verified.stdout)
        self.assertIn(": what is here is whole: host ", verified.stdout)
        self.assertIn("part: host ", checkpoint("show", step).stdout)
        diff = checkpoint("diff", "host-0/saved", "host-1/saved")
        self.assertEqual(diff.returncode, 2)
        self.assertIn("of a checkpoint with a disk for each host: it is on host ", diff.stderr)
        os.unlink(os.path.join(folder, step, "rank-00001-0.digests"))
        self.assertEqual(checkpoint("verify", step).returncode, 1)

    def test_prune_does_not_count_what_a_crash_may_have_left_on_one_host(self):
        halves = [os.path.join(folder, "host-0/saved", name + "000000000003")
                  for name in ("step-", ".half-")]
        os.rename(*halves)
        pruned = json.loads(checkpoint("prune", "--json", "--keep", "1", "host-1/saved").stdout)
        self.assertEqual((pruned["kept"], pruned["removed"]), ([3, 2], []))
        self.assertEqual([one["step"] for one in pruned["uncounted"]], [3])
        self.assertRegex(pruned["uncounted"][0]["problem"],
                         r"^a part, .*: host \S+ of 2, 1 file is on others$")
        self.assertIn("begins at step 2\n", run("--per-host", "--steps", "3", "--resume").stdout)

    def test_all_files_in_one_folder_are_a_checkpoint(self):
        shutil.copytree(os.path.join(folder, "host-0"), os.path.join(folder, "host-1"),
                        dirs_exist_ok=True)
        verified = checkpoint("verify", "host-1/saved")
        self.assertEqual(verified.returncode, 0, verified.stdout)
        self.assertNotIn("what is here", verified.stdout)
        self.assertIn(": whole: ", verified.stdout)


if __name__ == "__main__":
    unittest.main()
