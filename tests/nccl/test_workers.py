"""nbx workers against PyTorch's own store: real workers pass the barriers of a job in which most were never started."""
import importlib.util
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

NBX = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")) / "nbx"
LIMIT_S = 90
PYTHON = "/usr/bin/python3"

# The store and the barrier are PyTorch's; a process group would need a GPU. Barriers are numbered as groups are made.
JOB = """
import datetime, sys
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
world, rank, port = map(int, sys.argv[1:])
limit = datetime.timedelta(seconds=30)
store = dist.TCPStore("127.0.0.1", port, world, rank == 0, limit, multi_tenant=True)
c10d.get_world_size = lambda group=None: world
for c10d._group_count in (1, 2, 3):
    c10d._store_based_barrier(rank, dist.PrefixStore("default_pg", store), limit)
print("passed")
"""

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="needs PyTorch 1.13: apt-get install --no-install-recommends python3-torch")


def start(*words):
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port():
    """At every address, since PyTorch's store listens at all: a port may be free at one and taken at another."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as listener:
        return listener.getsockname()[1]


@needs_torch
def test_two_of_64_workers_are_real():
    port = free_port()
    played = start(NBX, "workers", "--missing", 62, "--port", port)
    real = [start(PYTHON, "-c", JOB, 64, rank, port) for rank in (0, 1)]
    try:
        for worker in real:
            output, errors = worker.communicate(timeout=LIMIT_S)
            assert output == "passed\n", errors
        output, errors = played.communicate(timeout=LIMIT_S)
        assert played.returncode == 0 and "62 workers were counted in at 3 barriers" in output, output + errors
    finally:
        for process in (played, *real):
            process.kill()
            process.wait()


@needs_torch
def test_nbx_run_brings_the_missing_workers():
    port = free_port()
    done = subprocess.run([NBX, "run", "--missing-workers", "63", "--", PYTHON, "-c", JOB, "64", "0", str(port)],
                          capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    assert done.returncode == 0 and done.stdout == "passed\n", done.stdout + done.stderr


def test_no_store_is_said():
    done = subprocess.run([NBX, "workers", "--missing", "1", "--port", str(free_port()), "--wait", "0"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no store at 127.0.0.1:" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
def test_the_stores_port_stays_free_for_the_store():
    """TCP connects a socket to itself when the system gives it the very port that nobody listens at yet."""
    namespace, port = f"nbx-workers-{os.getpid()}", 40000
    inside = ["ip", "netns", "exec", namespace]
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "sh", "-c", f"echo {port} {port} > /proc/sys/net/ipv4/ip_local_port_range"], check=True)
        played = start(*inside, NBX, "workers", "--missing", 1, "--port", port)
        time.sleep(1)
        opened = subprocess.run([*inside, PYTHON, "-c", f"import socket; socket.create_server(('127.0.0.1', {port}))"],
                                capture_output=True, text=True, timeout=LIMIT_S, check=False)
        played.kill()
        played.wait()
        assert opened.returncode == 0, opened.stderr
    finally:
        subprocess.run(["ip", "netns", "delete", namespace], check=True)
