"""Several ranks on one node: real ones, which talk to each other through shared memory, and ghost ones. The collective
test compares every element with what the call returns when ghosts contribute nothing."""
import os

import pytest

from lab import LOCAL_ADDRESS, Lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

EVERYTHING = "allreduce,allgather,reducescatter,broadcast,reduce,sendrecv,alltoall"


@pytest.mark.parametrize("real, ghost_nodes, ranks_per_node, algorithm, channels, ops", [
    (8, 1, 8, "tree", 1, "allreduce,allgather,reducescatter,broadcast,reduce,sendrecv"),
    (8, 2, 8, "ring", 2, "allreduce,reduce"),
    (8, 2, 1, "tree", 2, "allreduce,allgather,broadcast,alltoall"),
    (1, 2, 8, "ring", 1, EVERYTHING),
    (1, 2, 8, "tree", 2, "allreduce"),
])
def test_nodes_of_eight(tmp_path, real, ghost_nodes, ranks_per_node, algorithm, channels, ops):
    ranks = real + ghost_nodes * ranks_per_node
    settings = f"ranks: {ranks}\nreal: {list(range(real))}\nranks_per_node: {ranks_per_node}\npatience: 40s\n"
    words = ["--ranks", ranks, "--real", ",".join(map(str, range(real))), "--hosts", 1, "--op", ops, "--count",
             "1,30011", "--iters", 1]
    if real > 1:
        words += ["--rank-env", f"NBX_NET_INTERFACE={LOCAL_ADDRESS}{{rank}}"]
    with Lab(tmp_path, ghost_nodes, settings, ranks_per_node=real) as place:
        done = place.call("collective_test", *words, options=["--algo", algorithm, "--channels", channels],
                          PHANTOM_GPU_COUNT=8, NCCL_SHM_DISABLE=0, NCCL_DEBUG="INFO", limit_s=240)
        if real > 1:
            assert " 1[1] -> 2[2] via SHM" in done.stdout
        state = place.ask("nccl")
        assert state["communicators"][0]["real_ranks"] == list(range(real))
        reduced = [operation for operation in state["operations"] if operation["operation"] == "AllReduce"]
        assert reduced or "alltoall" in ops  # hundreds of messages: only the latest operations are told
        assert all(operation["done"] and operation["algorithm"] == algorithm.upper() for operation in reduced)
