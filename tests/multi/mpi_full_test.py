"""The mpi engine on 1 to 6 ranks of every MPI, by messages and by MPI's own collectives."""
import time
import unittest

from mpi_test import CONFORM, MpiTest, available, mpirun


class Ranks(MpiTest):
    def test_by_messages(self):
        for flavour in available():
            for ranks in 1, 2, 3, 6:
                with self.subTest(flavour=flavour, ranks=ranks):
                    self.check(mpirun(flavour, ranks, CONFORM, 'canonical'), ranks)

    def test_by_mpis_own_collectives(self):
        for flavour in available():
            for ranks in 2, 3, 5:
                with self.subTest(flavour=flavour, ranks=ranks):
                    self.check(mpirun(flavour, ranks, CONFORM, TUTTI_MPI_EXCHANGE='1'), ranks)

    def test_with_checks(self):
        """MPI's own collectives are left out, so that the sums are canonical."""
        for flavour in available():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 3, CONFORM, 'canonical', TUTTI_MPI_CHECK='1',
                                  TUTTI_MPI_EXCHANGE='1'), 3)
                self.check(mpirun(flavour, 3, CONFORM, 'mismatches', TUTTI_MPI_CHECK='1'), 3)

    def test_faults(self):
        for flavour in available():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 3, CONFORM, 'faults'), 3)

    def test_ranks_that_know_of_a_failure_end_with_those_that_do_not(self):
        for flavour in available():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 3, CONFORM, 'pair'), 3)

    def test_a_rank_that_does_not_join_holds_nobody_up(self):
        for flavour in available():
            with self.subTest(flavour=flavour):
                begin = time.monotonic()
                done = mpirun(flavour, 2, CONFORM, 'absent')
                self.assertIn('rank 1 of 2: rank 0 has not joined', done.stdout, done.stderr)
                self.assertLess(time.monotonic() - begin, 40, 'it waited for rank 0 at its end')


if __name__ == '__main__':
    unittest.main(verbosity=2)
