"""Exact events on live traffic of the kernel's soft-RoCE: each takes its packet, once, and the capture shows it.

A pingpong of the kernel with a ghost. The program prints the PSN that it starts with, so where the events must be in
the capture is known from outside.
"""
import re
import subprocess
from collections import Counter

import pytest

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import Emulator

RUN_LIMIT_S = 60
LOST, MARKED, DAMAGED = 10, 20, 30      # distances from the first PSN
DELAY_NS = 5_000_000
WRONG_BYTE = 20      # of the BTH and what follows: payload


def event(name, direction, action, **match):
    return {"name": name, "direction": direction, "match": {"ghost": "server", "qp": 1, **match}, "do": action}


PROFILE = {"events": [
    event("first", "from_node", "drop", psn_offset=LOST, transmission=1),
    event("second", "from_node", "drop", psn_offset=LOST, transmission=2),
    event("marked", "from_node", {"ecn": {"force": True}}, psn_offset=MARKED, transmission=1),
    event("damaged", "from_node", {"corrupt": WRONG_BYTE}, psn_offset=DAMAGED, transmission=1),
    event("late", "to_node", {"delay": "5ms"}, **{"class": "ack", "nth": 5})]}


@pytest.fixture(scope="module")
def run(node, reports, sockets):
    """The program's output, what `nbx events` says, and the RoCE packets of the capture."""
    emulator = Emulator(reports / "events", {"p0": plug(sockets, 0, PROFILE, [SERVER])})
    with emulator:
        wait_for_link(node, GHOST_IPV4)
        gid = node.gid_index(node.ipv4)
        output = node.run(f"ibv_rc_pingpong -c -d rxe0 -g {gid} -n 100 -s 4096 {GHOST_IPV4}", RUN_LIMIT_S)
        events = emulator.ask("events")
    fields = ["frame.packet_flags_direction", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.comment"]
    done = subprocess.run(["tshark", "-r", emulator.capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=120, check=True)
    packets = [(line.split("\t") + [""] * 4)[:4] for line in done.stdout.splitlines()]
    return output, events, [(int(way, 0), int(opcode), int(psn), comment) for way, opcode, psn, comment in packets]


INBOUND, OUTBOUND = 1, 2
ACKNOWLEDGE, CNP = 17, 129      # IBTA table 38, A17.9.3


def first_psn(output):
    """Of the requests of the node, by its own word."""
    return int(re.search(r"local address:.*PSN (0x[0-9a-f]+)", output).group(1), 16)


def of_psn(run, offset):
    """The comments of the node's packets at this distance from its first PSN."""
    output, _, packets = run
    psn = (first_psn(output) + offset) & 0xffffff
    return [comment for way, opcode, at, comment in packets
            if way == INBOUND and at == psn and opcode not in (ACKNOWLEDGE, CNP)]


def test_the_program_does_not_mind(run):
    assert "100 iters" in run[0] and "invalid data" not in run[0]


def test_each_fired_once(run):
    assert {each["event"]: each["fired"] for each in run[1]["events"]} == {
        "first": 1, "second": 1, "marked": 1, "damaged": 1, "late": 1}


def test_the_log_names_the_packets(run):
    output, events, _ = run
    psn = (first_psn(output) + LOST) & 0xffffff
    log = {firing["event"]: firing for firing in events["firings"]}
    assert (log["first"]["psn"], log["first"]["transmission"]) == (psn, 1)
    assert (log["second"]["psn"], log["second"]["transmission"]) == (psn, 2)
    assert log["first"]["at_s"] < log["second"]["at_s"]
    assert log["late"]["opcode"] == "rc_acknowledge"


def test_a_psn_is_lost_twice_and_comes_the_third_time(run):
    comments = of_psn(run, LOST)
    assert comments[:2] == ["nbx: dropped event event=1", "nbx: dropped event event=2"]
    assert len(comments) >= 3 and not any(comments[2:])


def test_one_packet_is_marked_and_answered_by_one_cnp(run):
    assert Counter(of_psn(run, MARKED))["nbx: ecn-marked event=3"] == 1
    assert sum(way == OUTBOUND and opcode == CNP for way, opcode, _, _ in run[2]) == 1


def test_one_packet_is_damaged_and_comes_again(run):
    comments = of_psn(run, DAMAGED)
    assert comments[0] == "nbx: corrupted event=4"
    assert len(comments) >= 2 and not any(comments[1:])


def test_one_acknowledgement_is_late(run):
    late = [(opcode, comment) for way, opcode, _, comment in run[2] if way == OUTBOUND and "event=5" in comment]
    assert len(late) == 1 and late[0][0] == ACKNOWLEDGE
    assert f"delay={DELAY_NS}ns" in late[0][1]


def test_nothing_else_was_touched(run):
    numbers = Counter(re.search(r"event=(\d)", comment).group(1) for *_, comment in run[2] if comment)
    assert numbers == {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1}
