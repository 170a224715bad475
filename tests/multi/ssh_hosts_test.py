"""`tutti run --hosts`: launchers that are started by ssh, here by a script in its place, which runs
what it is told to on this host."""
import os
import signal
import subprocess
import tempfile
import unittest
import uuid

import jobs
from run_test import processes_of, wait_until

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
DEADLINE = 60

# As sshd: a new environment, the home folder, a shell; with a word of the shell's own before.
SSH = r"""#!/bin/sh
{ printf '<%s>' "$@"; echo; tr '\0' '\n' </proc/self/environ; } >>"$(dirname "$0")/told"
for host; do case $host in
    gone*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
    other*) echo "Host key verification failed." >&2; exit 255 ;;
    odd*) exit 3 ;;
    silent*) exec sleep 60 ;;
    loud*) printf 'welcome to\n%s' "$host" ;;
    -*) ;;
    *) break ;;
esac; done
for command; do :; done
env -i PATH="$PATH" HOME="$(dirname "$0")" sh -c "cd; $command"
exit $?
"""


def setUpModule():
    global SCRIPT, FOLDER
    FOLDER = unittest.enterModuleContext(tempfile.TemporaryDirectory())
    SCRIPT = os.path.join(FOLDER, "ssh")
    with open(SCRIPT, "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
        file.write(SSH)


def command(hosts, *args):
    return [TUTTI, "run", "--ssh", SCRIPT, "--hosts", hosts, "--master-addr", "127.0.0.1",
            "--grace", "5", *args]


def run(hosts, *args, **options):
    return subprocess.run(command(hosts, *args), text=True, capture_output=True, timeout=DEADLINE,
                          **options)


def shell(hosts, script, *flags, **options):
    return run(hosts, *flags, "sh", "-c", script, **options)


class Start(unittest.TestCase):
    def test_ranks_of_all_hosts_reduce_together(self):
        result = run("a:2,b", os.path.join(BIN, "04_all_reduce"))
        self.assertEqual([result.returncode, result.stderr], [0, ""])
        self.assertEqual(sorted(result.stdout.splitlines()), sorted(
            f"[rank {rank}] rank {rank}: the {what}" for rank in range(3)
            for what in ("sum is 6 6 6 6", "average is 1 1 1 1")))

    def test_one_host_has_lines_without_a_rank(self):
        result = run("a:1", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual([result.returncode, result.stdout, result.stderr], [0, "out\n", "err\n"])

    def test_hosts_come_from_a_file(self):
        path = os.path.join(FOLDER, "hosts")
        with open(path, "w") as file:
            file.write("# hosts\na slots=2 max_slots=4  # two\n\nuser@b:1\n[::1] slots = 1\nc\n")
        result = subprocess.run(
            [TUTTI, "run", "--ssh", SCRIPT, "--hostfile", path, "--master-addr", "127.0.0.1", "-n",
             "3", "sh", "-c", "echo $GROUP_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE"], text=True,
            capture_output=True, timeout=DEADLINE)
        self.assertEqual([result.returncode, result.stderr], [0, ""])
        self.assertEqual(sorted(line.split("] ")[1] for line in result.stdout.splitlines()),
                         ["0 2 7"] * 2 + ["1 1 7", "2 1 7"] + ["3 3 7"] * 3)

    def test_arguments_variables_and_the_folder_arrive_as_they_are(self):
        folder = os.path.join(FOLDER, "a folder; 'and' \"more\"\n$(x)")
        os.makedirs(folder, exist_ok=True)
        odd = "a b'c\"d\ne\\f$(g)`h`\u00e9\t*"
        result = run("a,b", "-x", "GIVEN=" + odd, "-x", "TAKEN", "-x", "EMPTY=", "sh", "-c",
                     'printf "%s|" "$PWD" "$1" "$2" "$GIVEN" "$TAKEN" "${EMPTY-unset}" '
                     '"${LEFT-unset}" "$TUTTI_REPORT_MS"', "sh", odd, "",
                     cwd=folder, env=os.environ | {"TAKEN": odd, "LEFT": "1",
                                                   "TUTTI_REPORT_MS": "12345"})
        self.assertEqual([result.returncode, result.stderr], [0, ""])
        said = "|".join([folder, odd, "", odd, odd, "", "unset", "12345", ""])
        want = [f"[rank {rank}] {line}" for rank in (0, 1) for line in said.split("\n")]
        self.assertEqual(sorted(result.stdout.split("\n")), sorted([*want, ""]))

    def test_another_folder_and_another_client_may_be_named(self):
        result = shell("a", "pwd; echo $PPID", "--wdir", "/usr", "--ssh", f"'{SCRIPT}' -p 22")
        self.assertEqual(result.stdout.split("\n")[0], "/usr", result.stderr)
        with open(os.path.join(FOLDER, "told")) as file:
            self.assertIn(f"<-p><22><a><'{TUTTI}' run --agent>\n", file.read())

    def test_the_key_and_the_variables_are_in_no_argument(self):
        key = os.urandom(32).hex()
        path = os.path.join(FOLDER, "key")
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key + "\n")
        result = shell("a,b", "cat /proc/[0-9]*/cmdline | tr -d '\\0' >all$RANK; cat all$RANK;"
                              " tr '\\0' '\\n' </proc/self/environ", "--key-file", path, "--wdir",
                       FOLDER, "-x", "SECRET=hidden")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(os.path.join(FOLDER, "told")) as file:
            told = file.read()
        self.assertIn("<a>", told)
        self.assertNotIn("hidden", told)
        self.assertNotIn(key, told + result.stdout)
        self.assertEqual(result.stdout.count("SECRET=hidden\n"), 2)
        for rank in (0, 1):
            with open(os.path.join(FOLDER, f"all{rank}"), errors="replace") as file:
                self.assertIn("run--agent", file.read())

    def test_the_shell_there_may_talk_first(self):
        result = shell("loud:1", "echo here")
        self.assertEqual([result.returncode, result.stdout, result.stderr],
                         [0, "here\n", "[loud] welcome to\n[loud] loud\n"])

    def test_lines_come_whole_and_in_order(self):
        result = shell("a:2,b:1", "yes $RANK | head -c 70000 | tr -d '\\n'; echo; seq 20000")
        self.assertEqual([result.returncode, result.stderr], [0, ""])
        for rank in range(3):
            lines = [line[9:] for line in result.stdout.splitlines()
                     if line.startswith(f"[rank {rank}] ")]
            self.assertEqual("".join(lines[:1]), str(rank) * 35000)
            self.assertEqual(lines[1:], [str(i) for i in range(1, 20001)])


class Failures(unittest.TestCase):
    def refuse(self, code, text, *args):
        result = run(*args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(text, result.stderr.splitlines()[-1])
        return result

    def test_the_first_failing_rank_is_named(self):
        result = self.refuse(7, "rank 2 on node 1 (", "a:2,b:1", "sh", "-c",
                             "[ $RANK = 2 ] || exec sleep 60; echo why >&2; exit 7")
        self.assertIn("rank 2, last lines of stderr:\n  | why\nrank 2 on", result.stderr)

    def test_a_killed_rank_is_named(self):
        self.refuse(137, "): killed by SIGKILL", "a,b", "sh", "-c",
                    "[ $RANK = 0 ] || exec sleep 60; kill -9 $$")

    def test_a_host_that_cannot_be_reached_is_named(self):
        self.refuse(1, "tutti run: host gone: ssh cannot start anything there: ssh: connect to host"
                       " gone port 22: Connection refused", "a:2,gone", "sleep", "60")
        self.refuse(1, "host other: ssh cannot start anything there: Host key verification failed.",
                    "a,other", "sleep", "60")
        self.refuse(1, "host odd: ssh ended with exit code 3 before tutti answered", "odd", "true")

    def test_a_host_that_does_not_answer_is_named(self):
        self.refuse(1, "host silent: tutti has not answered there until --join-timeout was over",
                    "a,silent", "--join-timeout", "2", "sleep", "60")

    def test_a_host_without_tutti_is_named(self):
        self.refuse(127, "host a: /no where/tutti cannot be run there: ", "a", "--tutti",
                    "/no where/tutti", "true")

    def test_a_command_that_is_not_there_is_named(self):
        for hosts in ("a", "a,b"):
            self.refuse(127, ": command /no/where: No such file or directory", hosts, "/no/where")

    def test_a_folder_that_is_not_there_is_named(self):
        self.refuse(1, "host a: folder /no/where: No such file or directory", "a", "--wdir",
                    "/no/where", "true")

    def test_a_client_that_is_not_there_is_named(self):
        self.refuse(127, "not found", "a", "--ssh", "/no/where", "true")
        result = subprocess.run([TUTTI, "run", "--hosts", "a", "true"], text=True,
                                capture_output=True, timeout=DEADLINE,
                                env=os.environ | {"PATH": "/no/where"})
        self.assertEqual(result.returncode, 127)
        self.assertIn("host a: cannot execute ssh (give another client with --ssh)", result.stderr)

    def test_ranks_begin_again_on_all_hosts(self):
        result = shell("a,b:2", "echo $RANK $TORCHELASTIC_RESTART_COUNT; "
                                "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                                "[ $RANK = 2 ] && exit 5; exec sleep 60", "--max-restarts", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLessEqual({f"[rank {rank}] {rank} 1" for rank in range(3)},
                             set(result.stdout.splitlines()))
        self.assertRegex(result.stderr, r"^\[node 0\] rank 2 on node 1 \(.*\): exit code 5; "
                                        r"restart 1 of 1\n$")

    def test_logs_are_on_the_hosts(self):
        folder = os.path.join(FOLDER, "logs")
        result = shell("a,b", "echo $RANK", "--log-dir", folder, "--rdzv-id", "j", "-r", "1:1")
        self.assertEqual([result.returncode, result.stdout], [0, "[rank 0] 0\n"], result.stderr)
        with open(os.path.join(folder, "j", "attempt_0", "1", "stdout.log")) as file:
            self.assertEqual(file.read(), "1\n")


class Ends(unittest.TestCase):
    """However it ends, nobody is left on any host."""

    def setUp(self):
        self.id = "ssh-" + uuid.uuid4().hex[:12]

    def start(self, script="echo up; exec sleep 60", stdout=subprocess.PIPE):
        job = subprocess.Popen(
            command("a:2,b:1", "--rdzv-id", self.id, "sh", "-c", script), text=True, stdout=stdout,
            stderr=subprocess.PIPE)
        for _ in range(3):
            job.stdout.readline()
        return job

    def assert_gone(self):
        wait_until(lambda: not processes_of(self.id), "the ranks are gone")

    def children(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]

    def test_a_signal_stops_all_hosts(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.start("trap 'echo bye; exit 1' INT TERM; echo up; sleep 60 & wait")
            job.send_signal(number)
            (code,), (out,), (err,) = jobs.end([job])
            self.assertEqual(code, 128 + number, err)
            self.assertIn(f"stopped by {number.name}\n", err)
            self.assertEqual(out.count("bye"), 3)
            self.assert_gone()

    def test_other_signals_reach_all_ranks(self):
        job = self.start("trap 'echo heard; exit 0' USR1; echo up; "
                         "while :; do sleep 60 & wait $!; done")
        job.send_signal(signal.SIGUSR1)
        (code,), (out,), (err,) = jobs.end([job])
        self.assertEqual([code, out.count("heard")], [0, 3], err)

    def test_a_second_interrupt_kills(self):
        job = self.start("trap 'echo heard' INT; echo up; while :; do sleep 0.05; done")
        job.send_signal(signal.SIGINT)
        for _ in range(3):
            job.stdout.readline()
        job.send_signal(signal.SIGINT)
        (code,), _, (err,) = jobs.end([job])
        self.assertEqual(code, 130, err)
        self.assert_gone()

    def test_killed_launchers_leave_nobody(self):
        for victim in ("guard", "agent", "ssh"):
            job = self.start()
            agent = self.children(job.pid)[0]
            os.kill({"guard": job.pid, "agent": agent}.get(victim) or self.children(agent)[-1],
                    signal.SIGKILL)
            (code,), _, (err,) = jobs.end([job])
            self.assertNotEqual(code, 0)
            if victim == "ssh":
                self.assertEqual(code, 1)
                self.assertRegex(err.splitlines()[-1],
                                 "^host b: lost, ssh ended by signal 9$")
            self.assert_gone()

    def test_a_reader_that_goes_ends_the_job(self):
        read, write = os.pipe()
        job = subprocess.Popen(command("a,b", "--rdzv-id", self.id, "yes"), stdout=write,
                               stderr=subprocess.PIPE, text=True)
        os.close(write)
        os.read(read, 100)
        os.close(read)
        (code,), _, (err,) = jobs.end([job])
        self.assertEqual(code, 141, err)
        self.assert_gone()

    def test_an_agent_whose_launcher_says_nothing_ends(self):
        result = subprocess.run([TUTTI, "run", "--agent"], stdin=subprocess.DEVNULL, text=True,
                                capture_output=True, timeout=DEADLINE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard input ended before the job was there", result.stderr)
        result = subprocess.run([TUTTI, "run", "--agent"], input="x" * 100, text=True,
                                capture_output=True, timeout=DEADLINE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard input is no job", result.stderr)


class Refusals(unittest.TestCase):
    def test_bad_hosts_are_refused(self):
        path = os.path.join(FOLDER, "bad")
        with open(path, "w") as file:
            file.write("a\nb slots=0\n")
        with open(path + "2", "w") as file:
            file.write("a cores=4\n")
        with open(path + "3", "w") as file:
            file.write("# none\n")
        for flags, text in (
                (["--hosts", ""], '--hosts : host "": want the name'),
                (["--hosts", "a,,b"], 'host "": want the name'),
                (["--hosts", "a:0"], 'host "a": 0 ranks; want a number from 1 to 4096'),
                (["--hosts", "a:x"], 'host "a": x ranks; want'),
                (["--hosts", "a:"], 'host "a": no number of ranks; want'),
                (["--hosts", "a:5000"], "5000 ranks; want"),
                (["--hosts", "-oProxyCommand=x"], "the value is missing|want the name"),
                (["--hosts=-oProxyCommand=x"], "want the name"),
                (["--hosts", "a:1,b,a:2"], 'host "a": it is named twice'),
                (["--hosts", "a b"], "want the name"),
                (["--hostfile", "/no/where"], "--hostfile /no/where: No such file or directory"),
                (["--hostfile", path], f'--hostfile {path}, line 2: host "b": 0 ranks'),
                (["--hostfile", path + "2"], "want slots=N behind it"),
                (["--hostfile", path + "3"], "no host in it"),
                (["--hosts", "a", "--hostfile", path], "either it or --hosts"),
                (["--hosts", "a", "--nnodes", "2"], "no --nnodes"),
                (["--ssh", "x"], "--ssh x: want --hosts"),
                (["--wdir", "/"], "--wdir /: want --hosts"),
                (["--hosts", "a", "--wdir", "x"], "folder x: want one that begins with /"),
                (["--hosts", "a", "-x", "NOT_SET_AT_ALL"], "--export NOT_SET_AT_ALL: want NAME"),
                (["--hosts", "a", "-x", "=1"], "want NAME"),
                (["--agent"], "--agent takes its command from stdin")):
            result = subprocess.run([TUTTI, "run", *flags, "true"], text=True, capture_output=True,
                                    timeout=DEADLINE)
            self.assertEqual(result.returncode, 2, flags)
            self.assertRegex(result.stderr, text.replace("(", r"\("))

    def test_a_variable_is_for_ranks_of_one_host_too(self):
        result = subprocess.run([TUTTI, "run", "-x", "A=b c", "sh", "-c", "echo $A"], text=True,
                                capture_output=True, timeout=DEADLINE)
        self.assertEqual([result.returncode, result.stdout], [0, "b c\n"], result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
