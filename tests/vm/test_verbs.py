"""Every verb between the Linux kernel and ghosts, both ways, under each impairment; and the books balance after each.

One nbxd per impairment. While it starts, four ghosts connect to servers in the real node and run every RC operation
(IPv4 and IPv6, path MTU 1024 and 4096); then the real node does the same to a ghost. Each end checks all data.
"""
import collections
import subprocess
from dataclasses import dataclass

import pytest

from conftest import GHOST_IPV4, GHOST_IPV6, SERVER, plug, wait_for_link
from emulator import ROOT, Emulator

FAMILIES, MTUS = ("ipv4", "ipv6"), (1024, 4096)
LINK_MTU = {1024: 1500, 4096: 4200}      # of eth0; RDMA's path MTU is the largest that fits
BYTES = 200_000                          # of each of five bulk operations
RUN_LIMIT_S = 30
LATECOMERS = 8        # frames that found their queue pair gone, which the kernel does not count

IMPAIRMENTS = ["ideal", "lossy-1pct-data", "ack-loss", "delay-5ms-jitter-1ms", "reorder", "duplicate",
               "corrupt"]      # files of profiles/


def requester(family, mtu):
    """A ghost that connects to the real node and runs every RC operation."""
    number = 20 + 2 * FAMILIES.index(family) + MTUS.index(mtu)
    return {"name": f"requester-{family}-{mtu}", "mac": f"02:00:00:00:00:{number:02x}",
            "addresses": [f"10.77.0.{number}/24", f"fd77::{number}/64"], "qp_defaults": {"path_mtu": mtu, "timeout": 16},
            "personalities": [{"rcops": {"connect": {"ipv4": "10.77.0.1", "ipv6": "fd77::1"}[family],
                                         "port": 7480 + number, "length": f"{BYTES}B"}}]}


@dataclass
class World:
    impairment: str
    node: object
    emulator: Emulator
    responders: dict
    before: dict      # the kernel's counters at the start


@pytest.fixture(scope="module", params=IMPAIRMENTS)
def world(request, node, reports, sockets):
    ghosts = {(family, mtu): requester(family, mtu) for family in FAMILIES for mtu in MTUS}
    emulator = Emulator(reports / request.param,
                        {"p0": plug(sockets, 0, ROOT / f"profiles/{request.param}.yaml", [SERVER, *ghosts.values()])})
    before = node.hw_counters()
    responders = {}
    for (family, mtu), ghost in ghosts.items():
        options = ghost["personalities"][0]["rcops"]
        responders[family, mtu] = node.spawn(f"rcops -s {options['connect']} {options['port']} {BYTES}", RUN_LIMIT_S)
    with emulator:
        wait_for_link(node, GHOST_IPV4)
        yield World(request.param, node, emulator, responders, before)


