"""`--metrics` of gpt and fashion: each step stands there once, also where a training goes on."""
import json
import os
import random
import struct
import subprocess
import tempfile
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT, FASHION = (os.path.join(BIN, name) for name in ("tutti", "gpt", "fashion"))
DEADLINE = 110


def write_idx(path, sizes, data):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB%dI" % len(sizes), 0, 8, len(sizes), *sizes) + data)


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="metrics_program_"))
        self.metrics = os.path.join(self.folder, "metrics")

    def run_gpt(self, *options, ranks=1):
        text = os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as file:
            file.write("In the beginning God created the heaven and the earth. " * 40)
        launcher = [TUTTI, "run", "-n", str(ranks)] if ranks > 1 else []
        return subprocess.run(
            [*launcher, GPT, "--data", text, "--layers", "1", "--width", "16", "--heads", "2",
             "--context", "16", "--batch", "1", "--shards", "2", "--threads", "1",
             "--checkpoint", os.path.join(self.folder, "steps"), "--metrics", self.metrics,
             *options], capture_output=True, text=True, timeout=DEADLINE, check=False)

    def told(self, name):
        with open(os.path.join(self.metrics, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [(line["step"], line["value"]) for line in lines if line["name"] == name]

    def test_a_training_that_goes_on_tells_each_step_once(self):
        first = self.run_gpt("--every", "2", "--steps", "5", "--validate-every", "5", ranks=2)
        self.assertEqual(first.returncode, 0, first.stderr)
        unbroken = self.told("loss/train")
        self.assertEqual([step for step, _ in unbroken], [1, 2, 3, 4, 5])
        self.assertEqual([step for step, _ in self.told("loss/validation")], [5])
        os.rename(self.metrics, self.metrics + ".whole")
        subprocess.run(["rm", "-r", os.path.join(self.folder, "steps")], check=True)
        # Until step 3, of which the last checkpoint is of step 2: step 3 comes again.
        self.assertEqual(self.run_gpt("--every", "2", "--steps", "3").returncode, 0)
        subprocess.run(["rm", "-r", os.path.join(self.folder, "steps", "step-000000000003")],
                       check=True)
        self.assertEqual(self.run_gpt("--every", "2", "--steps", "5", "--resume").returncode, 0)
        self.assertEqual(self.told("loss/train")[2:], unbroken[2:])
        self.assertEqual([step for step, _ in self.told("loss/train")], [1, 2, 3, 4, 5])

    def test_a_used_folder_is_refused_before_a_step(self):
        self.assertEqual(self.run_gpt("--steps", "1", "--resume").returncode, 0)
        again = self.run_gpt("--steps", "1", "--every", "9")
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("of an earlier training", again.stderr)
        self.assertNotIn("loss", again.stdout)

    def test_a_training_without_a_checkpoint_yet_begins_its_numbers_anew(self):
        self.assertEqual(self.run_gpt("--steps", "2", "--resume").returncode, 0)
        self.assertEqual(self.run_gpt("--steps", "1", "--resume").returncode, 0)
        self.assertEqual([step for step, _ in self.told("lr")], [1])

    def test_fashion_tells_its_steps_and_tests(self):
        noise = random.Random(1)
        for kind, count in (("train", 64), ("t10k", 16)):
            write_idx(os.path.join(self.folder, kind + "-images-idx3-ubyte"), (count, 28, 28),
                      noise.randbytes(count * 784))
            write_idx(os.path.join(self.folder, kind + "-labels-idx1-ubyte"), (count,),
                      bytes(noise.randrange(10) for _ in range(count)))
        done = subprocess.run([FASHION, "--data", self.folder, "--epochs", "1", "--batch", "16",
                               "--threads", "1", "--metrics", self.metrics], check=False,
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([step for step, _ in self.told("loss/train")], [1, 2, 3, 4])
        self.assertEqual(len(self.told("accuracy/test")), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
