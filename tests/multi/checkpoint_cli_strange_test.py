"""tutti checkpoint with paths that are no UTF-8, steps without a manifest, disks that are full."""
import json
import os
import resource
import shutil
import struct
import subprocess
import unittest

from checkpoint_cli_test import Checkpoints, DEADLINE, GOLDEN, TUTTI, flip, save, step_of


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
        folder = os.fsdecode(os.fsencode(self.folder) + b"/\x01caf\xe9")
        shown = self.folder + "/\x01caf\ufffd"
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


class Names(Checkpoints):
    def test_what_a_terminal_would_obey_is_escaped(self):
        name, other = "\x1b]0;owned\x07\u009b2J\n", self.folder + "/other.safetensors"
        path = self.folder + "/x.safetensors"
        write_safetensors(path, {"é" + name: 3, "y": 2})
        write_safetensors(other, {"y": 2, name: 2})
        shown = "\\u001b]0;owned\\u0007\\u009b2J\\u000a"
        lines = self.tutti("show", path).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[1].startswith("é" + shown + " "), lines)
        self.assertEqual(lines[2][:44], "y" + 41 * " " + "u8")
        for said in (self.tutti("diff", path, other, code=1),
                     self.tutti("merge", other, self.folder + "/a\x1b/b.safetensors", code=2)):
            self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertIn(f'"é{shown}": only in', self.tutti("diff", path, other, code=1))


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

    def test_a_file_of_an_unknown_format_is_not_damaged(self):
        path = self.folder + "/notes"
        for text in (b"", b"short", b"a longer text, of 30 bytes"):
            with open(path, "wb") as file:
                file.write(text)
            self.assertIn("notes: of no format that is known", self.tutti("verify", path, code=2))
            os.replace(path, path + ".safetensors")
            said = self.tutti("verify", path + ".safetensors", code=1)
            self.assertIn("notes.safetensors: ", said)

    def test_offsets_in_a_header_that_are_far_too_long_are_not_read(self):
        """As objects of jansson they would take 500 MB."""
        path = os.path.join(save(self.folder), "rank-00000-0.safetensors")
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        header["__metadata__"]["DCP_SHARDING_INFO"] = '{"a": [' + "[]," * 4_000_000 + "[]]}"
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        verify = subprocess.Popen([TUTTI, "checkpoint", "verify", self.folder],
                                  stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(verify.pid, 0)
        verify.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(verify.returncode, 1)
        self.assertLess(used.ru_maxrss, 200_000)

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


class Llmc(Checkpoints):
    """The golden files have one model of 4 heads: as Hugging Face writes it, and as llm.c does."""
    HF, LLMC = (os.path.join(GOLDEN, name) for name in ("gpt2_hf.safetensors", "gpt2.bin"))

    def written(self):
        """The golden file with a vocabulary that is padded as llm.c pads it."""
        with open(self.LLMC, "rb") as file:
            content = file.read()
        header = list(struct.unpack("<256i", content[:1024]))
        vocabulary, width, padded = header[3], header[6], header[7]
        header[7] = 128
        embedding = content[1024:1024 + 4 * vocabulary * width]
        return (struct.pack("<256i", *header) + embedding.ljust(4 * 128 * width, b"\0") +
                content[1024 + 4 * padded * width:]), header

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_bits_are_those_that_llmc_writes(self):
        out, (want, header) = self.folder + "/x.bin", self.written()
        self.tutti("convert", self.HF, out, "--heads", str(header[5]))
        self.assertEqual(self.read(out), want)
        self.assertIs(self.json("diff", out, self.LLMC)["same"], True)
        self.tutti("convert", self.HF, self.folder + "/ours", "--to", "checkpoint", "--names",
                   "tutti", "-n", "3")
        for source, args in ((self.LLMC, ()), (self.folder + "/ours", ("--heads", str(header[5])))):
            os.unlink(out)
            self.tutti("convert", source, out, "--to", "llmc", *args)
            self.assertEqual(self.read(out), want)
        self.tutti("split", self.LLMC, self.folder + "/two", "-n", "2")  # which knows the heads
        for names in ("gpt2", "tutti"):
            self.tutti("convert", self.folder + "/two", out, "--names", names)
            self.assertEqual(self.read(out), want)

    def test_bf16(self):
        out, (want, header) = self.folder + "/x.bin", self.written()
        self.tutti("convert", self.LLMC, out, "--dtype", "bf16")
        content = self.read(out)
        self.assertEqual(struct.unpack("<8i", content[:32]), (header[0], 5, *header[2:8]))
        self.assertEqual(len(content) - 1024, (len(want) - 1024) // 2)
        self.tutti("merge", self.LLMC, self.folder + "/x.safetensors", "--dtype", "bf16")
        self.assertIs(self.json("diff", out, self.folder + "/x.safetensors")["same"], True)

    def test_what_is_no_gpt2_is_listed(self):
        out, part = self.folder + "/x.bin", self.folder + "/part"
        self.tutti("convert", self.LLMC, part, "--exclude", "blocks.1.up.*,ln.bias")
        text = self.tutti("convert", part, out, code=2)
        for name in ("blocks.1.up.weight", "blocks.1.up.bias", "ln.bias"):
            self.assertIn(f'"{name}" is not in it', text)
        text = self.tutti("convert", save(self.folder + "/ours"), out, code=2)
        self.assertIn('"cube" is no part of a GPT-2', text)
        self.assertIn('"tok.weight" is not in it', text)
        self.assertIn("want `heads`", self.tutti("convert", self.HF, out, code=2))
        self.assertIn("5 heads do not divide the width, 16",
                      self.tutti("convert", self.HF, out, "--heads", "5", code=2))
        self.assertIn("llm.c wants f32 or bf16",
                      self.tutti("convert", self.LLMC, out, "--dtype", "f16", code=2))
        self.assertIn("want OUT to be called NAME.bin",
                      self.tutti("convert", self.LLMC, part, "--to", "llmc", code=2))
        self.assertFalse(os.path.exists(out))

    def test_a_head_of_its_own(self):
        """A bit of it is another one."""
        out, apart = self.folder + "/x.bin", self.folder + "/apart.safetensors"
        self.tutti("convert", self.LLMC, apart)
        self.tutti("convert", apart, out, "--heads", "4")
        os.unlink(out)
        content = self.read(apart)
        bytes_of_header = int.from_bytes(content[:8], "little")
        begin = json.loads(content[8:8 + bytes_of_header])["head.weight"]["data_offsets"][0]
        flip(apart, 8 + bytes_of_header + begin)
        self.assertIn("its head is not its embedding",
                      self.tutti("convert", apart, out, "--heads", "4", code=2))
        self.assertFalse(os.path.exists(out))


class DiffTexts(Checkpoints):
    def test_texts_are_compared(self):
        long = "{" + '"é": 1, ' * 20
        a = save(self.folder, "rows", 2, 1, "text", "same", "x", "text", "long", long + '"lr": 1}',
                 "text", "mine", "a\nb")
        b = save(self.folder, "columns", 3, 2, "text", "same", "x", "text", "long",
                 long + '"lr": 2}', "text", "yours", "")
        self.assertEqual(self.tutti("diff", a, b, code=1).splitlines(), [
            'text "long": from byte 187 on: …": 1, "é": 1, "é": 1, "lr": 1} and '
            '…": 1, "é": 1, "é": 1, "lr": 2}',
            f'text "mine": only in {a}', f'text "yours": only in {b}',
            "0 tensors, 0 elements and 3 texts differ"])
        found = self.json("diff", a, b, code=1)
        self.assertEqual((found["same"], found["tensors"], found["differences"]), (False, 0, []))
        self.assertEqual(found["texts"][1:], [
            {"name": "mine", "a": "a\nb", "b": None, "first": 0},
            {"name": "yours", "a": None, "b": "", "first": 0}])
        self.assertEqual(found["texts"][0]["first"], len((long + '"lr": ').encode()))

    def test_files_of_others_have_none(self):
        path = save(self.folder, "rows", 2, 1, "text", "words", "a")
        self.tutti("merge", path, self.folder + "/x.safetensors")
        self.assertIs(self.json("diff", path, self.folder + "/x.safetensors")["same"], True)


if __name__ == "__main__":
    unittest.main()
