"""A failure at its time on live traffic of the kernel's soft-RoCE: what is over within the transport's retries is
recovered.

A requester waits at least T = 4.096 us * 2^timeout for an answer, at most 4 T, and tries retry_cnt times more (IBTA
9.7.6.1.3): with perftest's retry count of 7 a connection gives up between 8 T and 32 T after the last answer.
"""
import re
import time

import pytest

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import Emulator

RUN_LIMIT_S = 100
FLAP_AT_S, FLAP_S = 8, 0.5
CODE = 17
RETRY_EXCEEDED = "Failed status 12"      # IBV_WC_RETRY_EXC_ERR
LASTS_S = 12                             # how long the program would send


def timeout_s(code):
    return 4.096e-6 * 2 ** code


def write_for(node, seconds, code):
    """perftest writes to the ghost for some seconds; its output."""
    gid = node.gid_index(node.ipv4)
    job = node.spawn(f"ib_write_bw -d rxe0 -F -x {gid} -D {seconds} -u {code} {GHOST_IPV4}", RUN_LIMIT_S)
    return job.wait(expect=None)


def test_a_flap_shorter_than_the_retries_is_survived(node, reports, sockets):
    failure = {"at": f"{FLAP_AT_S}s", "for": "500ms", "link_down": {}}
    assert 8 * timeout_s(CODE) > FLAP_S
    with Emulator(reports / "flap", {"p0": plug(sockets, 0, {"failures": [failure]}, [SERVER])}) as emulator:
        begin = time.monotonic()
        wait_for_link(node, GHOST_IPV4)
        waited = time.monotonic() - begin
        if waited > FLAP_AT_S - 2:
            pytest.skip(f"the link took {waited:.1f} s to come up: the failure would come before the traffic")
        output = write_for(node, LASTS_S, CODE)
        counters = emulator.ask("counters")
    assert counters["link_down"] > 0
    assert RETRY_EXCEEDED not in output and re.search(r"^ *\d+ +\d+ +\d+\.\d+", output, re.MULTILINE), output
