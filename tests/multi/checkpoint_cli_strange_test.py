"""tutti checkpoint with paths that are no UTF-8, steps without a manifest, disks that are full."""
import json
import os
import resource
import shutil
import struct
import subprocess
import unittest

from checkpoint_cli_test import Checkpoints, DEADLINE, TUTTI, flip, save, step_of


def write_safetensors(path, tensors):
    """Tensors of u8: names and numbers of elements, which are 0."""
    header, end = {}, 0
    for name, count in tensors.items():
        header[name] = {"dtype": "U8", "shape": [count], "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(end))


class Paths(Checkpoints):
    def test_json_of_paths_that_are_no_utf_8(self):
        folder = os.fsdecode(os.fsencode(self.folder) + b"/caf\xe9")
        shown = self.folder + "/caf\ufffd"
        flip(save(folder) + "/rank-00000-0.safetensors", 1500)
        found = self.json("verify", folder, code=1)
        self.assertEqual(found["checkpoints"][0]["path"], step_of(shown, 1))
        damage = found["checkpoints"][0]["damage"]
        self.assertEqual(damage[0]["file"], step_of(shown, 1) + "/rank-00000-0.safetensors")
        self.assertEqual(self.json("list", folder)["folder"], shown)
        self.assertEqual(self.json("show", folder)["path"], step_of(shown, 1))
        other = step_of(folder, 1) + ".copy"
        shutil.copytree(save(folder, step=1), other)
        self.assertEqual(self.json("diff", folder, other)["b"], step_of(shown, 1) + ".copy")
        self.assertEqual(self.json("merge", folder, folder + "/x.safetensors")["to"],
                         shown + "/x.safetensors")
        self.assertEqual(self.json("show", folder + "/x.safetensors")["path"],
                         shown + "/x.safetensors")

    def test_json_of_texts_that_end_within_a_character(self):
        for more in ("", "x"):
            folder = self.folder + "/" + more + "/".join(["é" * 120] * 4)
            os.truncate(save(folder) + "/rank-00000-0.safetensors", 10)
            found = self.json("verify", folder, code=1)["checkpoints"][0]["damage"]
            self.assertEqual([one["tensor"] for one in found if one["tensor"] is not None],
                             ["scalar", "counts", "embedding", "cube"])


class Verify(Checkpoints):
    def test_a_step_without_a_manifest_is_damage_and_the_next_ones_are_read(self):
        for step in (1, 2, 3):
            save(self.folder, step=step)
        os.unlink(step_of(self.folder, 1) + "/manifest.json")
        os.unlink(step_of(self.folder, 2) + "/manifest.json")
        os.mkdir(step_of(self.folder, 2) + "/manifest.json")
        flip(step_of(self.folder, 3) + "/rank-00000-0.safetensors", 1500)
        found = self.json("verify", self.folder, code=1)["checkpoints"]
        self.assertEqual([one["whole"] for one in found], [False] * 3)
        self.assertIn("no checkpoint: want manifest.json", found[0]["damage"][0]["problem"])
        self.assertIn("manifest.json: not a regular file", found[1]["damage"][0]["problem"])
        self.assertEqual(found[2]["damage"][0]["problem"], "not what was written")
        self.assertIn("damaged in 1 place", self.tutti("verify", self.folder, code=1))

    def test_a_full_output_is_no_damage(self):
        path = save(self.folder)
        with open("/dev/full", "w") as full:
            done = subprocess.run([TUTTI, "checkpoint", "verify", path], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot write all of its output: No space left on device", done.stderr)


class Merge(Checkpoints):
    def test_a_full_disk_leaves_no_files(self):
        source, out = self.folder + "/x.safetensors", self.folder + "/out"
        write_safetensors(source, {"small": 10, "large": 100_000})
        limit = (50_000, resource.RLIM_INFINITY)
        done = subprocess.run([TUTTI, "checkpoint", "merge", source, out, "--shard-size", "1KB"],
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("model-00002-of-00002.safetensors", done.stderr)
        self.assertEqual(os.listdir(out), [])
        self.tutti("merge", source, out, "--shard-size", "1KB")
        self.assertIs(self.json("diff", source, out)["same"], True)

    def test_a_training_is_not_hidden_behind_a_model(self):
        save(self.folder)
        self.assertIn("there are checkpoints in " + self.folder,
                      self.tutti("merge", self.folder, self.folder, code=2))
        self.assertEqual(self.json("show", self.folder)["format"], "checkpoint")


class Convert(Checkpoints):
    def test_no_tensor_is_lost(self):
        source = self.folder + "/x.safetensors"
        for names in (("wte.weight", "transformer.wte.weight"), ("tok.weight", "wte.weight"),
                      ("wte.weight", "tok.weight")):
            write_safetensors(source, dict.fromkeys(names, 4))
            self.assertIn('two tensors would be called "tok.weight"',
                          self.tutti("convert", source, self.folder + "/y.safetensors", "--names",
                                     "tutti", code=2))
        write_safetensors(source, {"wte.weight": 4, "lm_head.weight": 4})
        self.tutti("convert", source, self.folder + "/y.safetensors", "--names", "tutti")
        self.assertEqual({one["name"] for one in
                          self.json("show", self.folder + "/y.safetensors")["tensors"]},
                         {"tok.weight", "head.weight"})


class Choice(Checkpoints):
    def names(self, path):
        return {one["name"]: one["dtype"] for one in self.json("show", path)["tensors"]}

    def test_patterns_choose_what_is_written(self):
        path = save(self.folder, "rows", 2, 1, "name", "cube", "optim.cube", "text", "words", "a")
        out = self.folder + "/x.safetensors"
        for verb in ("merge", "convert"):
            self.tutti(verb, path, out, "--include", "optim.*,[cr]ow*", "--exclude", "row")
            self.assertEqual(self.names(out), {"optim.cube": "bf16"})
            self.tutti(verb, path, out, "--exclude", "e*,optim.*", "--all")
            self.assertEqual(set(self.names(out)), {"row", "scalar", "counts"})
        self.tutti("split", path, self.folder + "/y", "--exclude", "optim.*")
        self.assertEqual(self.json("show", self.folder + "/y")["texts"], {"words": "a"})
        self.assertNotIn("optim.cube", self.names(self.folder + "/y"))

    def test_floating_tensors_are_converted(self):
        path, out = save(self.folder, "rows", 2), self.folder + "/x.safetensors"
        for dtype in ("f64", "bf16", "f16", "f32"):
            self.tutti("merge", path, out, "--dtype", dtype)
            self.assertEqual(self.names(out), {
                **dict.fromkeys(("embedding", "cube", "row", "scalar", "empty"), dtype),
                "counts": "i64"})
            self.tutti("split", out, self.folder + "/back", "--dtype", "f64", "-n", "3")
        self.tutti("merge", path, out, "--dtype", "f64")  # all values are whole, and small
        self.assertIs(self.json("diff", out, self.folder + "/back")["same"], True)

    def test_mistakes(self):
        path = save(self.folder)
        for args, text in ((("--include", "none*"), "of its 6 tensors none is left"),
                           (("--exclude", "*"), "of its 6 tensors none is left"),
                           (("--include", "a,,b"), "--include a,,b: want up to 64 patterns"),
                           (("--exclude", ""), "--exclude : want up to 64 patterns"),
                           (("--dtype", "i64"), "i64")):
            for verb in ("merge", "split", "convert"):
                self.assertIn(text, self.tutti(verb, path, self.folder + "/out", *args, code=2))
        self.assertFalse(os.path.exists(self.folder + "/out"))


if __name__ == "__main__":
    unittest.main()
