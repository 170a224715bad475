"""`bench/run compute`: the interval of a median; layers in turns with PyTorch of tools/peers."""
import contextlib
import io
import os
import random
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import compute_measures  # noqa: E402


class Interval(unittest.TestCase):
    def test_is_that_of_the_tables(self):
        """n = 20: the 6th and the 15th of the sorted values, as every table has it."""
        self.assertEqual(compute_measures.interval(list(range(1, 21))), (6, 15))
        self.assertEqual(compute_measures.interval([3, 1, 2]), (1, 3))

    def test_holds_the_median_in_95_of_100_cases(self):
        draw = random.Random(1)
        held = 0
        for _ in range(2000):
            low, high = compute_measures.interval([draw.random() for _ in range(20)])
            held += low <= 0.5 <= high
        self.assertGreater(held, 1900)


class Peers(unittest.TestCase):
    def setUp(self):
        try:
            compute_measures.has_torch()
        except compute_measures.NotYet as why:
            self.skipTest(str(why))

    def test_take_turns_with_each_kind_of_layer(self):
        layers = (("lstm", 8, 16, 2, 4, 3), ("conv", 2, 16, 32, 8, 3, 2), ("pool", 2, 8, 7))
        for arguments in layers:
            with contextlib.redirect_stdout(io.StringIO()):
                ratios = compute_measures.layer(*arguments)(1)
            self.assertEqual(len(ratios), 1, arguments)
            self.assertGreater(min(ratios), 0, arguments)


if __name__ == "__main__":
    unittest.main(verbosity=2)
