"""PyTorch's own samples of the operations and modules that we have, from the databases that its
tests walk: forward and backward in f64, f32 and bf16, against PyTorch's values in f64
(make_samples.py).

Prints for each how many passed, failed and were left out, with the reasons, and sums. Runs itself
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
AT_LEAST = 16000

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


def outcome_of(counts, reasons):
    text = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    return (f"{counts['passed']} passed, {counts['failed']} failed, "
            f"{reasons.total()} left out" + (f" ({text})" if text else ""))


def sums_of(counts, left_out, has):
    """Over all (name, dtype) that a function accepts, without the reasons."""
    out = sum((reasons.total() for key, reasons in left_out.items() if has(*key)), 0)
    passed, failed = (sum(c[what] for key, c in counts.items() if has(*key))
                      for what in ("passed", "failed"))
    return f"{passed} passed, {failed} failed, {out} left out"


def tell(counts, left_out):
    names = sorted({name for name, _ in [*counts, *left_out]})
    for name in names:
        print(name + ":", outcome_of(*(sum((table.get((name, dtype), collections.Counter())
                                            for dtype in make_samples.DTYPES),
                                           collections.Counter()) for table in (counts, left_out))))
    for kind, is_kind in (("operations", lambda n: not make_samples.is_module(n)),
                          ("modules", make_samples.is_module)):
        for dtype in make_samples.DTYPES:
            print(f"all {kind} in {dtype}:",
                  sums_of(counts, left_out, lambda n, d: is_kind(n) and d == dtype))
        print(f"all {kind}:", sums_of(counts, left_out, lambda n, d: is_kind(n)))


class Samples(unittest.TestCase):
    def test_samples(self):
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "samples.safetensors")
            left_out = make_samples.write(path)
            lines = lines_of(path)
        counts = collections.defaultdict(collections.Counter)
        for name, outcome in lines:
            theirs, _, dtype = name.split("#")
            counts[theirs, dtype]["passed" if outcome == "passed" else "failed"] += 1
            if outcome != "passed":
                print(name, outcome)
        tell(counts, left_out)
        self.assertEqual(sum(c["failed"] for c in counts.values()), 0)
        self.assertGreater(sum(c["passed"] for c in counts.values()), AT_LEAST)


if __name__ == "__main__":
    unittest.main()
