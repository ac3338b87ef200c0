"""Congestion on live traffic of the kernel's soft-RoCE: queues of an emulated rack fill, packets are marked, and who is
told slows down.

Soft-RoCE is no notification point and ignores CNPs, so the node gets one (guest/np.c) where its answers matter; without it
the same run shows what happens when nobody is told.
"""
import re
import subprocess
import time
from collections import Counter

import pytest

from conftest import plug, wait_for_link
from emulator import Emulator

GHOSTS = 8
LINE_MBPS = 40                  # soft-RoCE in an emulated machine keeps up with this
ALONE_S, INCAST_S, AFTER_S = 4, 8, 8
CNP_INTERVAL_US = 10_000
NETWORK = {"topology": "rack", "host_rate": f"{LINE_MBPS}Mb/s", "propagation": "1us", "buffer": "64MiB",
           "priorities": [{"priority": 0, "ecn": {"kmin": "15KiB", "kmax": "60KiB", "pmax": "20%"}}]}
# The paper's algorithm at a thousandth of its rate: every time a thousand times as long.
DCQCN = {"preset": "paper", "rp_time_reset": 50_000, "rp_byte_reset": 0, "rp_ai_rate": 1, "rp_hai_rate": 1,
         "rp_dce_tcp_rtt": 50_000, "rp_dce_tcp_g": 960, "rp_min_rate": 1}
TRANSPORT = {"line_rate": f"{LINE_MBPS}Mb/s", "cnp_interval": f"{CNP_INTERVAL_US}us", "dcqcn": DCQCN}
INBOUND, OUTBOUND = 1, 2        # of pcapng
CNP, ACKNOWLEDGE = 129, 17      # A17.9.3, IBTA table 38
READ_RESPONSES = range(13, 17)
CE = 3
RUN_LIMIT_S = 90
MESSAGE = 16384                 # four each under way: 2.5 times what the ramp marks all of, and no timeout


def ghosts(count=GHOSTS):
    return [{"name": f"g{i}", "mac": f"02:00:00:00:01:{i:02x}", "addresses": [f"10.77.0.{101 + i}/24"],
             "personalities": ["perftest"]} for i in range(count)]


def packets(capture):
    """(seconds, direction, opcode, source, destination, ECN, IP length) of the RoCE packets of a capture."""
    fields = ["frame.time_relative", "frame.packet_flags_direction", "infiniband.bth.opcode", "ip.src", "ip.dst",
              "ip.dsfield.ecn", "ip.len"]
    done = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=200, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(float(at), int(way, 0), int(opcode), source, destination, int(ecn, 0), int(length))
            for at, way, opcode, source, destination, ecn, length in rows]


def read_from(node, address, seconds):
    gid = node.gid_index(node.ipv4)
    return node.spawn(f"ib_read_bw -d rxe0 -F -x {gid} -u 18 -s {MESSAGE} -o 4 -D {seconds} {address}", RUN_LIMIT_S)


def incast(node, reports, sockets, told):
    """One ghost's data for a while, then that of eight, then that of one again."""
    name = "incast-told" if told else "incast-untold"
    emulator = Emulator(reports / name, {"p0": plug(sockets, 0, {}, ghosts())}, network=NETWORK, transport=TRANSPORT)
    with emulator:
        wait_for_link(node, "10.77.0.101")
        np = node.spawn(f"timeout {ALONE_S + INCAST_S + AFTER_S + 20} np eth0 {CNP_INTERVAL_US}", RUN_LIMIT_S) if told else None
        first = read_from(node, "10.77.0.101", ALONE_S + INCAST_S + AFTER_S)
        time.sleep(ALONE_S)
        rest = [read_from(node, f"10.77.0.{101 + i}", INCAST_S) for i in range(1, GHOSTS)]
        outputs = [job.wait(expect=None) for job in [first, *rest]]
        said = np.wait(expect=None) if np else ""
        qps, counters = emulator.ask("qps")["qps"], emulator.ask("counters")
    return {"packets": packets(emulator.capture), "outputs": outputs, "np": said, "qps": qps, "counters": counters}


def mbps(run, source, begin, end):
    """What a ghost's data take of the line between two times."""
    return sum((length + 14 + 24) * 8e-6 for at, way, opcode, src, _, _, length in run["packets"]
               if way == OUTBOUND and src == source and opcode in READ_RESPONSES and begin <= at < end) / (end - begin)


def phases(run):
    """When the others begin, and when they have ended."""
    others = [at for at, way, opcode, src, *_ in run["packets"]
              if way == OUTBOUND and opcode in READ_RESPONSES and src != "10.77.0.101"]
    return min(others), max(others)


@pytest.fixture(scope="module")
def told(node, reports, sockets):
    return incast(node, reports, sockets, True)


