"""The tables of docs/formats add up: no holes, nothing twice, aligned numbers."""
import glob
import os
import re
import unittest

from layouts import FORMATS, Layout, document, tables

SOURCE = os.environ["TUTTI_SOURCE_DIR"]

# {document: {table: (bytes, holes that alignment makes)}}
EXPECTED = {
    "shm.md": {"datagram": 64, "rank-block": 132, "flag-block": 21760 + 24 * 3, "record": 64,
               "slot": 2048, "descriptor": 64, "ring": 256 + 131072, "block-flags": 24,
               "head": 256},
    "frame.md": {"peer-info": 128, "refusal": 128, "hello": 48, "goaway": 16, "frame": 104,
                 "message": 64},
    "store.md": {"request": 32, "reply": 24, "file": 32},
    "channel.md": {"record": 8},
}
HOLES = {"flag-block": [(16392, 16512), (16520, 16640), (16672, 16768), (16776, 16896),
                        (16904, 17024)],
         "ring": [(8, 128), (136, 256)]}
RANKS = 3


class Tables(unittest.TestCase):
    def test_sizes_and_offsets_add_up(self):
        for name, layouts in EXPECTED.items():
            for which, count in layouts.items():
                with self.subTest(name=name, table=which):
                    layout = Layout(name, which, RANKS)
                    self.assertEqual(layout.bytes, count)
                    self.assertEqual(layout.misaligned(), [])
                    self.assertEqual(layout.gaps(), HOLES.get(which, []))

    def test_every_table_with_offsets_is_checked(self):
        for name in sorted(os.listdir(FORMATS)):
            offsets = len(re.findall(r"^\| offset \|", document(name), re.MULTILINE))
            self.assertEqual(offsets, len(EXPECTED.get(name, {})), name)

    def test_numbers_are_those_of_the_lists_in_the_sources(self):
        rows = tables("shm.md")["numbers"]
        for column, name in ((1, "collectives.def"), (2, "dtype.h"), (3, "collectives.h")):
            path, = glob.glob(os.path.join(SOURCE, "src", "**", name), recursive=True) or \
                glob.glob(os.path.join(SOURCE, "include", "**", name), recursive=True)
            with open(path, encoding="utf-8") as file:
                names = re.findall(r'^ *X\(\w+, "(\w+)"', file.read(), re.MULTILINE)
            listed = [row[column].strip("`") for row in rows if row[column]]
            self.assertEqual(listed, names, name)
        self.assertEqual([int(row[0]) for row in rows], list(range(len(rows))))


if __name__ == "__main__":
    unittest.main(verbosity=2)
