"""An emulated network between a Linux kernel and ghosts: the kernel's own ping measures its cables. Needs root, for
network namespaces."""
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import run, started_on  # noqa: E402
from ring import DRAGONFLY, RING, cluster  # noqa: E402

NODE, EMULATOR = f"nbx-net-node-{os.getpid()}", f"nbx-net-emu-{os.getpid()}"
CABLE_MS = 2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

CLUSTER = """
cluster: two-leaves
ports:
  - {{name: p0, device: "net_af_packet0,iface=emu0", mtu: 1500}}
ghosts:
  - {{name: near, addresses: [10.77.0.2/24]}}
  - {{name: far, addresses: [10.77.0.3/24]}}
network:
  topology: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 2}}}}
  propagation: {cable_ms}ms
memory: {{size: 64MiB}}
control: {{socket: {folder}/nbxd.sock}}
"""


@pytest.fixture
def started(tmp_path):
    """nbxd on a veth, with the cluster file that it is given."""
    with started_on(EMULATOR, {NODE: "10.77.0.1/24"}, tmp_path) as start:
        yield start


@pytest.fixture
def nbxd(started, tmp_path):
    return started(CLUSTER.format(folder=tmp_path, cable_ms=CABLE_MS))


def shortest_ms(address):
    said = run("ip", "netns", "exec", NODE, "ping", "-n", "-c", 10, "-i", "0.2", "-W", "2", address).stdout
    return min(float(time_ms) for time_ms in re.findall(r"time=([\d.]+)", said))


def test_a_ping_takes_as_long_as_its_cables(nbxd):
    near, far = shortest_ms("10.77.0.2"), shortest_ms("10.77.0.3")
    assert near >= 2 * 2 * CABLE_MS, "node, leaf, ghost and back"
    assert far >= 2 * 4 * CABLE_MS, "node, leaf, spine, leaf, ghost and back"
    assert far - near >= 2 * CABLE_MS, "two cables more in each direction, less what the machine is late"
    assert not [name for name in nbxd.ask("counters") if name.startswith("network_") and nbxd.ask("counters")[name]]


def answers(address, count=3):
    """How many of some pings are answered."""
    said = run("ip", "netns", "exec", NODE, "ping", "-n", "-c", count, "-i", "0.2", "-W", "2", address, check=False).stdout
    return int(re.search(r"(\d+) received", said).group(1))


def neighbour(address):
    """The MAC that the node's kernel has for this address."""
    said = run("ip", "-n", NODE, "neighbour", "show", address).stdout
    return re.search(r"lladdr (\S+)", said).group(1)


def test_cables_go_down_and_come_up_by_command(nbxd):
    assert answers("10.77.0.3") == 3
    for spine in ("spine0", "spine1"):
        nbxd.nbx("link", "down", "p0", "--cable", f"leaf1-{spine}")
    assert answers("10.77.0.2") == 3, "its leaf is the node's own"
    assert answers("10.77.0.3") == 0
    lost = nbxd.ask("counters")
    assert lost["network_link_down"] + lost["network_no_route"] > 0
    nbxd.nbx("link", "up", "p0", "--cable", "spine0-leaf1")
    nbxd.nbx("link", "up", "p0", "--cable", "leaf1-spine1")
    assert answers("10.77.0.3") == 3
    nbxd.nbx("link", "down", "p0", "--cable", "far-leaf1", "--for", "500ms")
    assert answers("10.77.0.3", count=10) >= 1, "up again by itself"
    wrong = nbxd.nbx("link", "down", "p0", "--cable", "leaf1-spine2", check=False)
    assert wrong.returncode == 1 and "there is no cable 'leaf1-spine2'" in wrong.stderr


def test_a_cable_is_half_open(nbxd):
    counters = lambda: nbxd.ask("counters")  # noqa: E731
    assert answers("10.77.0.2") == 3
    before = counters()["icmp_echoes_answered"]
    nbxd.nbx("link", "down", "p0", "--cable", "near->leaf0")
    assert answers("10.77.0.2") == 0
    assert counters()["icmp_echoes_answered"] > before, "the questions come, the answers are lost"
    assert counters()["network_link_down"] == counters()["icmp_echoes_answered"] - before
    nbxd.nbx("link", "up", "p0", "--cable", "near-leaf0")
    nbxd.nbx("link", "down", "p0", "--cable", "leaf0->near")
    before = counters()["icmp_echoes_answered"]
    assert answers("10.77.0.2") == 0 and counters()["icmp_echoes_answered"] == before, "no question comes"
    nbxd.nbx("link", "up", "p0", "--cable", "leaf0->near")
    assert answers("10.77.0.2") == 3
    wrong = nbxd.nbx("link", "down", "p0", "--cable", "leaf0->naer", check=False)
    assert wrong.returncode == 1 and "did you mean 'leaf0->near'?" in wrong.stderr
    wrong = nbxd.nbx("link", "down", "p0", "--cable", "leaf0-near", "--direction", "to_node", check=False)
    assert wrong.returncode == 1 and "leaf0->spine1" in wrong.stderr


