"""Failures at their time on live traffic of the kernel's soft-RoCE: what is over within the transport's retries is
recovered, what lasts ends with retry exceeded.

A requester waits at least T = 4.096 us * 2^timeout for an answer, at most 4 T, and tries retry_cnt times more (IBTA
9.7.6.1.3): it gives up between (retry_cnt + 1) T and 4 (retry_cnt + 1) T after the last answer. Linux's soft-RoCE takes
the 7 of most programs as without end.
"""
import re
import subprocess
import time
from collections import Counter

import pytest

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import Emulator

RUN_LIMIT_S = 60
FLAP_AT_S, FLAP_S = 8, 0.5
CODE = 17
RETRY_EXCEEDED = "Failed status 12"      # IBV_WC_RETRY_EXC_ERR
SURVIVES_S, GIVES_UP_S = 12, 30          # how long the program would send


def timeout_s(code):
    return 4.096e-6 * 2 ** code


def write_for(node, seconds, code):
    """perftest writes to the ghost for some seconds; its output."""
    gid = node.gid_index(node.ipv4)
    job = node.spawn(f"ib_write_bw -d rxe0 -F -x {gid} -D {seconds} -u {code} {GHOST_IPV4}", RUN_LIMIT_S)
    return job.wait(expect=None)


def test_a_flap_shorter_than_the_retries_is_survived(node, reports, sockets):
    failure = {"at": f"{FLAP_AT_S}s", "for": "500ms", "link_down": {}}
    with Emulator(reports / "flap", {"p0": plug(sockets, 0, {"failures": [failure]}, [SERVER])}) as emulator:
        begin = time.monotonic()
        wait_for_link(node, GHOST_IPV4)
        waited = time.monotonic() - begin
        if waited > FLAP_AT_S - 2:
            pytest.skip(f"the link took {waited:.1f} s to come up: the failure would come before the traffic")
        output = write_for(node, SURVIVES_S, CODE)
        counters = emulator.ask("counters")
    assert counters["link_down"] > 0
    assert RETRY_EXCEEDED not in output and re.search(r"^ *\d+ +\d+ +\d+\.\d+", output, re.MULTILINE), output


RETRIES = 3
CM_CODE = 19                    # twice the packet life time of 18 that Linux's RDMA CM assumes on Ethernet
INBOUND, OUTBOUND = 1, 2        # of pcapng
ACKNOWLEDGE, CM_MESSAGE = 17, 100    # IBTA table 38: RC acknowledge, UD send


def packets(capture):
    """(seconds, direction, opcode, PSN, comment) of the RoCE packets of a capture."""
    fields = ["frame.time_relative", "frame.packet_flags_direction", "infiniband.bth.opcode", "infiniband.bth.psn",
              "frame.comment"]
    done = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=120, check=True)
    lines = [(line.split("\t") + [""])[:5] for line in done.stdout.splitlines()]
    return [(float(at), int(way, 0), int(opcode), int(psn), comment) for at, way, opcode, psn, comment in lines]


@pytest.mark.parametrize("name, failure, lost", [
    ("half-open", {"at": f"{FLAP_AT_S}s", "direction": "to_node", "link_down": {}}, "link_down"),
    ("death", {"at": f"{FLAP_AT_S}s", "ghosts_down": "server"}, "silent")])
def test_what_lasts_ends_with_retry_exceeded(node, reports, sockets, name, failure, lost):
    emulator = Emulator(reports / name, {"p0": plug(sockets, 0, {"failures": [failure]}, [SERVER])})
    with emulator:
        wait_for_link(node, GHOST_IPV4)
        job = node.spawn(f"ib_write_bw -R --retry_count={RETRIES} -d rxe0 -F -D {GIVES_UP_S} {GHOST_IPV4}", RUN_LIMIT_S)
        output = job.wait(expect=None)
        counters = emulator.ask("counters")
    assert RETRY_EXCEEDED in output, output
    assert counters[lost] > 0
    seen = packets(emulator.capture)
    heard = max(at for at, way, _, _, comment in seen if way == OUTBOUND and "dropped" not in comment)
    wait = timeout_s(CM_CODE)
    again = Counter(psn for at, way, opcode, psn, _ in seen
                    if way == INBOUND and opcode < ACKNOWLEDGE and at > heard + wait)
    # Each packet that was on its way is sent so many times more; a slow machine's first round may be before that time.
    assert RETRIES in again.values() and set(again.values()) <= {RETRIES - 1, RETRIES}
    gave_up = min(at for at, way, opcode, _, _ in seen if way == INBOUND and opcode == CM_MESSAGE and at > heard) - heard
    print(f"{name}: gave up after {gave_up:.2f} s; {RETRIES + 1} waits of {wait:.2f} s are {(RETRIES + 1) * wait:.2f} s")
    assert (RETRIES + 1) * wait <= gave_up <= 4 * (RETRIES + 1) * wait
