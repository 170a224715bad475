"""The programs whose files ours are to be, from PyPI: torch's distributed checkpoints, the
safetensors package and transformers read what we write, and we read what they write.

Runs itself again under the Python of build/peers/torch, where `tools/peers torch` (`make peers`)
puts them: 6 GB, minutes. Where they cannot be had the test is left out and says why."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES = os.environ["TUTTI_SOURCE_DIR"]
PEER = os.path.join(SOURCES, "build", "peers", "torch")
DEADLINE = 120

if __name__ == "__main__" and sys.prefix != PEER:
    print("installing", flush=True)
    if subprocess.run([os.path.join(SOURCES, "tools", "peers"), "torch"],
                      env={**os.environ, "PEERS_FOLDER": os.path.dirname(PEER)}).returncode == 0:
        python = os.path.join(PEER, "bin", "python")
        os.execv(python, [python, *sys.argv])
    print("test_peers ... skipped 'torch, safetensors and transformers cannot be installed'")
    sys.exit(0)

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.hf_storage import (HuggingFaceStorageReader,
                                                     HuggingFaceStorageWriter)

BINARIES = os.environ["TUTTI_BINARY_DIR"]
SAVE = os.path.join(BINARIES, "tests", "save_layout")
TUTTI, GPT = (os.path.join(BINARIES, "bin", name) for name in ("tutti", "gpt"))
LAYOUTS = ("replicated", "rows", "columns", "grid", "intervals", "last_rank", "in_turn")
# Those of layout_testing.h; one without elements is in no file of a checkpoint.
TENSORS = {"embedding": (torch.float32, [311, 70]), "cube": (torch.bfloat16, [3, 4, 6]),
           "row": (torch.float32, [1, 5]), "scalar": (torch.float64, []),
           "counts": (torch.int64, [101]), "empty": (torch.float32, [0, 3])}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def value_of(name):
    dtype, shape = TENSORS[name]
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + ord(name[0])) % 251).reshape(shape).to(dtype)


def random_tensors():
    generator = torch.Generator().manual_seed(3)
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
              torch.int8, torch.uint8, torch.bool)
    return {f"t.{i}": torch.randint(0, 2, (5, i + 1), generator=generator).to(dtype)
            for i, dtype in enumerate(dtypes)}


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def same(self, ours, theirs):
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, x in ours.items():
            self.assertEqual(x.dtype, theirs[name].dtype, name)
            self.assertTrue(torch.equal(x, theirs[name]), name)


class Written(Peers):
    """By us."""

    def check_files(self, step, whole):
        """safetensors opens each file; torch puts the slices together."""
        seen = set()
        for name in os.listdir(step):
            if name.endswith(".safetensors"):
                seen |= set(safetensors.torch.load_file(os.path.join(step, name)))
        self.assertEqual(seen, set(whole))
        state = {name: torch.zeros_like(x) for name, x in whole.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(step))
        self.same(state, whole)

    def check_merged(self, checkpoint, whole):
        run(TUTTI, "checkpoint", "merge", checkpoint, checkpoint + ".safetensors")
        self.same(safetensors.torch.load_file(checkpoint + ".safetensors"), whole)
        run(TUTTI, "checkpoint", "merge", checkpoint, checkpoint + ".folder", "--shard-size", "2kB")
        state = {name: torch.zeros_like(x) for name, x in whole.items() if x.numel() > 0}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(checkpoint + ".folder"))
        self.same(state, {name: whole[name] for name in state})

    def test_each_tensor_in_one_file(self):
        whole = {name: value_of(name) for name in TENSORS}
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                run(SAVE, self.path(layout), layout, "3", "7", "whole")
                step, found = self.path(layout, "step-000000000007"), {}
                self.check_files(step, whole)
                for name in os.listdir(step):
                    if name.endswith(".safetensors"):
                        for tensor, x in safetensors.torch.load_file(f"{step}/{name}").items():
                            self.assertNotIn(tensor, found)
                            found[tensor] = x
                self.same(found, whole)

    def test_every_layout(self):
        whole = {name: value_of(name) for name in TENSORS}
        filled = {name: x for name, x in whole.items() if x.numel() > 0}
        for layout in LAYOUTS:
            for ranks in (1, 2, 3):
                with self.subTest(layout=layout, ranks=ranks):
                    folder = self.path(f"{layout}-{ranks}")
                    run(SAVE, folder, layout, str(ranks), "7")
                    self.check_files(os.path.join(folder, "step-000000000007"), filled)
                    self.check_merged(folder, whole)


class Read(Peers):
    """By us, written by others."""

    def check(self, path, tensors):
        run(TUTTI, "checkpoint", "split", path, path + ".split", "-n", "3")
        run(TUTTI, "checkpoint", "merge", path + ".split", path + ".again.safetensors")
        self.same(safetensors.torch.load_file(path + ".again.safetensors"), tensors)

    def test_the_safetensors_package(self):
        tensors = random_tensors()
        safetensors.torch.save_file(tensors, self.path("x.safetensors"), {"format": "pt"})
        self.check(self.path("x.safetensors"), tensors)

    def test_distributed_checkpoint(self):
        tensors = random_tensors()
        places = {name: 1 + i % 2 for i, name in enumerate(tensors)}
        dcp.save(tensors, storage_writer=HuggingFaceStorageWriter(self.path("dcp"), places))
        self.check(self.path("dcp"), tensors)


class Gpt2(Peers):
    """transformers' and ours; the activation is the one that `gpt` has."""
    CONTEXT = 32
    SIZES = ["--layers", "2", "--width", "64", "--heads", "4", "--context", str(CONTEXT),
             "--threads", "1"]

    def setUp(self):
        super().setUp()
        torch.manual_seed(5)
        self.text = bytes(torch.randint(0, 256, (40 * self.CONTEXT + 1,)).tolist())
        with open(self.path("text"), "wb") as file:
            file.write(self.text)
        config = transformers.GPT2Config(vocab_size=256, n_positions=self.CONTEXT, n_embd=64,
                                         n_layer=2, n_head=4, activation_function="gelu",
                                         bos_token_id=0, eos_token_id=0, initializer_range=0.3)
        self.model = transformers.GPT2LMHeadModel(config).eval()
        transformers.utils.logging.disable_progress_bar()
        self.model.save_pretrained(self.path("theirs"), max_shard_size="50KB")

    def loss_of(self, model):
        """Over the windows that `gpt --evaluate` takes."""
        tokens = torch.tensor(list(self.text))
        with torch.no_grad():
            logits = model(tokens[:-1].reshape(-1, self.CONTEXT)).logits
        return torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[1:]).item()

    def evaluate(self, weights):
        said = run(GPT, "--evaluate", "--data", self.path("text"), "--load", weights, *self.SIZES)
        return float(re.search(r'"loss":(\d+\.\d+)', said).group(1))

    def test_there_and_back(self):
        run(TUTTI, "checkpoint", "convert", self.path("theirs"), self.path("ours.safetensors"),
            "--names", "tutti")
        self.assertAlmostEqual(self.evaluate(self.path("ours.safetensors")),
                               self.loss_of(self.model), delta=1e-4)
        run(TUTTI, "checkpoint", "convert", self.path("ours.safetensors"), self.path("back"),
            "--names", "gpt2", "--shard-size", "50kB")
        self.model.config.save_pretrained(self.path("back"))
        back = transformers.GPT2LMHeadModel.from_pretrained(self.path("back"))
        self.same(back.state_dict(), self.model.state_dict())

    def test_split_and_merged(self):
        run(TUTTI, "checkpoint", "split", self.path("theirs"), self.path("split"), "-n", "2")
        run(TUTTI, "checkpoint", "merge", self.path("split"), self.path("merged"), "--shard-size",
            "50kB")
        self.model.config.save_pretrained(self.path("merged"))
        merged = transformers.GPT2LMHeadModel.from_pretrained(self.path("merged"))
        self.same(merged.state_dict(), self.model.state_dict())

    def test_saved_whole(self):
        """The index of a step names the file of each of the model's tensors."""
        run(TUTTI, "run", "-n", "2", GPT, "--data", self.path("text"), "--steps", "2", "--batch",
            "1", "--checkpoint", self.path("steps"), "--every", "2", "--whole", *self.SIZES)
        run(TUTTI, "checkpoint", "merge", self.path("steps"), self.path("one.safetensors"))
        step = self.path("steps", "step-000000000002")
        with open(os.path.join(step, "model.safetensors.index.json")) as file:
            places = json.load(file)["weight_map"]
        one = safetensors.torch.load_file(self.path("one.safetensors"))
        self.assertEqual(set(one) - set(places), {"seconds", "losses"})
        self.same({name: safetensors.torch.load_file(os.path.join(step, place))[name]
                   for name, place in places.items()}, {name: one[name] for name in places})
        state = {name: torch.zeros_like(x) for name, x in one.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(step))
        self.same(state, one)

    def test_trained_further_by_us(self):
        run(TUTTI, "checkpoint", "convert", self.path("theirs"), self.path("ours.safetensors"),
            "--names", "tutti")
        run(TUTTI, "run", "-n", "2", GPT, "--data", self.path("text"), "--load",
            self.path("ours.safetensors"), "--steps", "5", "--batch", "1", "--checkpoint",
            self.path("steps"), "--every", "5", *self.SIZES)
        run(TUTTI, "checkpoint", "convert", self.path("steps"), self.path("trained"), "--names",
            "gpt2")
        self.model.config.tie_word_embeddings = False  # ours has trained the head apart
        self.model.config.save_pretrained(self.path("trained"))
        trained = transformers.GPT2LMHeadModel.from_pretrained(self.path("trained")).eval()
        self.assertNotAlmostEqual(self.loss_of(trained), self.loss_of(self.model), delta=1e-2)
        self.assertAlmostEqual(self.evaluate(self.path("steps")), self.loss_of(trained), delta=1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
