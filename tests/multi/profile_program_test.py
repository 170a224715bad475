"""`tutti profile` around programs of one rank and of two, TUTTI_PROFILE, and `--modules`: calls and
FLOPs are what the programs must have done, whatever the times are."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT, FASHION = (os.path.join(BIN, name) for name in ("tutti", "gpt", "fashion"))
DEADLINE = 110
LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS = 2, 16, 2, 8, 3, 2
MODEL = ["--layers", str(LAYERS), "--width", str(WIDTH), "--heads", str(HEADS), "--context",
         str(CONTEXT), "--batch", str(BATCH)]
# Of a forward: qkv, proj, and the head without gelu; up with it.
TOKENS = BATCH * CONTEXT
LINEAR = 2 * TOKENS * WIDTH * (LAYERS * (3 * WIDTH + WIDTH + 4 * WIDTH) + 256)
LINEAR_GELU = 2 * TOKENS * WIDTH * LAYERS * 4 * WIDTH
ATTENTION = 4 * LAYERS * BATCH * WIDTH * CONTEXT * (CONTEXT + 1) // 2


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="profile_program_"))
        self.text = self.path("text")
        with open(self.text, "w", encoding="ascii") as file:
            file.write("In the beginning God created the heaven and the earth. " * 40)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_program(self, *command, **more):
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE,
                              check=False, cwd=self.folder, **more)

    def gpt(self, *options):
        # --shards 2: each step is two forwards and backwards, whatever the number of ranks.
        return [GPT, "--data", self.text, *MODEL, "--shards", "2", "--threads", "1", "--steps",
                str(STEPS), *options]

    def load(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def check_operations(self, profile):
        rows = {(row["name"], row["kind"]): row for row in profile["operations"]}
        forwards = 2 * STEPS
        for name, calls, flops in (("linear", 3 * LAYERS + 1, LINEAR),
                                   ("linear_gelu", LAYERS, LINEAR_GELU),
                                   ("attention_qkv", LAYERS, ATTENTION)):
            with self.subTest(name):
                self.assertEqual(rows[name, "forward"]["calls"], calls * forwards)
                self.assertEqual(rows[name, "forward"]["own_flops"], flops * forwards)
                more = 2.5 if name == "attention_qkv" else 2  # both factors' gradients
                self.assertEqual(rows[name, "backward"]["own_flops"], more * flops * forwards)
        whole = sum(row["own_ns"] for row in profile["modules"])
        self.assertLessEqual(whole, profile["measured_ns"])

    def test_one_rank(self):
        run = self.run_program(TUTTI, "profile", "--json", "p.json", "--", *self.gpt())
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("linear backward", run.stderr)
        self.assertNotIn("linear backward", run.stdout)
        profile = self.load("p.json")
        self.assertEqual(profile["ranks"], 1)
        self.check_operations(profile)
        modules = {row["name"] for row in profile["modules"]}
        self.assertIn("gpt.blocks.1.up", modules)
        regions = {row["name"]: row["calls"] for row in profile["regions"]}
        self.assertEqual(regions["optimizer step"], STEPS)
        self.assertEqual(glob.glob("/tmp/tutti-profile-*/profile*"), [], "nothing is left")

    def test_two_ranks(self):
        run = self.run_program(TUTTI, "profile", "--json", "p.json", "--trace", "t.json", "-o",
                               "kept", "--", TUTTI, "run", "-n", "2", *self.gpt())
        self.assertEqual(run.returncode, 0, run.stderr)
        profile = self.load("p.json")
        self.assertEqual((profile["ranks"], len(profile["processes"])), (2, 2))
        self.assertEqual((profile["hosts"], profile["clock_doubt_ns"]), (1, 0))
        self.check_operations(profile)
        self.check_timeline(self.load("t.json")["traceEvents"], profile)
        again = self.run_program(TUTTI, "profile", "kept/profile", "kept/profile.1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("2 ranks of 2", again.stdout)

    def check_timeline(self, events, profile):
        self.assertEqual({event["pid"] for event in events if event["ph"] == "X"}, {0, 1})
        calls = [event for event in events if event.get("cat") == "call" and event["ph"] == "X"]
        self.assertEqual(len(calls), sum(row["calls"] for row in profile["calls"]))
        # Bars of one thread lie beside each other, or inside.
        for pid in (0, 1):
            for tid in {event["tid"] for event in calls}:
                bars = sorted((event["ts"], event["dur"]) for event in calls
                              if (event["pid"], event["tid"]) == (pid, tid))
                for (begin, length), (after, _) in zip(bars, bars[1:]):
                    self.assertLessEqual(begin + length, after + 0.0011)
        # An arrow begins and ends once, on two ranks, and not before it began.
        begins = {event["id"]: event for event in events if event["ph"] == "s"}
        ends = {event["id"]: event for event in events if event["ph"] == "f"}
        self.assertEqual(begins.keys(), ends.keys())
        self.assertGreater(len(begins), STEPS)
        for name, begin in begins.items():
            self.assertNotEqual(begin["pid"], ends[name]["pid"])
            self.assertLessEqual(begin["ts"], ends[name]["ts"])

    def test_the_environment(self):
        run = self.run_program(TUTTI, "run", "-n", "2", *self.gpt(),
                               env={**os.environ, "TUTTI_PROFILE": self.path("own")})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(os.path.exists(self.path("own")) and os.path.exists(self.path("own.1")))
        run = self.run_program(*self.gpt(), env={**os.environ, "TUTTI_PROFILE": "no/folder/p"})
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("profile no/folder/p", run.stderr)

    def test_ends_of_commands(self):
        for command, code, text in ((["sh", "-c", "exit 7"], 7, "sh wrote no profile"),
                                    (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL,
                                     "no profile"),
                                    (["true"], 1, "true wrote no profile"),
                                    (["/no/program"], 127, "No such file")):
            with self.subTest(command):
                run = self.run_program(TUTTI, "profile", "--", *command)
                self.assertEqual(run.returncode, code)
                self.assertIn(text, run.stderr)
        for arguments in ([], ["--"], ["/no/file"], ["--trace"]):
            with self.subTest(arguments):
                run = self.run_program(TUTTI, "profile", *arguments)
                self.assertEqual(run.returncode, 2)
                self.assertIn("tutti profile: ", run.stderr)

    def test_what_cannot_be_written_is_not_lost(self):
        for option, path in (("--json", "no/folder/p"), ("--trace", "/dev/full")):
            with self.subTest(option):
                run = self.run_program(TUTTI, "profile", option, path, "--", *self.gpt())
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertIn(f"tutti profile: {path}: ", run.stderr)
                kept = re.search(r"lost: tutti profile (/tmp/tutti-profile-.*)/profile\*\n",
                                 run.stderr).group(1)
                self.addCleanup(shutil.rmtree, kept)
                run = self.run_program(TUTTI, "profile", "--json", "again",
                                       os.path.join(kept, "profile"))
                self.assertEqual(run.returncode, 0, run.stderr)
                self.check_operations(self.load("again"))

    def test_signals_that_are_ignored_stay_so(self):
        """As under nohup: neither the command nor the table ends by SIGHUP."""
        script = ("import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
                  "os.execv(sys.argv[1], sys.argv[1:])")
        look = ["sh", "-c", "grep SigIgn /proc/$PPID/status >seen; kill -HUP $PPID"]
        run = self.run_program("python3", "-c", script, TUTTI, "profile", "--", *look)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("wrote no profile", run.stderr)
        with open(self.path("seen"), encoding="ascii") as file:
            ignored = int(file.read().split()[1], 16)
        self.assertTrue(ignored & 1 << (signal.SIGHUP - 1), "it is ignored still")

    def test_modules_of_gpt(self):
        run = self.run_program(GPT, "--modules", *MODEL)
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.splitlines()
        qkv = next(line for line in lines if "qkv: linear" in line)
        self.assertIn(f"f32[{BATCH}, {CONTEXT}, {3 * WIDTH}]", qkv)
        self.assertIn(f" {WIDTH * 3 * WIDTH + 3 * WIDTH} ", qkv)
        self.assertIn(f" {2 * TOKENS * WIDTH * 3 * WIDTH / 1000:.0f} k ", qkv)
        large = self.run_program(GPT, "--modules", "--layers", "96", "--width", "12288", "--heads",
                                 "96", "--context", "2048", "--batch", "64")
        self.assertEqual(large.returncode, 0, large.stderr)
        self.assertRegex(large.stdout, r"\n17\d{10} parameters")

    def test_modules_of_fashion(self):
        run = self.run_program(FASHION, "--modules", "--model", "cnn", "--batch", "64")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("f32[64, 32, 28, 28]", run.stdout)


if __name__ == "__main__":
    unittest.main()
