"""tutti explain sharded: timelines, rows, JSON, pictures, and what is refused."""
import json
import os
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
DEADLINE = 60
TIMED = ["--units", "0,40,40", "--forward", "0,2,2", "--bandwidth", "20", "--latency", "0.5",
         "--step", "3"]


class Explain(unittest.TestCase):
    maxDiff = None

    def explain(self, *args, code=0):
        done = subprocess.run([TUTTI, "explain", "sharded", *args], capture_output=True, text=True,
                              timeout=DEADLINE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_step_is_printed_in_time(self):
        text = self.explain(*TIMED)
        self.assertIn("stage 3: 2 ranks, 2 shards, 3 units, 2 buckets", text)
        self.assertIn("time 19.5 s: computes 15, waits 4.5 (23.1 %); the wire is busy for 9", text)
        self.assertIn("0-1 ", text)

    def test_a_row_is_its_actions(self):
        lines = self.explain(*TIMED, "--rank", "1").splitlines()
        self.assertEqual(lines[:4], ["shard 0", "gather root", "gather blocks.0 (early)",
                                     "forward root"])
        self.assertEqual(lines[-4:], ["release root", "finish", "step", "publish"])

    def test_json_has_all_numbers(self):
        got = json.loads(self.explain(*TIMED, "--json"))
        rows = got.pop("rows")
        self.assertEqual(got, {
            "stage": 3, "ranks": 2, "shards": 2, "units": 3, "buckets": 2, "time": 19.5,
            "compute": 15.0, "exposed": 4.5, "wire": 9.0, "sent_bytes": 120, "near_bytes": 0,
            "peak_unit_bytes": 80, "peak_gradient_bytes": 80})
        self.assertEqual(rows[0], rows[1])
        gathers = [row for row in rows[0] if row["action"] == "gather blocks.0"]
        self.assertEqual([(row["begin"], row["end"], row["early"]) for row in gathers],
                         [(0.0, 1.5, True), (7.0, 8.5, True)])

    def test_a_picture_has_a_box_for_each_piece(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "svg")
            self.explain(*TIMED, "--svg", path)
            boxes = xml.etree.ElementTree.parse(path).getroot().iter(
                "{http://www.w3.org/2000/svg}title")
            self.assertEqual(len(list(boxes)), 4 + 1 + 4 + 2)

    def test_a_model_has_its_units(self):
        got = json.loads(self.explain("--model", "6x384", "--bucket-bytes", "4194304", "--json"))
        self.assertEqual(got["units"], 7)
        block = 4 * (12 * 384 ** 2 + 13 * 384)
        root = 4 * (2 * 256 * 384 + 128 * 384 + 2 * 384)
        self.assertEqual(got["sent_bytes"], (3 * 6 * block + 2 * root) // 2)
        self.assertEqual(got["buckets"], 6 * 2 + 1)

    def test_options_change_the_row(self):
        def gathers(*args):
            return self.explain(*TIMED, *args, "--rank", "0").count("gather blocks")

        self.assertEqual(gathers(), 4)
        self.assertEqual(gathers("--keep-after-forward"), 2)
        self.assertEqual(gathers("--shards", "4"), 8)
        self.assertEqual(gathers("--shards", "4", "--keep-after-forward",
                                 "--keep-after-backward"), 2)
        self.assertEqual(gathers("--stage", "2"), 0)
        self.assertNotIn("early", self.explain(*TIMED, "--first", "--rank", "0"))
        self.assertNotIn("early", self.explain(*TIMED, "--prefetch", "-1", "--rank", "0"))

    def test_what_stays_near_has_a_wire_of_its_own(self):
        near = [*TIMED, "--ranks", "4", "--reshard-ranks", "2", "--near-bandwidth", "40",
                "--near-latency", "0.25"]
        lines = self.explain(*near, "--rank", "3").splitlines()
        self.assertIn("keep blocks.0", lines)
        self.assertIn("gather blocks.1 (near) (early)", lines)
        got = json.loads(self.explain(*near, "--json"))
        self.assertEqual((got["sent_bytes"], got["near_bytes"]), (4 * 30, 2 * 20))
        rows = [row for row in got["rows"][0] if row["near"]]
        self.assertEqual([row["end"] - row["begin"] for row in rows], [0.75, 0.75])
        text = self.explain(*near)
        self.assertRegex(text, r"(?m)^near  .* N2 ")
        self.assertIn("a rank sends 40 bytes near\n", text)

    def test_what_cannot_be_is_refused(self):
        def refused(part, *args):
            self.assertIn(part, self.explain(*args, code=2))

        refused("give either --units, the bytes of each, or --model")
        refused("give either --units, the bytes of each, or --model", "--units", "1", "--model",
                "1x1")
        refused("--units 1,x: want bytes of each unit", "--units", "1,x")
        refused("--units 1e19: want 1e18 bytes in all, at most", "--units", "1e19")
        refused("want 1e18 bytes in all, at most", "--units", "6e17,6e17")
        refused("want bytes of each unit", "--units", "1e999")
        self.assertIn("2 units", self.explain("--units", "5e17,5e17"))
        refused("--model 6: want LAYERSxWIDTH", "--model", "6")
        refused("want 2 numbers of seconds", "--units", "1,2", "--forward", "1")
        refused("want 2 numbers of seconds", "--units", "1,2", "--backward", "1,2,3")
        refused("3 ranks: want as many in each", "--units", "1,2", "--ranks", "3", "--rows", "2")
        refused("3 of 4 ranks keep a unit: want a divisor of 4, or 0", "--units", "1,2", "--ranks",
                "4", "--reshard-ranks", "3")
        refused("--rank 2: want 0 to 1", "--units", "1", "--rank", "2")
        refused("--svg /nowhere/x: the file cannot be written", "--units", "1", "--svg",
                "/nowhere/x")
        refused("--latency", "--units", "1", "--latency", "-1")

    def test_the_guide_shows_what_is_printed(self):
        with open(os.path.join(os.environ["TUTTI_SOURCE_DIR"], "docs", "guide", "sharded.md"),
                  encoding="utf-8") as file:
            parts = re.findall(r"^\$ (tutti .*)\n((?:(?!\$ |```).*\n)*)", file.read(),
                               re.MULTILINE)
        for command, text in parts:
            done = subprocess.run([TUTTI, *command.split()[1:]], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=DEADLINE)
            self.assertEqual(done.stdout, text, command)
        self.assertEqual(len(parts), 1)


if __name__ == "__main__":
    unittest.main()
