"""`fashion` as users run it, on a few pictures of noise, and on the real ones where they are."""
import gzip
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from draws import load_tests  # noqa: F401

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, FASHION = os.path.join(BIN, "tutti"), os.path.join(BIN, "fashion")
REAL = "/usr/share/datasets/fashion-mnist"
DEADLINE = 110
# No multiple of 4 shards of 8: in the last step of an epoch one shard has 3 samples, the next none.
TRAIN, TEST = 32 * 2 + 11, 530


def write_idx(name, sizes, data):
    head = struct.pack(">HBB%dI" % len(sizes), 0, 8, len(sizes), *sizes)
    with gzip.open(os.path.join(folder.name, name + ".gz"), "wb", compresslevel=1) as file:
        file.write(head + data)


def setUpModule():
    global folder
    folder = tempfile.TemporaryDirectory()
    noise = random.Random(1)
    for kind, count in (("train", TRAIN), ("t10k", TEST)):
        write_idx(kind + "-images-idx3-ubyte", (count, 28, 28), noise.randbytes(count * 784))
        write_idx(kind + "-labels-idx1-ubyte", (count,),
                  bytes(noise.randrange(10) for _ in range(count)))


def tearDownModule():
    folder.cleanup()


def run(*options, ranks=1, check=True, data=None, **environment):
    launcher = [TUTTI, "run", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, FASHION, "--data", data or folder.name, *options], text=True,
                          capture_output=True, timeout=DEADLINE,
                          env={**os.environ, **environment}, check=False)
    if check and done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done


def result(*options, **how):
    last = run(*options, **how).stdout.splitlines()[-1]
    return json.loads(last[last.index("{"):])


def train(*options, **how):
    return result("--batch", "8", "--shards", "4", "--epochs", "1", "--threads", "1", *options,
                  **how)


class Bits(unittest.TestCase):
    def expect_alike(self, *options):
        alone = train(*options)
        for ranks in (2, 3):
            other = train(*options, ranks=ranks)
            self.assertEqual((other["digest"], other["test_accuracy"]),
                             (alone["digest"], alone["test_accuracy"]), f"{ranks} ranks")
        return alone["digest"]

    def test_every_network_is_alike_on_any_number_of_ranks(self):
        digests = {self.expect_alike("--model", model) for model in ("mlp", "cnn", "resnet")}
        self.assertEqual(len(digests), 3)

    def test_averages_are_alike_on_any_number_of_ranks(self):
        """And in the middle of a training, which goes on with its own weights and statistics."""
        model = ("--model", "resnet", "--epochs", "2")
        kept = ("--checkpoint", os.path.join(folder.name, "averages"))
        mean = train(*model, "--swa", "2")
        train(*model, "--swa", "2", *kept, "--every", "4", "--stage", "3", ranks=2)
        shutil.rmtree(os.path.join(kept[1], "step-000000000006"))
        other = train(*model, "--swa", "2", *kept, "--resume", "--stage", "1", ranks=2)
        self.assertEqual((other["digest"], other["test_accuracy"]),
                         (mean["digest"], mean["test_accuracy"]))
        recent = train("--ema", "0.5")["digest"]
        self.assertEqual(train("--ema", "0.5", ranks=2)["digest"], recent)
        self.assertNotEqual(train()["digest"], recent)

    def test_optimizers_dtypes_and_wires_change_no_bit_between_ranks(self):
        plain = self.expect_alike("--optimizer", "sgd", "--lr", "0.05")
        short = self.expect_alike("--dtype", "bf16", "--dropout", "0.5")
        self.assertNotEqual(plain, short)
        self.assertEqual(train("--dtype", "bf16", "--dropout", "0.5", ranks=2,
                               TUTTI_WIRES="tcp")["digest"], short)

    def test_sums_that_stay_sharded_change_no_bit(self):
        self.assertEqual(train("--stage", "2", "--accumulate-gradients", "sharded",
                               ranks=3)["digest"], train()["digest"])

    def test_units_that_stay_near_change_no_bit(self):
        self.assertEqual(train("--stage", "3", "--unit", "linear", "--reshard-ranks", "2", ranks=4,
                               TUTTI_SHARED_PARAMETERS="0")["digest"], train()["digest"])

    def test_threads_change_no_bit(self):
        self.assertEqual(train("--threads", "3")["digest"], train()["digest"])

    def test_seeds_do(self):
        self.assertNotEqual(train("--seed", "1")["digest"], train()["digest"])


