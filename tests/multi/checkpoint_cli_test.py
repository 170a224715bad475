"""tutti checkpoint: what it says of whole, damaged and different checkpoints, as text and JSON."""
import glob
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

BINARIES = os.environ["TUTTI_BINARY_DIR"]
TUTTI = os.path.join(BINARIES, "bin", "tutti")
SAVE = os.path.join(BINARIES, "tests", "save_layout")
GOLDEN = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "golden")
DEADLINE = 60
SHELF = "/dev/shm" if os.path.isdir("/dev/shm") else None  # saving waits for the disk
TENSORS = {"embedding": ("f32", [311, 70], 4), "cube": ("bf16", [3, 4, 6], 2),
           "row": ("f32", [1, 5], 4), "scalar": ("f64", [], 8), "counts": ("i64", [101], 8),
           "empty": ("f32", [0, 3], 4)}
BYTES = 4 * 311 * 70 + 2 * 72 + 4 * 5 + 8 + 8 * 101


def step_of(folder, step):
    return os.path.join(folder, f"step-{step:012}")


def save(folder, layout="rows", ranks=2, step=1, *changes):
    done = subprocess.run([SAVE, folder, layout, str(ranks), str(step), *map(str, changes)],
                          capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return step_of(folder, step)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def value_of(name, element):
    """As layout_testing.h has it."""
    return (element * 7 + ord(name[0])) % 251


class Checkpoints(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=SHELF))

    def tutti(self, *args, code=0):
        done = subprocess.run([TUTTI, "checkpoint", *args], capture_output=True, text=True,
                              timeout=DEADLINE)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code == 2 else done.stdout

    def json(self, *args, code=0):
        return json.loads(self.tutti(*args, "--json", code=code))


class List(Checkpoints):
    def test_steps_and_their_states(self):
        for step in (3, 20, 100):
            save(self.folder, "columns", 3, step)
        os.mkdir(self.folder + "/.half-000000000200")
        os.mkdir(self.folder + "/another")
        os.truncate(glob.glob(step_of(self.folder, 20) + "/rank-00001-0.safetensors")[0], 1000)
        lines = self.tutti("list", self.folder).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["step", "3", "20", "100", "200"])
        self.assertEqual([line.split("  ")[-1] for line in lines[1::2]],
                         ["complete", "complete"])
        self.assertIn("damaged: ", lines[2])
        self.assertIn("rank-00001-0.safetensors: truncated: it ends at 1000", lines[2])
        self.assertTrue(lines[4].endswith("half written"))
        found = self.json("list", self.folder)
        self.assertEqual(found["folder"], self.folder)
        self.assertEqual([(one["step"], one["state"]) for one in found["steps"]],
                         [(3, "complete"), (20, "damaged"), (100, "complete"),
                          (200, "half written")])
        self.assertEqual({key: found["steps"][0][key] for key in ("folder", "tensors", "ranks",
                                                                  "bytes")},
                         {"folder": "step-000000000003", "tensors": 6, "ranks": 3, "bytes": BYTES})
        self.assertEqual(found["steps"][0]["time"],
                         int(os.stat(step_of(self.folder, 3)).st_mtime))
        self.assertIn("truncated", found["steps"][1]["problem"])
        self.assertNotIn("tensors", found["steps"][3])

    def test_a_manifest_or_a_file_that_is_gone(self):
        os.unlink(save(self.folder, step=1) + "/manifest.json")
        os.unlink(save(self.folder, step=2) + "/rank-00001-0.digests")
        os.truncate(save(self.folder, step=3) + "/rank-00001-0.digests", 16)
        states = self.json("list", self.folder)["steps"]
        self.assertEqual([one["state"] for one in states], ["damaged"] * 3)
        for one, text in zip(states, ("manifest.json", "rank-00001-0.digests: No such file",
                                      "rank-00001-0.digests: truncated")):
            self.assertIn(text, one["problem"])

    def test_folders_without_any(self):
        self.assertEqual(self.tutti("list", self.folder), f"{self.folder}: no checkpoints\n")
        self.assertEqual(self.json("list", self.folder), {"folder": self.folder, "steps": []})
        self.assertEqual(self.tutti("list", self.folder + "/none", code=2),
                         f"tutti checkpoint list: folder {self.folder}/none: "
                         "No such file or directory\n")
        self.assertIn("Not a directory", self.tutti("list", SAVE, code=2))


