"""`gpt` under `tutti run --max-restarts`: ranks are killed in the middle, and no bit is lost."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI, GPT = os.path.join(BIN, "tutti"), os.path.join(BIN, "gpt")
DEADLINE = 110
STEPS = 60
SMALL = ["--layers", "1", "--width", "100", "--heads", "4", "--context", "90", "--batch", "1",
         "--shards", "4", "--threads", "1", "--steps", str(STEPS), "--digest"]


def setUpModule():
    global folder, text
    folder = unittest.enterModuleContext(tempfile.TemporaryDirectory())
    text = os.path.join(folder, "text")
    with open(text, "wb") as file:
        file.write(("In the beginning God created the heaven and the earth. " * 400).encode())


def command(*options):
    return [GPT, "--data", text, *SMALL, *options]


def digest(out):
    return re.search(r"digest ([0-9a-f]{32})\b", out, re.M).group(1)


def find_rank(run_id, rank, attempt):
    """The process that is this rank in this attempt; None: not yet."""
    wanted = {f"TORCHELASTIC_RUN_ID={run_id}", f"RANK={rank}",
              f"TORCHELASTIC_RESTART_COUNT={attempt}"}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted <= set(file.read().decode(errors="replace").split("\0")):
                    return int(pid)
        except OSError:
            continue
    return None


def steps_in(checkpoints):
    return sorted(name for name in os.listdir(checkpoints) if name.startswith("step-"))


def newest(checkpoints):
    if not os.path.isdir(checkpoints):
        return 0
    return max((int(name[5:]) for name in steps_in(checkpoints)), default=0)


class Restarted(unittest.TestCase):
    def wait(self, job, condition):
        end = time.monotonic() + DEADLINE
        while not (found := condition()):
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(job.poll(), "the job ended too early")
            time.sleep(0.002)
        return found

    def begin(self, checkpoints, run_id, *options):
        return subprocess.Popen(
            [TUTTI, "run", "-n", "2", "--max-restarts", "3", "--rdzv-id", run_id,
             *command("--every", "5", "--checkpoint", checkpoints, *options)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_killed_ranks_change_no_bit(self):
        undisturbed = subprocess.run(command(), text=True, capture_output=True, check=True,
                                     timeout=DEADLINE).stdout
        run_id, log = "test-" + uuid.uuid4().hex[:12], os.path.join(folder, "log")
        checkpoints = os.path.join(folder, "checkpoints")
        job = self.begin(checkpoints, run_id, "--log", log)
        for attempt, (rank, step) in enumerate([(1, 10), (0, 25)]):
            self.wait(job, lambda: newest(checkpoints) >= step)
            os.kill(self.wait(job, lambda: find_rank(run_id, rank, attempt)), signal.SIGKILL)
            self.wait(job, lambda: find_rank(run_id, 0, attempt + 1))
        out, err = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(digest(out), digest(undisturbed))
        self.assertIn("rank 1: killed by SIGKILL; restart 1 of 3\n", err)
        self.assertIn("rank 0: killed by SIGKILL; restart 2 of 3\n", err)
        first, *begins = [int(at) for at in re.findall(r"begins at step (\d+)", out)]
        self.assertEqual(first, 0)
        self.assertEqual(len(begins), 2)
        self.assertLess(0, begins[0])
        self.assertLess(begins[0], begins[1])
        self.assertEqual(steps_in(checkpoints),
                         [f"step-{step:012}" for step in (STEPS - 10, STEPS - 5, STEPS)])
        with open(log) as file:
            steps = {json.loads(line)["step"] for line in file if line.endswith("}\n")}
        self.assertLessEqual(set(range(begins[1] + 1, STEPS + 1)), steps)

    def test_a_checkpoint_of_another_model_is_refused(self):
        other = os.path.join(folder, "others")
        subprocess.run(command("--every", "60", "--checkpoint", other), check=True,
                       capture_output=True, timeout=DEADLINE)
        done = subprocess.run(command("--checkpoint", other, "--resume", "--width", "64"),
                              text=True, capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"tok\.weight")

    def test_a_job_begins_is_refused_and_resumed(self):
        place = os.path.join(folder, "resumed")
        first = ["--checkpoint", place, "--every", "4", "--steps", "6"]

        def run(*options):
            return subprocess.run(command("--schedule", "constant", *options), text=True,
                                  capture_output=True, timeout=DEADLINE)

        begun = run(*first, "--resume")
        self.assertEqual(begun.returncode, 0, begun.stderr)
        self.assertIn("begins at step 0\n", begun.stdout)
        self.assertEqual(steps_in(place), ["step-000000000004", "step-000000000006"])
        refused = run(*first)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has a checkpoint of step 6: resume, to go on from it", refused.stderr)
        ended = run(*first, "--resume")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        loss = re.findall(r"^step 6  loss (\S+)", begun.stdout, re.M)[-1]
        self.assertIn(f"begins at step 6\nstep 6  loss {loss}  all is done\n", ended.stdout)
        self.assertEqual(digest(ended.stdout), digest(begun.stdout))
        longer = run("--checkpoint", place, "--resume", "--steps", "9", "--every", "9", "--whole")
        with open(os.path.join(place, "step-000000000009", "model.safetensors.index.json")) as file:
            self.assertIn("tok.weight", json.load(file)["weight_map"])
        self.assertEqual(digest(longer.stdout), digest(run("--steps", "9").stdout))

    def test_checkpoints_need_a_folder(self):
        for options in (["--every", "5"], ["--resume"], ["--checkpoint", "nowhere"]):
            done = subprocess.run(command(*options), text=True, capture_output=True,
                                  timeout=DEADLINE)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--checkpoint DIR", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
