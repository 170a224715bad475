"""PyTorch's own samples of the operations that we have, from the database that its tests walk:
forward and backward in f64, f32 and bf16, against PyTorch's values in f64 (make_samples.py).

Prints for each operation how many passed, failed and were left out, with the reasons. Runs itself
again under the Python of build/peers/torch, as peers_long_test.py; where that cannot be had the
test is left out and says why. Minutes."""
import collections
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

SOURCES = os.environ["TUTTI_SOURCE_DIR"]
PEER = os.path.join(SOURCES, "build", "peers", "torch")
DEADLINE = 1200
AT_LEAST = 5000

if __name__ == "__main__" and sys.prefix != PEER:
    print("installing", flush=True)
    if subprocess.run([os.path.join(SOURCES, "tools", "peers"), "torch"],
                      env={**os.environ, "PEERS_FOLDER": os.path.dirname(PEER)}).returncode == 0:
        python = os.path.join(PEER, "bin", "python")
        os.execv(python, [python, *sys.argv])
    print("test_samples ... skipped 'torch, expecttest and scipy cannot be installed'")
    sys.exit(0)

sys.path.insert(0, os.path.join(SOURCES, "tests", "golden"))
sys.dont_write_bytecode = True
import make_samples

PROGRAM = os.path.join(os.environ["TUTTI_BINARY_DIR"], "tests", "golden_samples_test")


def lines_of(path):
    done = subprocess.run([PROGRAM], env={**os.environ, "TUTTI_SAMPLES": path},
                          capture_output=True, text=True, timeout=DEADLINE)
    return [line.split(": ", 1) for line in done.stdout.split("\n") if "#" in line]


class Samples(unittest.TestCase):
    def test_samples(self):
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "samples.safetensors")
            left_out = make_samples.write(path)
            lines = lines_of(path)
        passed, failed = collections.Counter(), collections.Counter()
        for name, outcome in lines:
            op = name.split("#")[0]
            (passed if outcome == "passed" else failed)[op] += 1
            if outcome != "passed":
                print(name, outcome)
        for op in sorted({*passed, *failed, *left_out}):
            reasons = ", ".join(f"{count} {reason}" for reason, count in left_out[op].items())
            print(f"{op}: {passed[op]} passed, {failed[op]} failed, "
                  f"{sum(left_out[op].values())} left out" + (f" ({reasons})" if reasons else ""))
        out = sum(sum(reasons.values()) for reasons in left_out.values())
        print(f"all: {sum(passed.values())} passed, {sum(failed.values())} failed, {out} left out")
        self.assertEqual(sum(failed.values()), 0)
        self.assertGreater(sum(passed.values()), AT_LEAST)


if __name__ == "__main__":
    unittest.main()
