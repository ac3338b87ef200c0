"""Congestion on live traffic of the kernel's soft-RoCE: queues of an emulated rack fill, packets are marked, and who is
told slows down.

Soft-RoCE is no notification point and ignores CNPs, so the node gets one (guest/np.c) where its answers matter; without
it the same run shows what happens when nobody is told.
"""
import csv
import re
import signal
import statistics
import subprocess
import time

import pytest

from conftest import plug, wait_for_link
from emulator import BIN, Emulator

GHOSTS = 8
LINE_MBPS = 30                  # soft-RoCE in an emulated machine keeps up with this
ALONE_S, INCAST_S, AFTER_S = 4, 8, 6
CNP_INTERVAL_US = 25_000
DSCP, ECT, CE = 26, 2, 3        # RFC 3168; the programs' TCP has DSCP 0, and a priority of its own
NETWORK = {"topology": "rack", "host_rate": f"{LINE_MBPS}Mb/s", "propagation": "1us", "buffer": "64MiB",
           "priorities": [{"priority": 3, "dscp": DSCP, "ecn": {"kmin": "20KiB", "kmax": "160KiB", "pmax": "10%"}}]}
# The paper's algorithm at a thousandth of its rate, with longer times; the smallest R_AI is 33 times the paper's then,
# so that each increase has to wait longer.
DCQCN = {"preset": "paper", "rp_time_reset": 110_000, "rp_byte_reset": 0, "rp_threshold": 1, "rp_ai_rate": 1,
         "rp_hai_rate": 1, "rp_dce_tcp_rtt": 27_500, "rp_dce_tcp_g": 992, "rp_min_rate": 1}
TRANSPORT = {"line_rate": f"{LINE_MBPS}Mb/s", "cnp_interval": f"{CNP_INTERVAL_US}us", "dcqcn": DCQCN}
INBOUND, OUTBOUND = 1, 2        # of pcapng
CNP = 129                       # A17.9.3
READ_RESPONSES, FIRST, LAST = range(13, 17), 13, 15    # IBTA table 38
RUN_LIMIT_S, START_LIMIT_S, TRACE_LIMIT_S = 400, 40, 20
DRAINED_S = 0.15                # so long the last frames of the others take
AT_REST_S = 1                   # and so long the last messages of a program that was stopped
MESSAGE = 16384                 # four each under way: 2.5 times what the ramp marks all of, and no timeout


def ghosts(count=GHOSTS):
    return [{"name": f"g{i}", "mac": f"02:00:00:00:01:{i:02x}", "addresses": [f"10.77.0.{101 + i}/24"],
             "dscp": DSCP, "personalities": ["perftest"]} for i in range(count)]


def packets(capture):
    """(seconds, direction, opcode, source, destination, ECN, IP length) of the RoCE packets of a capture."""
    fields = ["frame.time_epoch", "frame.packet_flags_direction", "infiniband.bth.opcode", "ip.src", "ip.dst",
              "ip.dsfield.ecn", "ip.len"]
    done = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=200, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(float(at), int(way, 0), int(opcode), source, destination, int(ecn, 0), int(length))
            for at, way, opcode, source, destination, ecn, length in rows]


def address(i):
    return f"10.77.0.{101 + i}"


def read_from(node, i):
    """Starts a program that reads from a ghost until it is ended."""
    gid = node.gid_index(node.ipv4)
    return node.spawn(f"ib_read_bw -d rxe0 -F -x {gid} -u 18 -s {MESSAGE} -o 4 -D {RUN_LIMIT_S} {address(i)}", RUN_LIMIT_S)


def kill(node, name, ghosts):
    """To the programs that read from these ghosts."""
    which = "|".join(address(i) for i in ghosts)
    node.run(f"for p in $(busybox pidof ib_read_bw); do grep -qE '{which}' /proc/$p/cmdline && kill -{name} $p; done; true")


def wait_until_sending(emulator, name):
    end = time.monotonic() + START_LIMIT_S
    while not any(qp["ghost"] == name and qp["payload_bytes_tx"] > 0 for qp in emulator.ask("qps")["qps"]):
        if time.monotonic() > end:
            pytest.skip(f"this machine is too slow: after {START_LIMIT_S} s ghost {name} sends nothing")
        time.sleep(0.2)