class Show(Checkpoints):
    def test_tensors_of_the_newest_step(self):
        save(self.folder, "replicated", 2, 5)
        path = save(self.folder, "grid", 4, 7)
        found = self.json("show", self.folder)
        self.assertEqual((found["path"], found["step"], found["ranks"], found["bytes"]),
                         (path, 7, 4, BYTES))
        self.assertEqual({one["name"]: (one["dtype"], one["shape"]) for one in found["tensors"]},
                         {name: kind[:2] for name, kind in TENSORS.items()})
        for one in found["tensors"]:
            self.check_slices(path, one)
        self.assertEqual(found, self.json("show", path))
        self.assertEqual(self.json("show", step_of(self.folder, 5))["step"], 5)

    def check_slices(self, path, tensor):
        """They are all of it, and where they are said to be."""
        size = TENSORS[tensor["name"]][2]
        numel = 0
        for one in tensor["slices"]:
            own = 1
            for length in one["size"]:
                own *= length
            numel += own
            self.assertEqual(one["bytes"], own * size)
            self.assertEqual(one["file"], f"rank-{one['rank']:05}-0.safetensors")
            with open(os.path.join(path, one["file"]), "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                begin, end = header[tensor["name"]]["data_offsets"]
                self.assertEqual(one["at"] - file.tell(), begin)
                self.assertEqual(one["bytes"], end - begin)
        self.assertEqual(numel * size, tensor["bytes"])

    def test_texts(self):
        save(self.folder, "rows", 2, 1, "text", "words", "a b c", "text", "long", "x" * 101 + "\n")
        self.assertEqual(self.json("show", self.folder)["texts"],
                         {"words": "a b c", "long": "x" * 101 + "\n"})
        lines = self.tutti("show", self.folder).splitlines()[-2:]
        self.assertRegex("\n".join(lines), "^words +text: a b c\nlong +text: x{100} …$")

    def test_names_that_match_a_pattern(self):
        save(self.folder)
        names = [one["name"] for one in self.json("show", self.folder, "*c*")["tensors"]]
        self.assertEqual(names, ["cube", "scalar", "counts"])
        lines = self.tutti("show", self.folder, "row", "--slices").splitlines()
        self.assertEqual(lines[0], f"{step_of(self.folder, 1)}: checkpoint, step 1, 6 tensors, "
                                   "86.0 KiB, saved by 2 ranks")
        self.assertRegex(lines[1], r"^row +f32\[1, 5\]  20 B, 1 slice$")
        self.assertRegex(lines[2], r"^    \[0:1, 0:5\]  rank-00001-0.safetensors, 20 bytes at "
                                   r"offset \d+$")
        self.assertEqual(len(lines), 3)

    def test_a_number_is_no_step(self):
        save(self.folder, step=100)
        for pattern, hint in (("100", "; a step is a path, as in FOLDER/step-000000000100"),
                              ("10*", ""), ("Row", "")):
            self.assertEqual(self.tutti("show", self.folder, pattern, code=2),
                             f"tutti checkpoint show: {step_of(self.folder, 100)}: no tensor's "
                             f'name matches "{pattern}"{hint}\n')
            self.tutti("show", "--json", self.folder, pattern, code=2)

    def test_what_is_no_checkpoint(self):
        for path, text in ((self.folder, "no checkpoint: want manifest.json, "),
                           (self.folder + "/none", "No such file or directory"),
                           (SAVE, "of no format that is known: ")):
            self.assertRegex(self.tutti("show", path, code=2),
                             f"^tutti checkpoint show: {path}: .*{re.escape(text)}")
        with open(save(self.folder) + "/manifest.json", "w", encoding="utf-8") as file:
            file.write("{" * 100)
        self.assertIn("manifest.json: damaged", self.tutti("show", self.folder, code=2))


class Verify(Checkpoints):
    def damage(self, path=None):
        found = self.json("verify", path or self.folder, code=1)
        self.assertIs(found["whole"], False)
        (one,) = [one for one in found["checkpoints"] if not one["whole"]]
        return one["damage"]

    def test_whole_ones(self):
        for step, layout in enumerate(("replicated", "intervals", "grid")):
            save(self.folder, layout, 4, step)
        found = self.json("verify", self.folder)
        self.assertIs(found["whole"], True)
        self.assertEqual([(one["path"], one["whole"], one["damage"])
                          for one in found["checkpoints"]],
                         [(step_of(self.folder, step), True, []) for step in range(3)])
        self.assertEqual(self.tutti("verify", step_of(self.folder, 1)),
                         f"{step_of(self.folder, 1)}: whole: 6 tensors, 86.0 KiB\n")

    def test_every_block_that_is_damaged_is_named(self):
        save(self.folder, "replicated", 1, 1)
        path = save(self.folder, "replicated", 1, 2)
        file = path + "/rank-00000-0.safetensors"
        at = {one["name"]: one["slices"][0]["at"]
              for one in self.json("show", path)["tensors"] if one["slices"]}
        for name, offset in (("embedding", 0), ("embedding", 16383), ("embedding", 16384),
                             ("embedding", 49152), ("counts", 807)):
            flip(file, at[name] + offset)
        blocks = [(at["counts"], 808, "counts"), (at["embedding"], 32768, "embedding"),
                  (at["embedding"] + 49152, 16384, "embedding")]
        flip(file, at["embedding"] + 16383)  # as it was: its block has another one still
        self.assertEqual(sorted((one["offset"], one["bytes"], one["tensor"])
                                for one in self.damage()), sorted(blocks))
        lines = self.tutti("verify", self.folder, code=1).splitlines()
        self.assertEqual(lines[0], f"{step_of(self.folder, 1)}: whole: 6 tensors, 86.0 KiB")
        self.assertIn(f'{file}: tensor "embedding": 32768 bytes at offset {at["embedding"]}: '
                      "not what was written", lines)
        self.assertEqual(lines[-1], f"{path}: damaged in 3 places")

    def test_a_bit_anywhere_is_found(self):
        """Of every file, at places all over it; the blanks behind a header are nobody's."""
        path = save(self.folder, "columns", 2)
        for name in sorted(os.listdir(path)):
            file = os.path.join(path, name)
            with open(file, "rb") as opened:
                content = opened.read()
            places = list(range(0, len(content), max(1, len(content) // 7)))
            for at in places + [len(content) - 1]:
                if content[at:at + 1] == b" " or content[at:at + 1] == b"!":
                    continue
                flip(file, at)
                damage = self.damage()
                self.assertTrue(any(name in json.dumps(one) for one in damage), (name, at, damage))
                flip(file, at)
        self.assertTrue(self.json("verify", self.folder)["whole"])

    def test_offsets_that_pytorch_reads(self):
        """They are in the header alone, of which there is no digest."""
        file = save(self.folder, "rows", 2) + "/rank-00001-0.safetensors"
        with open(file, "r+b") as opened:
            at = opened.read().index(b"[155,0]") + 3
        flip(file, at)
        self.assertEqual([(one["file"], one["tensor"]) for one in self.damage()],
                         [(file, "embedding")])

    def test_files_that_are_short_long_or_gone(self):
        path = save(self.folder, "rows", 3)
        data, digests = path + "/rank-00001-0.safetensors", path + "/rank-00001-0.digests"
        for file, change, text in (
                (data, lambda: os.truncate(data, 500), "truncated"),
                (digests, lambda: os.truncate(digests, 32), "bytes at offset"),
                (digests, lambda: os.truncate(digests, 4096), "4096 bytes, not"),
                (data, lambda: os.unlink(data), "No such file"),
                (digests, lambda: os.unlink(digests), "No such file")):
            shutil.copy(file, self.folder + "/kept")
            change()
            damage = self.damage(path)
            self.assertTrue(any(one["file"] == file and text in json.dumps(one)
                                for one in damage) or text in self.tutti("verify", path, code=1),
                            (file, damage))
            self.assertEqual({one["file"] for one in damage} - {file}, set())
            shutil.move(self.folder + "/kept", file)

    def test_a_file_of_a_steps_name_is_damage_and_the_next_ones_are_read(self):
        with open(step_of(self.folder, 1), "w") as file:
            file.write("of no format")
        path = save(self.folder, step=2)
        said = self.tutti("verify", self.folder, code=1)
        self.assertIn(step_of(self.folder, 1) + ": ", said)
        self.assertIn(path + ": whole", said)

    def test_what_is_no_checkpoint_is_no_damage(self):
        self.assertIn("no checkpoint: want", self.tutti("verify", self.folder, code=2))
        self.assertIn("No such file", self.tutti("verify", self.folder + "/none", code=2))


class Diff(Checkpoints):
    def pair(self, *changes, layout="columns"):
        other = self.enterContext(tempfile.TemporaryDirectory(dir=SHELF))
        return save(self.folder, "rows", 2), save(other, layout, 3, 1, *changes)

    def test_the_same_in_another_layout(self):
        a, b = self.pair()
        self.assertEqual(self.tutti("diff", a, b), "the same: 6 tensors, 86.0 KiB\n")
        self.assertEqual(self.json("diff", a, b),
                         {"a": a, "b": b, "same": True, "tensors": 0, "elements": 0,
                          "differences": [], "texts": []})

    def test_elements(self):
        a, b = self.pair("set", "embedding", 71, -1.5, "set", "embedding", 21769, 3, "set",
                         "scalar", 0, 0.1, "set", "counts", 100, -7, "set", "cube", 25, "nan")
        self.assertEqual(self.tutti("diff", a, b, code=1).splitlines(), [
            f'"embedding": 2 of 21770 elements differ, the first at [1, 1]: '
            f'{value_of("embedding", 71)} and -1.5',
            f'"cube": 1 of 72 elements differ, the first at [1, 0, 1]: {value_of("cube", 25)} '
            "and nan (0x7fc0)",
            f'"scalar": 1 of 1 elements differ, the first at []: {value_of("scalar", 0)} '
            "and 0.10000000000000001",
            f'"counts": 1 of 101 elements differ, the first at [100]: {value_of("counts", 100)} '
            "and -7", "4 tensors and 5 elements differ"])
        found = self.json("diff", b, a, code=1)
        self.assertEqual((found["same"], found["tensors"], found["elements"]), (False, 4, 5))
        self.assertEqual(found["differences"][0], {
            "name": "embedding", "elements": 2, "a": {"dtype": "f32", "shape": [311, 70]},
            "b": {"dtype": "f32", "shape": [311, 70]},
            "first": {"index": [1, 1], "a": "-1.5", "b": str(value_of("embedding", 71))}})

    def test_bits_are_compared(self):
        a, b = self.pair("set", "row", 0, "nan", "set", "row", 1, 0)
        self.assertEqual(self.json("diff", b, b)["same"], True)
        other = save(self.folder, "rows", 1, 9, "set", "row", 0, "-nan", "set", "row", 1, "-0.0")
        (one,) = self.json("diff", b, other, code=1)["differences"]
        self.assertEqual((one["elements"], one["first"]["a"], one["first"]["b"]),
                         (2, "nan (0x7fc00000)", "nan (0xffc00000)"))

    def test_tensors_that_one_has_or_has_otherwise(self):
        a, b = self.pair("without", "row", "big", 3, 2)
        c = save(self.folder, "rows", 2, 2, "without", "counts", "big", 2, 3)
        self.assertEqual(self.tutti("diff", a, b, code=1).splitlines(),
                         [f'"row": only in {a}', f'"big": only in {b}',
                          "2 tensors and 0 elements differ"])
        found = self.json("diff", b, c, code=1)["differences"]
        self.assertEqual([(one["name"], one["a"], one["b"], one["elements"]) for one in found], [
            ("counts", {"dtype": "i64", "shape": [101]}, None, 0),
            ("big", {"dtype": "f32", "shape": [3, 2]}, {"dtype": "f32", "shape": [2, 3]}, 0),
            ("row", None, {"dtype": "f32", "shape": [1, 5]}, 0)])
        self.assertIn('"big": f32[3, 2] and f32[2, 3]', self.tutti("diff", b, c, code=1))

    def test_tensors_longer_than_a_window(self):
        """Rows that fill one, and a row that is longer than one."""
        for rows, columns in ((4300, 1000), (1, 4500000)):
            with self.subTest(rows):
                last = rows * columns - 1
                a = save(self.folder, "rows", 2, 1, "big", rows, columns)
                b = save(self.folder, "columns", 3, 2, "big", rows, columns, "set", "big", 4194305,
                         "-1", "set", "big", last, "-1")
                (one,) = self.json("diff", a, b, code=1)["differences"]
                self.assertEqual((one["elements"], one["first"]["index"], one["first"]["a"]),
                                 (2, list(divmod(4194305, columns)), str(4194305 % 251)))

    def test_damage_is_no_difference(self):
        a, b = self.pair()
        flip(b + "/rank-00001-0.safetensors", os.stat(b + "/rank-00001-0.safetensors").st_size - 1)
        self.assertIn("rank-00001-0.safetensors: damaged: tensor",
                      self.tutti("diff", a, b, code=2))
        self.assertIn("No such file", self.tutti("diff", a, b + "/none", code=2))


class Prune(Checkpoints):
    def steps(self):
        return [one["step"] for one in self.json("list", self.folder)["steps"]]

    def test_the_newest_and_the_named_stay(self):
        for step in range(1, 8):
            save(self.folder, "replicated", 1, step)
        self.assertEqual(self.json("prune", self.folder, "--keep", "2", "--step", "1,3",
                                   "--dry-run"),
                         {"dry_run": True, "removed": [5, 4, 2], "kept": [7, 6, 3, 1],
                          "uncounted": []})
        self.assertEqual(self.steps(), [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual(self.tutti("prune", self.folder, "--keep", "2", "--step", "1,3"),
                         "step 5 removed\nstep 4 removed\nstep 2 removed\n4 checkpoints stay\n")
        self.assertEqual(self.steps(), [1, 3, 6, 7])
        self.assertEqual(self.json("prune", "--keep", "2", self.folder),
                         {"dry_run": False, "removed": [3, 1], "kept": [7, 6],
                          "uncounted": []})

    def test_damaged_ones_are_not_counted(self):
        for step in (1, 2, 3):
            save(self.folder, "replicated", 1, step)
        os.unlink(step_of(self.folder, 3) + "/rank-00000-0.digests")
        os.mkdir(self.folder + "/.half-000000000004")
        self.assertEqual(self.tutti("prune", self.folder, "--keep", "1", "--fast"),
                         f"step 3 does not count: {step_of(self.folder, 3)}/rank-00000-0.digests: "
                         "No such file or directory\nstep 1 removed\n2 checkpoints stay\n")
        self.assertEqual(self.steps(), [2, 3, 4])

    def test_a_byte_that_differs_is_damage(self):
        """Unless nobody shall look."""
        for step in (1, 2, 3, 4):
            save(self.folder, "rows", 2, step)
        file = step_of(self.folder, 4) + "/rank-00001-0.safetensors"
        flip(file, os.stat(file).st_size - 1)
        found = self.json("prune", self.folder, "--keep", "1", "--dry-run", "--fast")
        self.assertEqual((found["removed"], found["kept"], found["uncounted"]),
                         ([3, 2, 1], [4], []))
        (one,) = self.damage_of(4)
        why = (f'{file}: tensor "{one["tensor"]}": {one["bytes"]} bytes at offset '
               f'{one["offset"]}: not what was written')
        found = self.json("prune", self.folder, "--keep", "1", "--dry-run")
        self.assertEqual((found["removed"], found["kept"], found["uncounted"]),
                         ([2, 1], [4, 3], [{"step": 4, "problem": why}]))
        self.assertEqual(self.tutti("prune", self.folder, "--keep", "1", "--step", "1"),
                         f"step 4 does not count: {why}\nstep 2 removed\n3 checkpoints stay\n")
        self.assertEqual(self.steps(), [1, 3, 4])
        self.json("verify", step_of(self.folder, 3))

    def damage_of(self, step):
        return self.json("verify", step_of(self.folder, step), code=1)["checkpoints"][0]["damage"]

    def test_a_copy_under_another_name_is_not_counted(self):
        """A training would pass it over."""
        for step in (1, 2):
            save(self.folder, "replicated", 1, step)
        copy = step_of(self.folder, 3)
        shutil.copytree(step_of(self.folder, 2), copy)
        why = f"{copy}: of step 2, under another one's name"
        self.assertEqual([one["state"] for one in self.json("list", self.folder)["steps"]],
                         ["complete", "complete", "damaged"])
        self.assertIn(why, self.tutti("verify", self.folder, code=1))
        self.tutti("verify", copy + "/manifest.json", code=1)
        for options in ((), ("--fast",)):
            found = self.json("prune", self.folder, "--keep", "1", "--dry-run", *options)
            self.assertEqual((found["removed"], found["kept"], found["uncounted"]),
                             ([1], [3, 2], [{"step": 3, "problem": why}]))

    def test_a_model_that_lost_its_manifest_is_not_counted(self):
        """Others may read it, but a training would pass it over."""
        whole = save(self.folder, "replicated", 1, 1)
        os.mkdir(step_of(self.folder, 2))
        self.tutti("merge", "--shard-size", "64KB", whole, step_of(self.folder, 2))
        found = self.json("prune", self.folder, "--keep", "1")
        self.assertEqual((found["removed"], found["kept"]), ([], [2, 1]))

    def test_where_fewer_are_whole_nothing_goes(self):
        for step in (1, 2, 3):
            path = save(self.folder, "replicated", 1, step) + "/rank-00000-0.safetensors"
            if step != 2:
                flip(path, os.stat(path).st_size - 1)
        found = self.json("prune", self.folder, "--keep", "2")
        self.assertEqual((found["removed"], found["kept"]), ([], [3, 2, 1]))
        self.assertEqual([one["step"] for one in found["uncounted"]], [3, 1])

    def test_mistakes_remove_nothing(self):
        for step in (1, 2):
            save(self.folder, "replicated", 1, step)
        for args, text in ((("--keep", "0"), "--keep"), (("--step", "1,"), "--step 1,: want"),
                           (("--step", "x"), "--step x: want"), (("--step", ""), "--step"),
                           (("--keep", "1", "--step", "7"), "no checkpoint of step 7"),
                           (("other",), "want [OPTION …] FOLDER")):
            self.assertIn(text, self.tutti("prune", self.folder, *args, code=2))
        self.assertEqual(self.steps(), [1, 2])


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} and the metadata, by what the format says."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__")
    end = 0
    for one in sorted(header.values(), key=lambda one: one["data_offsets"]):
        assert one["data_offsets"][0] == end, header
        end = one["data_offsets"][1]
    assert end == len(data)
    return {name: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])])
            for name, one in header.items()}, metadata


