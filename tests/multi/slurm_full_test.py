"""srun for real: the same program as tasks of a step, in a batch script, and under `tutti run`."""
import os
import time
import unittest

import slurm_cluster

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
PROGRAM = os.path.join(BIN, "04_all_reduce")
SUMS = {1: "the sum is 1 1 1 1", 2: "the sum is 3 3 3 3"}


@unittest.skipIf(slurm_cluster.why_not(), slurm_cluster.why_not())
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(slurm_cluster.Cluster())

    def check(self, text, ranks, errors=""):
        for rank in range(ranks):
            self.assertIn(f"rank {rank}: {SUMS[ranks]}", text, errors)

    def test_tasks_of_a_step_are_ranks(self):
        for mpi in ("none", "pmi2"):
            result = self.cluster.run("srun", f"--mpi={mpi}", "-O", "-n", "2", PROGRAM)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.check(result.stdout, 2)

    def test_two_steps_of_a_job_do_not_meet(self):
        script = f"srun -O -n 2 --overlap {PROGRAM} & srun -O -n 2 --overlap {PROGRAM} & wait"
        text = self.batch(script)
        self.assertEqual(text.count("rank 0: " + SUMS[2]), 2, text)
        self.assertEqual(text.count("rank 1: " + SUMS[2]), 2, text)

    def test_a_batch_script_itself_is_a_world_of_one(self):
        self.check(self.batch(PROGRAM), 1)

    def test_tutti_run_starts_a_tasks_ranks(self):
        result = self.cluster.run("srun", "-n", "1", os.path.join(BIN, "tutti"), "run", "-n", "2",
                                  PROGRAM)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check(result.stdout, 2)

    def batch(self, script):
        """What a batch script prints, when it has ended."""
        output = self.cluster.path(f"batch.{time.monotonic_ns()}")
        result = self.cluster.run("sbatch", "-n", "2", "-O", "--wait", "-o", output,
                                  input="#!/bin/sh\n" + script + "\n")
        with open(output) as file:
            text = file.read()
        self.assertEqual(result.returncode, 0, result.stderr + text)
        return text


if __name__ == "__main__":
    unittest.main(verbosity=2)
