"""`bench/run sharded`: the guide's formula, and the plan of a step over a slow wire."""
import os
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
sys.dont_write_bytecode = True
import sharded_measures  # noqa: E402

MS = sharded_measures.WIRE_BYTES_PER_MS
ROOT, BLOCK = 4 * MS, 10 * MS  # bytes, of which a half is sent: 2 and 5 ms


def step_ms(compute_ms, layers=3):
    return sharded_measures.simulated_ms(layers, int(BLOCK), int(ROOT), compute_ms)


class Formula(unittest.TestCase):
    FOUND = {"parameter_bytes": 1000, "largest_bytes": 5, "bucket_bytes": 10,
             "unit_bytes": 100, "root_bytes": 7}

    def bytes(self, stage, ranks):
        return sharded_measures.formula(stage, ranks, self.FOUND)

    def test_is_the_guides(self):
        self.assertEqual(self.bytes(0, 4), 5 + 1000 + 1000 + 2000)
        self.assertEqual(self.bytes(1, 4), 5 + 1000 + 1000 + 500)
        self.assertEqual(self.bytes(2, 4), 5 + 1000 + 250 + 30 + 500)
        self.assertEqual(self.bytes(3, 4), 5 + 250 + 250 + 30 + 7 + 200 + 500)

    def test_of_one_rank_divides_nothing(self):
        self.assertEqual(self.bytes(1, 1), self.bytes(0, 1))


class Plan(unittest.TestCase):
    """What `tutti explain sharded` simulates, asked as the measure asks it."""

    def test_that_computes_nothing_is_the_wire(self):
        """Each block comes twice, its gradients once; so does the root, but for its second time."""
        self.assertAlmostEqual(step_ms(0), 3 * 3 * 5 + 2 * 2, places=3)

    def test_that_computes_long_hides_all_but_the_ends(self):
        """The root and the first block before it, the first block's gradients and the root's behind
        it; the last block comes again beside the root's backward."""
        self.assertAlmostEqual(step_ms(9000), 9000 + 2 + 5 + 5 + 2, places=3)


class Names(unittest.TestCase):
    def test_are_those_of_the_goals(self):
        self.assertEqual(sharded_measures.NAMES,
                         ["memory", "host", "step3", "step1", "step2", "alone", "alone_cnn",
                          "torch", "wire", "plan", "offload", "budget"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
