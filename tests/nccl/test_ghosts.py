"""Unmodified NCCL with ranks that do not exist: real ranks on the phantom GPU, the rest are ghosts behind nbxd. The
collective test compares every element with what the call returns when ghosts contribute nothing."""
import json
import os
import time

import pytest

from lab import ROOT, Lab
from lab import run as call

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

COLLECTIVES = ["allreduce", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv"]
PROTOCOLS = ["Simple", "LL", "LL128"]


def ghosts(folder, ranks, more="", real="[0]", **options):
    return Lab(folder, ranks - len(json.loads(real)), f"ranks: {ranks}\nreal: {real}\npatience: 20s\n{more}", **options)


def run(place, ranks, op, count, *words, check=True, limit_s=120, **environment):
    return place.call("collective_test", "--ranks", ranks, "--real", "0", "--op", op, "--count", count, *words,
                      check=check, limit_s=limit_s, **environment)


def latest(place):
    """The operations of the last communicator."""
    said = place.ask("nccl")
    last = said["communicators"][-1]["comm"]
    return [operation for operation in said["operations"] if operation["comm"] == last]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with ghosts(tmp_path_factory.mktemp("two"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with ghosts(tmp_path_factory.mktemp("three"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    with ghosts(tmp_path_factory.mktemp("eight"), 8) as made:
        yield made


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("op", COLLECTIVES)
def test_one_ghost(two, op, protocol):
    run(two, 2, op, 1000003, NCCL_PROTO=protocol)
    assert all(operation["done"] for operation in latest(two))


@pytest.mark.parametrize("count", [1, 1000, 131072])
@pytest.mark.parametrize("op", ["allreduce", "allgather", "reducescatter"])
def test_counts_that_end_in_the_middle(three, op, count):
    run(three, 3, op, count)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_channels(eight, algorithm, channels):
    run(eight, 8, "allreduce", 1000003, NCCL_ALGO=algorithm, NCCL_MIN_NCHANNELS=channels, NCCL_MAX_NCHANNELS=channels)
    operation = latest(eight)[-1]
    assert operation["algorithm"] == algorithm.upper() and operation["channels"] == channels


@pytest.mark.parametrize("op, algorithm, protocol, channels", [
    ("allreduce", "Ring", "Simple", 4), ("allreduce", "Tree", "LL128", 4), ("allreduce", "Tree", "Simple", 1),
    ("allgather", "Ring", "LL", 1), ("reducescatter", "Ring", "LL128", 4), ("reduce", "Ring", "Simple", 1)])
def test_without_a_profiler_the_wire_tells(three, op, algorithm, protocol, channels):
    run(three, 3, op, 100003, NCCL_PROFILER_PLUGIN="none", NCCL_ALGO=algorithm, NCCL_PROTO=protocol,
        NCCL_MIN_NCHANNELS=channels, NCCL_MAX_NCHANNELS=channels)
    operation = latest(three)[-1]
    assert (operation["algorithm"], operation["protocol"]) == (algorithm.upper(), protocol.upper())
    assert operation["channels"] == channels and operation["done"]


def test_what_the_wire_does_not_tell_ends_the_job(tmp_path):
    with Lab(tmp_path, 2, "ranks: 3\nreal: [0]\npatience: 3s") as place:
        done = run(place, 3, "broadcast", 16_000_000, check=False, NCCL_PROFILER_PLUGIN="none", NCCL_PROTO="Simple")
        assert done.returncode != 0 and "no profiler plugin told" in done.stdout + done.stderr


@pytest.mark.parametrize("reduction", ["prod", "max", "min", "avg"])
@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_reductions(three, kind, reduction):
    run(three, 3, "allreduce", 1000, "--type", kind, "--red", reduction, NCCL_ALGO="Ring")


@pytest.mark.parametrize("ranks, count", [(64, 100000), (1024, 100000), (10000, 1000)])
def test_many_ghosts(tmp_path, ranks, count):
    with Lab(tmp_path, ranks - 1, f"ranks: {ranks}\nreal: [0]", memory="256MiB") as place:
        run(place, ranks, "allreduce", count, NCCL_ALGO="Ring", NCCL_PROTO="Simple", limit_s=240)
        assert latest(place)[-1]["done"]


@pytest.mark.parametrize("op", ["allreduce", "allgather", "reducescatter"])
def test_two_real_ranks_that_are_not_neighbours(tmp_path, op):
    with ghosts(tmp_path, 6, real="[0, 3]", nodes=(0, 3)) as place:
        place.call("collective_test", "--ranks", 6, "--real", "0,3", "--op", op, "--count", 100003, "--netns",
                   place.prefix, limit_s=90)


def test_a_straggler_makes_everybody_wait(tmp_path):
    late_ms = 400
    stragglers = f"stragglers: [{{rank: 2, delay: {late_ms}ms, first: 1}}]"
    with ghosts(tmp_path, 4, stragglers) as place:
        run(place, 4, "allreduce", 1000, NCCL_ALGO="Ring")
        operation = latest(place)[-1]
        assert operation["latest_ghost_rank"] == 2
        assert late_ms <= operation["time_ms"] < 20 * late_ms


def test_an_unknown_version_is_refused_by_name(two):
    done = run(two, 2, "allreduce", 1, check=False, NBX_NCCL_VERSION="2.25.1")
    assert done.returncode != 0 and "2.25.1" in done.stdout + done.stderr


# Two processes of one node that announce the same communicator, each with another release of NCCL: prints what each hears.
ANNOUNCE = """
import socket, struct, sys
HELLO, COMM_INIT, FAILURE = 1, 2, 65
def record(kind, body):
    return struct.pack("<II", 4 + len(body), kind) + body
def last_word(connection):
    heard = b""
    while True:
        while len(heard) >= 8 and len(heard) >= 4 + struct.unpack_from("<I", heard)[0]:
            size, kind = struct.unpack_from("<II", heard)
            if kind == FAILURE:
                return heard[8:4 + size].decode()
            heard = heard[4 + size:]
        more = connection.recv(4096)
        if not more:
            return "nothing"
        heard += more
connections = []
for rank, version in ((0, 22907), (2, 22809)):
    connection = socket.create_connection((sys.argv[1], 4790), timeout=10)
    connection.sendall(record(HELLO, struct.pack("<IIiI", 0x4e425831, version, rank + 1, 0))
                       + record(COMM_INIT, struct.pack("<Qii", 1, 4, rank) + bytes(range(128))))
    connections.append(connection)
for connection in connections:
    print(last_word(connection))
"""


def test_real_ranks_of_different_versions_are_both_told(tmp_path):
    with ghosts(tmp_path, 4, real="[0, 2]", nodes=(0, 2)) as place:
        done = call("ip", "netns", "exec", place.node(0), "/usr/bin/python3", "-c", ANNOUNCE, place.first_ghost)
        heard = done.stdout.strip().splitlines()
        assert len(heard) == 2 and all("2.29.7" in line and "2.28.9" in line for line in heard), done.stdout


def job_under_way(place, **environment):
    job = place.begin("collective_test", "--ranks", 2, "--real", 0, "--op", "allreduce", "--count", 1000, "--iters",
                      1000000, **environment)
    while not place.ask("nccl")["operations"]:
        assert job.poll() is None
    return job


def test_the_emulators_death_ends_the_job(tmp_path):
    with ghosts(tmp_path, 2) as place:
        job = job_under_way(place)
        place.process.kill()
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0 and "ghosts" in output


def test_the_emulator_can_be_stopped_under_a_job(tmp_path):
    with ghosts(tmp_path, 2) as place:
        job = job_under_way(place)
        assert place.stop() == 0
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["nccl"]["operations"], "the report knows what was under way"
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0 and "ghosts" in output


def test_a_real_ranks_death_is_named(tmp_path):
    with ghosts(tmp_path, 2) as place:
        job = job_under_way(place)
        place.kill_node()
        job.communicate()
        end = time.monotonic() + 60
        while "gone" not in (state := place.ask("nccl")["communicators"][-1]["state"]):
            assert time.monotonic() < end, state


def test_error_12_on_demand(tmp_path):
    with ghosts(tmp_path, 2) as place:
        job = job_under_way(place, NCCL_DEBUG="WARN", NCCL_IB_TIMEOUT=14, NCCL_IB_RETRY_CNT=3)
        place.nbx("set", "p0", "to_node.loss=100%")
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0 and "IBV_WC_RETRY_EXC_ERR(12)" in output


def test_a_schedule_that_disagrees_ends_the_job(tmp_path):
    """Other buffer sizes than the ghosts assume: other messages."""
    with ghosts(tmp_path, 2) as place:
        done = run(place, 2, "allreduce", 1000003, check=False, NCCL_BUFFSIZE=262144, NCCL_PROTO="Simple",
                   NCCL_ALGO="Ring")
        assert done.returncode != 0 and "the schedule says" in done.stdout + done.stderr


def program(place, folder, *steps, **environment):
    return place.call("/usr/bin/python3", ROOT / "tests/nccl/program.py", 4, 0, folder / "id", *steps, **environment).stdout


def test_split_and_shrink(tmp_path):
    with ghosts(tmp_path, 4, "splits: [{rule: stride, size: 2}]") as place:
        assert program(place, tmp_path, "split", "size", "sum", "destroy").split() == ["size", "2", "0", "sum", "1.0"]
        (tmp_path / "id").unlink()
        assert program(place, tmp_path, "shrink", "size", "sum", "destroy").split() == ["size", "3", "0", "sum", "1.0"]


def test_training_with_ghosts_is_training_alone(tmp_path):
    """To the last bit: zeros added change nothing, and what the network loses comes again."""
    alone = call(ROOT / "tests/nccl/phantom-run", "/usr/bin/python3", ROOT / "tests/nccl/program.py", 1, 0,
                     tmp_path / "id", "train", "destroy").stdout
    (tmp_path / "id").unlink()
    with ghosts(tmp_path, 4, "timeout: 14", profile="both: {loss: 0.5%}") as place:
        assert program(place, tmp_path, "train", "destroy", NCCL_IB_TIMEOUT=14) == alone
        assert len(latest(place)) == 200
    trained, loss, slope, offset = alone.split()
    assert trained == "trained" and float(loss) < 0.012 and abs(float(slope) - 3) < 0.1 and abs(float(offset) + 1) < 0.1


@pytest.mark.parametrize("profile", ["both: {loss: 0.5%}", "to_node: {delay: 5ms}"])
def test_impaired_networks(tmp_path, profile):
    with ghosts(tmp_path, 3, "timeout: 14", profile=profile) as place:
        for op in ("allreduce", "allgather", "sendrecv"):
            run(place, 3, op, 300007, NCCL_IB_TIMEOUT=14)
