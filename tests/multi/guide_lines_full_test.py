"""The command lines of the guide that need other launchers, a scheduler or much time are run as
they stand there: under Open MPI, torchrun and a real slurmctld."""
import os
import shutil
import subprocess
import unittest

import slurm_cluster
from guide_lines import BINARY, FULL, SOURCE, Place, claimed, sums

BENCH, MPIRUN, OVER_MPI, SRUN, TORCHRUN, DIGESTS, PROGRAM = FULL
# As root, and more ranks than cores: what Open MPI wants to be told.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Lines(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(Place())
        code, _, err = self.place.run("tutti key job.key")
        self.assertEqual(code, 0, err)

    def check(self, end, ranks):
        code, out, err = end
        self.assertEqual(code, 0, out + err)
        for text in sums(ranks):
            self.assertIn(text, out, err)

    def need(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not installed")

    def test_measuring(self):
        """One session: later lines read what earlier ones have written."""
        for line in claimed(BENCH):
            code, out, err = self.place.run(line)
            self.assertEqual(code, 0, line + out + err)
        self.assertTrue(os.path.getsize(self.place.path("tune")))

    def test_programs_of_the_source_exist_and_know_their_arguments(self):
        """What they do takes minutes: digest_full_test.sh and make bench are about that."""
        for line in claimed(PROGRAM) + claimed(DIGESTS):
            program, *arguments = line.split()
            done = subprocess.run([os.path.join(SOURCE, program), *arguments, "--help"], text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_mpirun(self):
        self.need("mpirun.openmpi")
        os.symlink(shutil.which("mpirun.openmpi"), self.place.path("bin", "mpirun"))
        for line in claimed(MPIRUN):
            self.check(self.place.run(line, **OPEN_MPI), 8 if "-n 8" in line else 4)

    def test_a_plug_in_for_another_mpi(self):
        """A session: the second line loads what the first one has made."""
        for name in "mpicc", "mpirun":
            self.need(name + ".openmpi")
            os.symlink(shutil.which(name + ".openmpi"), self.place.path("bin", name))
        os.symlink(os.path.join(SOURCE, "src"), self.place.path("src"))
        os.mkdir(self.place.path("plugins"))
        make, start = claimed(OVER_MPI)
        code, out, err = self.place.run(make)
        self.assertEqual(code, 0, out + err)
        code, out, err = self.place.run("tutti info", TUTTI_PLUGINS="plugins", LD_DEBUG="files")
        self.assertIn("calling init: plugins/libtutti_mpi_openmpi.so", err)
        self.assertIn("Open MPI v", out)
        self.check(self.place.run(start, **OPEN_MPI), 4)

    def test_torchrun(self):
        self.need("torchrun")
        for line in claimed(TORCHRUN):
            # -r 1 -t 1: what torch 1.13 does by default fails under Python 3.11.
            end = self.place.run(line.replace("./train", "-r 1 -t 1 --log_dir logs ./train"))
            if "No module named" in end[2]:
                self.skipTest(end[2].strip().splitlines()[-1])
            self.check(end, 4)


@unittest.skipIf(slurm_cluster.why_not(), slurm_cluster.why_not())
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(slurm_cluster.Cluster())

    def test_srun(self):
        """In a job of one node, as a script: $SLURM_NNODES and the like are the job's."""
        with Place() as place:
            for line in claimed(SRUN):
                ranks = 4 if "-n 4" in line else 8
                output = self.cluster.path("guide.out")
                script = "\n".join([
                    "#!/bin/bash", f"cd {place.folder.name}", f"export HOME={place.folder.name}",
                    f"export PATH={BINARY}/bin:$PATH SLURM_OVERCOMMIT=1",
                    "[ -e job.key ] || tutti key job.key", line, ""])
                done = self.cluster.run("sbatch", "-N", "1", "-O", "--wait", "-o", output,
                                        input=script)
                with open(output) as file:
                    text = file.read()
                self.assertEqual(done.returncode, 0, line + done.stderr + text)
                for one in sums(ranks):
                    self.assertIn(one, text, line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
