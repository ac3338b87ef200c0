"""Unmodified NCCL with its own NET/IB over the kernel's soft-RoCE: one real rank in the machine, on the phantom GPU, the
others are ghosts. The collective test compares every element with what the call returns when ghosts contribute nothing."""
import contextlib
import json
import re
import subprocess
import sys

import pytest

from conftest import ADDRESSES, plug, wait_for_link
from emulator import BIN, ROOT, Emulator
from realnode import RealNode

sys.path.insert(0, str(ROOT / "tests/conformance"))
from roce import packets  # noqa: E402

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, ACK = 6, 7, 9, 10, 11, 17
RANKS = 3
FIRST_GHOST = "10.77.0.100"
GHOSTS = [{"name": "g", "count": RANKS - 1, "addresses": [f"{FIRST_GHOST}/24"]}]
NCCL = {"ghosts": "g", "ranks": RANKS, "real": [0], "timeout": 14}
RUN_LIMIT_S = 60
IMPAIRED = {"loss": {"both": {"loss": "0.5%"}}, "delay": {"both": {"delay": "2500us"}},
            "ack-loss": {"both": {"loss": [{"match": {"class": "ack"}, "probability": "5%"}]}}}


def libraries(*programs):
    """Where the dynamic linker finds what they need."""
    for program in programs:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        yield from re.findall(r"=> (/\S+)", listing)


@pytest.fixture(scope="module")
def nccl_node(reports, sockets):
    prepared = subprocess.run([ROOT / "tests/nccl/prepare"], capture_output=True, text=True, check=False)
    if prepared.returncode == 3:
        pytest.skip(prepared.stderr.splitlines()[-1])
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    home = ROOT / prepared.stdout.strip()
    announce = BIN / "libnbx-announce.so"
    own = [home / "collective_test", *home.glob("lib*.so.*"), *(home / "nccl/lib").glob("libnccl.*"), announce]
    files = {f"/nccl/{path.name}": path for path in own}
    for path in libraries(home / "collective_test", home / "nccl/lib/libnccl.so.2"):
        files.setdefault(f"/nccl/{path.rsplit('/', 1)[1]}", path)
    for plugin in ("profiler", "tuner"):    # the same library under the names that NCCL looks for
        files[f"/nccl/libnccl-{plugin}-neuronabox.so"] = announce
    node = RealNode(reports, "nccl", ADDRESSES["real0"], net=f"vhost:{sockets / 'p3.sock'}", memory_mb=768, files=files)
    with Emulator(reports / "boot-nccl", {"p3": port(sockets, {})}), contextlib.ExitStack() as undo:
        undo.callback(node.stop)
        node.start()
        undo.pop_all()
    yield node
    node.stop()


def port(sockets, profile, ghosts=()):
    plugged = plug(sockets, 0, profile, ghosts)
    plugged.socket = sockets / "p3.sock"
    return plugged


def environment(announced_to):
    """What `nbx run` sets for a program on a node with an RNIC, and what the machine needs."""
    dry = subprocess.run([BIN / "nbx", "run", "--dry-run", "--json", "--net", "ib", "--announce", announced_to, "--", "true"],
                         capture_output=True, text=True, check=True)
    variables = {entry["name"]: entry["value"] for entry in json.loads(dry.stdout)["environment"]}
    variables = {name: value.replace(str(BIN), "/nccl") for name, value in variables.items()}
    variables["NCCL_PROFILER_PLUGIN"] = variables["NCCL_TUNER_PLUGIN"] = variables["LD_PRELOAD"]
    return {**variables, "LD_LIBRARY_PATH": "/nccl:/lib/x86_64-linux-gnu", "NCCL_IB_HCA": "rxe0", "NCCL_NET": "IB",
            "NCCL_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
            "NCCL_NET_GDR_LEVEL": "LOC", "NCCL_ALGO": "Ring,Tree", "NCCL_IB_TIMEOUT": "14", "NCCL_DEBUG": "WARN"}


def collective(node, op, count, **more):
    variables = {**environment(f"{FIRST_GHOST}:4790"), "NCCL_IB_GID_INDEX": node.gid_index(node.ipv4), **more}
    words = [f"{name}={value}" for name, value in variables.items()]
    return node.run(f"env {' '.join(words)} /nccl/collective_test --ranks {RANKS} --real 0 --op {op} --count {count}",
                    limit_s=RUN_LIMIT_S)


@pytest.fixture
def emulator(reports, sockets, request):
    profile = getattr(request, "param", "clean")
    run = Emulator(reports / request.node.name, {"p3": port(sockets, IMPAIRED.get(profile, {}), GHOSTS)}, nccl=NCCL)
    with run:
        yield run


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
def test_collectives_over_the_kernels_rdma(nccl_node, emulator, protocol):
    wait_for_link(nccl_node, FIRST_GHOST)
    for op in ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv"):
        collective(nccl_node, op, 20011, NCCL_PROTO=protocol)
    assert all(operation["done"] for operation in emulator.ask("nccl")["operations"])


@pytest.mark.parametrize("emulator", IMPAIRED, indirect=True)
def test_impaired(nccl_node, emulator):
    wait_for_link(nccl_node, FIRST_GHOST)
    collective(nccl_node, "allreduce", 20011)


def test_the_capture_shows_nccls_messages(nccl_node, emulator):
    wait_for_link(nccl_node, FIRST_GHOST)
    elements = 20011
    collective(nccl_node, "allreduce", elements, NCCL_PROTO="Simple", NCCL_ALGO="Ring")
    operations, counters = emulator.ask("nccl")["operations"], emulator.ask("counters")
    emulator.stop()
    seen = [packet for packet in packets(emulator.capture) if packet.transport == 0]
    assert all(packet.icrc_right for packet in seen)
    assert {packet.opcode for packet in seen} <= {WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, ACK}
    for node, counter in ((True, "rx_roce_packets"), (False, "tx_roce_packets")):
        sent = [packet for packet in seen if (packet.source == nccl_node.ipv4) == node]
        assert len(sent) == counters[counter]
        cleared = [packet for packet in sent if packet.opcode == WRITE_ONLY]
        messages = [packet for packet in sent if packet.opcode in (WRITE_LAST_IMM, WRITE_ONLY_IMM)]
        assert cleared and all(len(packet.payload) == 64 for packet in cleared), "clear-to-sends"
        # NCCL 2.29 writes the size of the message into the immediate, in network order.
        moved = sum(operation["bytes_from_real" if node else "bytes_to_real"] for operation in operations)
        assert sum(packet.immediate for packet in messages) == moved > elements * 4