def expected_bytes(name):
    """All elements of a tensor of layout_testing.h."""
    dtype, shape, size = TENSORS[name]
    numel = 1
    for length in shape:
        numel *= length
    values = [value_of(name, element) for element in range(numel)]
    if dtype == "bf16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{numel}{ {'f32': 'f', 'f64': 'd', 'i64': 'q'}[dtype]}", *values)


class Merge(Checkpoints):
    def check(self, path, names=tuple(TENSORS)):
        tensors, metadata = read_safetensors(path)
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(set(tensors), set(names))
        for name, (dtype, shape, data) in tensors.items():
            self.assertEqual((dtype.lower(), shape), TENSORS[name][:2])
            self.assertEqual(data, expected_bytes(name), name)
        try:
            import safetensors
        except ImportError:
            return
        with safetensors.safe_open(path, framework="numpy") as file:
            self.assertEqual(set(file.keys()), set(names))

    def test_one_file_of_every_layout(self):
        out = self.folder + "/out.safetensors"
        for layout in ("replicated", "rows", "columns", "intervals", "grid", "in_turn"):
            path = save(self.enterContext(tempfile.TemporaryDirectory(dir=SHELF)), layout, 4)
            self.assertEqual(self.tutti("merge", path, out), f"{out}: written\n")
            self.check(out)
        self.assertEqual(self.json("merge", path, out),
                         {"from": path, "format": "checkpoint", "step": 1, "to": out})
        self.assertEqual(self.json("diff", path, out)["same"], True)
        found = self.json("show", out)
        self.assertEqual((found["format"], found["path"]), ("safetensors", out))
        self.assertIn("readable: 6 tensors, 86.0 KiB; safetensors has no digests",
                      self.tutti("verify", out))

    def test_shards_as_hugging_face_has_them(self):
        path, out = save(self.folder, "grid", 4), self.folder + "/new/model"
        self.tutti("merge", path, out, "--shard-size", "950B")
        with open(out + "/model.safetensors.index.json", encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual(index["metadata"], {"total_size": BYTES})
        files = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
        self.assertEqual(index["weight_map"], {
            "embedding": files[0], "cube": files[1], "row": files[1], "scalar": files[1],
            "counts": files[2], "empty": files[2]})
        self.assertEqual(sorted(os.listdir(out)), files + ["model.safetensors.index.json"])
        for file in files:
            self.check(os.path.join(out, file), [name for name, where in
                                                 index["weight_map"].items() if where == file])
        self.assertEqual(self.json("diff", path, out)["same"], True)

    def test_units_of_sizes(self):
        path = save(self.folder)
        files = {"88060": 1, "88059B": 2, "89kb": 1, "88KB": 2, "86KiB": 1, "85KiB": 2, "1MB": 1,
                 "1MiB": 1, "1GB": 1, "1GiB": 1}
        for size, count in files.items():
            out = self.folder + "/" + size
            self.tutti("merge", path, out, "--shard-size", size)
            self.assertEqual(sum(name.endswith(".safetensors") for name in os.listdir(out)), count)

    def test_a_folder_with_one_file(self):
        path, out = save(self.folder), self.folder + "/model"
        os.mkdir(out)
        with open(out + "/config.json", "w", encoding="utf-8"):
            pass
        self.tutti("merge", path, out)
        self.check(out + "/model.safetensors")
        self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors"])
        self.assertEqual(self.tutti("merge", path, out, code=2),
                         f"tutti checkpoint merge: merge: there is a model in {out} already "
                         "(model.safetensors): want another folder, or a new one\n")

    def test_what_the_optimizer_has_stays_out(self):
        out = self.folder + "/out.safetensors"
        path = save(self.folder, "rows", 2, 1, "name", "cube", "optim.cube")
        self.tutti("merge", path, out)
        self.check(out, set(TENSORS) - {"cube"})
        self.tutti("merge", path, out, "--all")
        self.assertIn("optim.cube", read_safetensors(out)[0])

    def test_nothing_but_the_optimizer_is_no_model(self):
        out = self.folder + "/out.safetensors"
        path = save(self.folder, "rows", 2, 1, "name", "cube", "optim.cube")
        only = self.folder + "/only.safetensors"
        self.tutti("merge", path, only, "--include", "optim.*")
        self.assertIn("all 1 tensors of " + only + ' belong to the optimizer ("optim.…"), which is '
                      "left out: want --all", self.tutti("merge", only, out, code=2))
        self.assertFalse(os.path.exists(out))
        self.tutti("merge", only, out, "--all")
        self.assertEqual(set(read_safetensors(out)[0]), {"optim.cube"})

    def test_a_signal_leaves_nothing(self):
        """It is there before the program begins, and held back."""
        path = save(self.folder, "rows", 2)
        def send():
            signal.pthread_sigmask(signal.SIG_BLOCK, [number])
            os.kill(os.getpid(), number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out = self.folder + "/out"
            os.mkdir(out)
            for command in (["merge", path, out + "/x.safetensors"],
                            ["merge", path, out, "--shard-size", "1KB"],
                            ["split", path, out, "-n", "3"]):
                done = subprocess.run([TUTTI, "checkpoint", *command], preexec_fn=send,
                                      capture_output=True, text=True, timeout=DEADLINE)
                self.assertEqual(done.returncode, -number)
                self.assertIn("stopped by its caller: nothing is written", done.stderr)
                self.assertEqual([name for name in os.listdir(out) if name != ".lock"], [])
            shutil.rmtree(out)

    def test_damage_leaves_nothing(self):
        path = save(self.folder, "rows", 2)
        file = path + "/rank-00001-0.safetensors"
        flip(file, os.stat(file).st_size - 1)
        out = self.folder + "/out"
        os.mkdir(out)
        self.assertIn("rank-00001-0.safetensors: damaged: tensor",
                      self.tutti("merge", path, out + "/x.safetensors", code=2))
        self.assertEqual(os.listdir(out), [])

    def test_mistakes(self):
        path = save(self.folder)
        for size in ("", "0", "5 GB", "GB", "1TB", "-1", "99999999999GB"):
            self.assertIn("want a size, as in 5GB or 512MiB",
                          self.tutti("merge", path, self.folder + "/out", "--shard-size=" + size,
                                     code=2))
        self.assertFalse(os.path.exists(self.folder + "/out"))
        self.assertIn("No such file or directory",
                      self.tutti("merge", path, self.folder + "/none/x.safetensors", code=2))


class Split(Checkpoints):
    def test_rows_of_each_rank(self):
        path = save(self.folder, "in_turn", 2, 40, "text", "words", "a b c", "text", "more", "")
        out = self.folder + "/out"
        self.assertEqual(self.json("split", path, out, "--ranks", "3"),
                         {"from": path, "format": "checkpoint", "step": 40, "to": out})
        found = self.json("show", out)
        self.assertEqual((found["path"], found["step"], found["ranks"], found["texts"]),
                         (step_of(out, 40), 40, 3, {"words": "a b c", "more": ""}))
        parts = {one["name"]: [(part["rank"], part["offset"], part["size"])
                               for part in one["slices"]] for one in found["tensors"]}
        self.assertEqual(parts, {
            "embedding": [(0, [0, 0], [104, 70]), (1, [104, 0], [104, 70]),
                          (2, [208, 0], [103, 70])],
            "cube": [(0, [0, 0, 0], [1, 4, 6]), (1, [1, 0, 0], [1, 4, 6]),
                     (2, [2, 0, 0], [1, 4, 6])],
            "row": [(0, [0, 0], [1, 5])], "scalar": [(0, [], [])],
            "counts": [(0, [0], [34]), (1, [34], [34]), (2, [68], [33])], "empty": []})
        self.assertIs(self.json("verify", out)["whole"], True)
        self.assertEqual(self.json("diff", path, out)["same"], True)

    def test_other_formats(self):
        path, file = save(self.folder, "grid", 4), self.folder + "/x.safetensors"
        self.tutti("merge", path, file)
        self.tutti("split", file, self.folder + "/two", "-n", "2")
        self.assertEqual(self.json("show", self.folder + "/two")["step"], 0)
        self.assertEqual(self.json("diff", path, self.folder + "/two")["same"], True)

    def test_damage_leaves_nothing(self):
        path, out = save(self.folder), self.folder + "/out"
        flip(path + "/rank-00001-0.digests", 5)
        self.assertIn("damaged: the digests of tensor", self.tutti("split", path, out, code=2))
        self.assertEqual(self.json("list", out)["steps"], [])
        self.assertIn("--ranks", self.tutti("split", path, out, "--ranks", "0", code=2))

    def test_a_step_of_the_same_folder_is_replaced(self):
        path = save(self.folder, "rows", 4, 7)
        self.tutti("split", self.folder, self.folder, "--ranks", "2")
        self.assertEqual(self.json("show", path)["ranks"], 2)
        self.assertIs(self.json("verify", self.folder)["whole"], True)


class Convert(Checkpoints):
    """The golden files have one model: as Hugging Face writes it, and as llm.c does."""
    HF, LLMC = (os.path.join(GOLDEN, name) for name in ("gpt2_hf.safetensors", "gpt2.bin"))

    def names_apart(self, a, b):
        """(only in a, only in b) of two that have the same values."""
        found = self.json("diff", a, b, code=1)
        self.assertEqual(found["elements"], 0)
        return [[one["name"] for one in found["differences"] if one[side] is None]
                for side in ("b", "a")]

    def test_to_our_names(self):
        masks = [f"transformer.h.{layer}.attn.bias" for layer in (0, 1)]
        for out, args in (("/x.safetensors", ()), ("/hf", ()), ("/hf2", ("--shard-size", "9KB")),
                          ("/ours", ("--to", "checkpoint", "--ranks", "3"))):
            self.tutti("convert", self.HF, self.folder + out, "--names", "tutti", *args)
            self.assertEqual(self.names_apart(self.folder + out, self.LLMC), [masks, []])
        self.assertEqual(self.json("show", self.folder + "/ours")["ranks"], 3)
        self.assertEqual(self.json("show", self.folder + "/hf2")["format"], "Hugging Face")
        self.assertEqual(self.json("show", self.folder + "/ours", "head.weight")["tensors"][0]
                         ["shape"], [21, 16])

    def test_to_hugging_face(self):
        masks = [f"transformer.h.{layer}.attn.bias" for layer in (0, 1)]
        out = self.folder + "/hf"
        self.assertEqual(self.json("convert", self.LLMC, out, "--names", "gpt2"),
                         {"from": self.LLMC, "format": "llm.c", "step": 0, "to": out})
        self.assertEqual(self.names_apart(out, self.HF), [["lm_head.weight"], masks])
        with open(os.path.join(out, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["transformer.h.1.mlp.c_fc.weight"]["shape"], [16, 64])
        self.tutti("convert", out, self.folder + "/back", "--to", "checkpoint", "--names", "tutti")
        self.assertIs(self.json("diff", self.folder + "/back", self.LLMC)["same"], True)

    def test_names_are_kept(self):
        self.tutti("convert", self.HF, self.folder + "/ours", "--to", "checkpoint")
        self.assertIs(self.json("diff", self.folder + "/ours", self.HF)["same"], True)
        path = save(self.folder, "grid", 4, 9)
        self.tutti("convert", self.folder, self.folder + "/x.safetensors")
        self.assertIs(self.json("diff", path, self.folder + "/x.safetensors")["same"], True)

    def test_mistakes(self):
        for args, text in ((("x", "--to", "safetensors"), "want OUT to be called NAME.safeten"),
                           (("x.safetensors", "--to", "huggingface"), "want OUT to be a folder"),
                           (("x.safetensors", "--to", "checkpoint"), "want OUT to be a folder"),
                           (("x", "--names", "gpt3"), "gpt3")):
            self.assertIn(text, self.tutti("convert", self.HF, self.folder + "/" + args[0],
                                           *args[1:], code=2))
        twice = save(self.folder, "rows", 1, 1, "name", "row", "head.weight", "name", "cube",
                     "lm_head.weight")
        self.assertIn('two tensors would be called "lm_head.weight"',
                      self.tutti("convert", twice, self.folder + "/x", "--names", "gpt2", code=2))
        flat = save(self.folder, "rows", 1, 2, "name", "counts", "blocks.0.up.weight")
        self.assertIn('"blocks.0.up.weight" is to be transposed, and no matrix',
                      self.tutti("convert", flat, self.folder + "/x", "--names", "gpt2", code=2))
        self.assertFalse(os.path.exists(self.folder + "/x"))


class Form(Checkpoints):
    def test_help_and_mistakes(self):
        self.assertIn("verbs:\n  list ", self.tutti("--help"))
        self.assertIn('did you mean "verify"', self.tutti("verfy", code=2))
        self.assertIn("usage: tutti checkpoint VERB", self.tutti(code=2))
        for verb in ("list", "show", "verify", "diff", "prune", "merge", "split", "convert"):
            self.assertIn(f"usage: tutti checkpoint {verb} [OPTION …] ",
                          self.tutti(verb, "--help"))
            self.assertIn("want [OPTION …] ", self.tutti(verb, code=2))
            self.assertIn("the nearest is --json", self.tutti(verb, "--jsn", code=2))

    def test_progress_is_for_terminals(self):
        path = save(self.folder)
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        done = subprocess.run([TUTTI, "checkpoint", "verify", path], stdout=subprocess.PIPE,
                              stderr=theirs, timeout=DEADLINE)
        os.close(theirs)
        shown = ""
        while not shown.endswith("\r\x1b[K"):  # an error behind what was written
            shown += os.read(ours, 65536).decode()
        self.assertIn("\rverify: 100 %, 86.0 KiB of 86.0 KiB", shown)
        self.assertEqual(done.stdout.decode(), f"{path}: whole: 6 tensors, 86.0 KiB\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
