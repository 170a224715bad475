"""torchrun for real, whose agent has a store of its own or none."""
import tempfile
import unittest

from launchers_test import PROGRAM, Checks, listener, need


class Torchrun(Checks):
    def test_static_and_c10d(self):
        need("torchrun")
        with listener() as probe:
            port = probe.getsockname()[1]
        for place in (["--master_port", str(port)],
                      ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]):
            # -r 1 -t 1: what torch 1.13 does by default fails under Python 3.11.
            with tempfile.TemporaryDirectory() as logs:
                result = self.run_command("torchrun", "--no_python", "--nproc_per_node", "2", "-r",
                                          "1", "-t", "1", "--log_dir", logs, *place, PROGRAM)
            if "No module named" in result.stderr:
                self.skipTest(result.stderr.strip().splitlines()[-1])
            self.check_output(result, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
