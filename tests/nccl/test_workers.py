"""nbx workers against PyTorch's own store: real workers pass the barriers of a job in which most were never started."""
import importlib.util
import os
import socket
import subprocess
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
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
