"""`gpt` on every kind of mesh: replicas, layers that are cut, stages, and all of them together,
have one digest, and the same losses of validations, for the same shards, shards of layers and
micro-batches; and a training that was saved on one mesh goes on on another."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
DEADLINE = 300
TEXT = ("In the beginning God created the heaven and the earth. " * 400).encode()
SMALL = ["--layers", "4", "--width", "24", "--heads", "12", "--kv-heads", "4", "--context", "24",
         "--batch", "3", "--threads", "1", "--dropout", "0.1", "--schedule", "constant", "--warmup",
         "0", "--shards", "4", "--tp-shards", "4", "--micro-batches", "2", "--digest"]
# Mesh, ranks, and what goes with it there.
LAYOUTS = [("", 1), ("dp=4", 4, "--stage", "2"), ("tp=4", 4, "--sequence-parallel"),
           ("pp=4", 4, "--pipeline", "zb-h1"), ("dp=2,tp=2", 4, "--stage", "1"),
           ("dp=2,pp=2", 4, "--stage", "3", "--unit", "block"),
           ("tp=2,pp=2", 4, "--pipeline", "gpipe", "--sequence-parallel"),
           ("dp=2,tp=2,pp=2", 8, "--pipeline", "zb-h1", "--stage", "1", "--sequence-parallel"),
           ("tp=3", 3), ("pp=3", 3, "--cut", "blocks.0,blocks.1"),
           ("dp=3,tp=2", 6, "--stage", "3"), ("dp=2,tp=2,pp=2", 8, "--stage", "3", "--recompute")]


class Meshes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.text = os.path.join(self.folder.name, "text")
        with open(self.text, "wb") as file:
            file.write(TEXT)

    def tearDown(self):
        self.folder.cleanup()

    def train(self, layout, *options):
        mesh, ranks, *more = layout
        launcher = [TUTTI, "run", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, GPT, "--data", self.text, *SMALL, *options,
                               *(["--mesh", mesh] if mesh else []), *more],
                              text=True, capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        sizes = {name: re.search(name + r"=(\d)", mesh) for name in ("dp", "tp", "pp")}
        said = "".join(f" {name} {int(size[1]) if size else 1}" for name, size in sizes.items())
        found = re.search(r"digest ([0-9a-f]{32})( dp \d+ tp \d+ pp \d+)$", done.stdout, re.M)
        self.assertEqual(found[2], said)
        return found[1]

    def test_averages_go_on_on_another_mesh(self):
        average = ("--ema", "0.6", "--lr", "0.01", "--tie-head", "--gelu", "tanh")
        expected = self.train(LAYOUTS[0], "--steps", "2", *average)
        self.assertNotEqual(self.train(LAYOUTS[0], "--steps", "2", *average[2:]), expected)
        for i, layout in enumerate(LAYOUTS):
            after = LAYOUTS[(i + 5) % len(LAYOUTS)]
            checkpoint = ["--checkpoint", os.path.join(self.folder.name, f"averages-{i}")]
            self.train(layout, "--steps", "1", *checkpoint, "--every", "1", *average)
            self.assertEqual(self.train(after, "--steps", "2", *checkpoint, "--resume", *average),
                             expected, (layout, after))

    def save(self, layout, name):
        file = os.path.join(self.folder.name, name)
        self.train(layout, "--steps", "1", "--save", file)
        with open(file, "rb") as saved:
            return saved.read()

    def test_every_mesh_saves_one_file(self):
        expected = self.save(LAYOUTS[0], "alone")
        for layout in LAYOUTS[1:]:
            self.assertEqual(self.save(layout, "mesh"), expected, layout)

    def losses(self, layout):
        """All bits of a training's validations."""
        metrics = os.path.join(self.folder.name, "metrics")
        shutil.rmtree(metrics, ignore_errors=True)
        self.train(layout, "--steps", "2", "--validate-every", "1", "--metrics", metrics,
                   "--summary", os.path.join(self.folder.name, "summary"))
        with open(os.path.join(metrics, "metrics.jsonl"), encoding="utf-8") as file:
            found = [row["value"] for row in map(json.loads, file)
                     if row["name"] == "loss/validation"]
        self.assertEqual(len(found), 3)
        return found

    def test_every_mesh_validates_with_the_same_bits(self):
        expected = self.losses(LAYOUTS[0])
        for layout in LAYOUTS[1:]:
            self.assertEqual(self.losses(layout), expected, layout)

    def test_every_mesh_has_one_digest(self):
        expected = self.train(LAYOUTS[0], "--steps", "2")
        for layout in LAYOUTS[1:]:
            self.assertEqual(self.train(layout, "--steps", "2"), expected, layout)
        self.assertNotEqual(self.train(LAYOUTS[0], "--steps", "2", "--seed", "1"), expected)

    def test_a_training_goes_on_on_another_mesh(self):
        expected = self.train(LAYOUTS[0], "--steps", "2")
        for i, layout in enumerate(LAYOUTS):
            after = LAYOUTS[(i + 1) % len(LAYOUTS)]
            checkpoint = ["--checkpoint", os.path.join(self.folder.name, f"saved-{i}")]
            self.train(layout, "--steps", "1", *checkpoint, "--every", "1")
            self.assertEqual(self.train(after, "--steps", "2", *checkpoint, "--resume"), expected,
                             (layout, after))


if __name__ == "__main__":
    unittest.main()