@pytest.fixture(scope="module")
def untold(node, reports, sockets):
    return incast(node, reports, sockets, False)


def test_every_program_ends_well(told, untold):
    for output in told["outputs"] + untold["outputs"]:
        assert re.search(rf"^ *{MESSAGE} +\d+ +\d+\.\d+", output, re.MULTILINE), output


def test_counters_capture_and_node_agree_on_the_notifications(told):
    marked = sum(ecn == CE and way == OUTBOUND for _, way, _, _, _, ecn, _ in told["packets"])
    notifications = sum(opcode == CNP and way == INBOUND for _, way, opcode, *_ in told["packets"])
    seen, sent = map(int, re.search(r"marked (\d+), sent (\d+)", told["np"]).groups())
    print(f"marked {marked}, CNPs {notifications}; the node saw {seen} marks")
    assert marked > 0 and notifications > 0
    assert seen == marked and sent == notifications
    assert told["counters"]["rp_cnp_handled"] == notifications
    assert not [name for name in told["counters"] if name.startswith("network_") and told["counters"][name]]


def test_nobody_is_told_without_a_notification_point(untold):
    assert untold["counters"]["rp_cnp_handled"] == 0
    assert any(ecn == CE for *_, ecn, _ in untold["packets"])


def test_eight_flows_share_the_port(told):
    begin, end = phases(told)
    rates = [mbps(told, f"10.77.0.{101 + i}", begin + 2, end - 1) for i in range(GHOSTS)]
    print("Mb/s:", [round(rate, 1) for rate in rates])
    assert sum(rates) > LINE_MBPS / 2
    assert max(rates) < LINE_MBPS / 2, "nobody has it all"


def test_a_flow_that_was_told_comes_back_slowly(told, untold):
    """One that was not never slowed down: it has the port as soon as the others have gone."""
    at_once, later = {}, {}
    for name, run in (("told", told), ("untold", untold)):
        _, end = phases(run)
        alone = mbps(run, "10.77.0.101", 1, ALONE_S - 1)
        at_once[name] = mbps(run, "10.77.0.101", end + 0.1, end + 0.6) / alone
        later[name] = mbps(run, "10.77.0.101", end + AFTER_S - 4, end + AFTER_S - 2) / alone
        print(f"{name}: alone {alone:.1f} Mb/s; after the incast {at_once[name]:.2f} of it, later {later[name]:.2f}")
    assert at_once["told"] < 0.7 * at_once["untold"]
    assert later["told"] > 1.3 * at_once["told"]


def test_queues_are_shorter_when_senders_are_told(told, untold):
    share = {}
    for name, run in (("told", told), ("untold", untold)):
        begin, end = phases(run)
        marks = Counter(ecn == CE for at, way, opcode, _, _, ecn, _ in run["packets"]
                        if way == OUTBOUND and opcode in READ_RESPONSES and begin + 2 <= at < end)
        share[name] = marks[True] / sum(marks.values())
    print(f"marked during the incast: {share['told']:.3f} told, {share['untold']:.3f} untold")
    assert share["told"] < 0.7 * share["untold"]


def test_ghosts_tell_the_node_of_congestion_on_its_way(node, reports, sockets):
    """Background traffic of seven ghosts fills the queue to the eighth, which the node writes to."""
    background = [{"name": "background", "pattern": "incast", "from": [f"g{i}" for i in range(1, GHOSTS)], "to": "g0",
                   "rate": "4Mb/s", "sizes": {"constant": "64KiB"}}]
    emulator = Emulator(reports / "background", {"p0": plug(sockets, 0, {}, ghosts())}, network=NETWORK, transport=TRANSPORT,
                        traffic=background)
    with emulator:
        wait_for_link(node, "10.77.0.101")
        gid = node.gid_index(node.ipv4)
        node.spawn(f"ib_write_bw -d rxe0 -F -x {gid} -s 65536 -D 6 10.77.0.101", RUN_LIMIT_S).wait()
        traffic, counters = emulator.ask("traffic")["traffic"][0], emulator.ask("counters")
    notifications = [source for _, way, opcode, source, *_ in packets(emulator.capture) if way == OUTBOUND and opcode == CNP]
    print(f"marked {counters['np_ecn_marked_roce_packets']}, CNPs {len(notifications)}; background {traffic}")
    assert counters["np_ecn_marked_roce_packets"] > 0
    assert counters["np_cnp_sent"] == len(notifications) > 0 and set(notifications) == {"10.77.0.101"}
    assert traffic["packets_marked"] > 0 and traffic["completed"] > 0
    assert traffic["packets_sent"] - traffic["packets_delivered"] - traffic["packets_dropped"] < 1000, "under way"
