"""`tutti run --nnodes`: several launchers, here all on the loopback of one host, are one job."""
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import jobs

BIN = os.path.join(os.environ["TUTTI_BINARY_DIR"], "bin")
TUTTI = os.path.join(BIN, "tutti")
DEADLINE = 60
HOST = re.escape(socket.gethostname())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def setUpModule():
    folder = unittest.enterModuleContext(tempfile.TemporaryDirectory())
    os.environ["TUTTI_KEY_FILE"] = write_key(os.path.join(folder, "key"))


def write_key(path):
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(os.urandom(32).hex() + "\n")
    return path


class Nodes:
    """One launcher for each entry of `ranks`, each with so many ranks."""

    def __init__(self, script, ranks, flags=(), only=None, port=None, host="127.0.0.1"):
        self.port = port or free_port()
        self.nodes = [
            subprocess.Popen(
                [TUTTI, "run", "--nnodes", str(len(ranks)), "--node_rank", str(node),
                 "--rdzv-endpoint", f"{host}:{self.port}", "--nproc_per_node", str(count),
                 "--grace", "5", *flags, "sh", "-c", script],
                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for node, count in enumerate(ranks) if only is None or node in only]

    def await_output(self):
        """Until every launcher has printed a line."""
        for node in self.nodes:
            node.stdout.readline()

    def agent(self, node):
        pid = self.nodes[node].pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return int(file.read().split()[0])

    def end(self):
        """(codes, outputs, errors) of the launchers."""
        return jobs.end(self.nodes)


class Several(unittest.TestCase):
    def test_ranks_are_numbered_over_all_nodes(self):
        names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE "
                 "ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID").split()
        job = Nodes("echo " + " ".join("$" + name for name in names), [1, 2], ["--rdzv_id", "j1"])
        codes, outputs, errors = job.end()
        self.assertEqual(codes, [0, 0], errors)
        want = [f"[rank {rank}] {rank} 3 {local} {count} {node} 2 {rank} 3 127.0.0.1 {job.port} j1"
                for rank, local, count, node in ((0, 0, 1, 0), (1, 0, 2, 1), (2, 1, 2, 1))]
        self.assertEqual(sorted("".join(outputs).splitlines()), want)

    def test_ranks_of_all_nodes_reduce_together(self):
        codes, outputs, errors = Nodes(os.path.join(BIN, "04_all_reduce"), [2, 1]).end()
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual("".join(outputs).count("the sum is 6 6 6 6"), 3, outputs)

    def test_the_first_failure_ends_all_nodes_with_its_code(self):
        codes, _, errors = Nodes("[ $RANK != 2 ] || exit 7; exec sleep 60", [1, 2, 1]).end()
        self.assertEqual(codes, [7, 7, 7], errors)
        for error in errors:
            self.assertRegex(error, rf"rank 2 on node 1 \({HOST}\): exit code 7\n$")

    def test_a_killed_rank_is_named_everywhere(self):
        start = time.monotonic()
        codes, _, errors = Nodes("[ $RANK != 0 ] || kill -9 $$; exec sleep 60", [1, 1]).end()
        self.assertEqual(codes, [137, 137], errors)
        for error in errors:
            self.assertRegex(error, r"rank 0 on node 0 \(\S+\): killed by SIGKILL\n$")
        self.assertLess(time.monotonic() - start, 20)

    def test_a_killed_launcher_ends_the_others(self):
        for victim in (0, 1):
            job = Nodes("echo up; exec sleep 60", [1, 1, 1])
            job.await_output()
            os.kill(job.agent(victim), signal.SIGKILL)
            codes, _, errors = job.end()
            self.assertNotIn(0, codes)
            for node in {0, 1, 2} - {victim}:
                self.assertRegex(errors[node], rf"node {victim} \(\S+\): lost")

    def test_an_interrupted_node_ends_the_others(self):
        job = Nodes("echo up; exec sleep 60", [1, 1])
        job.await_output()
        job.nodes[1].send_signal(signal.SIGINT)
        codes, _, errors = job.end()
        self.assertEqual(codes, [130, 130], errors)
        self.assertIn("stopped by SIGINT", errors[0])

    def test_a_node_that_ended_waits_for_the_others(self):
        codes, _, errors = Nodes("[ $RANK = 0 ] || { sleep 0.5; exit 3; }", [1, 1]).end()
        self.assertEqual(codes, [3, 3], errors)


