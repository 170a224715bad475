"""`tutti run --hosts` with OpenSSH: three hosts in network namespaces, an sshd on two of them, the
launcher on the third. Keys are made here, and no file of the user's is read: a shell that is killed
while it reads ~/.bashrc could leave a lock there, for which the next one waits."""
import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import uuid

import jobs
import netns
from run_test import processes_of, wait_until

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


def why_not():
    if SSHD is None or shutil.which("ssh") is None:
        return "sshd or ssh is not installed (openssh-server, openssh-client)"
    return netns.why_not()


def write(path, text, mode=0o600):
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(text)
    return path


@unittest.skipIf(why_not(), why_not())
class Ssh(unittest.TestCase):
    def setUp(self):
        self.id = "sshd-" + uuid.uuid4().hex[:12]
        self.hosts = self.enterContext(netns.Hosts(3))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for name in ("host_key", "user_key", "other_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)],
                           check=True)
        shutil.copy(self.path("user_key.pub"), self.path("authorized"))
        with open(self.path("host_key.pub")) as file:
            key = file.read()
        write(self.path("known"), "".join(f"{self.hosts.address(host)} {key}" for host in (1, 2)))
        write(self.path("client"), f"""\
            IdentityFile {self.path("user_key")}
            IdentitiesOnly yes
            IdentityAgent none
            UserKnownHostsFile {self.path("known")}
            GlobalKnownHostsFile /dev/null
            User {getpass.getuser()}
        """)
        # What the launcher starts by default, with the test's settings.
        os.mkdir(self.path("bin"))
        write(self.path("bin/ssh"), f'#!/bin/sh\nexec {shutil.which("ssh")} -F '
                                    f'{self.path("client")} "$@"\n', 0o755)
        os.makedirs("/run/sshd", exist_ok=True)
        self.servers = [self.serve(host) for host in (1, 2)]

    def path(self, name):
        return os.path.join(self.folder, name)

    def serve(self, host):
        config = write(self.path(f"server{host}"), f"""\
            HostKey {self.path("host_key")}
            AuthorizedKeysFile {self.path("authorized")}
            ListenAddress {self.hosts.address(host)}
            PermitRootLogin yes
            SetEnv HOME={self.folder}
            StrictModes no
            UsePAM no
            PidFile {self.path(f"pid{host}")}
        """)
        server = self.hosts.popen(host, [SSHD, "-D", "-e", "-f", config],
                                  stderr=subprocess.PIPE, text=True)
        while "listening on" not in (line := server.stderr.readline()):
            self.assertNotEqual(line, "", "sshd has ended")
        server.stderr.close()  # it does not need it any more: see -e
        return server

    def start(self, *args, ranks=(2, 1), **variables):
        names = ",".join(f"{self.hosts.address(host)}:{count}"
                         for host, count in enumerate(ranks, 1))
        return self.hosts.popen(
            0, [TUTTI, "run", "--hosts", names, "--rdzv-id", self.id, "--grace", "5", *args],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
            env={**os.environ, "PATH": self.path("bin") + ":" + os.environ["PATH"], **variables})

    def run_to_end(self, *args, **options):
        (code,), (out,), (err,) = jobs.end([self.start(*args, **options)])
        return code, out, err

    def start_and_wait(self, script="echo up; exec sleep 100"):
        job = self.start("sh", "-c", script)
        for _ in range(3):
            job.stdout.readline()
        return job

    def assert_gone(self):
        wait_until(lambda: not processes_of(self.id), "the ranks are gone")

    def test_ranks_reduce_over_hosts_that_meet_where_ssh_came_to(self):
        code, out, err = self.run_to_end("sh", "-c",
                                         f"echo $MASTER_ADDR $PWD; exec {BIN}/04_all_reduce")
        self.assertEqual([code, err], [0, ""])
        self.assertEqual(out.count("the sum is 6 6 6 6\n"), 3)
        self.assertEqual(out.count(f"] {self.hosts.address(1)} {self.folder}\n"), 3)

    def test_arguments_and_variables_arrive_as_they_are(self):
        odd = "a b'c\"d\ne\\f$(g)`h`!*\t%"
        code, out, err = self.run_to_end("-x", "ODD", "sh", "-c", 'printf "%s\n%s" "$1" "$ODD"',
                                         "sh", odd, ranks=(1,), ODD=odd)
        self.assertEqual([code, out, err], [0, f"{odd}\n{odd}\n", ""])

    def test_a_host_that_is_not_known_is_refused(self):
        write(self.path("known"), "")
        code, _, err = self.run_to_end("true")
        self.assertEqual(code, 1)
        self.assertIn("ssh cannot start anything there: Host key verification failed.\n", err)

    def test_a_user_who_is_not_let_in_is_told_so(self):
        shutil.copy(self.path("other_key.pub"), self.path("authorized"))
        code, _, err = self.run_to_end("true")
        self.assertEqual(code, 1)
        self.assertRegex(err, "ssh cannot start anything there: .*Permission denied")

    def test_a_host_without_a_server_is_named(self):
        self.servers[1].kill()
        self.servers[1].wait()
        code, _, err = self.run_to_end("sleep", "100")
        self.assertEqual(code, 1)
        self.assertRegex(err, rf"host {self.hosts.address(2)}: ssh cannot start anything there: "
                              r".*Connection refused")
        self.assert_gone()

    def test_a_host_without_tutti_is_named(self):
        code, _, err = self.run_to_end("--tutti", "/no where/it's", "true")
        self.assertEqual(code, 127)
        self.assertRegex(err, "/no where/it's cannot be run there: .*No such file")

    def test_a_rank_that_fails_ends_all(self):
        code, _, err = self.run_to_end("sh", "-c", "[ $RANK = 2 ] || exec sleep 100; exit 9")
        self.assertEqual(code, 9, err)
        self.assertRegex(err, r"rank 2 on node 1 \(\S+\): exit code 9\n$")
        self.assert_gone()

    def test_all_hosts_begin_again(self):
        code, out, err = self.run_to_end(
            "--max-restarts", "1", "sh", "-c",
            f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; exec {BIN}/04_all_reduce")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("the sum is 6 6 6 6\n"), 3)

    def test_signals_stop_all(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.start_and_wait("trap 'echo bye; exit 1' INT TERM; echo up; sleep 100 & wait")
            job.send_signal(number)
            (code,), (out,), (err,) = jobs.end([job])
            self.assertEqual([code, out.count("bye\n")], [128 + number, 3], err)
            self.assert_gone()

    def find(self, *names):
        """Processes of the launcher: ip has become the guard."""
        with open(f"/proc/{self.job.pid}/task/{self.job.pid}/children") as file:
            agent = int(file.read().split()[0])
        with open(f"/proc/{agent}/task/{agent}/children") as file:
            clients = [int(pid) for pid in file.read().split()]
        return [{"guard": self.job.pid, "agent": agent, "ssh": clients[-1]}[n] for n in names]

    def test_whoever_is_killed_nobody_stays(self):
        for victims in (["guard"], ["agent"], ["ssh"], ["guard", "agent"]):
            self.job = self.start_and_wait()
            for pid in self.find(*victims):
                os.kill(pid, signal.SIGKILL)
            (code,), _, (err,) = jobs.end([self.job])
            self.assertNotEqual(code, 0)
            if victims == ["ssh"]:
                self.assertRegex(err, f"host {self.hosts.address(2)}: lost, ssh ended by signal 9")
            self.assert_gone()

    def test_a_session_that_ends_in_the_middle_is_named(self):
        job = self.start_and_wait()
        found = subprocess.run(["ip", "netns", "pids", self.hosts.host(2)], text=True,
                               capture_output=True, check=True).stdout.split()
        killed = 0
        for pid in found:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                with open(f"/proc/{pid}/cmdline", errors="replace") as file:
                    if re.match(r"sshd: \w+@notty", file.read()):
                        os.kill(int(pid), signal.SIGKILL)
                        killed += 1
        self.assertEqual(killed, 1)
        (code,), _, (err,) = jobs.end([job])
        self.assertEqual(code, 1)
        self.assertRegex(err, rf"\nhost {self.hosts.address(2)}: lost, ssh ended with exit code "
                              r"255|node 1 \(\S+\): lost")
        self.assert_gone()

    def test_a_host_that_is_cut_off_is_lost(self):
        job = self.start_and_wait()
        self.hosts.cut(2)
        (code,), _, (err,) = jobs.end([job])
        self.assertEqual(code, 1)
        self.assertRegex(err, rf"node 1 \(\S+\): lost|host {self.hosts.address(2)}: lost")
        self.hosts.mend(2)
        self.assert_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
