"""Unmodified NCCL with ranks that do not exist: real ranks on the phantom GPU, the rest are ghosts behind nbxd. The
collective test compares every element with what the call returns when ghosts contribute nothing."""
import json
import os
import time

import pytest

from lab import LOCAL_ADDRESS, ROOT, Lab
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


def all_done(place):
    told = latest(place)
    return told and all(operation["done"] for operation in told)


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
    assert all_done(two)


def test_counts_that_end_in_the_middle(three):
    run(three, 3, "allreduce,allgather,reducescatter,sendrecv,alltoall", "1,1000,131072")


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_channels(eight, algorithm, channels):
    run(eight, 8, "allreduce", 1000003, NCCL_ALGO=algorithm, NCCL_MIN_NCHANNELS=channels, NCCL_MAX_NCHANNELS=channels)
    operation = latest(eight)[-1]
    assert operation["algorithm"] == algorithm.upper() and operation["channels"] == channels


@pytest.mark.parametrize("op, algorithm, protocol, channels", [
    ("allreduce", "Ring", "Simple", 4), ("allreduce", "Tree", "LL128", 4), ("allreduce", "Tree", "Simple", 1),
    ("allgather", "Ring", "LL", 1), ("reducescatter", "Ring", "LL128", 4), ("reduce", "Ring", "Simple", 1),
    ("broadcast", "Ring", "Simple", 4), ("broadcast", "Ring", "LL", 1), ("broadcast", "Ring", "LL128", 4)])
def test_without_a_profiler_the_wire_tells(three, op, algorithm, protocol, channels):
    run(three, 3, op, 100003, NCCL_PROFILER_PLUGIN="none", NCCL_ALGO=algorithm, NCCL_PROTO=protocol,
        NCCL_MIN_NCHANNELS=channels, NCCL_MAX_NCHANNELS=channels)
    operation = latest(three)[-1]
    assert (operation["algorithm"], operation["protocol"]) == (algorithm.upper(), protocol.upper())
    assert operation["channels"] == channels and operation["done"]


@pytest.mark.parametrize("count", [1, 131072])
def test_real_ranks_that_only_send_are_asked(three, count):
    run(three, 3, "reduce", count, "--root", 2, NCCL_PROFILER_PLUGIN="none")
    assert all_done(three)


def test_what_the_wire_does_not_tell_ends_the_job(tmp_path):
    lossy = "from_node: {loss: {match: {class: data}, probability: 100%}}"
    with Lab(tmp_path, 2, "ranks: 3\nreal: [0]\npatience: 3s", profile=lossy) as place:
        done = run(place, 3, "broadcast", 16_000_000, check=False, NCCL_PROFILER_PLUGIN="none", NCCL_PROTO="Simple")
        assert done.returncode != 0 and "no profiler plugin told" in done.stdout + done.stderr


