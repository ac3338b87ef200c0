"""Failures over time on live traffic of the kernel's soft-RoCE. Each ends as the standard says: what is over within
the transport's retries is recovered, what is not ends with retry exceeded.

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
RETRY_EXCEEDED = "Failed status 12"      # IBV_WC_RETRY_EXC_ERR
LASTS_S = 12                             # how long the program would send


def timeout_s(code):
    return 4.096e-6 * 2 ** code


def write_for(node, seconds, code):
    """perftest writes to the ghost for some seconds; its output, in the end, and how long it took."""
    gid = node.gid_index(node.ipv4)
    begin = time.monotonic()
    job = node.spawn(f"ib_write_bw -d rxe0 -F -x {gid} -D {seconds} -u {code} {GHOST_IPV4}", RUN_LIMIT_S)
    output = job.wait(expect=None)
    return output, time.monotonic() - begin


@pytest.mark.parametrize("name, failure, code, survives", [
    ("flap", {"at": f"{FLAP_AT_S}s", "for": "500ms", "link_down": {}}, 17, True),
    ("half-open", {"at": f"{FLAP_AT_S}s", "direction": "to_node", "link_down": {}}, 14, False),
    ("death", {"at": f"{FLAP_AT_S}s", "ghosts_down": "server"}, 14, False)])
def test_failure(node, reports, sockets, name, failure, code, survives):
    with Emulator(reports / name, {"p0": plug(sockets, 0, {"failures": [failure]}, [SERVER])}) as emulator:
        begin = time.monotonic()
        wait_for_link(node, GHOST_IPV4)
        waited = time.monotonic() - begin
        if waited > FLAP_AT_S - 2:
            pytest.skip(f"the link took {waited:.1f} s to come up: the failure would come before the traffic")
        output, took = write_for(node, LASTS_S, code)
        counters = emulator.ask("counters")
    print(f"{name}: the program took {took:.1f} s; timeout {timeout_s(code) * 1e3:.0f} ms")
    lost = "silent" if name == "death" else "link_down"
    assert counters[lost] > 0
    if survives:
        assert 8 * timeout_s(code) > FLAP_S
        assert RETRY_EXCEEDED not in output and re.search(r"^ *\d+ +\d+ +\d+\.\d+", output, re.MULTILINE), output
    else:
        assert RETRY_EXCEEDED in output, output
