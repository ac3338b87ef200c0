"""PFC and PAUSE on frames: `nbx replay` is handed pauses that scapy made; what it sends is read with tshark.

A ghost answers pings of every priority. Its answers wait in the queues of an emulated switch, which the pauses of the
node hold. Every time is worked out from the standard: a quantum is 512 bit times (IEEE 802.1Q 36.1.3.3, 802.3 31B.2),
a frame of 60 bytes is on the line for 84.
"""
import decimal
import json
import os
import shutil
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
    return replay_report(tmp_path, gbps, frames, more, linger)[0]


def replay_report(tmp_path, gbps, frames, more="", linger="1ms"):
    """What the port sent, and the report."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.format(node=NODE_MAC, ghost=GHOST_MAC, gbps=gbps, more=more))
    with scapy.RawPcapWriter(str(tmp_path / "in.pcap"), linktype=1, nano=True) as pcap:
        pcap.write_header(None)
        for time_ns, frame in sorted(frames):
            pcap.write_packet(frame, sec=time_ns // 10**9, usec=time_ns % 10**9)
    done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--in", "in.pcap", "--out", "out.pcapng",
                           "--linger", linger, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    sent = [(time_ns, frame) for time_ns, frame, comment in records(tmp_path / "out.pcapng")
            if "dropped" not in comment]
    return sent, json.loads(done.stdout)


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
    done = subprocess.run([NBX, "inspect", "--json", "--link", f"{gbps}Gb/s", path], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["interfaces"][0]["outbound"]


def tsharks_pauses(path, priority):
    """[(nanoseconds, quanta)] of the PFC frames that enable `priority`."""
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    done = subprocess.run(["tshark", "-r", path, "-Y", f"macc.cbfc.enbv.c{priority} == 1", "-T", "fields", "-e",
                           "frame.time_epoch", "-e", f"macc.cbfc.pause_time.c{priority}"], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(int(decimal.Decimal(time) * 10**9), int(quanta, 0)) for time, quanta in rows]


def paused_ns(pauses, gbps):
    """All in all, the longest, and the gaps of [(nanoseconds, quanta)]."""
    spans, gaps = [], []
    for n, (at, quanta) in enumerate(pauses):
        if spans and at <= spans[-1][1]:
            spans[-1][1] = at + quanta_ns(quanta, gbps)
        else:
            if n and pauses[n - 1][1]:
                gaps.append(at - spans[-1][1])
            spans.append([at, at + quanta_ns(quanta, gbps)])
    lengths = [end - start for start, end in spans]
    return sum(lengths), max(lengths), gaps


def rows(report, direction, frame):
    return [row for row in report["network"].get("pauses", [])
            if (row["direction"], row["frame"]) == (direction, frame)]


@pytest.mark.parametrize("gbps", [10, 100, 400])
def test_a_storm_has_no_gap(tmp_path, gbps):
    more = "  storm: {priorities: [3, 4], start: 100us, duration: 5ms}\n"
    traffic = [(0, ping(0))] + steady(6_000_000, priorities=[0, 3])
    _, report = replay_report(tmp_path, gbps, traffic, more)
    seen = inspected(tmp_path / "out.pcapng", gbps)
    assert set(seen["pfc"]) == {"3", "4"} and "pause" not in seen
    for priority in (3, 4):
        pauses = tsharks_pauses(tmp_path / "out.pcapng", priority)
        assert pauses[0][1] == 0xffff and pauses[-1][1] == 0
        total, longest, gaps = paused_ns(pauses, gbps)
        assert not gaps and total == longest
        # The first and the last frame may each wait for one on the line.
        assert total == pytest.approx(5_000_000, abs=2 * line_ns(gbps) + 2)
        track = seen["pfc"][str(priority)]
        assert (track["pauses"], track["resumes"], track["gaps"]) == (len(pauses) - 1, 1, 0)
        assert track["paused_ns"] == track["longest_pause_ns"] == pytest.approx(total, abs=1)
        [live] = rows(report, "to_node", f"PFC {priority}")
        assert (live["pauses"], live["resumes"], live["gaps"]) == (len(pauses) - 1, 1, 0)
        assert 1000 * live["paused_us"] == pytest.approx(total, abs=1)


def test_a_storm_with_too_long_a_period_has_gaps(tmp_path):
    more = "  storm: {priorities: 3, quanta: 1000, period: 60us, duration: 1ms}\n"
    _, report = replay_report(tmp_path, 10, [(0, ping(0))], more, linger="2ms")
    total, longest, gaps = paused_ns(tsharks_pauses(tmp_path / "out.pcapng", 3), 10)
    assert len(gaps) == 16, "a pause each 60 us for 1 ms"
    assert max(gaps) == pytest.approx(8_800, abs=1), "60 us less 1000 quanta"
    track = inspected(tmp_path / "out.pcapng", 10)["pfc"]["3"]
    assert (track["pauses"], track["gaps"], track["longest_gap_ns"]) == (17, 16, 8_800)
    assert track["longest_pause_ns"] == pytest.approx(longest, abs=1) == pytest.approx(51_200, abs=1)
    [live] = rows(report, "to_node", "PFC 3")
    assert (live["pauses"], live["gaps"], live["longest_gap_us"]) == (17, 16, 8.8)
    assert 1000 * live["paused_us"] == pytest.approx(total, abs=17)


def test_what_the_node_paused_is_in_the_report(tmp_path):
    frames = [(0, ping(0)), (20_000, pfc({3: 1000})), (60_000, pfc({3: 1000, 5: 10})), (100_000, pfc({3: 0})),
              (200_000, plain(2000))]
    _, report = replay_report(tmp_path, 10, frames)
    [three], [five], [all_of_it] = (rows(report, "from_node", word) for word in ("PFC 3", "PFC 5", "PAUSE"))
    assert (three["pauses"], three["resumes"], three["gaps"], three["paused_us"]) == (2, 1, 0, 80)
    assert (five["pauses"], five["resumes"], five["paused_us"]) == (1, 0, 0.512)
    assert all_of_it["paused_us"] == 102.4
    assert not rows(report, "to_node", "PFC 3") and report["network"]["deadlock"] == "none"


def test_the_watchdog_drops_what_a_storm_holds(tmp_path):
    """The node pauses from 20 us to 1020 us + 1000 quanta; the watchdog acts 200 us after the first answer waits."""
    gbps, refresh_ns, detection_ns, restoration_ns = 10, 40_000, 200_000, 300_000
    storm = [(t, pfc({3: 1000})) for t in range(SETTLED_NS, 1_020_001, refresh_ns)]
    pings = [(t, ping(3)) for t in range(50_000, 2_000_000, 10_000)]
    more = f"  watchdog: {{detection_time: {detection_ns}ns, restoration_time: {restoration_ns}ns}}\n"
    sent, report = replay_report(tmp_path, gbps, [(0, ping(0))] + storm + pings, more)
    # There and back, to the switch's decision: two lines, two cables, the latency, each way.
    at_switch = [t + 3 * line_ns(gbps) + 3 * 1000 + 2 * 500 for t, _ in pings]
    restored = 1_020_000 + line_ns(gbps) + 1000 + quanta_ns(1000, gbps) + restoration_ns
    lost = [t for t in at_switch if t < restored]
    assert at_switch[0] + detection_ns < restored, "a storm is detected"
    assert report["drops"]["network_pfc_watchdog"] == len(lost)
    assert len(answers(sent)[3]) == len(pings) - len(lost)
    [row] = report["network"]["watchdogs"]
    assert (row["storms"], row["restored"]) == (1, 1)
    assert "host0" in row["watchdog"], "the port to the real node"
    [paused] = rows(report, "from_node", "PFC 3")
    assert paused["gaps"] == 0
    assert paused["paused_us"] == pytest.approx((1_020_000 - SETTLED_NS + 51_200) / 1000)


def test_a_slow_receiver_drains_at_its_rate_and_pauses_the_node(tmp_path):
    """200 pings of 1000 bytes at 10 Gb/s to a ghost that takes 1 Gb/s: an answer each 8 us, none lost, one pause."""
    gbps, size, count = 10, 1000, 200
    more = """  priorities: [{priority: 3, lossless: true, xoff: 20000B, headroom: 300000B}]
  pfc_quanta: 1000
  slow_receivers: [{ghosts: g, drain: 1Gb/s, buffer: 64KiB, xoff: 16000B, xon: 4000B}]
