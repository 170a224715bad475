"""A Slurm of one node on this machine: munged, slurmctld and slurmd in a temporary directory, on
free ports, without touching a Slurm that is installed. For root only: slurmd starts others' jobs.

    with Cluster() as cluster:
        cluster.run("srun", "-n", "2", "hostname")
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
DAEMON_PATH = "/usr/sbin:/sbin:" + os.environ.get("PATH", "")
START_S = 40


def why_not():
    """Why no cluster can be started here; None: it can."""
    if os.geteuid() != 0:
        return "Slurm's daemons want to be started by root"
    missing = [name for name in NEEDED if shutil.which(name, path=DAEMON_PATH) is None]
    return f"not installed: {', '.join(missing)} (slurm-wlm, munge)" if missing else None


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Cluster:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tutti_slurm_")
        self.daemons = []
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("SLURM_")}
        self.environment |= {"SLURM_CONF": self.path("slurm.conf"), "PATH": DAEMON_PATH}

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, name, *args):
        with open(self.path(name + ".out"), "wb") as log:
            self.daemons.append(subprocess.Popen(
                [shutil.which(name, path=DAEMON_PATH), *args], env=self.environment, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True))

    def configure(self):
        host = socket.gethostname().split(".")[0]
        ports = free_ports(2)
        settings = {
            "ClusterName": "tutti", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": "root",
            "SlurmdUser": "root", "SlurmctldPort": ports[0], "SlurmdPort": ports[1],
            "AuthType": "auth/munge", "AuthInfo": f"socket={self.path('munge.socket')}",
            "CredType": "cred/munge", "MpiDefault": "none", "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none", "SelectType": "select/linear", "ReturnToService": 2,
            "StateSaveLocation": self.path("state"), "SlurmdSpoolDir": self.path("spool"),
            "SlurmctldPidFile": self.path("slurmctld.pid"),
            "SlurmdPidFile": self.path("slurmd.pid"), "SwitchType": "switch/none",
            "SlurmctldLogFile": self.path("slurmctld.log"),
            "SlurmdLogFile": self.path("slurmd.log"), "SchedulerType": "sched/builtin",
            "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN",
            "PartitionName": f"all Nodes={host} Default=YES MaxTime=INFINITE State=UP"}
        with open(self.path("slurm.conf"), "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        for folder in ("state", "spool"):
            os.mkdir(self.path(folder))
        with open(self.path("munge.key"), "wb") as file:
            file.write(os.urandom(1024))
        for name, mode in (("munge.key", 0o400), ("slurm.conf", 0o644), (".", 0o755)):
            os.chmod(self.path(name), mode)

    def await_socket(self):
        end = time.monotonic() + START_S
        while not os.path.exists(self.path("munge.socket")):
            if time.monotonic() > end:
                raise RuntimeError("munged does not start: " + self.logs())
            time.sleep(0.02)

    def await_node(self):
        end = time.monotonic() + START_S
        while True:
            answer = self.run("sinfo", "-h", "-o", "%T")
            if answer.stdout.split() == ["idle"]:
                return
            if time.monotonic() > end:
                raise RuntimeError(f"no idle node: {answer.stdout}{answer.stderr}{self.logs()}")
            time.sleep(0.1)

    def __enter__(self):
        try:
            self.configure()
            self.start("munged", "--foreground", "--force", "--key-file", self.path("munge.key"),
                       "--socket", self.path("munge.socket"), "--pid-file", self.path("munge.pid"),
                       "--log-file", self.path("munge.log"), "--seed-file", self.path("munge.seed"))
            self.await_socket()
            self.start("slurmctld", "-D", "-f", self.path("slurm.conf"))
            self.start("slurmd", "-D", "-f", self.path("slurm.conf"))
            self.await_node()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *args, **options):
        return subprocess.run(args, env=self.environment | options.pop("env", {}), text=True,
                              capture_output=True, timeout=90, cwd=self.folder, **options)

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), errors="replace") as file:
                    texts.append(f"\n--- {name}\n{file.read()[-2000:]}")
        return "".join(texts)
