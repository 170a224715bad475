"""The same program under the variables of torchrun and Slurm, and under Open MPI and MPICH."""
import json
import os
import shutil
import socket
import subprocess
import unittest

import jobs

GPT = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "gpt")
PROGRAM = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "04_all_reduce")
DEADLINE = 60
SUMS = {2: "the sum is 3 3 3 3", 3: "the sum is 6 6 6 6"}

# What a launcher around these tests may have set.
FOREIGN = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MPI_LOCAL", "TUTTI_KEY")
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(FOREIGN) and name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR",
                                                          "MASTER_PORT", "LOCAL_WORLD_SIZE")}


def run_ranks(environments):
    """One process for each environment, all at once: [(code, stdout, stderr)]."""
    ranks = [subprocess.Popen([PROGRAM], env={**CLEAN, **e}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) for e in environments]
    return list(zip(*jobs.end(ranks)))


def listener():
    """Somebody else's server, such as torchrun's own store."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def need(*names):
    for name in names:
        if shutil.which(name) is None:
            raise unittest.SkipTest(f"{name} is not installed")


class Checks(unittest.TestCase):
    def check_ends(self, ends):
        for rank, (code, out, err) in enumerate(ends):
            self.assertEqual(code, 0, err)
            self.assertIn(f"rank {rank}: {SUMS[len(ends)]}", out)

    def check_output(self, result, ranks):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for rank in range(ranks):
            self.assertIn(f"rank {rank}: {SUMS[ranks]}", result.stdout)

    def run_command(self, *args):
        return subprocess.run(args, env=CLEAN, text=True, capture_output=True, timeout=DEADLINE)


class Variables(Checks):
    def torchrun(self, port, **more):
        return [{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), **more,
                 "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "localhost",
                 "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"} for rank in range(2)]

    def test_torchrun_without_a_store_of_its_agent(self):
        with listener() as probe:
            port = probe.getsockname()[1]
        self.check_ends(run_ranks(self.torchrun(port, TORCHELASTIC_USE_AGENT_STORE="False")))

    def test_torchrun_whose_store_listens_at_the_port(self):
        with listener() as foreign:
            port = foreign.getsockname()[1]
            self.check_ends(run_ranks(self.torchrun(port, TORCHELASTIC_USE_AGENT_STORE="True")))

    def test_a_taken_port_does_no_harm_on_one_host(self):
        with listener() as foreign:
            self.check_ends(run_ranks(self.torchrun(foreign.getsockname()[1])))

    def test_jobs_side_by_side_do_not_meet(self):
        for port in (21000, 21001):
            self.check_ends(run_ranks(self.torchrun(port)))
        both = run_ranks(self.torchrun(21002) + self.torchrun(21003))
        self.check_ends(both[:2])
        self.check_ends(both[2:])

    def test_slurm_in_a_step_and_in_a_batch_script(self):
        step = [{"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "3", "SLURM_JOB_ID": "77",
                 "SLURM_STEP_ID": "1", "SLURM_STEP_TASKS_PER_NODE": "3", "SLURM_NODEID": "0",
                 "SLURM_LOCALID": str(rank)} for rank in range(3)]
        self.check_ends(run_ranks(step))
        batch = run_ranks([{"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_JOB_ID": "77"}])
        self.assertIn("rank 0: the sum is 1 1 1 1", batch[0][1])

    def test_several_hosts_without_an_address_are_refused(self):
        ends = run_ranks([{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4",
                           "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}])
        self.assertNotEqual(ends[0][0], 0)
        for text in ("rank 0 of 4", "Open MPI", "MASTER_ADDR", "TUTTI_KEY_FILE"):
            self.assertIn(text, ends[0][2])


class Real(Checks):
    def test_open_mpi(self):
        need("mpirun.openmpi")
        flags = ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        self.check_output(self.run_command("mpirun.openmpi", *flags, "-n", "3", PROGRAM), 3)

    def test_mpich_with_a_shell_between(self):
        need("mpirun.mpich")
        self.check_output(self.run_command("mpirun.mpich", "-n", "3", PROGRAM), 3)
        script = f"true; {PROGRAM}; exit $?"
        self.check_output(self.run_command("mpirun.mpich", "-n", "2", "sh", "-c", script), 2)

    def check_threads(self, *launch):
        """Two ranks share the cores, bound to them or not."""
        result = self.run_command(*launch, GPT, "--bench", "--steps", "2", "--layers", "1",
                                  "--width", "32", "--heads", "2", "--context", "16")
        self.assertEqual(result.returncode, 0, result.stderr)
        threads = json.loads(result.stdout)["threads"]
        self.assertLessEqual(2 * threads, max(2, len(os.sched_getaffinity(0))))

    def test_two_ranks_of_mpich_share_the_cores(self):
        need("mpirun.mpich")
        self.check_threads("mpirun.mpich", "-n", "2")
        self.check_threads("mpirun.mpich", "-n", "2", "env", "A=b")

    def test_two_ranks_of_open_mpi_share_the_cores(self):
        need("mpirun.openmpi")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for flags in (["--oversubscribe"], ["--oversubscribe", "--bind-to", "none"]):
            self.check_threads("mpirun.openmpi", *root, *flags, "-n", "2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
