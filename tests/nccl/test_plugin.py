"""libnccl-net-neuronabox.so under unmodified NCCL: every rank is real, each with an address of its own. What is on the
wire is judged by a decoder that shares no code with the plugin."""
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from wire_between import Wire

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("NBX_BIN", HERE.parents[1] / "build/bin"))
JOB_LIMIT_S = 150
CTS_SIZE = 64
WRITE_ONLY, WRITE_ONLY_WITH_IMM, WRITE_LAST_WITH_IMM = 0x0A, 0x0B, 0x09

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")


def start(*options, **variables):
    settings = {"NCCL_NET_PLUGIN": BIN / "libnccl-net-neuronabox.so", "NCCL_NET": "NeuronaBox", "NCCL_SHM_DISABLE": 1,
                "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", **variables}
    words = [HERE / "phantom-run", *(f"{name}={value}" for name, value in settings.items()), "collective_test", *options]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=JOB_LIMIT_S,
                          check=False)


def passes(*options, **variables):
    done = start(*options, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def on_loopback(*options, ranks=2, **variables):
    """Every rank has an address in 127.0.0.0/8."""
    return passes("--ranks", ranks, "--rank-env", "NBX_NET_INTERFACE=127.78.0.1{rank}", *options,
                  **{"NCCL_SOCKET_IFNAME": "lo", **variables})


def over(wire, *options, job=passes, **variables):
    return job("--ranks", wire.nodes, "--netns", wire.prefix, *options, **{"NCCL_SOCKET_IFNAME": "nic", **variables})


@pytest.fixture
def wire():
    made = []

    def make(nodes, **options):
        made.append(Wire(nodes, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


# ---- results

@pytest.mark.parametrize("operation, protocol", [
    *((operation, "Simple") for operation in ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv")),
    ("allreduce", "LL"), ("allreduce", "LL128"), ("allgather", "LL"), ("reducescatter", "LL128")])
def test_collectives(operation, protocol):
    on_loopback("--op", operation, "--count", 100_003, ranks=3, NCCL_PROTO=protocol)


@pytest.mark.parametrize("count", [1, 1_000_003])
def test_counts(count):
    on_loopback("--count", count)


def test_tree():
    on_loopback("--count", 30_011, ranks=3, NCCL_ALGO="Tree", NCCL_PROTO="LL")


def test_four_channels():
    on_loopback("--count", 1_000_003, NCCL_MIN_NCHANNELS=4, NCCL_MAX_NCHANNELS=4)


def test_queue_pairs_per_connection():
    on_loopback("--count", 300_007, NCCL_IB_QPS_PER_CONNECTION=4, NCCL_IB_SPLIT_DATA_ON_QPS=1)


def test_unknown_version_is_refused():
    done = start("--ranks", 2, "--rank-env", "NBX_NET_INTERFACE=127.78.0.1{rank}", NCCL_SOCKET_IFNAME="lo",
                 NBX_NCCL_VERSION="2.17.1")
    assert done.returncode != 0
    assert "2.17.1" in done.stdout + done.stderr


# ---- what is on the wire

@needs_root
def test_packets(wire):
    segment = wire(2)
    over(segment, "--count", 1_000_003, NCCL_MIN_NCHANNELS=1, NCCL_MAX_NCHANNELS=1, NCCL_IB_TC=104)
    packets = segment.packets
    assert packets and all(packet.icrc_right for packet in packets)
    assert all(packet.frame[15] == 104 for packet in packets), "traffic class"
    assert all(packet.frame[18:22] == b"\0\0\x40\0" for packet in packets), "IP identification 0, DF"
    assert all(packet.frame[40:42] == b"\0\0" for packet in packets), "no UDP checksum"

    announced = [packet for packet in packets if packet.opcode == WRITE_ONLY]
    assert announced and all(len(packet.payload) == packet.length == CTS_SIZE for packet in announced)
    sequences = defaultdict(list)
    for packet in first_time(announced):
        sequences[packet.destination, packet.dest_qpn].append(int.from_bytes(packet.payload[40:48], "little"))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sequences.values()), sequences

    # A ring AllReduce of two ranks carries each way 2 x (n-1)/n of the data.
    bytes_to, lengths = defaultdict(int), {}
    for packet in first_time(packets):
        if packet.kind == "write" and packet.opcode != WRITE_ONLY:
            flow = packet.destination, packet.dest_qpn
            bytes_to[packet.destination] += len(packet.payload)
            lengths[flow] = packet.length if packet.length is not None else lengths[flow]
            if packet.opcode in (WRITE_ONLY_WITH_IMM, WRITE_LAST_WITH_IMM):
                assert packet.immediate == lengths[flow], "the size in network order, as of 2.29"
    iterations, element = 2, 4
    assert bytes_to == {segment.address(node): iterations * element * 1_000_003 for node in (0, 1)}


def first_time(packets):
    """Requests without those that were sent again."""
    seen = set()
    for packet in packets:
        if packet.kind == "write":
            key = packet.destination, packet.dest_qpn, packet.psn
            if key not in seen:
                seen.add(key)
                yield packet


@needs_root
def test_path_mtu_follows_the_interface(wire):
    segment = wire(2, mtu=1500)
    over(segment, "--count", 100_003)
    assert max(len(packet.payload) for packet in segment.packets) == 1024


# ---- faults

@needs_root
@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
def test_loss(wire, protocol):
    segment = wire(2, loses=lambda number, packet: number % 97 == 0)
    over(segment, "--count", 300_007, NCCL_PROTO=protocol, NCCL_IB_TIMEOUT=16)
    assert segment.lost > 0


@needs_root
def test_cut_ends_with_retry_exceeded(wire):
    segment = wire(2, loses=lambda number, packet: number > 200)
    done = over(segment, "--count", 1_000_003, job=start, NCCL_IB_TIMEOUT=12, NCCL_IB_RETRY_CNT=3)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert re.search(r"completion from peer 10\.78\.0\.1\d with status=IBV_WC_RETRY_EXC_ERR\(12\)", output), output
    assert "remote process exited or there was a network error" in output, output


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_dies(lost):
    done = on_loopback("--count", 1_000_003, "--lose-rank", lost, ranks=3, NCCL_IB_TIMEOUT=16)
    assert done.stdout.count("NCCL reports remote process exited or there was a network error") == 2, done.stdout