def incast(node, reports, sockets, told):
    """One ghost's data for a while, then that of eight, then that of one again."""
    name, others = "incast-told" if told else "incast-untold", range(1, GHOSTS)
    emulator = Emulator(reports / name, {"p0": plug(sockets, 0, {}, ghosts())}, network=NETWORK, transport=TRANSPORT)
    with emulator:
        wait_for_link(node, address(0))
        jobs = [node.spawn(f"np eth0 {CNP_INTERVAL_US}", RUN_LIMIT_S)] if told else []
        trace = subprocess.Popen([BIN / "nbx", "trace", "--control", emulator.control, "--ghost", "g0", "--rates",
                                  "--out", emulator.folder / "rates.csv"])
        try:
            for i in range(GHOSTS):         # the others rest meanwhile: a busy node takes minutes to start eight
                jobs.append(read_from(node, i))
                wait_until_sending(emulator, f"g{i}")
                kill(node, "STOP", [i])
            time.sleep(AT_REST_S)
            alone = time.time()
            kill(node, "CONT", [0])
            time.sleep(ALONE_S)
            kill(node, "CONT", others)
            together = time.time()
            time.sleep(INCAST_S)
            qps = emulator.ask("qps")["qps"]
            kill(node, "TERM", others)
            time.sleep(AFTER_S)
            node.run("busybox killall ib_read_bw np; true")
            outputs = [job.wait(expect=None) for job in jobs]
        finally:
            node.run("busybox killall -9 ib_read_bw np; true")
            trace.send_signal(signal.SIGINT)
            trace.wait(TRACE_LIMIT_S)
        counters = emulator.ask("counters")
    seen = packets(emulator.capture)
    ended = max(at for at, way, opcode, source, *_ in seen
                if way == OUTBOUND and opcode in READ_RESPONSES and source != address(0))
    with open(emulator.folder / "rates.csv", encoding="utf-8") as rows:
        steps = [(int(row["time_ps"]) * 1e-12, row["cause"], int(row["current_bps"]) * 1e-6) for row in csv.DictReader(rows)]
    return {"packets": seen, "outputs": outputs, "qps": qps, "counters": counters, "alone": alone, "together": together,
            "ended": ended, "steps": steps}


def mbps(run, source, begin, end):
    """What a ghost's data take of the line between two times."""
    return sum((length + 14 + 24) * 8e-6 for at, way, opcode, src, _, _, length in run["packets"]
               if way == OUTBOUND and src == source and opcode in READ_RESPONSES and begin <= at < end) / (end - begin)


def paces(run, source, begin):
    """How fast the packets of each message follow each other, in Mb/s of the line, however slowly the node asks for the
    next: for the messages of a ghost that begin after a time, with the time."""
    found, first, rest = [], None, 0
    for at, way, opcode, src, _, _, length in run["packets"]:
        if way != OUTBOUND or src != source or opcode not in READ_RESPONSES or at < begin:
            continue
        if opcode == FIRST:
            first, rest = at, 0
        elif first is not None:
            rest += (length + 14 + 24) * 8e-6
            if opcode == LAST:
                found.append((first, rest / (at - first)))
    return found


def rates(run):
    """The steps of g0's rate on the clock of the capture: its first cut answers the first notification."""
    told_at = next(at for at, way, opcode, _, destination, *_ in run["packets"]
                   if opcode == CNP and way == INBOUND and destination == address(0))
    cut_at = next(at for at, cause, _ in run["steps"] if cause == "cut")
    return [(at - cut_at + told_at, cause, rate) for at, cause, rate in run["steps"]]


@pytest.fixture(scope="module")
def told(node, reports, sockets):
    return incast(node, reports, sockets, True)


@pytest.fixture(scope="module")
def untold(node, reports, sockets):
    return incast(node, reports, sockets, False)


def test_no_program_fails(told, untold):
    for output in told["outputs"] + untold["outputs"]:
        assert "Failed status" not in output and "error" not in output.lower(), output


