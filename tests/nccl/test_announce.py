"""What the preload library tells the ghosts, and what it does when they fail. NCCL is real, the GPU a phantom, the
ghosts are listeners only: every rank of these jobs is real, and NCCL's own log is the second opinion."""
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from fake_ghosts import (COMM_DESTROY, COMM_INIT, COMM_READY, COMM_SHRINK, COMM_SPLIT, DECISION, FAILURE, GROUP_END,
                         HELLO, MAGIC, OPERATION, WELCOMED, FakeGhosts, record)

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("NBX_BIN", HERE.parents[1] / "build/bin"))
JOB_LIMIT_S = 60
ABORT_LIMIT_S = 2
NCCL_VERSION = 22907
ALGORITHMS, PROTOCOLS = ["TREE", "RING"], ["LL", "LL128", "SIMPLE"]
LIBRARY = {"LD_PRELOAD": BIN / "libnbx-announce.so", "NCCL_TUNER_PLUGIN": BIN / "libnccl-tuner-neuronabox.so",
           "NCCL_PROFILER_PLUGIN": BIN / "libnccl-profiler-neuronabox.so"}
NETWORK = {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_SOCKET_IFNAME": "lo", "NCCL_SHM_DISABLE": "1",
           "NCCL_ALLGATHERV_ENABLE": "0"}


