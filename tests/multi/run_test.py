"""`tutti run` with real processes: environment, output, exit codes, signals, and no survivors."""
import json
import os
import pty
import resource
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

TUTTI = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin", "tutti")
DEADLINE = 60


def command(*args, ranks=2):
    return [TUTTI, "run", "-n", str(ranks), *args]


def run(*args, ranks=2, **options):
    return subprocess.run(command(*args, ranks=ranks), text=True, capture_output=True,
                          timeout=DEADLINE, **options)


def shell(script, ranks=2, flags=(), **options):
    return run(*flags, "sh", "-c", script, ranks=ranks, **options)


def python(script, ranks=2, flags=(), **options):
    return run(*flags, sys.executable, "-c", script, ranks=ranks, **options)


def processes_of(run_id):
    """Every live process that carries the run's id in its environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_ours = f"TORCHELASTIC_RUN_ID={run_id}".encode() in file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as file:
                is_dead = file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if is_ours and not is_dead:
            found.append(int(pid))
    return found


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {DEADLINE} s: {what}")
        time.sleep(0.005)


class Job:
    """A job that runs while the test does something to it."""

    def __init__(self, script, ranks=2, flags=(), ready=None, stdout=subprocess.PIPE, before=()):
        self.id = "test-" + uuid.uuid4().hex[:12]
        self.process = subprocess.Popen(
            [*before, *command(*flags, "--rdzv-id", self.id, "sh", "-c", script, ranks=ranks)],
            text=True, stdout=stdout, stderr=subprocess.PIPE)
        self.early = []
        for _ in range(ranks if ready is None else ready):
            self.early.append(self.process.stdout.readline())

    def end(self):
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, "".join(self.early) + (out or ""), err

    def agent(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return int(file.read().split()[0])

    def agent_kib(self):
        """Its memory."""
        with open(f"/proc/{self.agent()}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        return int(status["VmRSS"].split()[0])

    def assert_gone(self):
        wait_until(lambda: not processes_of(self.id), f"processes of {self.id} are gone")


class Environment(unittest.TestCase):
    def test_ranks_get_the_variables_of_torchrun(self):
        names = ("RANK LOCAL_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE ROLE_WORLD_SIZE GROUP_RANK "
                 "GROUP_WORLD_SIZE ROLE_NAME MASTER_ADDR TORCHELASTIC_RESTART_COUNT "
                 "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TUTTI_AGENT_STORE").split()
        result = shell("echo " + " ".join("$" + name for name in names), ranks=3,
                       flags=["--rdzv-id", "job_7"], env={**os.environ, "RANK": "99"})
        self.assertEqual(sorted(result.stdout.splitlines()), [
            f"[rank {r}] {r} {r} {r} 3 3 3 0 1 default 127.0.0.1 0 0 job_7 1" for r in range(3)])

    def test_the_store_listens_at_master_port_and_turns_strangers_away(self):
        result = python("import os, socket\n"
                        "s = socket.create_connection((os.environ['MASTER_ADDR'],"
                        " int(os.environ['MASTER_PORT'])))\n"
                        "hello = b'tutti store 1\\n\\0\\0'\n"
                        "s.sendall(hello)\n"
                        "s.settimeout(10)\n"
                        "said = b''\n"
                        "try:\n"
                        "    while part := s.recv(100):\n"
                        "        said += part\n"
                        "except ConnectionResetError:\n"
                        "    pass\n"
                        "print(hello not in said)")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[rank 0] True", "[rank 1] True"])

    def test_ranks_inherit_one_key_that_nobody_can_change_or_read_elsewhere(self):
        code = ("import os\n"
                "fd = int(os.environ['TUTTI_KEY_FD'])\n"
                "key = os.pread(fd, 100, 0)\n"
                "try:\n"
                "    os.pwrite(fd, b'x', 0)\n"
                "    print('changed')\n"
                "except PermissionError:\n"
                "    pass\n"
                "told = str(os.environ) + open('/proc/self/cmdline').read()\n"
                "print(len(key), key.hex(), key.hex() in told)")
        first, second = (python(code).stdout.splitlines() for _ in range(2))
        keys = {line.split("] ")[1] for line in first}
        self.assertEqual(len(first), 2)
        self.assertEqual(len(keys), 1)
        self.assertRegex(keys.pop(), "^32 [0-9a-f]{64} False$")
        self.assertNotEqual(sorted(first), sorted(second))

    def test_a_key_is_a_new_private_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "key")
            made = [subprocess.run([TUTTI, "key", path], capture_output=True, text=True)
                    for _ in range(2)]
            self.assertEqual([made[0].returncode, made[0].stderr], [0, ""])
            with open(path) as file:
                self.assertRegex(file.read(), "^[0-9a-f]{64}\n$")
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
            self.assertEqual(made[1].returncode, 1)
            self.assertIn("exists", made[1].stderr)
            self.assertEqual(subprocess.run([TUTTI, "key"], capture_output=True).returncode, 2)
            env = {**os.environ, "TUTTI_KEY_FILE": path}
            self.assertEqual(shell("echo x", ranks=1, env=env).stdout, "x\n")

    def test_the_users_key_is_taken_and_must_be_private(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"5" * 64)
            file.flush()
            env = {**os.environ, "TUTTI_KEY_FILE": file.name}
            result = shell("echo ${TUTTI_KEY_FD:-none}", ranks=1, env=env)
            self.assertEqual(result.stdout, "none\n")
            os.chmod(file.name, 0o640)
            result = shell("echo started", ranks=1, env=env)
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(result.stdout, "")
            self.assertIn("chmod 600", result.stderr)

    def test_the_port_can_be_chosen_and_may_be_taken(self):
        import socket
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = str(busy.getsockname()[1])
            result = run("--master-port", port, "true")
            self.assertEqual(result.returncode, 1)
            self.assertIn(port, result.stderr)
            self.assertIn("in use", result.stderr)
        result = shell("echo $MASTER_PORT", ranks=1, flags=["--master-port", port])
        self.assertEqual(result.stdout, port + "\n")

    def bindings(self, ranks):
        result = python("import json, os\n"
                        "print(json.dumps([sorted(os.sched_getaffinity(0)),"
                        " int(os.environ['TUTTI_THREADS'])]))", ranks=ranks)
        return [json.loads(line[line.index("[["):]) for line in result.stdout.splitlines()]

    def test_ranks_share_the_cores(self):
        info = json.loads(subprocess.check_output([TUTTI, "info", "--json"]))
        cores, cpus = info["machine"]["cores"], os.sched_getaffinity(0)
        for ranks in sorted({1, max(1, cores // 2), cores}):
            bound = self.bindings(ranks)
            self.assertEqual(len(bound), ranks)
            self.assertEqual(sum(threads for _, threads in bound), cores)
            used = [cpu for mine, _ in bound for cpu in mine]
            self.assertEqual(sorted(used), sorted(cpus), "disjoint, and all of them")
        self.assertEqual([threads for _, threads in self.bindings(cores + 1)], [1] * (cores + 1))
        self.assertEqual(len(self.bindings("auto")), cores)

    def test_info_says_what_options_of_optimizers_are_by_default(self):
        options = json.loads(subprocess.check_output([TUTTI, "info", "--json"]))["options"]
        self.assertEqual(options["adam"], {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
                                           "weight_decay": 0})
        text = subprocess.check_output([TUTTI, "info"], text=True)
        section = text.split("\noptimizers: ")[1].split("\n\n")[0]
        self.assertRegex(section, r"\n  adamw .*\n    lr +0\.001, in \[0, inf\)\n")
        self.assertEqual(section.count(", in ["), sum(map(len, options.values())))

    def test_threads_are_left_alone_if_set(self):
        result = shell("echo $TUTTI_THREADS", env={**os.environ, "TUTTI_THREADS": "7"})
        self.assertEqual(sorted(result.stdout.splitlines()), ["[rank 0] 7", "[rank 1] 7"])

    def test_rank_0_reads_the_input_alone(self):
        result = shell("readlink /proc/self/fd/0; cat", input="to rank 0\n")
        self.assertRegex("\n".join(sorted(result.stdout.splitlines())), r"^\[rank 0\] pipe:\S+\n"
                         r"\[rank 0\] to rank 0\n\[rank 1\] /dev/null$")


class Output(unittest.TestCase):
    def test_one_rank_has_no_prefix(self):
        self.assertEqual(run("echo", "plain", ranks=1).stdout, "plain\n")

    def test_lines_are_never_torn(self):
        lines = 1000
        result = python("import os, sys\n"
                        "r = os.environ['RANK']\n"
                        f"for i in range({lines}):\n"
                        "    text = f'{i} ' + r * (i % 300)\n"
                        "    half = len(text) // 2\n"
                        "    os.write(1, text[:half].encode())\n"
                        "    os.write(1, (text[half:] + '\\n').encode())\n", ranks=4)
        self.assertEqual(result.returncode, 0)
        want = sorted(f"[rank {r}] {i} {str(r) * (i % 300)}" for r in range(4)
                      for i in range(lines))
        self.assertEqual(sorted(result.stdout.splitlines()), want)

    def test_streams_stay_apart_and_the_last_line_needs_no_end(self):
        result = shell("printf out; printf err >&2")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[rank 0] out", "[rank 1] out"])
        self.assertEqual(sorted(result.stderr.splitlines()), ["[rank 0] err", "[rank 1] err"])

    def test_a_very_long_line_arrives(self):
        result = python("print('x' * 300000)", ranks=1)
        self.assertEqual(result.stdout.replace("\n", ""), "x" * 300000)

    def test_progress_leaves_its_last_state(self):
        result = shell(r"printf 'step 1\rstep 2\r'; sleep 0.05; printf 'step 3\nend\r\n'")
        self.assertEqual(sorted(result.stdout.splitlines()), [
            "[rank 0] end", "[rank 0] step 3", "[rank 1] end", "[rank 1] step 3"])

    def test_progress_is_live_on_a_terminal(self):
        """Rank 0, which does not read the terminal, ends when its progress has been seen."""
        (master, slave), text = pty.openpty(), b""
        with tempfile.TemporaryDirectory() as folder:
            script = (r'[ $RANK = 1 ] && exit; [ "$(readlink /proc/self/fd/0)" = /dev/null ] &&'
                      r" [ $TUTTI_TERMINAL = 1 ] && printf 'step 1\r';"
                      f" until [ -f {folder}/seen ]; do sleep 0.02; done")
            streams = {"stdin": slave, "stdout": slave, "stderr": slave}
            job = subprocess.Popen(command("sh", "-c", script), **streams)
            os.close(slave)
            while select.select([master], [], [], DEADLINE)[0]:
                try:
                    text += os.read(master, 4096)
                except OSError:
                    break
                if text.endswith(b"step 1"):
                    open(os.path.join(folder, "seen"), "w").close()
            os.close(master)
            self.assertEqual(job.wait(DEADLINE), 0)
        self.assertEqual(text.split(b"\r\x1b[K"), [b"", b"[rank 0] step 1", b"[rank 0] step 1\r\n"])

    def test_logs_hold_what_was_redirected_and_teed(self):
        with tempfile.TemporaryDirectory() as folder:
            result = shell("echo out; echo err >&2", flags=[
                "--log_dir", folder, "--rdzv-id", "r", "--redirects", "0:1,1:2", "-t", "1:1"])
            self.assertIn(folder, result.stderr)
            self.assertEqual(result.stdout, "[rank 1] out\n")
            self.assertIn("[rank 0] err\n", result.stderr)
            self.assertNotIn("[rank 1] err\n", result.stderr)
            found = {}
            for base, _, names in os.walk(folder):
                for name in names:
                    with open(os.path.join(base, name)) as file:
                        found[os.path.relpath(os.path.join(base, name), folder)] = file.read()
            self.assertEqual(found, {"r/attempt_0/0/stdout.log": "out\n",
                                     "r/attempt_0/1/stdout.log": "out\n",
                                     "r/attempt_0/1/stderr.log": "err\n"})


class Ends(unittest.TestCase):
    def test_success_is_silent(self):
        result = run("true")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_the_first_failure_is_named_last_with_its_words(self):
        result = shell("[ $RANK = 1 ] || exec sleep 60; for i in $(seq 500); do echo line $i >&2;"
                       " done; exit 7")
        self.assertEqual(result.returncode, 7)
        lines = result.stderr.splitlines()
        self.assertEqual(lines[-1], "rank 1: exit code 7")
        self.assertEqual(lines[-2], "  | line 500")
        self.assertIn("rank 1, last lines of stderr:", lines)

    def test_a_signal_is_named(self):
        for number, name in ((9, "KILL"), (11, "SEGV"), (6, "ABRT"), (1, "HUP")):
            result = shell(f"[ $RANK = 2 ] && kill -{number} $$; exec sleep 60", ranks=3)
            self.assertEqual(result.stderr.splitlines()[-1], f"rank 2: killed by SIG{name}")
            self.assertEqual(result.returncode, 128 + number)

    def test_a_rank_that_was_killed_is_named_before_one_that_noticed(self):
        # Rank 1 dies as soon as rank 0 is no more: as if it had taken that long to be torn down.
        with tempfile.TemporaryDirectory() as folder:
            result = shell(f"cd {folder}; if [ $RANK = 0 ]; then echo $$ > new; mv new pid;"
                           " until [ -f deaf ]; do :; done; exit 1; fi;"
                           " trap '' TERM; echo > deaf; until [ -f pid ]; do :; done;"
                           " while kill -0 $(cat pid) 2> /dev/null; do :; done; kill -9 $$")
        self.assertEqual(result.stderr.splitlines()[-1], "rank 1: killed by SIGKILL")
        self.assertEqual(result.returncode, 128 + 9)

    def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(self):
        start = time.monotonic()
        result = shell("[ $RANK = 0 ] && sleep 0.1 && exit 3; trap '' TERM; while :; do sleep 60;"
                       " done", flags=["--grace", "0.2"])
        self.assertEqual(result.returncode, 3)
        self.assertLess(time.monotonic() - start, 20)

    def test_a_command_that_does_not_exist(self):
        result = run("no-such-command")
        self.assertEqual(result.returncode, 127)
        self.assertIn("no-such-command: No such file", result.stderr)
        result = run("/etc/passwd")
        self.assertEqual(result.returncode, 126)
        self.assertIn("Permission denied", result.stderr)

    def test_mistakes_are_answered_with_what_is_meant(self):
        for args, want in ((["--redirect", "1", "true"], "--redirects"),
                           (["--master-prt", "1", "true"], "--master-port"),
                           (["--tee", "4", "true"], "0 to 3"),
                           (["--tee", "5:1", "true"], "0 to 3"),
                           (["--nnodes", "1:2", "true"], "not supported"),
                           (["--rdzv-id", "../x", "true"], "run id"),
                           ([], "no command")):
            result = run(*args)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn(want, result.stderr)
        for ranks in ("0", "x", "-1", "5000"):
            self.assertEqual(run("true", ranks=ranks).returncode, 2, ranks)
        result = subprocess.run([TUTTI, "rnu"], text=True, capture_output=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn('"run"', result.stderr)

    def test_what_a_rank_leaves_behind_ends_with_the_job(self):
        job = Job("setsid sh -c 'echo here; exec sleep 60' & sleep 0.1")
        code, _, _ = job.end()
        self.assertEqual(code, 0)
        self.assertEqual(processes_of(job.id), [])


class Signals(unittest.TestCase):
    def test_a_killed_rank_ends_the_job(self):
        job = Job("echo $$; exec sleep 60", ranks=3)
        pid = next(int(line.split()[-1]) for line in job.early if line.startswith("[rank 2]"))
        os.kill(pid, signal.SIGKILL)
        code, _, err = job.end()
        self.assertEqual(code, 137)
        self.assertEqual(err.splitlines()[-1], "rank 2: killed by SIGKILL")
        self.assertEqual(processes_of(job.id), [])

    def test_nothing_survives_a_killed_launcher(self):
        script = "sleep 60 & setsid sleep 60 & echo ready; sleep 60"
        for victim in ("guard", "agent"):
            job = Job(script)
            wait_until(lambda: len(processes_of(job.id)) >= 8, "all have started")
            os.kill(job.process.pid if victim == "guard" else job.agent(), signal.SIGKILL)
            job.assert_gone()
            code, _, err = job.end()
            if victim == "agent":
                self.assertEqual(code, 1)
                self.assertIn("agent was killed", err)

    def test_nothing_survives_a_launcher_whose_output_is_stuck(self):
        job = Job("yes $$", ready=0)
        wait_until(lambda: len(processes_of(job.id)) >= 2, "both have started")
        time.sleep(0.3)  # the pipe fills
        os.kill(job.process.pid, signal.SIGKILL)
        job.assert_gone()
        job.process.stdout.close()
        job.process.stderr.close()
        job.process.wait(DEADLINE)

    def stuck(self, script, *flags):
        """A job whose outputs nobody reads, once they hold all that they can."""
        job = Job(script, flags=flags, ready=0)
        wait_until(lambda: len(processes_of(job.id)) >= 2, "both have started")
        time.sleep(0.3)  # the pipes fill
        return job

    def test_a_launcher_whose_output_is_stuck_hears_signals(self):
        for script in ("yes", "yes >&2"):
            for number in (signal.SIGTERM, signal.SIGINT):
                job = self.stuck(script, "--grace", "1")
                job.process.send_signal(number)
                self.assertEqual(job.process.wait(DEADLINE), 128 + number, script)
                job.assert_gone()
                job.end()

    def test_a_launcher_whose_terminal_is_stuck_hears_signals(self):
        for script in ("yes", "yes a line of a length that is no power of two"):
            master, slave = os.openpty()
            job = Job(script, flags=("--grace", "1"), ready=0, stdout=slave)
            os.close(slave)
            wait_until(lambda: len(processes_of(job.id)) >= 2, "both have started")
            time.sleep(0.3)  # the terminal fills
            job.process.send_signal(signal.SIGTERM)
            try:
                self.assertEqual(job.process.wait(DEADLINE), 128 + signal.SIGTERM, script)
            finally:
                os.close(master)
            job.assert_gone()
            job.end()

    def test_a_second_interrupt_is_enough_where_the_output_is_stuck(self):
        job = self.stuck("yes", "--grace", "1000")
        job.process.send_signal(signal.SIGINT)
        job.assert_gone()
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.process.wait(DEADLINE), 128 + signal.SIGINT)
        job.end()

    def test_a_launcher_whose_output_is_stuck_sees_deaths(self):
        job = self.stuck("[ $RANK = 0 ] && exec yes; exec sleep 100", "--grace", "1")
        os.kill(processes_of(job.id)[0], signal.SIGKILL)
        job.assert_gone()
        code, out, err = job.end()
        self.assertEqual(code, 137, err)
        self.assertRegex(err, r"rank \d: killed by SIGKILL\n$")

    def test_what_waits_for_its_reader_is_bounded(self):
        job = self.stuck("yes")
        before = job.agent_kib()
        time.sleep(0.3)
        self.assertLess(job.agent_kib(), before + 1024)
        job.process.kill()
        job.assert_gone()
        job.end()

    def test_what_waits_for_its_reader_is_all_there(self):
        lines = 100000
        job = Job(f"seq {lines}", ready=0)
        wait_until(lambda: len(processes_of(job.id)) >= 2, "both have started")
        time.sleep(0.3)
        code, out, err = job.end()
        self.assertEqual(code, 0, err)
        for rank in range(2):
            mark = f"[rank {rank}] "
            own = [line[len(mark):] for line in out.splitlines() if line.startswith(mark)]
            self.assertEqual(own, [str(i) for i in range(1, lines + 1)])

    def test_signals_reach_every_rank(self):
        for name in ("USR1", "USR2", "HUP", "TERM", "INT", "QUIT", "WINCH", "ALRM"):
            job = Job(f"trap 'echo got {name}; exit 0' {name}; echo ready; "
                      "while :; do sleep 0.02; done")
            job.process.send_signal(getattr(signal, "SIG" + name))
            code, out, _ = job.end()
            self.assertEqual(code, 0, name)
            self.assertEqual(sorted(out.splitlines())[:2], [f"[rank 0] got {name}",
                                                            "[rank 0] ready"])
            self.assertEqual(out.count(f"got {name}"), 2)

    def test_what_whoever_starts_a_job_ignores_does_not_end_it(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(f"echo ready; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo done",
                      before=["env", "--ignore-signal=HUP,INT"])
            for number in (signal.SIGHUP, signal.SIGINT):
                job.process.send_signal(number)
            time.sleep(0.2)  # what is to fail has time to
            with open(f"{folder}/go", "w"):
                pass
            code, out, err = job.end()
        self.assertEqual([code, out.count("done\n"), err], [0, 2, ""])

    def test_ranks_that_a_signal_ends_have_their_grace(self):
        # The first to end does so with a failure; the other still has work to do.
        with tempfile.TemporaryDirectory() as folder:
            job = Job(f"trap 'exit 1' INT; trap 'echo hit' TERM; [ $RANK = 0 ] &&"
                      f" echo $$ >{folder}/pid || trap 'while kill -0 $(cat {folder}/pid); do :;"
                      " done; sleep 0.2; echo saved; exit 1' INT;"
                      " echo ready; while :; do sleep 0.02; done")
            job.process.send_signal(signal.SIGINT)
            code, out, err = job.end()
        self.assertIn("[rank 1] saved", out)
        self.assertNotIn("hit", out)
        self.assertEqual(code, 1, err)

    def test_an_interrupted_job_says_so(self):
        job = Job("echo ready; exec sleep 60")
        job.process.send_signal(signal.SIGINT)
        code, _, err = job.end()
        self.assertEqual(code, 130)
        self.assertIn("stopped by SIGINT\n", err)

    def test_a_second_interrupt_kills(self):
        job = Job("trap 'echo no' INT; echo ready; while :; do sleep 0.02; done")
        job.process.send_signal(signal.SIGINT)
        while "no" not in job.process.stdout.readline():
            pass
        job.process.send_signal(signal.SIGINT)
        code, _, err = job.end()
        self.assertEqual(code, 137)
        self.assertIn("killed by SIGKILL", err)

    def test_a_job_can_be_stopped_and_go_on(self):
        # No shell: one that is stopped while it vforks sleeps in the kernel, and is not "T".
        waiting = ("import os, signal; s = {signal.SIGUSR1};"
                   " signal.pthread_sigmask(signal.SIG_BLOCK, s); print(os.getpid(), flush=True);"
                   " signal.sigwait(s); print('end')")
        job = Job(f"exec {sys.executable} -c {shlex.quote(waiting)}")
        pid = int(job.early[0].split()[-1])
        job.process.send_signal(signal.SIGTSTP)

        def state(of):
            with open(f"/proc/{of}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]

        wait_until(lambda: state(pid) == "T" and state(job.process.pid) == "T", "stopped")
        job.process.send_signal(signal.SIGCONT)
        job.process.send_signal(signal.SIGUSR1)
        code, out, _ = job.end()
        self.assertEqual(code, 0)
        self.assertEqual(out.count("end"), 2)

    def test_an_ignored_sigchld_does_not_hang(self):
        result = run("true", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(result.returncode, 0)


class Speed(unittest.TestCase):
    def test_a_trivial_job_takes_less_than_50_ms(self):
        """Measured 10 ms on two cores. Other builds than release get ten times as long. What a job
        takes by itself is the shortest time; on a busy machine it takes many jobs to see it."""
        with open(os.path.join(os.environ["TUTTI_BINARY_DIR"], "CMakeCache.txt")) as file:
            limit = 0.05 if "CMAKE_BUILD_TYPE:STRING=Release" in file.read() else 0.5
        shortest = float("inf")
        for _ in range(200):
            start = time.monotonic()
            subprocess.run(command("true"), check=True)
            shortest = min(shortest, time.monotonic() - start)
            if shortest < limit:
                break
        self.assertLess(shortest, limit)


class Readers(unittest.TestCase):
    """What becomes of a job when its output does not get where it should."""
    endless = "while :; do echo line; sleep 0.05; done"

    def pipe_to(self, reader, *args, run_id=None):
        """The launcher's code, and what reader said."""
        script = f"{shlex.join(command(*args))}; echo $? >&3"
        with tempfile.TemporaryFile("w+") as code:
            done = subprocess.run(["bash", "-c", f"{{ {script}; }} 3>&{code.fileno()} | {reader}"],
                                  text=True, capture_output=True, timeout=DEADLINE,
                                  pass_fds=[code.fileno()])
            code.seek(0)
            return int(code.read()), done.stdout, done.stderr

    def test_a_reader_that_has_gone_ends_the_job(self):
        run_id = uuid.uuid4().hex
        code, text, errors = self.pipe_to("head -2", "--rdzv-id", run_id, "sh", "-c", self.endless)
        self.assertEqual(code, 128 + signal.SIGPIPE, errors)
        self.assertEqual(len(text.splitlines()), 2)
        self.assertIn("nobody reads the output any more", errors)
        self.assertEqual(processes_of(run_id), [])

    def test_it_is_no_failure_that_is_tried_again(self):
        code, text, _ = self.pipe_to("head -2", "--max-restarts", "3", "sh", "-c", self.endless)
        self.assertEqual(code, 128 + signal.SIGPIPE)
        self.assertEqual(len(text.splitlines()), 2)

    def test_output_that_is_lost_at_the_end_counts(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(command("sh", "-c", "echo line"), stdout=writer,
                                  stderr=subprocess.PIPE, timeout=DEADLINE)
        finally:
            os.close(writer)
        self.assertEqual(done.returncode, 128 + signal.SIGPIPE, done.stderr)

    def test_a_ranks_own_failure_comes_first(self):
        code, _, errors = self.pipe_to("cat", "sh", "-c", "exit 7")
        self.assertEqual(code, 7, errors)

    def test_a_full_disk_is_told_and_lets_the_job_end(self):
        with open("/dev/full", "w") as full, tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command("sh", "-c", f"echo line; echo on > {folder}/$RANK"), text=True,
                stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE)
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("what ranks print on stdout is lost from here on: No space left on device",
                      done.stderr)
        self.assertRegex(done.stderr, r"what ranks printed on stdout is not all there: "
                                      r"No space left on device\n$")

    def test_verbs_tell_of_a_full_disk(self):
        for verb in (["info"], ["info", "--json"], ["--help"], ["--version"], ["run", "--help"],
                     ["explain"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TUTTI, *verb], text=True, stdout=full,
                                      stderr=subprocess.PIPE, timeout=DEADLINE)
            self.assertNotEqual(done.returncode, 0, verb)
            self.assertIn("cannot write all of its output: No space left on device", done.stderr)

    def test_a_log_that_is_cut_short_counts(self):
        """A limit on the size of files stands for a full disk."""
        with tempfile.TemporaryDirectory() as folder:
            done = run("--log-dir", folder, "sh", "-c", "seq 1 3000",
                       preexec_fn=lambda: limit_files(4096))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"rank \d's log is not all there: File too large")
        self.assertIn("[rank 1] 3000\n", done.stdout)


def limit_files(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


if __name__ == "__main__":
    unittest.main(verbosity=2)
