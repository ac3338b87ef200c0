"""Ghosts come up with a running NCCL over loopback: bootstrap, rings, trees and connection records, without RDMA."""
import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PLAYER = Path(os.environ.get("NBX_BIN", HERE.parents[1] / "build/bin")).parent / "tests/ghost_bringup"
LIMIT_S = 120


def bring_up(folder, ranks, real, *ghost_options, program_options=(), variables=()):
    """Both sides' output, after both have ended well."""
    id_file = folder / "id"
    ghosts = subprocess.Popen([PLAYER, "--id-file", id_file, "--ranks", str(ranks), "--real", real, *ghost_options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        program = subprocess.run(
            [HERE / "phantom-run", "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_SOCKET_NTHREADS=1",
             "NCCL_NSOCKS_PERTHREAD=1", "NCCL_SHM_DISABLE=1", "NCCL_DEBUG=INFO", *variables,
             "collective_test", "--ranks", str(ranks), "--real", real, "--id-file", id_file, "--init-only",
             *program_options],
            capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
        said, _ = ghosts.communicate(timeout=LIMIT_S)
    finally:
        ghosts.kill()
    assert program.returncode == 0, program.stdout[-3000:] + said[-3000:]
    assert ghosts.returncode == 0, said[-3000:]
    return program.stdout, said


def edges(said):
    """Channel, from, to."""
    found = re.findall(r"edge rank (\d+) (->|<-) rank (\d+), channel (\d+)", said)
    return {(int(channel), *((int(ghost), int(real)) if arrow == "->" else (int(real), int(ghost))))
            for ghost, arrow, real, channel in found}


def edges_of_nccl(printed, real):
    """What NCCL says of its rings and trees, as far as a real rank has part in it."""
    found = set()
    for channel, ring in re.findall(r"Channel (\d+)/\d+ : ([ \d]+)\n", printed):
        ranks = [int(rank) for rank in ring.split()]
        found |= {(int(channel), a, b) for a, b in zip(ranks, ranks[1:] + ranks[:1])}
    for line in re.findall(r"Trees (.*)", printed):
        for channel, children, rank, parent in re.findall(r"\[(\d+)\] ([-\d/]+)->(\d+)->(-?\d+)", line):
            for other in [int(child) for child in children.split("/")] + [int(parent)]:
                if other >= 0:
                    found |= {(int(channel), int(rank), other), (int(channel), other, int(rank))}
    return {edge for edge in found if (edge[1] in real) != (edge[2] in real)}


@pytest.mark.parametrize("ranks, real", [(2, "0"), (3, "0"), (8, "0,3,4"), (16, "0")])
def test_rings_and_trees_are_those_of_nccl(tmp_path, ranks, real):
    printed, said = bring_up(tmp_path, ranks, real)
    numbers = {int(rank) for rank in real.split(",")}
    expected = edges_of_nccl(printed, numbers)
    assert edges(said) >= expected
    # PAT connects ranks at distances of powers of two, which NCCL does not print.
    powers = {1 << bit for bit in range(11)}
    assert all((a - b) % ranks in powers or (b - a) % ranks in powers for _, a, b in edges(said) - expected)
    assert "connected" in said
    closed = re.findall(r"([0-9a-f]+): closed", said)
    assert {int(number, 16) for number in re.findall(r"commId 0x([0-9a-f]+)", printed)} == {int(closed[-1], 16)}


def test_nodes_of_three_ranks(tmp_path):
    printed, said = bring_up(tmp_path, 9, "0,1,2", "--per-node", "3", program_options=["--hosts", "3"],
                             variables=["PHANTOM_GPU_COUNT=3", "NCCL_SHM_DISABLE=0"])
    assert edges(said) == edges_of_nccl(printed, {0, 1, 2})


def test_a_thousand_ghosts(tmp_path):
    _, said = bring_up(tmp_path, 1024, "0")
    assert {(0, 0, 1), (0, 1023, 0)} <= edges(said)
