"""The usual programs, unmodified, against a ghost: perftest, the pingpongs, rping, ping."""
import re

import pytest

from conftest import GHOST_IPV4, GHOST_IPV6, SERVER, plug, wait_for_link
from emulator import Emulator

GID = {"ipv4": GHOST_IPV4, "ipv6": GHOST_IPV6}      # RoCE goes by GID; the programs' own TCP connection is IPv4
PERFTEST = ["ib_write_bw -n 200", "ib_write_bw -n 200 -m 1024", "ib_read_bw -n 200", "ib_read_bw -n 200 -m 1024",
            "ib_send_bw -n 200", "ib_send_bw -n 200 -m 1024", "ib_atomic_bw -n 200",
            "ib_write_lat -n 100", "ib_read_lat -n 100", "ib_send_lat -n 100 -e", "ib_atomic_lat -n 100",
            "ib_write_bw -n 100 -c UC -s 8192", "ib_send_bw -n 100 -c UC -s 8192", "ib_send_bw -n 100 -c UD -s 2048",
            "ib_send_lat -n 100 -c UD -e", "ib_write_bw -n 100 -R", "ib_send_bw -n 100 -R"]
PINGPONG = ["ibv_rc_pingpong -c", "ibv_rc_pingpong -c -m 4096 -s 100000", "ibv_uc_pingpong",
            "ibv_ud_pingpong -s 1024"]
RESULT = re.compile(r"^ *\d+ +\d+ +\d+\.\d+", re.MULTILINE)      # perftest's row: bytes, iterations, a figure


@pytest.fixture(scope="module")
def emulator(node, reports, sockets):
    with Emulator(reports / "programs", {"p0": plug(sockets, 0, {}, [SERVER])}) as running:
        wait_for_link(node, GHOST_IPV4)
        yield running


def gid_option(node, family):
    return node.gid_index(getattr(node, family))


@pytest.mark.parametrize("program, family", [(program, family) for program in PERFTEST for family in GID
                                             if not ("-R" in program and family == "ipv6")])    # resolves IPv4 only
def test_perftest(emulator, node, program, family):
    command = f"{program} -d rxe0 -F -x {gid_option(node, family)} {GHOST_IPV4}"
    output = node.run(command, limit_s=30)
    if "Correlation coefficient" in output:     # of perftest's own clock, in a machine that was not run evenly
        output = node.run(command, limit_s=30)
    assert RESULT.search(output), output


@pytest.mark.parametrize("family", GID)
@pytest.mark.parametrize("program", PINGPONG)
def test_pingpong(emulator, node, program, family):
    output = node.run(f"{program} -d rxe0 -g {gid_option(node, family)} -e -n 100 {GHOST_IPV4}", limit_s=30)
    assert "100 iters" in output and "invalid data" not in output, output


@pytest.mark.parametrize("address", GID.values())
def test_rping_checks_what_comes_back(emulator, node, address):
    output = node.run(f"rping -c -C 20 -S 1000 -V -v -a {address}", limit_s=30)
    assert output.count("ping data: rdma-ping-") == 20, output


@pytest.mark.parametrize("address", GID.values())
def test_ping(emulator, node, address):
    assert " 0% packet loss" in node.run(f"ping -c 3 -s 1000 {address}", limit_s=30)


def test_nothing_was_dropped(emulator):
    """Last in this file: of all the above, the emulator dropped only what no ghost takes."""
    drops = {name: count for name, count in emulator.ask("counters").items() if name in ("icrc_mismatch", "qp_unknown",
             "mad_malformed", "response_malformed", "port_tx_full", "frame_pool_empty")}
    assert not any(drops.values()), drops
