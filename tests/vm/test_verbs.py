"""Every verb between the Linux kernel and ghosts, both ways, under each impairment; and the books balance after each.

One nbxd per impairment. While it starts, four ghosts connect to servers in the real node and run every RC operation
(IPv4 and IPv6, path MTU 1024 and 4096); then the real node does the same to a ghost. Each end checks all data.
"""
from dataclasses import dataclass

import pytest

from conftest import GHOST_IPV4, GHOST_IPV6, SERVER, plug, wait_for_link
from emulator import Emulator

FAMILIES, MTUS = ("ipv4", "ipv6"), (1024, 4096)
LINK_MTU = {1024: 1500, 4096: 4200}      # of eth0; RDMA's path MTU is the largest that fits
BYTES = 200_000                          # of each of five bulk operations
RUN_LIMIT_S = 60

IMPAIRMENTS = {
    "clean": {},
    "data-loss": {"loss": {"match": {"class": "data"}, "probability": "1%"}},
    "ack-loss": {"loss": {"match": {"class": "ack"}, "probability": "1%"}},
    "delay": {"delay": {"constant": "5ms", "uniform": "1ms"}},
    "reorder": {"reorder": {"match": {"class": "data"}, "probability": "2%", "distance": 2}},
    "duplicate": {"duplicate": {"match": {"class": "data"}, "probability": "2%"}},
    "corrupt": {"corrupt": {"match": {"class": "data"}, "probability": "1%"}},
}


def requester(family, mtu):
    """A ghost that connects to the real node and runs every RC operation."""
    number = 20 + 2 * FAMILIES.index(family) + MTUS.index(mtu)
    return {"name": f"requester-{family}-{mtu}", "mac": f"02:00:00:00:00:{number:02x}",
            "addresses": [f"10.77.0.{number}/24", f"fd77::{number}/64"], "qp_defaults": {"path_mtu": mtu},
            "personalities": [{"rcops": {"connect": {"ipv4": "10.77.0.1", "ipv6": "fd77::1"}[family],
                                         "port": 7480 + number, "length": BYTES}}]}


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
                        {"p0": plug(sockets, 0, {"both": IMPAIRMENTS[request.param]}, [SERVER, *ghosts.values()])})
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


def test_counters_agree_with_the_kernel(world):
    """Nothing is lost or added but what the profile asked for, by the kernel's own count."""
    ours = Tally(world.emulator.ask("counters"))
    kernel = {name: count - world.before[name] for name, count in world.node.hw_counters().items()}
    print("emulator", ours, "\nkernel", kernel)
    assert ours["rx_roce_packets"] == kernel["sent_pkts"]
    balance = {"clean": check_clean, "data-loss": check_loss, "ack-loss": check_loss, "delay": check_clean,
               "reorder": check_reorder, "duplicate": check_duplicate, "corrupt": check_corrupt}
    balance[world.impairment](ours, kernel)


class Tally(dict):
    """Counters by name; one that is not there is zero."""
    def __missing__(self, name):
        return 0


def check_clean(ours, kernel):
    assert kernel["rcvd_pkts"] == ours["tx_roce_packets"]
    for count in ("loss", "duplicate_request", "out_of_seq_request", "retransmitted_packets", "naks_sent"):
        assert ours[count] == 0
    for count in ("out_of_seq_request", "rcvd_seq_err", "duplicate_request", "completer_retry_err"):
        assert kernel[count] == 0


def check_loss(ours, kernel):
    assert ours["loss"] > 0
    assert ours["retransmitted_packets"] > 0


def check_reorder(ours, kernel):
    assert ours["impair_reordered"] > 0


def check_duplicate(ours, kernel):
    assert ours["impair_duplicated"] > 0


def check_corrupt(ours, kernel):
    assert ours["impair_corrupted"] > 0