class Job:
    """Processes under the phantom GPU, each with variables of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def start(self, *command, library=True, **variables):
        settings = {**NETWORK, **(LIBRARY if library else {}), **variables}
        # phantom-run is a shell script: what is preloaded is for the program alone.
        words = [HERE / "phantom-run", *(f"{name}={value}" for name, value in settings.items()), *command]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.processes.append(process)
        return process

    def program(self, ranks, rank, *steps, world_rank=None, **variables):
        variables["NCCL_HOSTID"] = f"host-{rank if world_rank is None else world_rank}"
        return self.start(HERE / "program.py", ranks, rank, self.folder / "id", *steps, **variables)


def finish(process, limit_s=JOB_LIMIT_S):
    output, errors = process.communicate(timeout=limit_s)
    return process.returncode, output, errors


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def counts_of(records):
    return [(body.sequence, body.count) for body in records]


@pytest.mark.parametrize("op, collective, pins", [
    ("allreduce", "allreduce", {}),
    ("allreduce", "allreduce", {"NBX_ALGO": "tree", "NBX_PROTO": "ll128"}),
    ("allreduce", "allreduce", {"NBX_ALGO": "ring", "NBX_PROTO": "simple", "NBX_CHANNELS": "1"}),
    ("allgather", "allgather", {"NBX_PROTO": "ll"}),
    ("reducescatter", "reducescatter", {}),
    ("reduce", "reduce", {}),
    ("broadcast", "broadcast", {"NBX_ALGO": "tree"}),  # there is no such broadcast: NCCL's choice stands
])
def test_two_ranks_say_what_nccl_does(job, op, collective, pins):
    iterations, count = 2, 100_003
    with FakeGhosts() as ghosts:
        process = job.start("collective_test", "--ranks", 2, "--op", op, "--count", count, "--iters", iterations,
                            NBX_ANNOUNCE=ghosts.endpoint, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="TUNING", **pins)
        status, output, errors = finish(process)
        assert status == 0, output + errors
        talks = ghosts.wait(2)
    logged = [(ALGORITHMS.index(algorithm), PROTOCOLS.index(protocol), 1 + int(high) - int(low))
              for algorithm, protocol, low, high in
              re.findall(r"Algo (\w+) proto (\w+) channel{Lo..Hi}={(\d+)..(\d+)}", output + errors)]
    assert len(logged) == iterations
    for rank, talk in enumerate(talks):
        assert (talk.hello.magic, talk.hello.nccl_version, talk.hello.inflate) == (MAGIC, NCCL_VERSION, 0)
        assert [kind for kind, _ in talk.records] == [
            HELLO, COMM_INIT, COMM_READY, *[OPERATION, GROUP_END, DECISION] * iterations, COMM_DESTROY]
        init, = talk.of(COMM_INIT)
        assert (init.ranks, init.rank) == (2, rank)
        assert counts_of(talk.of(OPERATION)) == [(i, count) for i in range(iterations)]
        decided = [(body.algorithm, body.protocol, body.channels) for body in talk.of(DECISION)]
        assert decided == logged
        assert [body.sequence for body in talk.of(DECISION)] == list(range(iterations))
        for wanted, names, index in (("NBX_PROTO", PROTOCOLS, 1), ("NBX_ALGO", ALGORITHMS, 0)):
            if wanted in pins and (wanted, op) != ("NBX_ALGO", "broadcast"):
                assert {row[index] for row in decided} == {names.index(pins[wanted].upper())}
        if "NBX_CHANNELS" in pins:
            assert {row[2] for row in decided} == {int(pins["NBX_CHANNELS"])}
    assert talks[0].of(COMM_INIT)[0].id == talks[1].of(COMM_INIT)[0].id != bytes(128)


def test_one_rank_decides_nothing(job):
    with FakeGhosts() as ghosts:
        status, output, errors = finish(job.start("collective_test", "--ranks", 1, "--count", 1000,
                                                  NBX_ANNOUNCE=ghosts.endpoint))
        assert status == 0, output + errors
        talk, = ghosts.wait(1)
    assert talk.of(COMM_INIT)[0].ranks == 1
    assert len(talk.of(OPERATION)) == 2 and not talk.of(DECISION)


def test_groups_and_messages(job):
    """Every group's records come together and end with a mark, those of a single call too; decisions name the call, in NCCL's order; an all-to-all is
    its messages."""
    with FakeGhosts() as ghosts:
        runs = [job.program(2, rank, "sum", "group", "alltoall", "destroy", NBX_ANNOUNCE=ghosts.endpoint,
                            NBX_CHANNELS=1) for rank in range(2)]
        outputs = [finish(run) for run in runs]
        talks = ghosts.wait(2)
    for (status, output, errors), talk in zip(outputs, talks):
        assert status == 0, output + errors
        assert "sum 3.0" in output
        calls = [(kind, body) for kind, body in talk.records if kind in (OPERATION, GROUP_END)]
        assert [kind for kind, _ in calls] == [
            OPERATION, GROUP_END, OPERATION, OPERATION, GROUP_END] + [OPERATION] * 4 + [GROUP_END]
        assert [body.count for kind, body in calls if kind == OPERATION][:3] == [1000, 100, 60000]
        messages = [body for kind, body in calls if kind == OPERATION][3:]
        assert [(body.collective, body.root) for body in messages] == [(6, 0), (7, 0), (6, 1), (7, 1)]
        assert [body.sequence for body in messages] == [3, 4, 5, 6]
        assert sorted(body.sequence for body in talk.of(DECISION)) == [0, 1, 2]


def test_split_and_shrink(job):
    with FakeGhosts() as ghosts:
        runs = [job.program(3, rank, "shrink", *(["split", "sum"] if rank < 2 else []), "destroy",
                            NBX_ANNOUNCE=ghosts.endpoint) for rank in range(3)]
        outputs = [finish(run) for run in runs]
        talks = ghosts.wait(3)
    for rank, ((status, output, errors), talk) in enumerate(zip(outputs, talks)):
        assert status == 0, output + errors
        world, = talk.of(COMM_INIT)
        if rank == 2:
            assert not talk.of(COMM_SHRINK, COMM_SPLIT)
            continue
        shrink, = talk.of(COMM_SHRINK)
        assert (shrink.parent, shrink.parent_ranks, shrink.excluded) == (world.comm, 3, [2])
        split, = talk.of(COMM_SPLIT)
        assert (split.parent, split.color, split.key) == (shrink.comm, rank, -rank)
        assert talk.of(OPERATION)[0].comm == split.comm
        assert [body.comm for body in talk.of(COMM_READY)] == [world.comm, shrink.comm, split.comm]


def test_inflate(job):
    """The program knows one rank; NCCL is told of two, and the other is played by a real rank that contributes zeros."""
    with FakeGhosts() as ghosts:
        real = job.program(1, 0, "size", "sum", "avg", "allgather", world_rank=0, NBX_ANNOUNCE=ghosts.endpoint,
                           NBX_MODE="inflate", NBX_RANKS=2)
        other = job.program(2, 1, "zeros", "zeros", "sleep", library=False)
        status, output, errors = finish(real)
        other.kill()
        talk, = ghosts.wait(1)
    assert "size 1 0\nsum 1.0\navg 1.0\n" in output, output + errors
    assert status == 9 and "ncclAllGather: its buffers grow with the number of ranks" in errors
    assert "failed: result 5: ncclAllGather" in output
    init, = talk.of(COMM_INIT)
    assert (talk.hello.inflate, init.ranks, init.rank) == (1, 2, 0)
    assert [body.op for body in talk.of(OPERATION)] == [0, 0]  # the average is a sum of products


def test_inflate_with_a_map(job):
    """The program's rank 0 is the world's rank 1; the id comes from it all the same."""
    with FakeGhosts() as ghosts:
        real = job.program(1, 0, "size", "sum", world_rank=1, NBX_ANNOUNCE=ghosts.endpoint, NBX_MODE="inflate",
                           NBX_RANKS=2, NBX_RANK_MAP=1)
        while not (job.folder / "id").exists():
            assert real.poll() is None
            time.sleep(0.01)
        # It finds an id and makes none, and is rank 0 of the world.
        job.program(2, 0, "zeros", "sleep", world_rank=0, library=False, KEEP_ID=1)
        status, output, errors = finish(real)
        talk, = ghosts.wait(1)
    assert status == 0 and "size 1 0\nsum 1.0\n" in output, output + errors
    assert (talk.of(COMM_INIT)[0].ranks, talk.of(COMM_INIT)[0].rank) == (2, 1)


MIRROR = {"NBX_MIRROR": 1, "NBX_REAL_RANKS": 1}


def test_mirror(job):
    """Two ranks of which one is real: what the other contributes (zeros) is made up for."""
    with FakeGhosts() as ghosts:
        real = job.program(2, 0, "sum", "avg", "destroy", NBX_ANNOUNCE=ghosts.endpoint, **MIRROR)
        job.program(2, 1, "zeros", "zeros", "destroy", library=False)
        status, output, errors = finish(real)
    assert status == 0 and "sum 2.0\navg 1.0\n" in output, output + errors


def answer_failure(talk, kind, _):
    """Welcomes, and fails at the first operation."""
    if kind == HELLO:
        talk.connection.sendall(WELCOMED)
    if kind == OPERATION:
        talk.connection.sendall(record(FAILURE, b"channel 0, message 3\nexpected 4096 bytes\narrived 512 bytes"))


def answer_by_dying(talk, kind, _):
    if kind == HELLO:
        talk.connection.sendall(WELCOMED)
    if kind == OPERATION:
        talk.connection.close()


@pytest.mark.parametrize("answer, text", [
    (answer_failure, "neuronabox: channel 0, message 3\nneuronabox: expected 4096 bytes\nneuronabox: arrived 512 bytes"),
    (answer_by_dying, "closed the connection: nbxd has ended"),
], ids=["failure", "server-death"])
def test_failure_in_a_collective(job, answer, text):
    """The other rank never joins the collective: without the abort the job would hang."""
    with FakeGhosts(answer) as ghosts:
        real = job.program(2, 0, "sum", "sum", "destroy", NBX_ANNOUNCE=ghosts.endpoint)
        job.program(2, 1, "sleep", library=False)
        status, output, errors = finish(real)
        ended = time.monotonic()
        failed = ghosts.talks[0].times[OPERATION]
    assert text in errors
    assert status == 9 and "failed: result 6" in output, output + errors
    assert ended - failed < ABORT_LIMIT_S


@pytest.mark.parametrize("fail", [
    lambda talk: talk.connection.sendall(record(FAILURE, b"rank 1 has no address")),
    lambda talk: talk.connection.close(),
], ids=["failure", "server-death"])
def test_failure_while_nccl_waits_for_its_peers(job, fail):
    def answer(talk, kind, _):
        if kind == HELLO:
            talk.connection.sendall(WELCOMED)
        if kind == COMM_INIT:
            time.sleep(1)  # NCCL is inside its bootstrap by now
            talk.failed = time.monotonic()
            fail(talk)

    with FakeGhosts(answer) as ghosts:
        real = job.program(2, 0, "sum", NBX_ANNOUNCE=ghosts.endpoint)
        status, output, errors = finish(real)
        ended = time.monotonic()
    assert status == 9 and "failed: result 6" in output, output + errors
    assert ended - ghosts.talks[0].failed < ABORT_LIMIT_S


def test_wrong_version_is_refused(job):
    def answer(talk, kind, body):
        if kind == HELLO:
            talk.connection.sendall(record(FAILURE, b"ghosts cannot play NCCL %d" % body.nccl_version))

    with FakeGhosts(answer) as ghosts:
        status, output, errors = finish(job.program(2, 0, "sum", NBX_ANNOUNCE=ghosts.endpoint))
        talk, = ghosts.talks
    assert status == 9 and "failed: result 2: ghosts cannot play NCCL 22907" in output, output + errors
    assert "neuronabox: ghosts cannot play NCCL 22907" in errors
    assert [kind for kind, _ in talk.records] == [HELLO]


def test_ghosts_that_say_nothing(job):
    with FakeGhosts(lambda *_: None) as ghosts:
        status, output, errors = finish(job.program(2, 0, NBX_ANNOUNCE=ghosts.endpoint, NBX_ANNOUNCE_TIMEOUT=1))
    assert status == 9 and "no welcome from the ghosts at " + ghosts.endpoint in output, output + errors


@pytest.mark.parametrize("variables, text", [
    ({"NBX_ANNOUNCE": "127.0.0.1:1"}, "no connection to the ghosts at 127.0.0.1:1: Connection refused"),
    ({"NBX_ANNOUNCE": "localhost"}, "NBX_ANNOUNCE='localhost' is not HOST:PORT"),
    ({"NBX_ANNOUNCE": "127.0.0.1:1", "NBX_MODE": "inflate"}, "NBX_MODE=inflate needs NBX_RANKS"),
    ({"NBX_ANNOUNCE": "127.0.0.1:1", "NBX_MODE": "inflate", "NBX_RANKS": 1}, "is less than the 2 ranks"),
    ({"NBX_ANNOUNCE": "127.0.0.1:1", "NBX_MIRROR": 1}, "NBX_MIRROR=1 needs NBX_REAL_RANKS"),
])
def test_what_cannot_work_is_said(job, variables, text):
    status, output, errors = finish(job.program(2, 0, **variables))
    assert status == 9 and text in output and text in errors, output + errors


def test_without_an_address_the_library_is_not_there(job):
    status, output, errors = finish(job.start("collective_test", "--ranks", 2, "--count", 1000))
    assert status == 0 and "neuronabox" not in errors, output + errors


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_other_preloaded_libraries_find_their_next(tmp_path):
    """dlsym(RTLD_NEXT) means the library after the caller, not after ours."""
    (tmp_path / "first.c").write_text("""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        int getpagesize(void) { return 1 + ((int (*)(void))dlsym(RTLD_NEXT, "getpagesize"))(); }""")
    (tmp_path / "second.c").write_text("int getpagesize(void) { return 41; }")
    for name in ("first", "second"):
        subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / f"{name}.c", "-o", tmp_path / f"{name}.so"], check=True)
    preload = ":".join(str(path) for path in (tmp_path / "first.so", tmp_path / "second.so", LIBRARY["LD_PRELOAD"]))
    program = "import ctypes; print(ctypes.CDLL(None).getpagesize())"
    done = subprocess.run(["/usr/bin/python3", "-c", program], env={"LD_PRELOAD": preload}, capture_output=True,
                          text=True, check=True)
    assert done.stdout.strip() == "42"
