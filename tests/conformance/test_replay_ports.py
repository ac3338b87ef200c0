"""`nbx replay` with a network that spans two ports: a capture in for each, one pcapng out with an interface for each.

Two leaves and a spine at 10 Gb/s, a real node and a ghost at each leaf. Frames are made by scapy, and what the ports
sent is read without the project's own code. Times follow from the rates: a frame of 1000 bytes is on the line for 1024.
"""
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from roce import records_by_interface

scapy = pytest.importorskip("scapy.all")
mac_control = pytest.importorskip("scapy.contrib.mac_control")

NBX = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")).resolve() / "nbx"
MACS = ["52:54:00:00:00:01", "52:54:00:00:00:02"]
CLUSTER = """
cluster: two-leaves
ports: [{name: p0}, {name: p1}]
nodes:
  - {name: real0, port: p0, mac: "52:54:00:00:00:01", addresses: 10.77.0.1/24}
  - {name: real1, port: p1, mac: "52:54:00:00:00:02", addresses: 10.77.0.2/24}
ghosts:
  - {name: near, port: p0, mac: "02:00:00:00:00:03", addresses: 10.77.0.3/24}
  - {name: far, port: p1, mac: "02:00:00:00:00:04", addresses: 10.77.0.4/24}
network:
  topology: {leaf_spine: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  host_rate: 10Gb/s
  fabric_rate: 10Gb/s
  propagation: 1us
  latency: 500ns
  priorities: [{priority: 3, lossless: true, xoff: 20000B, headroom: 200000B}]
"""
XOFF = 20_000
SIZE = 1000
LINE_NS = (SIZE + 24) * 8 / 10
QUANTA_NS = 51.2


def frame(priority, number):
    made = scapy.Ether(src=MACS[0], dst=MACS[1]) / scapy.IP(src="10.77.0.1", dst="10.77.0.2", tos=priority << 5) / \
        scapy.UDP(sport=1000, dport=9) / number.to_bytes(4, "big")
    return bytes(made).ljust(SIZE, b"\0")


def ping(to_mac, to_ip):
    made = scapy.Ether(src=MACS[0], dst=to_mac) / scapy.IP(src="10.77.0.1", dst=to_ip) / scapy.ICMP(type="echo-request")
    return bytes(made).ljust(60, b"\0")


def pfc(priority, quanta):
    body = mac_control.MACControlClassBasedFlowControl(**{f"c{priority}_enabled": 1, f"c{priority}_pause_time": quanta})
    return bytes(scapy.Ether(dst="01:80:c2:00:00:01", src=MACS[1], type=0x8808) / body).ljust(60, b"\0")


def write(path, frames):
    with scapy.RawPcapWriter(str(path), linktype=1, nano=True) as pcap:
        pcap.write_header(None)
        for time_ns, data in sorted(frames):
            pcap.write_packet(data, sec=time_ns // 10**9, usec=time_ns % 10**9)


def replay(folder, *arguments, expect=0):
    done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--linger", "10ms", "--json", *arguments],
                          cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout) if expect == 0 else done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def sent(folder, file="out.pcapng"):
    """By port [(nanoseconds, frame)], of what was not dropped."""
    out = defaultdict(list)
    for time_ns, port, data, comment in records_by_interface(folder / file):
        if "dropped" not in comment:
            out[port].append((time_ns, data))
    return out


def numbers(frames, priority):
    """(nanoseconds, number) of the node's frames of a priority."""
    return [(t, int.from_bytes(f[42:46], "big")) for t, f in frames
            if f[12:14] == b"\x08\x00" and f[23] == 17 and f[15] >> 5 == priority]


PAUSED_AT, RESUMED_AT, COUNT = 100_000, 1_500_000, 150


def paused_inputs(folder):
    """A frame each microsecond from p0's node to p1's, in turn of priorities 0 and 3; p1's node pauses 3 meanwhile."""
    write(folder / "p0.pcap", [(2000 * n + 1000 * (p == 3), frame(p, n)) for n in range(COUNT) for p in (0, 3)])
    write(folder / "p1.pcap", [(PAUSED_AT, pfc(3, 0xffff)), (RESUMED_AT, pfc(3, 0))])
    return ["--in", "p0=p0.pcap", "--in", "p1=p1.pcap"]


