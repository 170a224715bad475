"""`tutti bench` and `tutti explain`: table, JSON lines, comparing, tuning, and what they refuse."""
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
KEYS = ["op", "bytes", "ranks", "wire", "algo", "canonical", "time_us", "p50_us", "p99_us",
        "algbw_GBps", "busbw_GBps", "wrong"]
SHORT = ["--calls", "3", "--batches", "1"]


def tutti(*arguments, code=0, **environment):
    done = subprocess.run([TUTTI, *arguments], text=True, capture_output=True, timeout=60,
                          env={**os.environ, "TUTTI_TUNE": "off", **environment}, check=False)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}, want {code}\n"
                             f"{done.stdout}{done.stderr}")
    return done


def rows(*arguments, **options):
    lines = tutti("bench", *arguments, *SHORT, "--json", **options).stdout.splitlines()
    return [json.loads(line) for line in lines]


WIRES = json.loads(tutti("info", "--json").stdout)["families"]["wires"]


class Measure(unittest.TestCase):
    def test_json_has_the_fields_and_the_sizes(self):
        got = rows("all_reduce", "-n", "2", "--bytes", "4:64k")
        self.assertEqual([row["bytes"] for row in got], [4 << 2 * i for i in range(8)])
        for row in got:
            self.assertEqual(list(row), KEYS)
            self.assertEqual((row["op"], row["ranks"], row["wire"], row["wrong"]),
                             ("all_reduce", 2, "shm", 0))
            self.assertTrue(row["canonical"])
            self.assertGreater(row["time_us"], 0)
            self.assertLessEqual(row["p50_us"], row["p99_us"])
            self.assertAlmostEqual(row["algbw_GBps"], row["bytes"] / row["time_us"] * 1e-3,
                                   delta=0.02 * row["algbw_GBps"] + 2e-3)

    def test_every_operation_is_right_and_has_its_factor(self):
        names = tutti("bench", "--help").stdout.split("operations:\n")[1]
        factors = {"all_reduce": 4 / 3, "reduce_scatter": 2 / 3, "all_gather": 2 / 3,
                   "all_to_all": 2 / 3, "gather": 2 / 3, "scatter": 2 / 3, "broadcast": 1,
                   "reduce": 1, "scan": 1, "exscan": 1, "send_recv": 1, "barrier": 0}
        names = [line.split()[0] for line in names.splitlines()]
        self.assertEqual(sorted(names), sorted(factors))
        for name in names:
            for extra in [[], ["--foreign", "--out-of-place"], ["--barrier"]]:
                for row in rows(name, "-n", "3", "--bytes", "3:300k:x100", *extra):
                    self.assertEqual(row["wrong"], 0, row)
                    self.assertAlmostEqual(row["busbw_GBps"],
                                           row["algbw_GBps"] * factors[name],
                                           delta=0.01 * row["algbw_GBps"] + 2e-3)

    def test_the_chapter_on_measuring_has_every_flag_and_column(self):
        with open(os.path.join(os.environ["TUTTI_SOURCE_DIR"], "docs", "guide",
                               "benchmarks.md"), encoding="utf-8") as file:
            chapter = file.read()
        flags = re.findall(r"--[a-z-]+", tutti("bench", "--help").stdout)
        self.assertGreater(len(flags), 15)
        for flag in set(flags) - {"--help"}:
            self.assertRegex(chapter, rf"`{flag}\b|`-n`, `{flag}\b")
        head = tutti("bench", "barrier", *SHORT).stdout.splitlines()[1]
        cells = ", ".join(re.findall(r"^\| ([^|]+) \|", chapter, re.M)).split(", ")
        self.assertEqual(set(head[1:].split()) - set(cells), set())

    def test_sizes_of_parts_are_those_of_the_whole_array(self):
        got = rows("all_gather", "-n", "3", "--bytes", "1:1k:x10")
        self.assertEqual([row["bytes"] for row in got], [12, 12, 96, 996])

    def test_no_size_is_left_out(self):
        got = rows("barrier", "--bytes", "4:512:+4")
        self.assertEqual(len(got), 1)
        self.assertEqual(len(rows("all_reduce", "--bytes", "4:512:+4")), 128)
        done = tutti("bench", "all_reduce", "--bytes", "4:516:+4", code=2)
        self.assertIn("want at most 128 sizes", done.stderr)

    def test_ranks_of_a_host_have_the_cores_of_their_local_rank(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            self.skipTest("one core")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            facts = {"RANK": rank, "LOCAL_RANK": 1 - rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            ranks.append(subprocess.Popen(
                [TUTTI, "bench", "all_reduce", "--bytes", "4", "--calls", "100000000"],
                stdout=subprocess.DEVNULL,
                env={**os.environ, **{name: str(value) for name, value in facts.items()}}))
        end = time.monotonic() + 30
        bound = []
        while time.monotonic() < end and [len(cpus) for cpus in bound] != [1, 1]:
            bound = [os.sched_getaffinity(rank.pid) for rank in ranks]
        for rank in ranks:
            rank.kill()
            rank.wait()
        self.assertEqual(bound, [{cores[1]}, {cores[0]}])

    def test_types_and_reductions(self):
        for dtype, reduction in [("bf16", "avg"), ("f16", "product"), ("i64", "bxor"),
                                 ("u8", "sum"), ("bool", "max"), ("f64", "min")]:
            got = rows("all_reduce", "-n", "3", "--bytes", "8:8k:x1024", "--dtype", dtype,
                       "--reduce", reduction)
            self.assertEqual([row["wrong"] for row in got], [0, 0], (dtype, reduction))

    def test_a_wrong_result_is_counted_and_is_an_exit_code(self):
        got = rows("all_reduce", "-n", "2", "--bytes", "4k", "--spoil", "5", code=1)
        self.assertEqual(got[0]["wrong"], 5)
        got = rows("all_gather", "-n", "2", "--bytes", "4k", "--spoil", "1", "--dtype", "i8",
                   code=1)
        self.assertEqual(got[0]["wrong"], 1)

    def test_table_is_that_of_nccl_tests(self):
        text = tutti("bench", "broadcast", "-n", "2", "--root", "1", "--bytes", "64k",
                     *SHORT).stdout
        lines = text.splitlines()
        self.assertEqual(lines[1].lstrip("#").split()[:9],
                         ["size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                          "#wrong"])
        self.assertEqual(lines[3].split()[:5], ["65536", "16384", "f32", "-", "1"])
        self.assertIn("wrong elements        : 0 OK", text)

    def test_rules_choose_the_algorithm(self):
        got = rows("all_reduce", "-n", "2", "--bytes", "64:64k:x1024", "--algo", "0-1k:pairwise")
        self.assertEqual([row["algo"] for row in got], ["pairwise", "direct"])

    @unittest.skipUnless("tcp" in WIRES, "this build has no tcp wire")
    def test_wires(self):
        got = rows("all_reduce", "-n", "2", "--bytes", "64k", "--wire", "tcp")
        self.assertEqual((got[0]["wire"], got[0]["wrong"]), ("tcp", 0))

    def test_rotating_buffers(self):
        self.assertEqual(rows("all_reduce", "-n", "2", "--bytes", "16M", "--rotate")[0]["wrong"], 0)

    def test_inside_a_launcher_it_is_a_rank(self):
        text = tutti("run", "-n", "2", TUTTI, "bench", "barrier", *SHORT).stdout
        self.assertIn("# barrier, 2 ranks", text)
        done = tutti("run", "-n", "2", TUTTI, "bench", "barrier", "-n", "3", *SHORT, code=2)
        self.assertIn("-n 3, but the launcher has started 2 ranks", done.stderr)

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        for arguments, text in [
                (["all_redcue"], 'tutti bench: there is no operation "all_redcue"; '
                                 'did you mean "all_reduce"?'),
                ([], "no operation"),
                (["all_reduce", "--algo", "rign"], 'there is no algorithm "rign"'),
                (["all_reduce", "--algo", "all_reduce:5z-:flag"], "5z-"),
                (["all_reduce", "--bytes", "4:2"], "--bytes 4:2"),
                (["all_reduce", "--bytes", "4:64M:x1"], "--bytes"),
                (["all_reduce", "--dtype", "f31"], "f31"),
                (["all_reduce", "--reduce", "mean"], "--reduce mean"),
                (["all_reduce", "--dtype", "f32", "--reduce", "bxor"], "bxor"),
                (["broadcast", "-n", "2", "--root", "2"], "root 2"),
                (["all_reduce", "--compare", "/nowhere"], "/nowhere")]:
            self.assertIn(text, tutti("bench", *arguments, code=2).stderr)


class Compare(unittest.TestCase):
    def test_ratios_to_an_earlier_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "earlier.json")
            with open(path, "w") as file:
                file.write("some other line\n"
                           '[rank 0] {"op":"all_reduce","bytes":4096,"time_us":1e9}\n'
                           '{"op":"all_gather","bytes":16384,"time_us":5}\n')
            arguments = ["all_reduce", "-n", "2", "--bytes", "4k:16k", "--compare", path]
            first, second = rows(*arguments)
            self.assertAlmostEqual(first["ratio"] * first["time_us"], 1e9, delta=2e7)
            self.assertNotIn("ratio", second)
            text = tutti("bench", *arguments, *SHORT).stdout
            self.assertIn("over 1 sizes", text)
            with open(path, "w") as file:
                file.write("nothing\n")
            self.assertIn("no JSON line", tutti("bench", *arguments, code=2).stderr)

    def test_every_line_of_an_earlier_run_counts_and_of_one_size_the_first(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "earlier.json")
            with open(path, "w") as file:
                for size, time_us in [*((4 * i, 1e9) for i in range(1, 1001)), (4000, 1)]:
                    file.write(json.dumps({"op": "all_reduce", "bytes": size,
                                           "time_us": time_us}) + "\n")
            row = rows("all_reduce", "--bytes", "4000", "--compare", path)[0]
            self.assertAlmostEqual(row["ratio"] * row["time_us"], 1e9, delta=2e7)


class Tune(unittest.TestCase):
    def test_rules_are_written_and_then_used(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tune")
            with open(path, "w") as file:
                file.write("# mine\n7 tcp all_reduce:0-:pairwise\n2 shm all_reduce:0-:flag\n"
                           "2 shm broadcast:0-:pairwise\n")
            text = tutti("bench", "all_reduce", "-n", "2", "--bytes", "64:64k:x1024", "--tune",
                         "--out", path, *SHORT).stdout
            self.assertIn("rules written to " + path, text)
            with open(path) as file:
                lines = [line for line in file.read().splitlines() if line[0] != "#"]
            self.assertIn("7 tcp all_reduce:0-:pairwise", lines)
            self.assertIn("2 shm broadcast:0-:pairwise", lines)
            self.assertNotIn("2 shm all_reduce:0-:flag", lines)
            self.assertTrue(any(line.startswith("2 shm all_reduce:0-") for line in lines), lines)
            got = rows("broadcast", "-n", "2", "--bytes", "64", TUTTI_TUNE=path)
            self.assertEqual(got[0]["algo"], "pairwise")
            got = rows("broadcast", "-n", "2", "--bytes", "64", "--algo", "broadcast:flag",
                       TUTTI_TUNE=path)
            self.assertEqual(got[0]["algo"], "flag")
            self.assertIn("chosen by  the tuning file",
                          tutti("explain", "broadcast", TUTTI_TUNE=path).stdout)

    def test_what_is_not_canonical_is_used_where_that_is_allowed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tune")
            with open(path, "w") as file:
                file.write("3 shm all_reduce:0-:ring\n")
            for exact, want in (("", "direct"), ("1", "direct"), ("0", "ring")):
                setting = {"TUTTI_TUNE": path, "TUTTI_EXACT": exact}
                got = rows("all_reduce", "-n", "3", "--bytes", "64k", **setting)
                self.assertEqual(got[0]["algo"], want)
                self.assertEqual(got[0]["canonical"], want == "direct")
                text = tutti("explain", "all_reduce", "-n", "3", "--count", "65536", **setting)
                self.assertIn(": " + want, text.stdout)
            done = tutti("bench", "all_reduce", "-n", "2", code=2, TUTTI_EXACT="2",
                         TUTTI_TIMEOUT_MS="3000")
            self.assertIn("TUTTI_EXACT=2: want an integer from 0 to 1", done.stderr)

    def test_the_users_own_file_is_made_and_found(self):
        with tempfile.TemporaryDirectory() as folder:
            own = {"TUTTI_TUNE": "", "XDG_CONFIG_HOME": os.path.join(folder, "settings")}
            tutti("bench", "barrier", "-n", "2", "--tune", *SHORT, **own)
            path = os.path.join(folder, "settings", "tutti", "tune")
            with open(path) as file:
                self.assertIn("2 shm barrier:0-:", file.read())
            with open(path, "w") as file:
                file.write("2 shm barrier:0-:of_yesterday\n")
            done = tutti("bench", "barrier", "-n", "2", *SHORT, **own)
            self.assertIn("is left aside", done.stderr)
            self.assertIn("of_yesterday", done.stderr)

    def test_a_file_that_was_asked_for_must_be_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tune")
            done = tutti("bench", "barrier", "-n", "2", code=1, TUTTI_TUNE=path)
            self.assertIn(path, done.stderr)
            with open(path, "w") as file:
                file.write("2 shm\n")
            done = tutti("bench", "barrier", "-n", "2", code=1, TUTTI_TUNE=path,
                         TUTTI_TIMEOUT_MS="3000")
            self.assertIn("is no line RANKS WIRE RULE", done.stderr)


class Explain(unittest.TestCase):
    def test_without_a_collective_it_lists_algorithms(self):
        text = tutti("explain").stdout
        for name in ["flag", "direct", "pairwise"]:
            self.assertRegex(text, rf"(?m)^{name} ")
        self.assertIn("canonical: yes", text)

    def test_a_plan_of_all_ranks_or_of_one(self):
        text = tutti("explain", "all_reduce", "--algo", "pairwise", "--ranks", "3").stdout
        self.assertIn("canonical  yes", text)
        self.assertRegex(text, r"cost       \d+ rounds")
        for rank in range(3):
            self.assertIn(f"all_reduce pairwise: rank {rank} of 3", text)
        text = tutti("explain", "all_reduce", "--algo", "pairwise", "-n", "3", "--rank", "1").stdout
        self.assertNotIn("rank 0 of 3", text)

    def test_the_choice_depends_on_size_and_hosts(self):
        self.assertIn("flags", tutti("explain", "all_reduce", "--count", "4").stdout)
        self.assertIn(": direct\n", tutti("explain", "all_reduce", "--count", "100000").stdout)
        self.assertIn("several ranks on a host",
                      tutti("explain", "all_reduce", "--hosts", "2x2").stdout)
        self.assertIn("chosen by  TUTTI_ALGO",
                      tutti("explain", "all_reduce", TUTTI_ALGO="pairwise").stdout)

    def test_explain_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.svg")
            tutti("explain", "all_reduce", "--algo", "ring", "-n", "3", "--count", "600",
                  "--svg", path)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertTrue(text.startswith("<svg ") and text.endswith("</svg>\n"))
            self.assertEqual(text.count("sends to"), 4 * 3)
            missing = os.path.join(folder, "nowhere", "plan.svg")
            self.assertIn("cannot be written", tutti("explain", "all_reduce", "--svg", missing,
                                                     code=2).stderr)

    def test_what_cannot_be_is_refused(self):
        for arguments, text in [(["all_redduce"], "there are all_reduce"),
                                (["all_reduce", "--algo", "nix"], 'no algorithm "nix"'),
                                (["all_reduce", "--hosts", "2"], "2x2"),
                                (["all_reduce", "--hosts", "2x2", "-n", "3"], "not 3 ranks"),
                                (["all_reduce", "-n", "2", "--rank", "2"], "rank 2"),
                                (["all_reduce", "--algo", "direct", "--hosts", "2x1"], "direct")]:
            self.assertIn(text, tutti("explain", *arguments, code=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