class Checkpoints(unittest.TestCase):
    """Three steps an epoch; the last one of a training is in the middle of the third."""

    def train(self, name, *options, **how):
        place = os.path.join(folder.name, name)
        done = run("--batch", "8", "--shards", "4", "--steps", "8", "--threads", "1",
                   "--model", "mlp", "--checkpoint", place, "--every", "5", *options, **how)
        last = (done.stdout.splitlines() or [""])[-1]
        return done, json.loads(last[last.find("{"):]) if "{" in last else None

    def test_a_training_goes_on_in_mid_epoch_on_other_ranks(self):
        out, whole = self.train("middle", "--resume")
        self.assertIn("begins at step 0\n", out.stdout)
        shutil.rmtree(os.path.join(folder.name, "middle", f"step-{8:012}"))
        out, rest = self.train("middle", "--resume", ranks=2)
        self.assertIn("begins at step 5\n", out.stdout)
        self.assertEqual((rest["digest"], rest["test_accuracy"]),
                         (whole["digest"], whole["test_accuracy"]))

    def test_at_its_end_it_trains_nothing(self):
        _, whole = self.train("end", "--whole", ranks=2)
        out, again = self.train("end", "--resume")
        self.assertIn("begins at step 8\n", out.stdout)
        self.assertNotIn("step 8/8", out.stdout)
        self.assertEqual((again["digest"], again["test_accuracy"]),
                         (whole["digest"], whole["test_accuracy"]))
        index = os.path.join("end", f"step-{8:012}", "model.safetensors.index.json")
        for name in ("end", index):
            loaded = result("--model", "mlp", "--evaluate", "--load",
                            os.path.join(folder.name, name), ranks=2)
            self.assertEqual(loaded["digest"], whole["digest"])

    def test_a_folder_that_is_used_is_refused(self):
        self.train("used")
        done, _ = self.train("used", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has a checkpoint of step 8: resume, to go on from it", done.stderr)
        for options in (["--every", "5"], ["--resume"], ["--checkpoint", "nowhere"]):
            done = run(*options, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--checkpoint DIR", done.stderr)


class Files(unittest.TestCase):
    def path(self, name):
        return os.path.join(folder.name, name)

    def test_saved_weights_tell_the_same(self):
        saved = train("--model", "resnet", "--save", self.path("net"))
        loaded = result("--model", "resnet", "--load", self.path("net"), "--evaluate", ranks=2)
        self.assertEqual((loaded["digest"], loaded["test_accuracy"]),
                         (saved["digest"], saved["test_accuracy"]))

    def test_the_log_has_a_line_for_each_step_and_test(self):
        train("--epochs", "2", "--log", self.path("log"), ranks=2)
        with open(self.path("log")) as file:
            lines = [json.loads(line) for line in file]
        steps = [line for line in lines if "loss" in line]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual([line["epoch"] for line in steps], [0, 0, 0, 1, 1, 1])
        # The mean over a step's samples, in the uneven third one too: ln 10 and little more.
        self.assertTrue(all(1.5 < line["loss"] < 4 for line in steps), steps)
        self.assertEqual([line["epoch"] for line in lines if "test_accuracy" in line], [0, 1])
        self.assertEqual(set(steps[0]),
                         {"epoch", "step", "loss", "lr", "seconds", "samples_per_second"})

    def test_steps_count_before_epochs(self):
        out = run("--batch", "8", "--shards", "4", "--steps", "4", "--digest").stdout
        self.assertRegex(out, r"epoch 2/2  loss \S+  test accuracy")
        digest = re.search(r"^digest ([0-9a-f]{32})$", out, re.M)[1]
        result, memory = out.splitlines()[-2:]
        self.assertEqual(json.loads(result)["digest"], digest)
        self.assertRegex(memory, r"^rank 0 stage 0 parameter_bytes \d+ gradient_bytes \d+ "
                                 r"optimizer_bytes \d+ sent_bytes 0 local_traffic 0 "
                                 r"sharded_traffic 0$")


class BadNumbers(unittest.TestCase):
    """Weights of which one is NaN: so is each loss."""

    @classmethod
    def setUpClass(cls):
        cls.weights = os.path.join(folder.name, "spoiled.safetensors")
        train("--model", "mlp", "--save", cls.weights)
        with open(cls.weights, "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(struct.pack("<f", math.nan))

    def end(self, *options, **how):
        return run("--model", "mlp", "--batch", "8", "--shards", "4", "--epochs", "1", "--threads",
                   "1", "--load", self.weights, *options, check=False, **how)

    def test_the_training_stops_and_saves_nothing(self):
        saved = os.path.join(folder.name, "stopped")
        for ranks in (1, 2):
            done = self.end("--save", saved, ranks=ranks)
            self.assertEqual(done.returncode, 1)
            self.assertIn("step 0: its loss is nan, the norm of its gradient nan, so training "
                          "stops", done.stderr)
            self.assertFalse(os.path.exists(saved))

    def test_steps_are_left_out(self):
        saved = os.path.join(folder.name, "skipped")
        done = self.end("--on-nan", "skip", "--save", saved, ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"step \d+ is skipped: its loss is nan", done.stderr)), 3)
        with open(saved, "rb") as a, open(self.weights, "rb") as b:
            self.assertEqual(a.read()[-40000:], b.read()[-40000:])


class Mistakes(unittest.TestCase):
    def test_a_missing_folder_is_named(self):
        done = run(check=False, data="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/train-images-idx3-ubyte", done.stderr)

    def test_a_wrong_model_is_answered_with_the_right_ones(self):
        done = run("--model", "cnm", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "mlp.*cnn.*resnet")

    def test_weights_of_another_network_are_refused(self):
        weights = os.path.join(folder.name, "mlp")
        train("--model", "mlp", "--save", weights)
        done = run("--model", "cnn", "--load", weights, "--evaluate", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(weights, done.stderr)


@unittest.skipUnless(os.path.isdir(REAL), "dataset-fashion-mnist is not installed")
class Clothes(unittest.TestCase):
    def test_two_ranks_learn(self):
        learned = result("--steps", "60", "--threads", "1", ranks=2, data=REAL)
        self.assertGreater(learned["test_accuracy"], 0.75)


if __name__ == "__main__":
    unittest.main(verbosity=2)