def test_a_pause_into_one_port_reaches_the_node_of_another_hop_by_hop(folder):
    report = replay(folder, *paused_inputs(folder), "--out", "out.pcapng")
    out = sent(folder)
    held, free = numbers(out["p1"], 3), numbers(out["p1"], 0)
    assert [n for _, n in held] == [n for _, n in free] == list(range(COUNT)), "nothing is lost, and all in order"
    # The pause arrives after its own time on the line and the cable's; the frame on the line then is finished.
    pause_here, resume_here = (at + 84 * 8 / 10 + 1000 for at in (PAUSED_AT, RESUMED_AT))
    assert not [t for t, _ in held if pause_here + LINE_NS + 1000 < t < resume_here + LINE_NS + 1000 - 1]
    assert [t for t, _ in held if t >= resume_here + LINE_NS + 1000 - 1][0] == pytest.approx(
        resume_here + LINE_NS + 1000, abs=1)
    assert len([t for t, _ in free if PAUSED_AT + 10_000 < t < RESUMED_AT]) > 40, "others go on"
    # The far leaf, the spine and the near leaf each fill up to xoff before the next pauses its sender.
    pauses = [(t, f) for t, f in out["p0"] if f[12:14] == b"\x88\x08"]
    each = 2000 * XOFF / SIZE
    assert PAUSED_AT + 3 * each < pauses[0][0] < PAUSED_AT + 3 * each + 20_000
    assert all(f[16:18] == bytes([0, 8]) for _, f in pauses), "class 3 alone"
    quanta = [int.from_bytes(f[18 + 2 * 3:20 + 2 * 3], "big") for _, f in pauses]
    assert quanta[-1] == 0 and all(quanta[:-1]), "refreshed, and resumed in the end"
    assert pauses[-1][0] > RESUMED_AT
    assert max(b - a for (a, _), (b, _) in zip(pauses, pauses[1:])) < 0xffff * QUANTA_NS, "without a gap"
    assert not [f for _, f in out["p1"] if f[12:14] == b"\x88\x08"]
    near, far = report["ports"]
    assert (near["port"], far["port"]) == ("p0", "p1")
    assert near["counters"]["tx_pfc_frames"] == len(pauses) and far["counters"]["rx_pfc_frames"] == 2
    assert near["input"]["frames"] == 2 * COUNT and far["input"]["frames"] == 2
    assert not near["drops"] and not far["drops"]


def test_ghosts_of_both_ports_answer_across_the_network(folder):
    write(folder / "p0.pcap", [(0, ping("02:00:00:00:00:03", "10.77.0.3")), (100_000, ping("02:00:00:00:00:04", "10.77.0.4"))])
    replay(folder, "--in", "p0=p0.pcap", "--out", "out.pcapng")
    line = 84 * 8 / 10
    times = [t for t, f in sent(folder)["p0"] if f[34] == 0]  # echo reply
    # A switch there and back with a cable on each side, and three: frames are sent on when their last bit is in.
    assert times == [pytest.approx(4 * (line + 1000) + 2 * 500, abs=1),
                     pytest.approx(100_000 + 8 * (line + 1000) + 6 * 500, abs=1)]


def test_the_same_input_gives_the_same_bytes(folder):
    inputs = paused_inputs(folder)
    reports = [replay(folder, *inputs, "--out", f"{n}.pcapng") for n in range(2)]
    assert (folder / "0.pcapng").read_bytes() == (folder / "1.pcapng").read_bytes()
    assert reports[0] == reports[1]


def test_a_capture_with_an_interface_per_port_is_input_for_all(folder):
    """What a replay wrote with its input is such a capture: what ports sent in it is left out."""
    replay(folder, *paused_inputs(folder), "--out", "both.pcapng", "--with-input")
    replay(folder, *paused_inputs(folder), "--out", "out.pcapng")
    report = replay(folder, "--in", "both.pcapng", "--out", "again.pcapng")
    assert sent(folder, "again.pcapng") == sent(folder)
    assert [port["input"]["frames"] for port in report["ports"]] == [2 * COUNT, 2]
    assert all(port["input"]["from_ghosts"] > 0 for port in report["ports"])


def test_what_a_capture_is_of_must_be_known(folder):
    paused_inputs(folder)
    assert "no port is called as its interface ''; write PORT=p0.pcap" in replay(folder, "--in", "p0.pcap", expect=1)
    assert "spans all 2 ports" in replay(folder, "--port", "p0", "--in", "p0.pcap", expect=2)
    assert "no port 'p2'" in replay(folder, "--port", "p2", "--in", "p0.pcap", expect=2)
