"""`bench/run ops`: its table of shapes names the operations of both sides, and both agree."""
import contextlib
import glob
import io
import os
import re
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import compute_measures  # noqa: E402
import op_shapes  # noqa: E402
import ops_measures  # noqa: E402


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Table(unittest.TestCase):
    def test_has_twenty_shapes_of_each_operation(self):
        for name, shapes in op_shapes.SHAPES.items():
            self.assertEqual(len(set(shapes)), 20, name)

    def test_names_what_both_sides_know(self):
        folder = os.path.join(SOURCE, "bench")
        ours = [name for path in glob.glob(os.path.join(folder, "op_speed", "*.c"))
                for name in re.findall(r'^    \{"(\w+)", ', read(path), re.MULTILINE)]
        peer = read(os.path.join(folder, "peers", "torch_ops.py"))
        theirs = re.findall(r"^    '(\w+)': \(", peer, re.MULTILINE)
        self.assertEqual(sorted(ours), sorted(op_shapes.SHAPES))
        self.assertEqual(sorted(theirs), sorted(op_shapes.SHAPES))


class Comparison(unittest.TestCase):
    SAME = {"count": 2, "result": [1, 3], "gradients": [0, 0], "second": [0, 0]}

    def test_finds_other_results(self):
        ops_measures.compare("sort 2", self.SAME, self.SAME)
        for what, value in (("count", 3), ("result", [1.01, 3]), ("gradients", [0.1, 0.1]),
                            ("second", [2, 2])):
            with self.assertRaises(compute_measures.NotYet, msg=what):
                ops_measures.compare("sort 2", {**self.SAME, what: value}, self.SAME)

    def test_lets_draws_differ(self):
        ops_measures.compare("multinomial 2", {**self.SAME, "result": [2, 3]}, self.SAME)


class Peers(unittest.TestCase):
    def test_agree_on_every_operation(self):
        try:
            sides = ops_measures.Sides()
        except compute_measures.NotYet as why:
            self.skipTest(str(why))
        with contextlib.closing(sides), contextlib.redirect_stdout(io.StringIO()):
            for name, shapes in op_shapes.SHAPES.items():
                words = " ".join(map(str, (name, *shapes[0])))
                ops_measures.compare(words, sides.ours.case(words), sides.theirs.case(words))
            ratios = sides.ratios("glu", (32, 256), 2)
        self.assertGreater(min(ratios), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
