"""Hosts in network namespaces, on one bridge: 10.83.N.1, 10.83.N.2, … For root only.

    with netns.Hosts(3, rate="100mbit") as hosts:
        process = hosts.popen(0, ["hostname"])      # on the first host
        hosts.cut(2)                                # its cable is pulled

Abstract Unix sockets belong to a namespace, so ranks on different hosts do not share memory.
Everything is removed at the end, processes first.
"""
import os
import shutil
import signal
import subprocess


def why_not():
    """Why there can be no hosts here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    if shutil.which("ip") is None:
        return "ip is not installed (iproute2)"
    name = f"tutti{os.getpid()}probe"
    probe = subprocess.run(["ip", "netns", "add", name], text=True, capture_output=True)
    if probe.returncode == 0:  # A root that is no mount point, in a chroot, refuses only the exec.
        probe = subprocess.run(["ip", "netns", "exec", name, "true"], text=True,
                               capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None if probe.returncode == 0 else "no namespaces here: " + probe.stderr.strip()


def command(*args):
    result = subprocess.run(args, text=True, capture_output=True, timeout=20)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {result.stderr.strip()}")
    return result.stdout


class Hosts:
    def __init__(self, count, rate=None, burst="128kb"):
        self.count, self.rate, self.burst = count, rate, burst
        self.id = os.getpid()
        self.net = os.getpid() % 250 + 1
        self.switch = self.name("s")
        self.processes = []

    def name(self, what):
        return f"tt{self.id}{what}"

    def host(self, index):
        return self.name(f"h{index}")

    def address(self, index):
        return f"10.83.{self.net}.{index + 1}"

    def __enter__(self):
        try:
            self.add_switch()
            for index in range(self.count):
                self.add_host(index)
            return self
        except BaseException:
            self.__exit__()
            raise

    def add_switch(self):
        """A namespace of its own, so that the machine's firewall and routes have no say."""
        command("ip", "netns", "add", self.switch)
        command("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", self.switch, "link", "set", "bridge", "up")

    def add_host(self, index):
        host, port = self.host(index), f"port{index}"
        command("ip", "netns", "add", host)
        command("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name",
                "eth0", "netns", host)
        command("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
        command("ip", "-n", host, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            command("ip", "-n", host, "link", "set", device, "up")
        if self.rate is not None:
            command("tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                    self.rate, "burst", self.burst, "latency", "100ms")

    def popen(self, index, args, **options):
        process = subprocess.Popen(["ip", "netns", "exec", self.host(index), *args], **options)
        self.processes.append(process)
        return process

    def run(self, index, args, **options):
        return subprocess.run(["ip", "netns", "exec", self.host(index), *args], text=True,
                              capture_output=True, timeout=options.pop("timeout", 60), **options)

    def cut(self, index):
        command("ip", "-n", self.switch, "link", "set", f"port{index}", "down")

    def mend(self, index):
        command("ip", "-n", self.switch, "link", "set", f"port{index}", "up")

    def sent_bytes(self, index):
        """What the host has sent to the others so far."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(self.run(index, ["cat", path]).stdout)

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(20)
        for name in [self.host(index) for index in range(self.count)] + [self.switch]:
            found = subprocess.run(["ip", "netns", "pids", name], text=True, capture_output=True)
            for pid in found.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
