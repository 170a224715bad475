"""Options of `tutti VERB` stand before operands, between them, and behind them, as getopt_long has
it; behind "--", and behind the command of `tutti run`, nothing is an option of tutti's."""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
DEADLINE = 60
ECHO = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
PROFILE = ('tutti profile 1\n'
           '{"rank":0,"world_size":1,"threads":1,"peak_mflops":1000,"begin_ns":0,"end_ns":9,'
           '"wall_ns":0,"host":"h","boot":"b","program":"p"}\n'
           '{"peak_bytes":0,"alive":[]}\n{"modules":[]}\n')


class Operands(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="operands_"))
        for name in ("profile", "-p", "other"):
            self.write(name, PROFILE)
        os.mkdir(os.path.join(self.folder, "numbers"))
        self.write("numbers/metrics.jsonl",
                   json.dumps({"step": 1, "time": 0, "name": "a", "value": 1}) + "\n")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(text)

    def run_tutti(self, *arguments):
        return subprocess.run([TUTTI, *arguments], capture_output=True, text=True, check=False,
                              timeout=DEADLINE, cwd=self.folder)

    def results(self, verb, options, operands):
        """Of every order of the options among the operands, which keep theirs."""
        for places in itertools.product(range(len(operands) + 1), repeat=len(options)):
            words = []
            for i in range(len(operands) + 1):
                for option, place in zip(options, places):
                    words += option if place == i else []
                words += operands[i:i + 1]
            run = self.run_tutti(*verb, *words)
            yield words, (run.returncode, run.stdout, run.stderr)

    def check_all_orders(self, verb, options, operands):
        want = None
        for words, got in self.results(verb, options, operands):
            want = want or got
            with self.subTest(words):
                self.assertEqual(got, want)
        return want

    def test_any_order_is_the_same(self):
        for verb, options, operands in (
                ("explain", [["--ranks", "3"], ["--dtype=f64"]], ["all_reduce"]),
                ("report", [["-o", "x.html"]], ["numbers"]),
                ("profile", [["--json", "x.json"], ["--trace=x.trace"]], ["profile"])):
            with self.subTest(verb):
                code, out, error = self.check_all_orders([verb], options, operands)
                self.assertEqual((code, error), (0, ""))
                self.assertNotEqual(out, "")
        code, _, error = self.check_all_orders(["bench"], [["--bytes", "4:3"], ["--batches=2"]],
                                               ["all_reduce"])
        self.assertEqual(code, 2)
        self.assertIn("4:3", error)
        for name in ("x.html", "x.json", "x.trace"):
            self.assertTrue(os.path.exists(os.path.join(self.folder, name)), name)
        self.assertEqual(os.listdir(os.path.join(self.folder, "numbers")), ["metrics.jsonl"])

    def test_operands_keep_their_order(self):
        for verb, options in ((["checkpoint", "diff"], [["--json"], ["--json"]]),
                              (["profile"], [["--json", "x"], ["--trace=y"]])):
            with self.subTest(verb):
                _, _, error = self.check_all_orders(verb, options, ["n1", "n2"])
                self.assertRegex(error, "^[^2]*n1")
        self.assertRegex(self.run_tutti("checkpoint", "diff", "n1", "--json", "--", "n2").stderr,
                         "^[^2]*n1")

    def test_help_and_mistakes_are_seen_behind_operands(self):
        for verb in ("report", "profile", "explain", "bench", "verdict", "key"):
            with self.subTest(verb):
                run = self.run_tutti(verb, "profile", "--help")
                self.assertEqual((run.returncode, run.stdout[:6]), (0, "usage:"), run.stderr)
                run = self.run_tutti(verb, "profile", "--no-such")
                self.assertEqual(run.returncode, 2)
                self.assertIn("unknown option --no-such", run.stderr)
                self.assertIn("--help", run.stderr)
        self.assertIn("--json: the value is missing",
                      self.run_tutti("profile", "other", "--json").stderr)
        for verb in ("bench", "explain"):
            self.assertIn('unexpected argument "b"', self.run_tutti(verb, "all_reduce", "b").stderr)

    def test_behind_two_dashes_nothing_is_an_option(self):
        run = self.run_tutti("verdict", "--", "-p", "--help")
        self.assertIn("-p", run.stderr)
        for words in (["other", "--", "-o"], ["--", "other", "-o"]):
            self.assertIn("one folder", self.run_tutti("report", *words).stderr)
        run = self.run_tutti("checkpoint", "diff", "n1", "n2", "--", "--json")
        self.assertIn("want", run.stderr)
        run = self.run_tutti("explain", "--ranks", "2", "--", "all_reduce")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_command_keeps_its_options(self):
        words = ["-n", "9", "--json", "x", "a", "--", "-o", "--help"]
        for head in (["run", "-n", "1", "--"], ["run", "-n1"]):
            with self.subTest(head):
                run = self.run_tutti(*head, *ECHO, *words)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn(str(words), run.stdout)
        run = self.run_tutti("profile", "--", *ECHO, *words)
        self.assertEqual(run.stdout, str(words) + "\n")
        self.assertIn("wrote no profile", run.stderr)
        for line in (["profile", "other", "--", *ECHO], ["profile", "--"], ["profile"]):
            with self.subTest(line):
                run = self.run_tutti(*line)
                self.assertEqual((run.returncode, run.stdout), (2, ""))
                self.assertIn("want -- COMMAND, or files", run.stderr)


if __name__ == "__main__":
    unittest.main()
