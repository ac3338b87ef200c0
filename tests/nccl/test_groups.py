"""Tensor, data and pipeline parallel groups of a job whose other ranks do not exist: several communicators at once,
on two streams, with messages and collectives between each other (groups.py is the program)."""
import os

import pytest

from lab import LOCAL_ADDRESS, ROOT, Lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

RANKS, REAL, PER_NODE = 16, (8, 9), 2
WORLD = f"ranks: {RANKS}\nreal: {list(REAL)}\nranks_per_node: {PER_NODE}\nsettle: 3s\npatience: 40s\n"


def train(folder, *words, more=""):
    with Lab(folder, (RANKS - len(REAL)) // PER_NODE, WORLD + more, ranks_per_node=PER_NODE) as place:
        workers = [place.begin("/usr/bin/python3", ROOT / "tests/nccl/groups.py", folder, rank, *words,
                               PHANTOM_GPU_COUNT=PER_NODE, NCCL_SHM_DISABLE=0, NCCL_HOSTID="real",
                               NBX_NET_INTERFACE=f"{LOCAL_ADDRESS}{local}") for local, rank in enumerate(REAL)]
        said = [worker.communicate(timeout=240)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], "\n".join(said)
        return place.ask("nccl"), said


def test_groups_of_their_own(tmp_path):
    state, said = train(tmp_path)
    assert all("activations of a ghost is right" in text and "all to all is right" in text for text in said)
    # The world, the stage, and for each real rank its data and pipeline group; the tensor group has no ghosts.
    assert sorted(comm["ranks"] for comm in state["communicators"]) == [2, 2, 4, 4, 8, 16]
    assert all(comm["state"] == "ended in order" for comm in state["communicators"])
    assert all(operation["done"] for operation in state["operations"])


def test_groups_by_split(tmp_path):
    state, _ = train(tmp_path, "split", more="splits: [{rule: block, size: 8}, {rule: stride, size: 8}]\n")
    assert sorted(comm["ranks"] for comm in state["communicators"]) == [2, 2, 8, 16]
    assert all(operation["done"] for operation in state["operations"])