"""
    big = scapy.Ether(dst=GHOST_MAC, src=NODE_MAC) / scapy.IP(src=NODE_IP, dst=GHOST_IP, tos=24 << 2) / \
        scapy.ICMP(type="echo-request") / scapy.Raw(b"x" * (size - 14 - 20 - 8))
    line = (size + 24) * 8 / gbps
    start = 10_000
    frames = [(0, ping(0))] + [(start + int(n * line), bytes(big)) for n in range(count)]
    sent, report = replay_report(tmp_path, gbps, frames, more, linger="10ms")
    assert not report["drops"] or set(report["drops"]) == {"exception_path_missing"}
    out = [t for t, f in sent if f[12:14] == b"\x08\x00" and len(f) == size]
    assert len(out) == count
    first = start + line + 1000 + 500 + line + 1000  # in the ghost's buffer
    for n, t in enumerate(out):
        drained = first + (n + 1) * size * 8  # at 1 Gb/s
        assert t == pytest.approx(drained + line + 1000 + 500 + line + 1000, abs=2 * line_ns(gbps) + 3), n
    [receiver] = report["network"]["slow_receivers"]
    assert receiver["drained_frames"] == count + 1 and receiver["full"] == 0 and receiver["pauses"] > 1
    # 16 of the ghost's and 20 of the switch's buffer are passed after so many frames in ten ninths of their time.
    pauses = tsharks_pauses(tmp_path / "out.pcapng", 3)
    total, longest, gaps = paused_ns(pauses, gbps)
    assert start + 36 * line < pauses[0][0] < start + 48 * line
    assert not gaps and pauses[-1][1] == 0
    assert len(pauses) > longest / quanta_ns(1000, gbps), "refreshed"
    [live] = rows(report, "to_node", "PFC 3")
    assert live["gaps"] == 0
    assert 1000 * live["paused_us"] == pytest.approx(total, abs=live["pauses"])
    # Until the switch has 20,000 bytes less its 4 KiB of xon: about 16 frames before the ghost has all.
    assert pauses[-1][0] == pytest.approx(out[-1], rel=0.25)
