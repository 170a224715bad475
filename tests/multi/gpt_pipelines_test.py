"""`gpt` in stages: training, validation, evaluation and measures have the bits, and print the
lines, of one process on any layout; what a pipeline cannot do is told."""
import json
import math
import os
import re
import shutil
import unittest

from draws import load_tests  # noqa: F401
from gpt_test import ODD, path, run, setUpModule, tearDownModule, train  # noqa: F401


class Pipelines(unittest.TestCase):
    # 7 sequences in 3 micro-batches: 3, 2 and 2.
    STAGES = ("--layers", "3", "--width", "40", "--context", "30", "--batch", "7", "--dropout",
              "0.1", "--micro-batches", "3")

    def gpt(self, *options, ranks=1):
        return run("--data", path("text"), *ODD, *self.STAGES, "--threads", "1", *options,
                   ranks=ranks)

    def digest(self, *options, ranks=1):
        done = self.gpt("--steps", "3", "--digest", *options, ranks=ranks)
        line = re.search(r"digest ([0-9a-f]{32}) dp (\d+) tp (\d+) pp (\d+)$", done.stdout, re.M)
        sizes = [int(size) for size in line.group(2, 3, 4)]
        self.assertEqual(math.prod(sizes), ranks)
        alone = {"pipedream", "2bw", "--post-validate"} & set(options)  # no DDP says it
        averages = not alone or bool({"--stage", "--shards"} & set(options))
        self.assertEqual(len(re.findall(r"rank \d+ stage .* dp \d+ tp \d+ pp \d+$", done.stdout,
                                        re.M)), ranks if averages else 0)
        return line.group(1)

    def test_stages_change_no_bit(self):
        expected = self.digest()
        self.assertEqual(self.digest("--mesh", "pp=2", "--pipeline", "zb-v", ranks=2), expected)
        self.assertEqual(self.digest("--mesh", "pp=3", "--recompute", "--cut", "blocks.0,ln",
                                     ranks=3), expected)
        self.assertEqual(self.digest("--mesh", "dp=1,pp=2", "--stage", "1", ranks=2), expected)
        self.assertEqual(self.digest("--mesh", "pp=2", "--post-validate", ranks=2), expected)
        self.assertEqual(self.digest("--mesh", "dp=1,pp=2", "--stage", "1", "--post-validate",
                                     ranks=2), expected)
        self.assertNotEqual(self.digest("--micro-batches", "2"), expected)

    def test_stages_may_step_inside_a_batch(self):
        more = ("--micro-batches", "4", "--dropout", "0", "--clip", "0")
        stages = ("--mesh", "pp=2", *more)
        flush = self.digest(*stages, "--pipeline", "flush", ranks=2)
        self.assertEqual(self.digest(*more), flush)
        found = {flush}
        for options in (("pipedream",), ("pipedream", "--vertical-sync"), ("2bw",)):
            once = self.digest(*stages, "--pipeline", *options, ranks=2)
            self.assertEqual(self.digest(*stages, "--pipeline", *options, "--recompute", ranks=2),
                             once)
            found.add(once)
        self.assertEqual(len(found), 4)
        self.assertEqual(self.digest("--mesh", "pp=2", "--micro-batches", "4", "--dropout", "0",
                                     "--pipeline", "pipedream", ranks=2),
                         self.digest(*stages, "--pipeline", "pipedream", ranks=2))

    def test_a_cut_by_measured_times_is_one_that_may_be_given(self):
        """Where it is depends on the machine; that all ranks have the same one does not."""
        expected = self.digest()
        for ranks, *more in ((2, "--pipeline", "zb-h1"), (2, "--pipeline", "zb-v"), (3,)):
            options = ["--mesh", f"pp={ranks}", *more]
            done = self.gpt("--steps", "3", "--digest", "--cut", "auto", *options, ranks=ranks)
            names = re.search(r"cut (\S+)$", done.stdout, re.M).group(1)
            self.assertEqual(len(names.split(",")), ranks * (2 if "zb-v" in more else 1) - 1)
            self.assertIn(f"digest {expected} ", done.stdout)
            self.assertEqual(self.digest(*options, "--cut", names, ranks=ranks), expected)
        self.assertEqual(self.digest("--cut", "auto"), expected)

    def test_all_together_change_no_bit(self):
        """The list of layouts is gpt_mesh_full_test.py's."""
        cut = ("--shards", "2", "--tp-shards", "2", "--context", "32")
        expected = self.digest(*cut)
        mesh = (*cut, "--mesh", "dp=2,pp=2,tp=2", "--pipeline", "zb-h1", "--stage", "1")
        self.assertEqual(self.digest(*mesh, "--sequence-parallel", ranks=8), expected)
        self.assertEqual(self.digest(*mesh, "--post-validate", ranks=8), expected)
        self.assertEqual(self.digest(*cut, "--mesh", "pp=2", "--post-validate", ranks=2), expected)

    def test_parts_of_layers_may_step_before_they_know_all_gradients(self):
        cut = ("--tp-shards", "2", "--context", "32")
        self.assertEqual(self.digest(*cut, "--mesh", "tp=2,pp=2", "--pipeline", "zb-h2",
                                     "--post-validate", ranks=4), self.digest(*cut))

    def test_weights_of_stages_are_saved_loaded_and_sampled(self):
        """Rank 0 has some of them: what it writes and prints is what one rank alone does."""
        cut = ("--shards", "2", "--tp-shards", "2", "--context", "32")
        found = set()
        for ranks, *options in ((1,), (4, "--mesh", "tp=2,pp=2", "--pipeline", "zb-h1"),
                                (4, "--mesh", "dp=2,tp=2", "--stage", "3")):
            file = path(f"saved-{ranks}-{len(found)}")
            done = self.gpt("--steps", "2", *cut, "--digest", "--save", file, "--sample", "24",
                            *options, ranks=ranks)
            mine = [line.removeprefix("[rank 0] ") for line in done.stdout.split("\n")
                    if not re.match(r"\[rank [1-9]", line)]
            said = re.search(r"^digest (\w+) .*?\n(.{24}\n)rank 0", "\n".join(mine), re.M | re.S)
            with open(file, "rb") as saved:
                found.add((said[1], said[2], saved.read()))
        self.assertEqual(len(found), 1)
        still = ("--load", file, "--lr", "0", "--layers", "3", "--width", "40", "--context", "32")
        self.assertEqual(train(*still), said[1])  # without a pipeline
        self.assertEqual(self.digest(*cut, *still, "--mesh", "pp=2", ranks=2), said[1])

    def validations(self, *options, ranks=1):
        """All bits of the losses that a training validates with, and what it says at the end."""
        metrics, summary = path("metrics"), path("summary.json")
        shutil.rmtree(metrics, ignore_errors=True)
        done = self.gpt("--steps", "2", "--validate-every", "1", "--metrics", metrics,
                        "--summary", summary, *options, ranks=ranks)
        with open(os.path.join(metrics, "metrics.jsonl"), encoding="utf-8") as file:
            losses = [row["value"] for row in map(json.loads, file)
                      if row["name"] == "loss/validation"]
        with open(summary, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual(len(losses), 3)  # two on the way, and all of the text at the end
        self.assertIn("validation loss %.4f nats per byte" % losses[2], done.stdout)
        self.assertEqual((told["val_loss"], told["ranks"]), (round(losses[2], 6), ranks))
        return losses, told["train_loss"], told["digest"]

    def test_validation_and_evaluation_have_one_process_bits(self):
        cut = ("--shards", "2", "--tp-shards", "2", "--context", "32", "--ema", "0.5")
        file = path("evaluated")
        expected = self.validations(*cut, "--save", file)
        still = ("--evaluate", "--load", file, *cut)
        loss = self.gpt(*still).stdout
        self.assertRegex(loss, r'^\{"loss":\d\.\d{6}\}\n$')
        for ranks, *layout in ((4, "--mesh", "tp=2,pp=2", "--pipeline", "zb-h1"),
                               (4, "--mesh", "dp=2,pp=2", "--stage", "3", "--unit", "block"),
                               (3, "--mesh", "pp=3", "--stage", "1")):
            self.assertEqual(self.validations(*cut, *layout, ranks=ranks), expected, layout)
            self.assertEqual(self.gpt(*still, *layout, ranks=ranks).stdout, "[rank 0] " + loss,
                             layout)
        self.assertEqual(run(*still, *ODD, *self.STAGES[:-2], "--context", "32", "--data",
                             path("text")).stdout, loss)  # without a pipeline

    def test_stages_that_step_by_themselves_validate_like_one_process(self):
        alone = self.validations("--clip", "0.5")
        self.assertEqual(self.validations("--clip", "0.5", "--mesh", "pp=2", "--post-validate",
                                          ranks=2), alone)
        cut = ("--clip", "0.5", "--shards", "2", "--tp-shards", "2", "--context", "32")
        expected = self.validations(*cut)
        for ranks, *layout in ((4, "--mesh", "dp=2,pp=2", "--stage", "3", "--unit", "block"),
                               (2, "--mesh", "pp=2")):  # a row of one shard, and of two
            self.assertEqual(self.validations(*cut, *layout, "--post-validate", ranks=ranks),
                             expected, layout)
        inside = ("--clip", "0", "--dropout", "0", "--ema", "0.5")
        once = self.validations(*inside, "--mesh", "pp=2", "--pipeline", "pipedream", ranks=2)
        self.assertEqual(once, self.validations(*inside, "--mesh", "pp=2", "--pipeline",
                                                "pipedream", "--recompute", ranks=2))

    def test_a_pipeline_is_measured_like_one_process(self):
        for ranks, shards, *more in ((1, 1), (2, 1, "--mesh", "pp=2", "--pipeline", "zb-h1"),
                                     (2, 1, "--mesh", "pp=2", "--pipeline", "pipedream"),
                                     (2, 1, "--mesh", "pp=2", "--post-validate", "--clip", "0.1"),
                                     (4, 2, "--mesh", "dp=2,pp=2", "--stage", "3"),
                                     (4, 2, "--mesh", "dp=2,pp=2", "--post-validate"),
                                     (4, 3, "--mesh", "tp=2,pp=2", "--shards", "3")):
            done = run("--bench", *ODD, *self.STAGES, "--context", "32", "--steps", "3",
                       "--threads", "1", *more, ranks=ranks)
            found = json.loads(done.stdout.removeprefix("[rank 0] "))
            self.assertEqual(list(found), ["params", "ranks", "threads", "dtype", "step_ms",
                                           "tokens_per_second", "gflops", "peak_rss_mib"])
            self.assertEqual((found["params"], found["ranks"]), (81000, ranks), more)
            tokens = shards * 7 * 32
            self.assertAlmostEqual(found["tokens_per_second"] * found["step_ms"] / 1e3 / tokens,
                                   1, delta=0.01, msg=more)

    def test_the_parts_are_those_of_the_whole_model(self):
        alone = run("--modules", *ODD, *self.STAGES).stdout
        self.assertIn("    2: transformer_block", alone)
        done = run("--modules", *ODD, *self.STAGES, "--mesh", "pp=2", ranks=2)
        self.assertEqual(done.stdout.replace("[rank 0] ", ""), alone)

    def test_what_a_pipeline_cannot_do_is_told(self):
        for options, said in (
                (("--mesh", "pp=2"), "--mesh pp=2: want sizes such as dp=2,tp=2, pp=4"),
                (("--mesh", "rows=2"), "--mesh rows=2: want sizes such as"),
                (("--pipeline", "gpipe"), "need --mesh pp=P or --micro-batches M"),
                (("--micro-batches", "2", "--accumulate", "2"), "give one of them"),
                (("--micro-batches", "2", "--pipeline", "1f1c"), "1f1b"),
                (("--micro-batches", "2", "--pipeline", "2bw", "--clip", "1"),
                 "give --clip 0, or --pipeline flush"),
                (("--micro-batches", "2", "--vertical-sync"), "has no vertical_sync; pipedream"),
                (("--vertical-sync",), "need --mesh pp=P or --micro-batches M"),
                (("--post-validate",), "need --mesh pp=P or --micro-batches M"),
                (("--micro-batches", "1", "--post-validate", "--pipeline", "2bw"),
                 "no pipedream or 2bw"),
                (("--micro-batches", "2", "--sequence-parallel"), "--sequence-parallel cuts"),
                (("--sequence-parallel",), "--sequence-parallel cuts"),
                (("--micro-batches", "2", "--hook", "bf16"), "no --hook"),
                (("--micro-batches", "2"), "input 0 has 1 rows, which are no 2 micro-batches"),
                (("--micro-batches", "1", "--stages-per-rank", "5", "--pipeline", "interleaved"),
                 "5 stages, and the module has 4 parts"),
                (("--micro-batches", "1", "--tp-shards", "3"),
                 "4 units (heads) of 25 are not divisible by 3 shards")):
            done = run("--data", path("text"), *ODD, "--steps", "1", *options, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