# What NCCL is built with (nccl-from-debian): sums of every type, and every reduction of two.
TYPES_AND_REDUCTIONS = [("f16,bf16,f64,i64,u8", "sum"), ("f32,i32", "sum,prod,max,min,avg,premul")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("types, reductions", TYPES_AND_REDUCTIONS)
def test_types_and_reductions(three, types, reductions, protocol):
    run(three, 3, "allreduce", "1,1000", "--type", types, "--red", reductions, "--iters", 1, NCCL_ALGO="Ring",
        NCCL_PROTO=protocol)
    assert all_done(three)


def test_types_in_a_tree(three):
    run(three, 3, "allreduce", 1000, "--type", "f16,bf16,f32", "--iters", 1, NCCL_ALGO="Tree")


def test_ghosts_with_numbers_are_as_real_ranks_with_the_same(tmp_path):
    """Every element over four ranks of which three are ghosts, and over four real ones: both as computed there."""
    words = ["--pattern", "--iters", 1, "--root", 2]
    everything = "allreduce,allgather,reducescatter,broadcast,reduce,sendrecv,alltoall"
    reductions = ["--type", "f32,i32", "--red", "sum,prod,max,avg"]
    with ghosts(tmp_path, 4, "contribution: pattern\nfilling: pattern\n") as place:
        for protocol in PROTOCOLS:
            run(place, 4, everything, 1000, *words, NCCL_PROTO=protocol)
        run(place, 4, "allreduce", 1000, *words, *reductions, NCCL_ALGO="Ring")
        run(place, 4, "allreduce", "1000,100003", *words, NCCL_ALGO="Tree")
    call(ROOT / "tests/nccl/phantom-run", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none", "NCCL_SOCKET_IFNAME=lo",
         "collective_test", "--ranks", 4, "--op", everything, "--count", 1000, *words, limit_s=120)


def test_what_ghosts_send_from_a_file(tmp_path):
    (tmp_path / "data").write_bytes(bytes(range(1, 252)))
    with ghosts(tmp_path, 3, "filling: file\nfile: ./data\n") as place:
        run(place, 3, "allgather,broadcast,sendrecv,alltoall", "1000,131072", "--type", "u8,i64", "--iters", 1,
            "--root", 1, "--ghost-file", tmp_path / "data")


def test_inflated(tmp_path):
    """The program knows two ranks, NCCL six: reductions and averages are over the two."""
    inflated = ["--inflate", "--ranks", 6]
    with ghosts(tmp_path, 6, real="[0, 1]", ranks_per_node=2) as place:
        def job(*words, **more):
            return place.call("collective_test", "--ranks", 2, "--hosts", 1, "--rank-env",
                              f"NBX_NET_INTERFACE={LOCAL_ADDRESS}{{rank}}", "--iters", 1, *words, options=inflated,
                              PHANTOM_GPU_COUNT=2, NCCL_SHM_DISABLE=0, **more)
        job("--op", "allreduce", "--count", "1,30011", "--red", "sum,max,avg,premul", NCCL_ALGO="Ring")
        job("--op", "allreduce,broadcast,reduce,sendrecv", "--count", "1,30011", "--type", "f32")
        assert place.ask("nccl")["communicators"][-1]["ranks"] == 6
        for words, why in [(["--op", "allgather"], "its buffers grow with the number of ranks"),
                           (["--type", "i32", "--red", "avg"], "integers cannot be")]:
            refused = job("--count", 10, *words, check=False)
            assert refused.returncode != 0 and why in refused.stdout + refused.stderr


def test_mirrored(three):
    """Sums and averages are as if every ghost had what the real rank has."""
    three.call("collective_test", "--ranks", 3, "--real", 0, "--op", "allreduce", "--count", "1,1000",
               "--red", "sum,avg,max", "--mirror", "--iters", 1, options=["--mirror", "--real-ranks", 1],
               NCCL_ALGO="Ring")


@pytest.mark.parametrize("settings", [
    {"NCCL_PROTO": "Simple", "NCCL_BUFFSIZE": 262144, "NCCL_NCHANNELS_PER_NET_PEER": 4, "NCCL_MIN_P2P_NCHANNELS": 8},
    {"NCCL_PROTO": "Simple", "NCCL_P2P_NET_CHUNKSIZE": 65536, "NCCL_NCHANNELS_PER_NET_PEER": 2,
     "NCCL_MIN_NCHANNELS": 4, "NCCL_MAX_P2P_NCHANNELS": 2},
    {"NCCL_PROTO": "LL", "NCCL_LL_BUFFSIZE": 65536}, {"NCCL_PROTO": "LL128", "NCCL_LL128_BUFFSIZE": 245760}])
def test_other_buffers_and_channels(three, settings):
    run(three, 3, "allreduce,allgather,sendrecv,alltoall", "1000,1000003", "--iters", 1, **settings)
    assert all_done(three)


@pytest.mark.parametrize("lazy", [0, 1])
def test_when_connections_are_made(three, lazy):
    """With cuMem, NCCL connects when a connection is first used."""
    run(three, 3, "allreduce", 1, "--init-only", NCCL_CUMEM_ENABLE=lazy)
    assert (three.ask("nccl")["communicators"][-1]["channels"] == 0) == bool(lazy)
    if lazy:
        run(three, 3, "allreduce,allgather,sendrecv", "1,1000,1000003", NCCL_CUMEM_ENABLE=lazy)
        assert all_done(three)


def test_with_cumem_connections_can_still_be_made_at_the_start(three):
    run(three, 3, "allreduce,allgather,sendrecv", "1,1000003", NCCL_CUMEM_ENABLE=1, NCCL_RUNTIME_CONNECT=0)
    assert all_done(three)


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


# Two processes of one node that announce the same communicator, with the releases of NCCL and the NCCL_BUFFSIZE of the
# arguments: prints what each hears.
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
for rank, version, buffsize in zip((0, 2), map(int, sys.argv[2:4]), map(int, sys.argv[4:6])):
    connection = socket.create_connection((sys.argv[1], 4790), timeout=10)
    connection.sendall(record(HELLO, struct.pack("<IIiII20x", 0x4e425831, version, rank + 1, 0, buffsize))
                       + record(COMM_INIT, struct.pack("<Qii", 1, 4, rank) + bytes(range(128))))
    connections.append(connection)
for connection in connections:
    print(last_word(connection))
"""


@pytest.mark.parametrize("versions, buffsizes, named", [
    ((22907, 22809), (0, 0), ("2.29.7", "2.28.9")), ((22907, 22907), (0, 1 << 20), ("NCCL_*BUFFSIZE",))])
def test_real_ranks_that_differ_are_both_told(tmp_path, versions, buffsizes, named):
    with ghosts(tmp_path, 4, real="[0, 2]", nodes=(0, 2)) as place:
        done = call("ip", "netns", "exec", place.node(0), "/usr/bin/python3", "-c", ANNOUNCE, place.first_ghost,
                    *versions, *buffsizes)
        heard = done.stdout.strip().splitlines()
        assert len(heard) == 2 and all(name in line for line in heard for name in named), done.stdout


def test_a_buffer_size_that_no_schedule_has_is_refused(two):
    done = run(two, 2, "allreduce", 1, check=False, NCCL_BUFFSIZE=4096)
    assert done.returncode != 0 and "is not between 64 KiB and 1 GiB" in done.stdout + done.stderr


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
    """A chunk size that nothing announces: other messages."""
    with ghosts(tmp_path, 2) as place:
        done = run(place, 2, "sendrecv", 1000003, check=False, NCCL_CHUNK_SIZE=65536)
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
