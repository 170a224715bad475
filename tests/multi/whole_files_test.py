"""Saves of whole tensors as other programs read them: headers and bytes by hand; and `tutti
checkpoint` on them."""
import glob
import json
import os
import struct
import subprocess
import tempfile
import unittest

BINARIES = os.environ["TUTTI_BINARY_DIR"]
TUTTI = os.path.join(BINARIES, "bin", "tutti")
SAVE = os.path.join(BINARIES, "tests", "save_layout")
DEADLINE = 60
SHELF = "/dev/shm" if os.path.isdir("/dev/shm") else None  # saving waits for the disk
TENSORS = {"embedding": ("F32", [311, 70], "f"), "cube": ("BF16", [3, 4, 6], "H"),
           "row": ("F32", [1, 5], "f"), "scalar": ("F64", [], "d"), "counts": ("I64", [101], "q"),
           "empty": ("F32", [0, 3], "f")}


def save(folder, layout, ranks, *changes):
    done = subprocess.run([SAVE, folder, layout, str(ranks), "1", *changes], capture_output=True,
                          text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return os.path.join(folder, "step-000000000001")


def read(path):
    """The header of a safetensors file, and the bytes behind it."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), file.read()


def expected(name):
    """As layout_testing.h has it."""
    dtype, shape, code = TENSORS[name]
    count = 1
    for size in shape:
        count *= size
    values = [(element * 7 + ord(name[0])) % 251 for element in range(count)]
    if dtype == "BF16":
        values = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    return struct.pack(f"<{count}{code}", *values)


class WholeTensors(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=SHELF))

    def tutti(self, *args):
        done = subprocess.run([TUTTI, "checkpoint", *args], capture_output=True, text=True,
                              timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_every_tensor_is_in_one_file(self):
        for layout, ranks in (("rows", 3), ("grid", 4), ("intervals", 2), ("replicated", 2)):
            folder = os.path.join(self.folder, layout)
            seen = {}
            for path in glob.glob(save(folder, layout, ranks, "whole") + "/*.safetensors"):
                header, data = read(path)
                self.assertEqual(header.pop("__metadata__")["format"], "pt")
                ends = sorted(entry["data_offsets"] for entry in header.values())
                self.assertEqual([0, *(end for _, end in ends)],
                                 [*(begin for begin, _ in ends), len(data)])
                for name, entry in header.items():
                    self.assertNotIn(name, seen)
                    seen[name] = entry
                    self.assertEqual((entry["dtype"], entry["shape"]), TENSORS[name][:2])
                    begin, end = entry["data_offsets"]
                    self.assertEqual(data[begin:end], expected(name), (layout, name))
            self.assertEqual(seen.keys(), TENSORS.keys())

    def test_the_tools_take_them_as_any(self):
        whole, slices = (os.path.join(self.folder, name) for name in ("whole", "slices"))
        save(whole, "columns", 3, "whole")
        save(slices, "rows", 2)
        self.tutti("verify", whole)
        self.assertIn("complete", self.tutti("list", whole))
        shown = self.tutti("show", whole, "embedding", "--slices")
        self.assertIn("    [0:311, 0:70]  rank-", shown)
        self.assertTrue(json.loads(self.tutti("diff", whole, slices, "--json"))["same"])
        merged, split = (os.path.join(self.folder, name) for name in ("one.safetensors", "split"))
        self.tutti("merge", whole, merged)
        self.tutti("split", whole, split, "--ranks", "2")
        self.assertTrue(json.loads(self.tutti("diff", merged, slices, "--json"))["same"])
        self.assertTrue(json.loads(self.tutti("diff", split, slices, "--json"))["same"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