class Names(unittest.TestCase):
    """--rdzv-endpoint, --master-addr and MASTER_ADDR take names."""
    unknown = "host no-such-host.invalid cannot be resolved: "

    def test_launchers_meet_at_a_name(self):
        codes, outputs, errors = Nodes(os.path.join(BIN, "04_all_reduce"), [2, 1],
                                       host="localhost").end()
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual("".join(outputs).count("the sum is 6 6 6 6"), 3, outputs)

    def test_one_host_may_be_named(self):
        for flag in (f"--rdzv-endpoint={socket.gethostname()}:{free_port()}",
                     f"--master-addr={socket.gethostname()}"):
            result = subprocess.run([TUTTI, "run", "-n", "2", flag,
                                     os.path.join(BIN, "04_all_reduce")], text=True,
                                    capture_output=True, timeout=DEADLINE)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.count("the sum is 3 3 3 3"), 2)

    def test_every_launcher_refuses_an_unknown_name_at_once(self):
        codes, _, errors = Nodes("exit 9", [1, 1], host="no-such-host.invalid").end()
        self.assertEqual(codes, [2, 2], errors)
        for error in errors:
            self.assertIn("--rdzv-endpoint or --master-addr: " + self.unknown, error)

    def test_every_rank_refuses_an_unknown_name_at_once(self):
        for rank in "01":
            result = subprocess.run(
                [os.path.join(BIN, "04_all_reduce")], text=True, capture_output=True,
                timeout=DEADLINE, env=os.environ | {
                    "RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1",
                    "MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "29400"})
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"rank {rank} of 2: MASTER_ADDR: {self.unknown}", result.stderr)

    def test_a_missing_key_is_said_at_once_on_both_hosts(self):
        environment = {name: value for name, value in os.environ.items()
                       if name != "TUTTI_KEY_FILE"}
        for rank, agent in (("0", "False"), ("1", "False"), ("0", "True"), ("1", "True")):
            result = subprocess.run(
                [os.path.join(BIN, "04_all_reduce")], text=True, capture_output=True,
                timeout=DEADLINE, env=environment | {
                    "RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1",
                    "TORCHELASTIC_USE_AGENT_STORE": agent,
                    "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": str(free_port())})
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("TUTTI_KEY_FILE", result.stderr)


class Restarts(unittest.TestCase):
    again = ["--max-restarts", "2"]

    def test_all_nodes_begin_again(self):
        job = Nodes("echo $RANK $TORCHELASTIC_RESTART_COUNT $MASTER_PORT ${TUTTI_KEY_FD:-no};"
                    " [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0;"
                    " if [ $RANK = 2 ]; then sleep 0.3; kill -9 $$; fi; exec sleep 60", [2, 1],
                    self.again)
        codes, outputs, errors = job.end()
        self.assertEqual(codes, [0, 0], errors)
        said = [line.split("] ")[1].split() for line in "".join(outputs).splitlines()]
        self.assertEqual(sorted((line[0], line[1]) for line in said),
                         sorted((str(r), str(a)) for r in range(3) for a in range(3)))
        for attempt in range(3):
            ports = {line[2] for line in said if line[1] == str(attempt)}
            self.assertEqual(len(ports), 1)
            self.assertEqual(str(job.port) in ports, attempt == 0)
        self.assertEqual({line[3] == "no" for line in said if line[1] == "0"}, {True})
        self.assertNotIn("no", {line[3] for line in said if line[1] != "0"})
        for node, text in enumerate(errors):
            for attempt in (1, 2):
                self.assertRegex(text, rf"\[node {node}\] rank 2 on node 1 \(.*\): killed by"
                                       rf" SIGKILL; restart {attempt} of 2\n")

    def test_ranks_reduce_together_after_a_restart(self):
        codes, outputs, errors = Nodes(
            f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; exec {BIN}/04_all_reduce", [1, 2],
            self.again).end()
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual("".join(outputs).count("the sum is 6 6 6 6\n"), 3)

    def test_the_last_failure_is_everybodys(self):
        codes, _, errors = Nodes("[ $RANK = 1 ] && exit $((5 + TORCHELASTIC_RESTART_COUNT));"
                                 " exec sleep 60", [1, 1], self.again).end()
        self.assertEqual(codes, [7, 7])
        for text in errors:
            self.assertRegex(text.splitlines()[-1], r"^rank 1 on node 1 \(.*\): exit code 7$")

    def test_a_lost_launcher_is_no_reason_to_begin_again(self):
        job = Nodes("echo ready; exec sleep 60", [1, 1], self.again)
        job.await_output()
        job.nodes[1].kill()
        codes, _, errors = job.end()
        self.assertEqual(codes[0], 1)
        self.assertIn("lost; its launcher was killed", errors[0])
        self.assertNotIn("restart", errors[0])

    def test_a_launcher_lost_after_a_restart_is_named(self):
        job = Nodes("[ $TORCHELASTIC_RESTART_COUNT$RANK = 00 ] && exit 1;"
                    " echo $TORCHELASTIC_RESTART_COUNT; exec sleep 60", [1, 1], self.again)
        while job.nodes[1].stdout.readline() != "[rank 1] 1\n":
            pass
        job.nodes[1].kill()
        codes, _, errors = job.end()
        self.assertEqual(codes[0], 1)
        self.assertRegex(errors[0].splitlines()[-1], r"^node 1 \(.*\): lost")

    def test_a_node_lost_at_the_end_of_an_attempt_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Nodes(f"echo up; [ $RANK = 0 ] || exec sleep 60;"
                        f" until [ -f {folder}/go ]; do sleep 0.02; done; exit 3", [1, 1],
                        self.again)
            job.await_output()
            agent = job.agent(1)
            os.kill(agent, signal.SIGSTOP)  # it does not hear of the end
            open(os.path.join(folder, "go"), "w").close()
            self.assertIn("exit code 3; restart 1 of 2", job.nodes[0].stderr.readline())
        os.kill(agent, signal.SIGKILL)
        codes, _, errors = job.end()
        self.assertNotIn(0, codes)
        self.assertIn("a node left before node 1 came for a restart", errors[0])

    def test_a_node_that_is_stopped_does_not_keep_the_others(self):
        job = Nodes("trap '' INT; echo ready; if [ $RANK = 0 ]; then sleep 0.5; exit 3; fi;"
                    " while :; do sleep 0.05; done", [1, 1], self.again)
        job.await_output()
        job.nodes[1].send_signal(signal.SIGINT)  # its rank goes on
        begin = time.monotonic()
        codes, _, errors = job.end()
        self.assertLess(time.monotonic() - begin, 30)
        self.assertNotIn(0, codes)
        self.assertRegex(errors[0], "a node left before node 1 came for a restart")

    def test_nodes_agree_on_the_number(self):
        port = free_port()
        jobs = [Nodes("true", [1, 1], ["--max-restarts", str(n), "--join-timeout", "20"], [n],
                      port) for n in (0, 1)]
        _, _, errors = jobs[1].end()
        jobs[0].nodes[0].terminate()
        jobs[0].end()
        self.assertIn("node 1 was started with --max-restarts 1, node 0 with 0", errors[0])


class Meeting(unittest.TestCase):
    def test_a_node_may_come_late(self):
        first = Nodes("true", [1, 1], only=[0])
        self.assertEqual(first.nodes[0].stderr.readline(),
                         "[node 0] node 0 of 2 waits for node 1\n")
        second = Nodes("true", [1, 1], only=[1], port=first.port)
        self.assertEqual(second.end()[0] + first.end()[0], [0, 0])

    def test_a_node_that_does_not_come_is_named(self):
        codes, _, errors = Nodes("true", [1, 1, 1], ["--join-timeout", "1"], only=[0, 1]).end()
        self.assertEqual(codes, [1, 1], errors)
        self.assertIn("waited for node 2", "".join(errors))
        codes, _, errors = Nodes("true", [1, 1], ["--join-timeout", "1"], only=[1]).end()
        self.assertEqual(codes, [1], errors)
        self.assertRegex(errors[0], "node 1 of 2 waited for node 0: store at 127.0.0.1, port")

    def test_two_nodes_of_one_rank_are_refused(self):
        first = Nodes("true", [1, 1, 1], ["--join-timeout", "2"], only=[0, 1])
        second = Nodes("true", [1, 1, 1], ["--join-timeout", "2"], only=[1], port=first.port)
        codes, _, errors = first.end()
        more_codes, _, more_errors = second.end()
        self.assertNotIn(0, codes + more_codes)
        self.assertIn("another launcher is node 1", "".join(errors + more_errors))

    def test_nodes_started_differently_are_refused(self):
        port = free_port()
        first = Nodes("true", [1, 1], ["--join-timeout", "2"], only=[0], port=port)
        second = Nodes("true", [1, 1, 1], ["--join-timeout", "2"], only=[1], port=port)
        self.assertNotEqual(first.end()[0], [0])
        codes, _, errors = second.end()
        self.assertNotEqual(codes, [0])
        self.assertIn("--nnodes 3, node 0 with 2", errors[0])

    def test_waiting_can_be_interrupted(self):
        job = Nodes("true", [1, 1], only=[0])
        time.sleep(0.3)
        job.nodes[0].send_signal(signal.SIGINT)
        codes, _, errors = job.end()
        self.assertEqual(codes, [130], errors)

    def test_what_is_missing_is_named(self):
        for flags, text in (
                (["--nnodes", "2", "--node-rank", "0"], "--rdzv-endpoint HOST:PORT"),
                (["--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:99999"], "want HOST:PORT"),
                (["--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:2999"], "--node-rank"),
                (["--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", "127.0.0.1:2999"],
                 "node-rank below"),
                (["--nnodes", "1:4"], "come and go"),
                (["--nnodes", "2", "--standalone"], "1 with --standalone"),
                (["--rdzv-backend", "etcd"], "static or c10d")):
            environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
            result = subprocess.run([TUTTI, "run", *flags, "true"], text=True, capture_output=True,
                                    env=environment, timeout=DEADLINE)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(text, result.stderr)


class Keys(unittest.TestCase):
    def refuse(self, text, *flags, **environment):
        environment = {**os.environ, **environment}
        result = subprocess.run(
            [TUTTI, "run", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint",
             f"127.0.0.1:{free_port()}", "--join-timeout", "1", *flags, "true"], text=True,
            capture_output=True, env=environment, timeout=DEADLINE)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(text, result.stderr)

    def test_a_bad_key_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write_key(os.path.join(folder, "open"))
            os.chmod(path, 0o644)
            self.refuse("--key-file", TUTTI_KEY_FILE="")
            self.refuse(path, "--key-file", path)
            self.refuse("No such file", "--key-file", os.path.join(folder, "none"))
            with open(os.path.join(folder, "short"), "w") as file:
                os.chmod(file.name, 0o600)
                file.write("12345\n")
            self.refuse(file.name, "--key-file", file.name)
            self.refuse("waited for node 1", "--key-file",
                        write_key(os.path.join(folder, "key")), TUTTI_KEY_FILE="")


if __name__ == "__main__":
    unittest.main(verbosity=2)
