"""Processes of a job: where they meet; and waiting for them: what they said is reported also where
one of them hangs."""
import socket
import subprocess
import time

DEADLINE = 60


def hold_port():
    """(port, socket): no other process gets the port as long as the socket is there, so that it
    names the meeting of this one's ranks."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return str(held.getsockname()[1]), held


def end(jobs, deadline=DEADLINE):
    """(codes, outputs, errors), a list each. Jobs that have not ended in time are killed."""
    until = time.monotonic() + deadline
    try:
        ends = [job.communicate(timeout=max(until - time.monotonic(), 0.1)) for job in jobs]
    except subprocess.TimeoutExpired:
        codes = [job.poll() for job in jobs]
        for job in jobs:
            job.kill()
        said = [job.communicate(timeout=deadline) for job in jobs]
        raise AssertionError(f"not ended within {deadline} s:" + "".join(
            f"\n--- {number}: {'hangs' if code is None else f'ended with {code}'}\n{out}{err}"
            for number, (code, (out, err)) in enumerate(zip(codes, said)))) from None
    return [job.returncode for job in jobs], [out for out, _ in ends], [err for _, err in ends]
