"""`gpt` as users run it: the same bits on any layout, bad input, killed ranks, saved weights."""
import json
import math
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
DEADLINE = 110
# K of 100, 360 and 400 are no multiples of any block.
ODD = ["--layers", "1", "--width", "100", "--heads", "4", "--context", "90", "--batch", "1"]
TEXT = ("In the beginning God created the heaven and the earth. " * 400).encode()


def setUpModule():
    global folder, text
    folder = tempfile.TemporaryDirectory()
    text = path("text")
    with open(text, "wb") as file:
        file.write(TEXT)


def tearDownModule():
    folder.cleanup()


def path(name):
    return os.path.join(folder.name, name)


def run(*options, ranks=1, check=True, **environment):
    launcher = [TUTTI, "run", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, GPT, *options], text=True, capture_output=True,
                          timeout=DEADLINE, env={**os.environ, **environment})
    if check and done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done


def train(*options, ranks=1, steps=2, threads=1, seed=0, **environment):
    done = run("--data", text, *ODD, "--steps", str(steps), "--threads", str(threads), "--seed",
               str(seed), "--digest", *options, ranks=ranks, **environment)
    return re.search(r"digest ([0-9a-f]{32})\b", done.stdout, re.M).group(1)


class Bits(unittest.TestCase):
    def test_ranks_change_no_bit(self):
        expected = train("--shards", "12")
        for ranks in (2, 3, 4, 5):
            self.assertEqual(train("--shards", "12", ranks=ranks), expected, f"{ranks} ranks")

    def test_meshes_change_no_bit(self):
        cut = ["--shards", "2", "--tp-shards", "4", "--context", "88", "--dropout", "0.1"]
        expected = train(*cut)
        for ranks, mesh, *options in [(2, "tp=2", "--sequence-parallel"), (3, "tp=3"),
                                      (4, "dp=2,tp=2", "--sequence-parallel"), (2, "dp=2"),
                                      (4, "dp=2,tp=2", "--stage", "1"),
                                      (4, "dp=2,tp=2", "--stage", "3", "--unit", "block")]:
            self.assertEqual(train(*cut, "--mesh", mesh, *options, ranks=ranks), expected, mesh)

    def test_averages_of_weights_have_the_same_bits(self):
        """Kept in slices and parts, in checkpoints, and put aside for a validation."""
        plain = ("--shards", "2", "--tp-shards", "2", "--context", "88", "--schedule", "constant",
                 "--warmup", "0")
        average = (*plain, "--ema", "0.6")
        expected = train(*average, "--validate-every", "1", steps=3)
        self.assertEqual(train(*average, steps=3), expected)
        self.assertNotEqual(train(*plain, steps=3), expected)
        for i, more in enumerate((("--stage", "3"), ("--mesh", "tp=2"))):
            kept = ("--checkpoint", path(f"averages-{i}"), "--every", "1")
            train(*average, *kept, *more, "--validate-every", "1", ranks=2)
            self.assertEqual(train(*average, *kept, *more, "--resume", steps=3, ranks=2), expected)
        self.assertEqual(train(*average, *kept, "--resume", steps=3), expected)

    def test_rows_of_ranks_change_no_bit(self):
        expected = train("--shards", "4")
        self.assertEqual(train("--shards", "4", "--stage", "3", "--unit", "block", "--mesh",
                               "replicate=2,shard=2", ranks=4), expected)

    def test_units_that_stay_near_change_no_bit(self):
        near = ["--shards", "4", "--stage", "3", "--unit", "block", "--reshard-ranks"]
        self.assertEqual(train(*near, "2", ranks=4, TUTTI_SHARED_PARAMETERS="0"),
                         train("--shards", "4"))
        done = run("--data", text, *ODD, "--steps", "1", *near, "3", ranks=2, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("reshard_ranks is 3, and 2 ranks gather a unit: want a divisor of 2",
                      done.stdout + done.stderr)

    def test_sums_that_stay_sharded_change_no_bit(self):
        expected = train("--shards", "3")
        for stage in (["2"], ["3", "--unit", "block"]):
            self.assertEqual(train("--shards", "3", "--accumulate-gradients", "sharded", "--stage",
                                   *stage, ranks=2), expected, stage)

    def test_bad_meshes_are_named(self):
        for options, want in [(["--mesh", "dp=2,tq=1"], "--mesh dp=2,tq=1: want sizes such as"),
                              (["--mesh", "tp=2", "--tp-shards", "3"],
                               "4 units (heads) of 25 are not divisible by 3 shards"),
                              (["--mesh", "tp=2", "--kv-heads", "1"],
                               "1 heads of keys and values are not divisible by 2 shards")]:
            done = run("--data", text, *ODD, "--steps", "1", *options, ranks=2, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(want, done.stdout + done.stderr)

    def test_wires_and_algorithms_change_no_bit(self):
        expected = train("--shards", "12")
        self.assertEqual(train("--shards", "12", ranks=3, TUTTI_WIRES="tcp"), expected, "tcp")
        self.assertEqual(train("--shards", "12", ranks=2, TUTTI_WIRES="tcp",
                               TUTTI_ALGO="recursive_halving"), expected, "halving over tcp")
        self.assertEqual(train("--shards", "12", ranks=3, TUTTI_ALGO="pairwise"), expected,
                         "pairwise through shared memory")

    def test_state_on_a_disk_changes_no_bit(self):
        expected = train("--shards", "3")
        for ranks, *stage in [(1,), (2, "--stage", "1"), (3, "--stage", "2"),
                              (2, "--stage", "3", "--unit", "block")]:
            self.assertEqual(train("--shards", "3", "--offload", path("disk"), *stage,
                                   ranks=ranks), expected, stage)

    def test_weights_on_a_disk_change_no_bit(self):
        expected = train("--shards", "3")
        for ranks, *unit in [(1,), (2, "--unit", "block")]:
            self.assertEqual(train("--shards", "3", "--stage", "3", "--offload-parameters",
                                   path("disk"), *unit, ranks=ranks), expected, ranks)

    def test_threads_change_no_bit(self):
        expected = train("--shards", "2")
        for threads in (2, 4):
            self.assertEqual(train("--shards", "2", threads=threads), expected)

    def test_recomputation_changes_no_bit(self):
        dropout = ("--shards", "2", "--layers", "2", "--dropout", "0.2")
        expected = train(*dropout)
        self.assertEqual(train(*dropout, "--recompute"), expected)
        self.assertEqual(train(*dropout, "--recompute", ranks=2), expected)

    def test_bf16_has_the_same_bits_on_two_ranks(self):
        expected = train("--shards", "3", "--dtype", "bf16")
        self.assertEqual(train("--shards", "3", "--dtype", "bf16", ranks=2), expected)
        self.assertNotEqual(train("--shards", "3"), expected)

    def test_seed_steps_and_shards_count(self):
        digests = {train(), train(), train(seed=1), train(steps=3), train("--shards", "2")}
        self.assertEqual(len(digests), 4)


class Devices(unittest.TestCase):
    def test_a_strict_device_changes_no_bit(self):
        plain = ("--shards", "3")
        for more in ((), ("--dropout", "0.2", "--recompute"), ("--dtype", "bf16")):
            expected = train(*plain, *more)
            self.assertEqual(train(*plain, *more, "--device", "strict:0"), expected, more)
        self.assertEqual(train(*plain, "--device", "strict:1", ranks=2), train(*plain))

    def test_the_last_line_says_what_was_done(self):
        done = run("--data", text, *ODD, "--steps", "2", "--device", "strict:0")
        found = re.fullmatch(r"device strict:0 launches (\d+) peak_bytes (\d+) copied_bytes (\d+)",
                             done.stdout.splitlines()[-1])
        self.assertTrue(all(int(number) > 100 for number in found.groups()), done.stdout)

    def test_bad_devices_are_named(self):
        done = run("--data", text, *ODD, "--steps", "1", "--device", "cuda:0", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('there is no device "cuda:0": there are cpu, strict:0', done.stderr)
        done = run("--data", text, *ODD, "--steps", "1", "--device", "strict:0", "--device-memory",
                   "1", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"strict:0: \d+ bytes for .*: \d+ of 1048576 are free")


class Buckets(unittest.TestCase):
    def test_a_timeline_has_the_way_of_every_bucket(self):
        trace = path("trace.json")
        train("--trace", trace, "--bucket-mb", "0.1", "--accumulate", "2", ranks=2)
        for name, rank in ((trace, 0), (trace + ".1", 1)):
            with open(name) as file:
                events = json.load(file)
            names = [event["name"] for event in events if event["ph"] == "X"]
            self.assertEqual({event["pid"] for event in events}, {rank})
            self.assertEqual(names.count("forward"), 4)  # two steps of two micro-batches
            self.assertEqual(names.count("backward"), 4)
            self.assertEqual(names.count("optimizer"), 2)
            self.assertGreater(len([name for name in names if name.startswith("bucket ")]), 4)

    def test_hooks_by_name(self):
        near = json.loads(self.trained("--hook", "allreduce"))["train_loss"]
        self.assertAlmostEqual(json.loads(self.trained())["train_loss"], near, places=4)
        self.assertAlmostEqual(json.loads(self.trained("--hook", "bf16"))["train_loss"], near,
                               places=2)
        done = run("--data", text, "--steps", "1", "--hook", "nothing", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--hook nothing: want none, powersgd:RANK, allreduce", done.stderr)
        thin = json.loads(self.trained("--hook", "powersgd:4"))["train_loss"]
        self.assertAlmostEqual(thin, near, places=1)
        done = run("--data", text, "--steps", "1", "--bucket-mb", "-1", check=False)
        self.assertIn("--bucket-mb -1: want a number of MiB", done.stderr)

    def trained(self, *options):
        train("--summary", path("hook.json"), *options, ranks=2)
        with open(path("hook.json")) as file:
            return file.read()


class BadNumbers(unittest.TestCase):
    """Weights of which one is NaN: so is each loss."""

    @classmethod
    def setUpClass(cls):
        cls.weights = path("spoiled.safetensors")
        train("--save", cls.weights)
        with open(cls.weights, "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(struct.pack("<f", math.nan))

    def end(self, *options, ranks=1, **environment):
        return run("--data", text, *ODD, "--load", self.weights, "--steps", "3", "--threads", "1",
                   *options, ranks=ranks, check=False, **environment)

    def test_the_training_stops_and_saves_nothing(self):
        for ranks in (1, 2):
            saved, folder = path("stopped"), path("stopped_checkpoints")
            done = self.end("--save", saved, "--checkpoint", folder, "--every", "1", ranks=ranks)
            self.assertEqual(done.returncode, 1)
            self.assertIn("step 0: its loss is nan, so training stops", done.stderr)
            self.assertFalse(os.path.exists(saved))
            self.assertEqual([name for name in os.listdir(folder) if "step" in name]
                             if os.path.isdir(folder) else [], [])

    def test_steps_are_left_out(self):
        kept, log = path("kept"), path("skipped.jsonl")
        done = self.end("--on-nan", "skip", "--save", kept, "--log", log, ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        for step in range(3):
            self.assertIn(f"step {step} is skipped: its loss is nan", done.stderr)
        with open(kept, "rb") as a, open(self.weights, "rb") as b:
            self.assertEqual(a.read()[-4096:], b.read()[-4096:])
        with open(log, encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["loss"] for line in file], [None] * 3)

    def test_one_warning_is_enough(self):
        done = self.end("--on-nan", "warn")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall("its loss is nan", done.stderr)), 1)

    def test_the_operation_that_began_it_is_named(self):
        done = self.end(TUTTI_DETECT_ANOMALY="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds NaN (step 0)", done.stderr)


class Weights(unittest.TestCase):
    def test_saved_weights_evaluate_and_continue(self):
        weights, summary = path("w.safetensors"), path("summary.json")
        digest = train("--save", weights, "--summary", summary, ranks=2)
        with open(summary) as file:
            found = json.load(file)
        self.assertEqual(list(found), ["ranks", "steps", "seconds", "tokens_per_second",
                                       "train_loss", "val_loss", "digest", "checkpoint"])
        self.assertEqual((found["ranks"], found["steps"], found["digest"]), (2, 2, digest))
        with open(path("held_out"), "wb") as file:
            file.write(TEXT[len(TEXT) - len(TEXT) // 20:])
        evaluate = ["--load", weights, "--data", path("held_out"), "--evaluate", *ODD]
        loss = json.loads(run(*evaluate).stdout)["loss"]
        self.assertAlmostEqual(loss, found["val_loss"], places=5)
        self.assertIn('"loss":%.6f' % loss, run(*evaluate, ranks=3).stdout)
        named = path("named.safetensors")  # as Hugging Face's GPT-2
        subprocess.run([TUTTI, "checkpoint", "convert", weights, named, "--names", "gpt2"],
                       check=True, capture_output=True)
        self.assertIn('"loss":%.6f' % loss, run("--load", named, *evaluate[2:]).stdout)

    def test_reference_weights_are_where_training_begins(self):
        """A file of PyTorch's GPT-2 has no head, and wants its formula of GELU."""
        weights, named = path("begin.safetensors"), path("reference.safetensors")
        ours = ("--gelu", "tanh", "--tie-head")
        digest = train("--save", weights, *ours, seed=5)
        subprocess.run([TUTTI, "checkpoint", "convert", weights, named, "--names", "gpt2",
                        "--exclude", "lm_head.weight"], check=True, capture_output=True)
        found = train("--reference", named, seed=1)
        self.assertEqual(found, train("--load", weights, *ours, seed=1))
        self.assertEqual(found, train("--reference", named, "--shards", "1", "--stage", "1",
                                      "--mesh", "tp=1", "--tp-shards", "1", seed=1))
        self.assertNotIn(found, (digest, train("--load", weights, "--gelu", "tanh", seed=1),
                                 train("--load", weights, "--tie-head", seed=1)))
        done = run("--data", text, *ODD, "--steps", "1", "--load", named, "--reference", named,
                   check=False)
        self.assertIn("both say where the weights begin", done.stderr)

    def test_a_checkpoint_of_another_shape_is_refused(self):
        weights = path("other.safetensors")
        train("--save", weights)
        done = run("--data", text, "--load", weights, "--steps", "1", "--layers", "1", "--width",
                   "64", "--heads", "4", "--context", "90", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"tok\.weight.*\[256, 100\].*\[256, 64\]|"
                                      r"tok\.weight.*\[256, 64\].*\[256, 100\]")

    def test_samples_are_as_long_as_asked(self):
        done = run("--data", text, *ODD, "--steps", "1", "--sample", "20")
        self.assertRegex(done.stdout, r"(?s)[ -~\n]{20}\n$")

    def test_the_log_has_a_line_per_step(self):
        log = path("log.jsonl")
        train("--log", log, steps=3)
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3])

    def test_a_full_disk_costs_the_log_but_not_the_weights(self):
        for option in ("--log", "--summary"):
            weights = path("kept" + option)
            done = run("--data", text, *ODD, "--steps", "1", "--save", weights, option,
                       "/dev/full", check=False)
            self.assertEqual(done.returncode, 1, option)
            self.assertIn("gpt: cannot write all of /dev/full: No space left on device",
                          done.stderr)
            train("--load", weights)

    def test_a_limit_on_the_size_of_files_is_told(self):
        weights = path("old.safetensors")
        train("--save", weights)
        with open(weights, "rb") as file:
            before = file.read()
        done = subprocess.run([GPT, "--data", text, *ODD, "--steps", "1", "--save", weights],
                              text=True, capture_output=True, timeout=DEADLINE,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                                    (4096, 4096)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        with open(weights, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual([name for name in os.listdir(folder.name) if ".tmp-" in name], [])

    def test_a_timeline_that_is_cut_short_is_a_failure(self):
        done = run("--data", text, *ODD, "--steps", "1", "--trace", "/dev/full", check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("trace /dev/full: not all of it could be written", done.stderr)

    def test_memory_is_the_programs_own(self):
        """Not that of a large process that has become it by exec."""
        script = "import os, sys; x = b'x' * (700 << 20); os.execv(sys.argv[1], sys.argv[1:])"
        done = subprocess.run([sys.executable, "-c", script, GPT, "--bench", *ODD, "--steps", "2"],
                              text=True, capture_output=True, timeout=DEADLINE)
        self.assertGreater(json.loads(done.stdout)["peak_rss_mib"], 1)
        self.assertLess(json.loads(done.stdout)["peak_rss_mib"], 500)

    def test_bench_prints_what_it_measured(self):
        found = json.loads(run("--bench", *ODD, "--steps", "3", "--threads", "1").stdout)
        self.assertEqual(list(found), ["params", "ranks", "threads", "dtype", "step_ms",
                                       "tokens_per_second", "gflops", "peak_rss_mib"])
        self.assertAlmostEqual(found["tokens_per_second"] * found["step_ms"], 90e3, delta=2e3)


class BadInput(unittest.TestCase):
    def expect(self, pattern, *options):
        done = run(*options, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, pattern)

    def test_heads_of_keys_must_divide_those_of_queries(self):
        self.expect("3 heads of keys and values do not divide 4 heads", "--data", text, "--width",
                    "100", "--heads", "4", "--kv-heads", "3", "--steps", "1")

    def test_heads_must_divide_the_width(self):
        self.expect("(?i)heads.*width|width.*heads", "--data", text, "--width", "100", "--heads",
                    "3", "--steps", "1")

    def test_a_context_longer_than_the_text(self):
        self.expect("(?i)context|shorter|bytes", "--data", text, "--context", "60000", "--steps",
                    "1")

    def test_a_missing_text(self):
        self.expect("nowhere.*No such file", "--data", path("nowhere"), "--steps", "1")

    def test_a_missing_checkpoint(self):
        self.expect("nowhere.*No such file", "--data", text, "--load", path("nowhere"), "--steps",
                    "1")

    def test_a_mistyped_option_names_the_nearest(self):
        self.expect("layers", "--layer", "3")

    def test_training_needs_an_end(self):
        self.expect("--steps N or --seconds S", "--data", text)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Killed(unittest.TestCase):
    endless = ["--steps", "1000000"]

    def begin_by_hand(self, ranks):
        """Ranks without a launcher, training."""
        port = str(free_port())
        members = []
        for rank in range(ranks):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                   "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            members.append(subprocess.Popen([GPT, "--data", text, *ODD, *self.endless,
                                             "--threads", "1"], env=env, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        while "step" not in members[0].stdout.readline():
            self.assertIsNone(members[0].poll(), members[0].stderr)
        return members

    def test_a_rank_killed_without_a_launcher_is_named_by_the_others(self):
        members = self.begin_by_hand(3)
        members[1].kill()
        begin = time.monotonic()
        for rank in (0, 2):
            _, said = members[rank].communicate(timeout=DEADLINE)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertNotEqual(members[rank].returncode, 0)
            self.assertIn("rank 1", said)
        members[1].communicate()

    def test_the_launcher_names_the_signal_and_leaves_nobody(self):
        job = subprocess.Popen([TUTTI, "run", "-n", "2", GPT, "--data", text, *ODD, *self.endless],
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while "step" not in job.stdout.readline():
            self.assertIsNone(job.poll())
        pids = [pid for pid in map(int, subprocess.run(
            ["pgrep", "-f", GPT + " --data " + text], capture_output=True, text=True
        ).stdout.split()) if self.is_gpt(pid)]
        self.assertEqual(len(pids), 2)
        os.kill(pids[1], signal.SIGKILL)
        _, said = job.communicate(timeout=DEADLINE)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(said, r"rank [01]: killed by SIGKILL")
        self.assertFalse([pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")])

    @staticmethod
    def is_gpt(pid):
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(GPT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