def test_storms_slow_receivers_and_traffic_by_command(nbxd):
    nbxd.nbx("storm", "start", "p0", "priorities=3", "duration=20ms")
    time.sleep(0.2)
    stormed = nbxd.ask("counters")["tx_pfc_frames"]
    assert stormed > 100, "a pause each 168 us"
    time.sleep(0.1)
    assert nbxd.ask("counters")["tx_pfc_frames"] == stormed, "over"
    nbxd.nbx("storm", "start", "p0", "priorities=[3,4]", "duration=10s")
    nbxd.nbx("storm", "stop", "p0")
    assert shortest_ms("10.77.0.2") < 100
    nbxd.nbx("slow-receiver", "start", "p0", "ghosts=near", "drain=8kb/s", "lasts=30s")
    assert shortest_ms("10.77.0.2") > 90, "98 bytes of a ping, a byte in a millisecond"
    nbxd.nbx("slow-receiver", "stop", "p0", "near")
    assert shortest_ms("10.77.0.2") < 50
    nbxd.nbx("traffic", "start", "p0", "name=x", "pattern=one_to_one", "from=near", "to=far", "load=0.1%",
             "sizes.constant=10kB")
    again = nbxd.nbx("traffic", "start", "p0", "name=x", "pattern=one_to_one", "from=near", "to=far", "load=0.1%",
                     "sizes.constant=10kB", check=False)
    assert again.returncode == 1 and "stop it first" in again.stderr
    time.sleep(0.5)
    nbxd.nbx("traffic", "stop", "p0", "x")
    (row,) = nbxd.ask("traffic")["traffic"]
    assert row["name"] == "x" and row["completed"] > 10
    for words, why in [(["storm", "start", "p0", "priorities=3"], "needs 'duration'"),
                       (["storm", "start", "p0", "priorities=3", "duration=2min"], "at most "),
                       (["slow-receiver", "start", "p0", "ghosts=near", "drain=1Gb/s"], "'lasts' is needed"),
                       (["slow-receiver", "start", "p0", "ghosts=naer", "drain=1Gb/s", "lasts=1s"], "'near'"),
                       (["slow-receiver", "stop", "p0", "nobody"], "no ghost 'nobody'"),
                       (["traffic", "start", "p0", "name=y", "pattern=incest", "sizes.constant=1kB", "load=1%"],
                        "'incast'"),
                       (["traffic", "stop", "p0", "x"], "no traffic 'x' is at work")]:
        refused = nbxd.nbx(*words, check=False)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr


def test_keys_of_one_command_are_set_together(nbxd):
    nbxd.nbx("set", "p0", "to_node.rate.queue=2MiB", "to_node.rate.limit=1Gb/s")
    refused = nbxd.nbx("set", "p0", "to_node.rate.queue=2MiB", "from_node.loss=1%", "from_node.lost=1%", check=False)
    assert refused.returncode == 1 and "needs 'limit'" in refused.stderr and "'loss'" in refused.stderr
    assert answers("10.77.0.2") == 3


@pytest.mark.parametrize("announce", [True, False])
def test_a_ghost_comes_back_with_another_address(nbxd, announce):
    """Its GID is made of it: a RoCEv2 GID is the address (A17.4.6)."""
    assert answers("10.77.0.2") == 3
    nbxd.nbx("set", "p0", "failures=[{at: 0s, for: 300ms, ghosts_down: near, back_as: {addresses: 10.77.0.22/24, "
             f"announce: {str(announce).lower()}}}}}]")
    time.sleep(1.5)
    assert answers("10.77.0.2") == 0, "nobody has the old one any more"
    assert answers("10.77.0.22") == 3
    assert neighbour("10.77.0.22") == nbxd.ask("ghosts")["ghosts"][0]["mac"]


@pytest.mark.parametrize("announce", [True, False])
def test_a_ghost_comes_back_with_another_mac(nbxd, announce):
    assert answers("10.77.0.2") == 3
    old, new = neighbour("10.77.0.2"), "02:00:00:00:09:09"
    back = f"{{mac: '{new}', announce: {str(announce).lower()}}}"
    nbxd.nbx("set", "p0", f"failures=[{{at: 0s, for: 300ms, ghosts_down: near, back_as: {back}}}]")
    time.sleep(1.5)
    if announce:
        assert answers("10.77.0.2") == 3
    else:
        assert answers("10.77.0.2") == 0, "the node still sends to the old MAC"
        assert neighbour("10.77.0.2") == old
        run("ip", "-n", NODE, "neighbour", "flush", "dev", "eth0")
        assert answers("10.77.0.2") == 3
    assert neighbour("10.77.0.2") == new


def test_a_deadlock_is_in_the_status_and_the_report(started, tmp_path):
    config = cluster(DRAGONFLY, memory={"size": "128MiB"}, control={"socket": f"{tmp_path}/nbxd.sock"})
    config["ports"][0]["device"] = "net_af_packet0,iface=emu0"
    config["network"].update(host_rate="200Mb/s", fabric_rate="200Mb/s")  # slow enough for any machine to keep up
    nbxd = started(json.dumps(config))
    end = time.monotonic() + 20
    while (found := nbxd.ask("status")["ports"][0]["deadlock"]) == "none":
        assert time.monotonic() < end, "no deadlock"
        time.sleep(0.2)
    places = found.split(" -> ")
    assert places[0] == places[-1] and {place.split()[0] for place in places} == set(RING)
    assert nbxd.ask("report")["network"]["deadlock"] == found, "it stays"
