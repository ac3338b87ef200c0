"""Unmodified NCCL with ranks that do not exist: one real rank (or several), the rest are ghosts behind nbxd."""
import pytest

import lab
from lab import Lab

MISSING = lab.phantom_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def collectives(lab_, ranks, op, count, *more, **options):
    return lab_.call("collective_test", "--ranks", ranks, "--real", "0", "--op", op, "--count", count, *more, **options)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("pair"), 1, "ranks: 2\nreal: [0]") as made:
        yield made


@pytest.mark.parametrize("op", ["allreduce", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv"])
def test_two_ranks(pair, op):
    collectives(pair, 2, op, 1000, NCCL_PROTO="Simple")