def test_counters_capture_and_node_agree_on_the_notifications(told):
    marked = sum(ecn == CE and way == OUTBOUND for _, way, _, _, _, ecn, _ in told["packets"])
    notifications = sum(opcode == CNP and way == INBOUND for _, way, opcode, *_ in told["packets"])
    seen, sent = map(int, re.search(r"marked (\d+), sent (\d+)", told["outputs"][0]).groups())
    print(f"marked {marked}, CNPs {notifications}; the node saw {seen} marks")
    assert marked > 0 and notifications > 0
    assert seen == marked and sent == notifications
    late = notifications - told["counters"]["rp_cnp_handled"]
    assert 0 <= late <= told["counters"]["qp_unknown"], "to queue pairs that were gone"
    assert not [name for name in told["counters"] if name.startswith("network_") and told["counters"][name]]


def test_nobody_is_told_without_a_notification_point(untold):
    assert untold["counters"]["rp_cnp_handled"] == 0
    assert any(ecn == CE for *_, ecn, _ in untold["packets"])


def test_eight_flows_share_the_port(told):
    begin = told["together"]
    rates = [mbps(told, address(i), begin + 1, begin + INCAST_S) for i in range(GHOSTS)]
    print("Mb/s:", [round(rate, 1) for rate in rates])
    assert min(rates) > 0 and max(rates) < sum(rates) / 2, "nobody has most of it"


def test_who_was_not_told_never_slows_down(told, untold):
    """When the others have gone its packets are as close as ever; those of one that was told, before anybody joined."""
    assert not untold["steps"]
    drained = untold["ended"] + DRAINED_S
    for run, begin in ((told, told["alone"]), (untold, untold["alone"]), (untold, drained)):
        assert statistics.median([pace for _, pace in paces(run, address(0), begin)[:20]]) > 0.7 * LINE_MBPS


def test_who_was_told_slows_down_and_comes_back_step_by_step(told):
    """How far it has come back when the others have gone depends on how fast this machine is; that its packets are as far
    apart as its rate says does not."""
    steps = rates(told)
    cuts = [i for i, (_, cause, _) in enumerate(steps) if cause == "cut"]
    assert min(rate for *_, rate in steps) < 0.6 * LINE_MBPS
    risen = [rate for *_, rate in steps[cuts[-1]:]]
    assert risen == sorted(risen) and risen[-1] > 1.3 * risen[0]
    seen = [([rate for since, _, rate in steps if since <= at][-1], pace)
            for at, pace in paces(told, address(0), told["ended"] + DRAINED_S)]
    held_back = [(rate, pace) for rate, pace in seen if rate < 0.9 * LINE_MBPS]
    off = statistics.median(pace / rate - 1 for rate, pace in held_back[:20] or seen)
    print(f"{len(cuts)} cuts, down to {min(rate for *_, rate in steps):.1f} Mb/s; after the last {risen[0]:.1f} to"
          f" {risen[-1]:.1f}; {len(held_back)} of {len(seen)} messages held back, off by {off:+.1%}")
    assert abs(off) < 0.2


def test_ghosts_tell_the_node_of_congestion_on_its_way(node, reports, sockets):
    """Background traffic of seven ghosts fills the queue to the eighth, which the node writes to."""
    background = [{"name": "background", "pattern": "incast", "from": [f"g{i}" for i in range(1, GHOSTS)], "to": "g0",
                   "rate": "3Mb/s", "sizes": {"constant": "64KiB"}, "dscp": DSCP}]
    emulator = Emulator(reports / "background", {"p0": plug(sockets, 0, {}, ghosts())}, network=NETWORK,
                        transport=TRANSPORT, traffic=background)
    with emulator:
        wait_for_link(node, address(0))
        gid = node.gid_index(node.ipv4)
        node.run(f"ib_write_bw -d rxe0 -F -x {gid} -u 18 -t 4 -s {MESSAGE} -D 6 --tclass={DSCP << 2 | ECT} {address(0)}",
                 RUN_LIMIT_S)
        traffic, counters = emulator.ask("traffic")["traffic"][0], emulator.ask("counters")
    notifications = [source for _, way, opcode, source, *_ in packets(emulator.capture)
                     if way == OUTBOUND and opcode == CNP]
    print(f"marked {counters['np_ecn_marked_roce_packets']}, CNPs {len(notifications)}; background {traffic}")
    assert counters["np_ecn_marked_roce_packets"] > 0
    assert counters["np_cnp_sent"] == len(notifications) > 0 and set(notifications) == {address(0)}
    assert traffic["packets_marked"] > 0 and traffic["completed"] > 0
    assert traffic["packets_sent"] - traffic["packets_delivered"] - traffic["packets_dropped"] < 1000, "under way"
