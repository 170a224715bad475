"""tutti explain pipeline, tutti explain partition: texts, files, JSON, and what is refused."""
import json
import os
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
DEADLINE = 60

LAYERS = """name,seconds,output_bytes,weight_bytes
embed,1,1000,5
block.0,2,1000,5
block.1,2,1000,5
head,3,10,50
"""


class Explain(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def explain(self, *args, code=0):
        done = subprocess.run([TUTTI, "explain", *args], capture_output=True, text=True,
                              timeout=DEADLINE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_schedule_is_printed_drawn_and_written(self):
        text = self.explain("pipeline", "--schedule", "zb-v", "--ranks", "4", "--micro-batches",
                            "12", "--svg", self.path("svg"), "--csv", self.path("csv"))
        self.assertIn("zb-v: 4 ranks, 8 stages, 12 micro-batches\n", text)
        self.assertIn("canonical: yes; messages: 144; micro-batches held: 8\n", text)
        self.assertIn("time 75, work of the busiest rank 72, bubble 4.0 %\n", text)
        self.assertEqual(text.count("waits 0 between"), 4)
        boxes = xml.etree.ElementTree.parse(self.path("svg")).getroot().iter(
            "{http://www.w3.org/2000/svg}title")
        self.assertEqual(len(list(boxes)), 8 * 12 * 3)
        with open(self.path("csv"), encoding="utf-8") as file:
            rows = [line.split(",") for line in file.read().splitlines()]
        self.assertEqual(len(rows), 4)
        self.assertEqual(rows[0][:4], ["0F0", "0SEND_F0", "0F1", "0SEND_F1"])
        again = self.explain("pipeline", "--read", self.path("csv"))
        self.assertEqual(again.splitlines()[1:], text.splitlines()[1:])

    def test_json_has_all_numbers(self):
        got = json.loads(self.explain("pipeline", "--schedule", "pipedream", "--ranks", "3",
                                      "--micro-batches", "5", "--vertical-sync", "--json"))
        loads = got.pop("loads")
        self.assertEqual(got, {
            "schedule": "pipedream", "ranks": 3, "stages": 3, "micro_batches": 5, "shards": 1,
            "canonical": True, "messages": 20, "activations_max": 3, "versions_max": 3,
            "open_shards_max": 1, "time": 21.0, "work": 15.0, "bubble": 1 - 45 / 63})
        self.assertEqual([load["activations_max"] for load in loads], [3, 2, 1])

    def test_costs_and_shards_are_taken(self):
        text = self.explain("pipeline", "--schedule", "1f1b", "--ranks", "2", "--micro-batches",
                            "2", "--shards", "2", "--forward", "2", "--backward", "3", "--message",
                            "1", "--step", "4", "--activation", "10")
        self.assertIn("2 micro-batches of each of 2 shards", text)
        self.assertIn("work of the busiest rank 24,", text)
        self.assertIn("holds 20\n", text)

    def test_one_rank_is_printed(self):
        text = self.explain("pipeline", "--schedule", "gpipe", "--ranks", "2", "--micro-batches",
                            "1", "--rank", "1", "--sharded")
        self.assertEqual(text.split(), ["1UNSHARD", "1RECV_F0", "1F0", "1B0", "1SEND_B0",
                                        "1REDUCE_GRAD0", "1RESHARD", "1STEP0"])
        text = self.explain("pipeline", "--schedule", "gpipe", "--ranks", "2", "--micro-batches",
                            "1", "--rank", "1", "--compute-only")
        self.assertEqual(text.split(), ["1F0", "1B0"])

    def test_schedules_are_listed(self):
        text = self.explain("pipeline")
        names = [line.split()[0] for line in text.splitlines() if line and line[0] != " "]
        self.assertEqual(names[:-1], ["gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1",
                                      "zb-h2", "zb-v", "interleaved-zb", "dualpipe-v", "pipedream",
                                      "2bw", "flush"])

    def test_a_cycle_is_shown_as_a_grid(self):
        path = self.write("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n")
        text = self.explain("pipeline", "--read", path, code=1)
        self.assertIn("rank 0 waits in 0B0 for 1SEND_B0, rank 1 waits in 1F1 for 0SEND_F1: a "
                      "cycle\n", text)
        self.assertIn("*1F1           <-- rank 1 waits for 0SEND_F1\n", text)
        self.assertIn("     3  *0B0 ", text)

    def test_what_cannot_be_is_refused(self):
        def refused(part, *args):
            self.assertIn(part, self.explain(*args, code=2))

        refused('no schedule "zbv"; did you mean "zb-v"?', "pipeline", "--schedule", "zbv")
        refused("8 or 10 would", "pipeline", "--schedule", "interleaved", "--micro-batches", "9")
        refused("rank 4 of 4", "pipeline", "--schedule", "1f1b", "--rank", "4")
        refused("--read /nowhere/x: No such file", "pipeline", "--read", "/nowhere/x")
        refused("--svg /nowhere/x: the file cannot be written", "pipeline", "--schedule", "1f1b",
                "--svg", "/nowhere/x")
        refused("line 1, cell 2: 0Q0 is no action", "pipeline", "--read",
                self.write("bad.csv", "0F0,0Q0\n"))
        refused("--forward", "pipeline", "--schedule", "1f1b", "--forward", "-1")
        refused("want a file of measured layers", "partition")
        layers = self.write("layers.csv", LAYERS)
        refused("5 stages of 4 layers", "partition", "--layers", layers, "--ranks", "5")
        refused("--links 2x: want such as", "partition", "--layers", layers, "--links", "2x")
        refused("the links are of 4 ranks; there are 2", "partition", "--layers", layers,
                "--links", "2x1,2x1")
        refused("line 2: want name,seconds", "partition", "--layers",
                self.write("bad.csv", "a,1,2,3\nb,1,2\n"))
        refused("line 1: want name,seconds", "partition", "--layers", self.write("empty.csv", ""))

    def test_a_model_is_cut(self):
        layers = self.write("layers.csv", LAYERS)
        text = self.explain("partition", "--layers", layers, "--ranks", "2", "--bandwidth", "1e4")
        self.assertIn("a micro-batch every 5 seconds", text)
        got = json.loads(self.explain("partition", "--layers", layers, "--ranks", "4", "--links",
                                      "2x1e6,2x1e5", "--replicate", "--json"))
        self.assertEqual(got["seconds"], 2.0)
        self.assertEqual(sum(stage["replicas"] for stage in got["stages"]), 4)
        self.assertEqual([name for stage in got["stages"] for name in stage["layers"]],
                         ["embed", "block.0", "block.1", "head"])

    def test_the_guide_shows_what_is_printed(self):
        with open(os.path.join(os.environ["TUTTI_SOURCE_DIR"], "docs", "guide", "pipelines.md"),
                  encoding="utf-8") as file:
            parts = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", file.read(), re.MULTILINE)
        for command, text in parts:
            words = command.split()
            if words[0] == "cat":
                self.write(words[1], text)
                continue
            done = subprocess.run([TUTTI, *words[1:]], cwd=self.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=DEADLINE)
            self.assertEqual(done.stdout, text, command)
        self.assertEqual(len(parts), 7)

    def test_help_tells_of_both(self):
        self.assertIn("pipeline | partition", self.explain("--help"))
        self.assertIn("--micro-batches", self.explain("pipeline", "--help"))
        self.assertIn("--bandwidth", self.explain("partition", "--help"))


if __name__ == "__main__":
    unittest.main()
