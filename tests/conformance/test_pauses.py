"""PFC and PAUSE on frames: `nbx replay` is handed pauses that scapy made, storms are read with tshark and `nbx inspect`.

A ghost answers pings of every priority. Its answers wait in the queues of an emulated switch, which the pauses of the
node hold. Every time is worked out from the standard: a quantum is 512 bit times (IEEE 802.1Q 36.1.3.3, 802.3 31B.2),
a frame of 60 bytes is on the line for 84.
"""
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from roce import records

scapy = pytest.importorskip("scapy.all")
mac_control = pytest.importorskip("scapy.contrib.mac_control")

NBX = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")).resolve() / "nbx"
NODE_MAC, GHOST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
NODE_IP, GHOST_IP = "10.77.0.1", "10.77.0.2"
SETTLED_NS = 20_000  # a pause is sent when the network is empty, so that no frame is before it on the line
PING_EVERY_NS = 1_000
CLUSTER = """
cluster: one-switch
ports: [{{name: p0}}]
nodes: [{{name: node, port: p0, mac: "{node}", addresses: 10.77.0.1/24}}]
ghosts: [{{name: g, mac: "{ghost}", addresses: 10.77.0.2/24}}]
network:
  topology: rack
  host_rate: {gbps}Gb/s
  propagation: 1us
  latency: 500ns
{more}
"""


def pfc(quanta):
    """Class-enable vector and quanta by priority; those of classes that are not enabled are there too."""
    enabled = {f"c{p}_enabled": 1 for p in quanta}
    times = {f"c{p}_pause_time": quanta.get(p, 0xffff) for p in range(8)}
    return control(mac_control.MACControlClassBasedFlowControl(**enabled, **times))


def plain(quanta):
    return control(mac_control.MACControlPause(pause_time=quanta))


def control(body):
    frame = scapy.Ether(dst="01:80:c2:00:00:01", src=NODE_MAC, type=0x8808) / body
    return bytes(frame).ljust(60, b"\0")


def ping(priority):
    frame = scapy.Ether(dst=GHOST_MAC, src=NODE_MAC) / scapy.IP(src=NODE_IP, dst=GHOST_IP, tos=priority * 8 << 2) / \
        scapy.ICMP(type="echo-request")
    return bytes(frame).ljust(60, b"\0")


