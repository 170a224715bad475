"""The mpi engine on 1, 2, 3 and 5 ranks of every MPI, by messages and by MPI's own collectives."""
import unittest

from mpi_test import CONFORM, MpiTest, available, mpirun


class Ranks(MpiTest):
    def test_by_messages(self):
        for flavour in available():
            for ranks in 1, 3, 5:
                with self.subTest(flavour=flavour, ranks=ranks):
                    self.check(mpirun(flavour, ranks, CONFORM, 'canonical'), ranks)

    def test_by_mpis_own_collectives(self):
        for flavour in available():
            for ranks in 2, 3, 5:
                with self.subTest(flavour=flavour, ranks=ranks):
                    self.check(mpirun(flavour, ranks, CONFORM, TUTTI_MPI_EXCHANGE='1'), ranks)

    def test_faults(self):
        for flavour in available():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 3, CONFORM, 'faults'), 3)


if __name__ == '__main__':
    unittest.main()
