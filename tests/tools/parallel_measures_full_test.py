"""`bench/run parallel`: what it says of plans, and that PyTorch's side runs, of tools/peers."""
import contextlib
import io
import os
import subprocess
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import compute_measures  # noqa: E402
import parallel_measures  # noqa: E402

TINY = ("--layers", "2", "--width", "32", "--heads", "4", "--context", "16", "--batch", "4",
        "--micro-batches", "4", "--steps", "2")


def report(values, goal, is_least):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        rows = compute_measures.Report(len(values))
        rows.row("name", "what", lambda rounds: values, goal, is_least)
    return rows.rows[0]["met"], said.getvalue().splitlines()[-1]


class Verdicts(unittest.TestCase):
    def test_a_goal_is_a_least_or_a_most(self):
        self.assertEqual(report([1.0, 1.1, 1.2], 1.25, True)[0], False)
        self.assertEqual(report([1.0, 1.1, 1.2], 1.15, True)[0], True)
        self.assertEqual(report([1.0, 1.1, 1.2], 0.95, False)[0], False)
        met, said = report([1.0, 1.1, 1.2], 1.05, False)
        self.assertTrue(met)
        self.assertRegex(said, r"1\.100 .*<= 1\.05  ok$")

    def test_rows_have_names_and_goals(self):
        rows = list(parallel_measures.rows())
        self.assertGreater(len(rows), 30)
        self.assertEqual({len(row) for row in rows}, {5})

    def test_a_plan_is_that_of_the_paper(self):
        if not os.path.exists(parallel_measures.TUTTI):
            self.skipTest("there is no release build")
        self.assertEqual(parallel_measures.simulated_zb_v(1), [75 / 72])


class Peers(unittest.TestCase):
    def setUp(self):
        try:
            compute_measures.has_torch()
        except compute_measures.NotYet as why:
            self.skipTest(str(why))

    def test_both_kinds_run(self):
        for kind in ("pp", "tp"):
            done = subprocess.run(
                [parallel_measures.PYTHON,
                 os.path.join(SOURCE, "bench", "peers", "torch_parallel.py"), kind, *TINY],
                capture_output=True, text=True, timeout=500,
                env={**os.environ, **compute_measures.ONE_THREAD}, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-500:])
            self.assertGreater(compute_measures.last_json(done.stdout, [kind])["step_ms"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