def replay(tmp_path, gbps, frames, more="", linger="1ms"):
    """Sends [(nanoseconds, frame)]; answers what the port sent, [(nanoseconds, frame)]."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.format(node=NODE_MAC, ghost=GHOST_MAC, gbps=gbps, more=more))
    with scapy.RawPcapWriter(str(tmp_path / "in.pcap"), linktype=1, nano=True) as pcap:
        pcap.write_header(None)
        for time_ns, frame in sorted(frames):
            pcap.write_packet(frame, sec=time_ns // 10**9, usec=time_ns % 10**9)
    done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--in", "in.pcap", "--out", "out.pcapng", "--linger",
                           linger, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [(time_ns, frame) for time_ns, frame, _ in records(tmp_path / "out.pcapng")]


def answers(sent):
    """The times of the answers to pings, by priority."""
    out = defaultdict(list)
    for time_ns, frame in sent:
        if frame[12:14] == b"\x08\x00":
            out[frame[15] >> 5].append(time_ns)
    return out


def line_ns(gbps):
    return 84 * 8 / gbps


def quanta_ns(quanta, gbps):
    return quanta * 512 / gbps


def window(at, quanta, gbps):
    """When no answer that a pause sent `at` holds comes out: until the first one has left and travelled."""
    pause_here = at + line_ns(gbps) + 1000
    return pause_here + line_ns(gbps) + 1000, pause_here + quanta_ns(quanta, gbps) + line_ns(gbps) + 1000


def steady(until_ns, priorities=range(8)):
    """A ping of each priority in turn. None for a while around the start."""
    return [(t, ping(list(priorities)[n % len(priorities)]))
            for n, t in enumerate(range(SETTLED_NS + 10_000, until_ns, PING_EVERY_NS))]


def held(times, start, end):
    return [t for t in times if start < t < end - 1]


@pytest.mark.parametrize("gbps", [10, 100, 400])
@pytest.mark.parametrize("paused", [{3: 0xffff}, {0: 0x4000, 5: 0x8000}])
def test_pfc_holds_its_priorities_to_the_nanosecond(tmp_path, gbps, paused):
    longest = max(quanta_ns(q, gbps) for q in paused.values())
    sent = replay(tmp_path, gbps,
                  [(0, ping(0)), (SETTLED_NS, pfc(paused))] + steady(SETTLED_NS + int(longest) + 100_000))
    times = answers(sent)
    for priority in range(8):
        start, end = window(SETTLED_NS, paused.get(priority, 0xffff), gbps)
        inside = held(times[priority], start, end)
        if priority not in paused:
            assert len(inside) >= 2, f"priority {priority} is not enabled in the vector, whatever its quanta say"
            continue
        assert not inside, f"priority {priority} is paused"
        # Another answer may be on the line when the pause ends: at most one frame later.
        first = min(t for t in times[priority] if t > start)
        assert end - 1 <= first <= end + line_ns(gbps) + 1, "resumes"


def test_alone_it_resumes_to_the_nanosecond(tmp_path):
    for gbps, quanta in ((10, 1), (10, 777), (100, 12345), (400, 0xffff)):
        sent = replay(tmp_path, gbps, [(0, ping(0)), (SETTLED_NS, pfc({3: quanta})), (SETTLED_NS + 100, ping(3))])
        [answer] = answers(sent)[3]
        there = SETTLED_NS + 100 + 2 * line_ns(gbps) + 2500  # at the ghost
        back = there + line_ns(gbps) + 1500                  # at the switch, decided upon
        _, resumed = window(SETTLED_NS, quanta, gbps)
        assert answer == pytest.approx(max(back + line_ns(gbps) + 1000, resumed), abs=1)
    assert quanta_ns(0xffff, 400) == pytest.approx(83_880, abs=10), "a maximum pause at 400 Gb/s is 83.88 us"


def test_zero_quanta_end_a_pause_at_once(tmp_path):
    resume_at = SETTLED_NS + 40_000
    sent = replay(tmp_path, 10, [(0, ping(0)), (SETTLED_NS, pfc({3: 0xffff})), (SETTLED_NS + 10_000, ping(3)),
                                 (resume_at, pfc({3: 0}))])
    [answer] = answers(sent)[3]
    assert answer == pytest.approx(resume_at + 2 * line_ns(10) + 2000, abs=1)


def test_a_later_pause_replaces_an_earlier_one(tmp_path):
    second = SETTLED_NS + 30_000
    sent = replay(tmp_path, 10, [(0, ping(0)), (SETTLED_NS, pfc({3: 0xffff})), (SETTLED_NS + 10_000, ping(3)),
                                 (second, pfc({3: 1000}))])
    [answer] = answers(sent)[3]
    assert answer == pytest.approx(window(second, 1000, 10)[1], abs=1)


def test_plain_pause_holds_every_priority_and_no_pfc_resume_ends_it(tmp_path):
    everything = {p: 0 for p in range(8)}
    sent = replay(tmp_path, 10, [(0, ping(0)), (SETTLED_NS, plain(2000)), (SETTLED_NS + 20_000, pfc(everything))] +
                  [(SETTLED_NS + 30_000 + p * 1000, ping(p)) for p in range(8)])
    start, end = window(SETTLED_NS, 2000, 10)
    after = sorted(t for times in answers(sent).values() for t in times if t > start)
    assert len(after) == 8
    assert after[0] == pytest.approx(end, abs=1)


def inspected(path, gbps):
    done = subprocess.run([NBX, "inspect", "--json", "--link", f"{gbps}Gb/s", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("gbps", [10, 100, 400])
def test_a_storm_has_no_gap(tmp_path, gbps):
    more = "  storm: {priorities: [3, 4], start: 100us, duration: 5ms}\n"
    traffic = [(0, ping(0))] + steady(6_000_000, priorities=[0, 3])
    sent = replay(tmp_path, gbps, traffic, more)
    report = inspected(tmp_path / "out.pcapng", gbps)["interfaces"][0]["outbound"]
    assert set(report["pfc"]) == {"3", "4"} and "pause" not in report
    for track in report["pfc"].values():
        assert track["gaps"] == 0 and track["resumes"] == 1
        assert track["paused_ns"] == track["longest_pause_ns"]
        # Begin and end may each wait for a frame on the line.
        assert track["paused_ns"] == pytest.approx(5_000_000, abs=100)
    # The same of the bytes themselves.
    pauses = [(t, int.from_bytes(f[16:18], "big"), int.from_bytes(f[24:26], "big")) for t, f in sent
              if f[12:16] == b"\x88\x08\x01\x01"]
    assert all(enabled == 0x18 for _, enabled, _ in pauses)
    assert pauses[-1][2] == 0 and pauses[0][2] == 0xffff
    for (t, _, quanta), (later, _, _) in zip(pauses, pauses[1:]):
        assert later - t < quanta_ns(quanta, gbps)


def test_a_storm_with_too_long_a_period_has_gaps(tmp_path):
    more = "  storm: {priorities: 3, quanta: 1000, period: 60us, duration: 1ms}\n"
    replay(tmp_path, 10, [(0, ping(0))], more, linger="2ms")
    track = inspected(tmp_path / "out.pcapng", 10)["interfaces"][0]["outbound"]["pfc"]["3"]
    assert track["pauses"] == 17 and track["gaps"] == 16, "a pause each 60 us for 1 ms"
    assert track["longest_gap_ns"] == 8_800, "60 us less 1000 quanta"
    assert track["longest_pause_ns"] == 51_200