@pytest.mark.parametrize("mtu", MTUS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ghost_to_kernel(world, family, mtu):
    assert "PASSED" in world.responders[family, mtu].wait()


@pytest.mark.parametrize("mtu", MTUS)
@pytest.mark.parametrize("family", FAMILIES)
def test_kernel_to_ghost(world, family, mtu):
    address = {"ipv4": GHOST_IPV4, "ipv6": GHOST_IPV6}[family]
    world.node.set_mtu(LINK_MTU[mtu])
    try:
        assert "PASSED" in world.node.run(f"rcops -c {address} 7471 {BYTES}", RUN_LIMIT_S)
    finally:
        world.node.set_mtu(LINK_MTU[4096])


def test_streams_of_small_messages(world):
    """Many messages, each acknowledged, to and fro."""
    gid = world.node.gid_index(world.node.ipv4)
    output = world.node.run(f"ibv_rc_pingpong -c -e -d rxe0 -g {gid} -n 500 -s 4096 {GHOST_IPV4}", RUN_LIMIT_S)
    assert "500 iters" in output and "invalid data" not in output


def test_the_ghosts_found_all_data_right(world):
    """The other end of the above, by the ghosts' own word: four calls taken, one made by each requester."""
    said = {ghost["name"]: " ".join(ghost["personalities"]) for ghost in world.emulator.ask("ghosts")["ghosts"]}
    assert "listens on 7471: 0 open, 4 done, 0 failed" in said.pop("server")
    for name, status in said.items():
        assert "0 open, 1 done, 0 failed" in status, name


def test_counters_agree_with_the_kernel(world):
    """Nothing is lost or added but what the profile asked for, by the kernel's own count. Ends this run of nbxd."""
    ours, report = Tally(world.emulator.ask("counters")), world.emulator.ask("report")
    kernel = {name: count - world.before[name] for name, count in world.node.hw_counters().items()}
    assert world.emulator.stop() == 0
    sent, marks = marks_of(world.emulator.capture, INBOUND), marks_of(world.emulator.capture, OUTBOUND)
    print(f"emulator {dict(ours)}\nkernel {kernel}\nmarks in the capture: inbound {sent}, outbound {marks}")
    assert ours["capture_lost"] == 0
    assert kernel["sent_pkts"] == (ours["rx_roce_packets"] + sent["dropped"] + sent["corrupted"] - sent["duplicate"])
    arrived = ours["tx_roce_packets"] + marks["duplicate"] - marks["dropped"] - marks["corrupted"] - ours["port_tx_full"]
    assert arrived - LATECOMERS <= kernel["rcvd_pkts"] <= arrived
    if world.impairment not in ("lossy-1pct-data", "reorder", "corrupt"):      # no request was missing or ahead of its turn
        assert ours["naks_sent"] == kernel["out_of_seq_request"] == kernel["rcvd_seq_err"] == 0
    CHECKS[world.impairment](ours, kernel, marks, report)


class Tally(collections.Counter):
    """Counters by name; one that is not there is zero."""


INBOUND, OUTBOUND = 1, 2      # direction in the flags of a pcapng packet block


def marks_of(capture, direction):
    """How many RoCE frames of one direction carry each mark of the emulator in the capture."""
    chosen = f"infiniband && frame.comment && frame.packet_flags_direction == {direction}"
    done = subprocess.run(["tshark", "-r", capture, "-Y", chosen, "-T", "fields", "-e", "frame.comment"],
                          capture_output=True, text=True, timeout=120, check=True)
    words = Tally(word for line in done.stdout.splitlines() for word in line.split())
    return Tally({word: words[word] for word in ("dropped", "duplicate", "corrupted", "reordered")})


def check_clean(ours, kernel, _marks, _report):
    assert ours["loss"] == ours["out_of_sequence"] == 0
    assert kernel["duplicate_request"] == ours["retransmitted_packets"]     # of a timer, when the node was slow
    assert ours["local_ack_timeout_err"] > 0 or ours["retransmitted_packets"] == 0


def check_data_loss(ours, kernel, marks, _report):
    assert 0 < marks["dropped"] < ours["loss"]
    assert kernel["out_of_seq_request"] == ours["packet_seq_err"] > 0       # each gap it saw was reported, none lost
    assert 0 < kernel["rcvd_seq_err"] <= ours["naks_sent"]
    assert ours["retransmitted_packets"] >= marks["dropped"]


def check_ack_loss(ours, kernel, marks, _report):
    assert 0 < marks["dropped"] < ours["loss"]
    assert ours["duplicate_request"] + kernel["duplicate_request"] > 0      # the last ACK of a burst was among them


def check_delay(ours, kernel, _marks, report):
    for delay in report["delays"]:
        assert delay["frames"] > 0
        assert 4e6 <= delay["asked_min_ns"] and delay["asked_max_ns"] <= 6e6
        assert delay["asked_mean_ns"] == pytest.approx(5e6, rel=0.02)
        assert delay["late_median_ns"] < 1e6
    assert ours["loss"] == 0


def check_reorder(ours, kernel, _marks, _report):
    assert ours["impair_reordered"] > 0
    assert kernel["out_of_seq_request"] == ours["packet_seq_err"] > 0
    assert ours["loss"] == 0


def check_duplicate(ours, kernel, marks, _report):
    assert 0 < marks["duplicate"] < ours["impair_duplicated"]
    assert 0 < kernel["duplicate_request"] <= marks["duplicate"]            # the others were READ responses


def check_corrupt(ours, kernel, marks, _report):
    assert 0 < marks["corrupted"] < ours["impair_corrupted"]
    assert ours["icrc_mismatch"] == ours["impair_corrupted"] - marks["corrupted"]
    assert kernel["out_of_seq_request"] == ours["packet_seq_err"] > 0


CHECKS = {"ideal": check_clean, "lossy-1pct-data": check_data_loss, "ack-loss": check_ack_loss,
          "delay-5ms-jitter-1ms": check_delay, "reorder": check_reorder, "duplicate": check_duplicate,
          "corrupt": check_corrupt}
