"""Two Linux kernels, each on a port of one nbxd: they ping each other and the ghosts of both ports, with a worker for
each port, with one for both, and with an emulated network between them all. Needs root, for network namespaces."""
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import run, started_on  # noqa: E402

EMULATOR = f"nbx-two-emu-{os.getpid()}"
NODES = {f"nbx-two-{i}-{os.getpid()}": f"10.77.0.{1 + i}/24" for i in (0, 1)}
FIRST, SECOND = NODES
ADDED_MS = 2  # each direction of each port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

CLUSTER = """
cluster: two-kernels
{more}
ports:
  - {{name: p0, device: "net_af_packet0,iface=emu0", mtu: 1500, profile: {profile}}}
  - {{name: p1, device: "net_af_packet1,iface=emu1", mtu: 1500, profile: {profile}}}
ghosts:
  - {{name: ghost0, port: p0, addresses: [10.77.0.10/24]}}
  - {{name: ghost1, port: p1, addresses: [10.77.0.11/24]}}
memory: {{size: 192MiB}}
control: {{socket: {folder}/nbxd.sock}}
"""


@pytest.fixture
def started(tmp_path):
    """nbxd with more keys in the cluster file, and a profile for both ports."""
    with started_on(EMULATOR, NODES, tmp_path) as start:
        yield lambda more, profile="ideal": start(CLUSTER.format(folder=tmp_path, more=more, profile=profile))


def shortest_ms(node, address, count=5, size=56, lossy=False):
    said = run("ip", "netns", "exec", node, "ping", "-n", "-c", count, "-s", size, "-i", "0.2", "-W", "2",
               address).stdout
    assert lossy or f" {count} received" in said, said
    return min(float(time_ms) for time_ms in re.findall(r"time=([\d.]+)", said))


def workers(nbxd):
    names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{nbxd.process.pid}/task").iterdir()]
    return sorted(name for name in names if re.fullmatch(r"nbx-p\w*", name))


@pytest.mark.parametrize("more, threads", [("", ["nbx-p0", "nbx-p1"]), ("one_worker: true", ["nbx-ports"])])
def test_two_kernels_and_ghosts_of_both_ports(started, more, threads):
    nbxd = started(more, f"{{both: {{delay: {ADDED_MS}ms}}}}")
    assert workers(nbxd) == threads
    assert shortest_ms(FIRST, "10.77.0.2") >= 4 * ADDED_MS, "both directions of both ports"
    for node in (FIRST, SECOND):
        for ghost in ("10.77.0.10", "10.77.0.11"):
            assert 2 * ADDED_MS <= shortest_ms(node, ghost) < 4 * ADDED_MS, "the node's own port"
    counters = nbxd.ask("counters")
    assert counters["transit_packets"] >= 2 * 5 and counters["peer_ring_full"] == 0


CABLE_MS, CABLES_BETWEEN, CABLES_NEAR = 2, 4, 2
NETWORK = """network:
  topology: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 2}}}}
  propagation: {propagation}
  host_rate: {rate}
  fabric_rate: {rate}
  priorities: [{{priority: 0, queue_limit: 64KiB}}]
"""


def flood(node, address, seconds, megabits):
    """Datagrams of 1000 bytes at a rate, in the background."""
    program = f"""
import socket, time
out, end, gap = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic() + {seconds}, 8e-3 / {megabits}
due = time.monotonic()
while due < end:
    time.sleep(max(0, due - time.monotonic()))
    out.sendto(bytes(1000), ("{address}", 9))
    due += gap
"""
    return subprocess.Popen(["ip", "netns", "exec", node, sys.executable, "-c", program])


def lost_of(nbxd, port):
    return sum(count for name, count in nbxd.ask("counters", port).items() if name.startswith("network_"))


def test_a_network_lies_between_nodes_and_ghosts_of_both_ports(started):
    nbxd = started(NETWORK.format(propagation=f"{CABLE_MS}ms", rate="100Gb/s"))
    assert workers(nbxd) == ["nbx-ports"], "implied"
    for node, other, near, far in ((FIRST, "10.77.0.2", "10.77.0.10", "10.77.0.11"),
                                   (SECOND, "10.77.0.1", "10.77.0.11", "10.77.0.10")):
        for address, cables in ((other, CABLES_BETWEEN), (far, CABLES_BETWEEN), (near, CABLES_NEAR)):
            assert 2 * cables * CABLE_MS <= shortest_ms(node, address) < 2 * (cables + 1) * CABLE_MS, (node, address)
    nbxd.nbx("link", "down", "p1", "--cable", "leaf1->p1")
    lost = run("ip", "netns", "exec", FIRST, "ping", "-n", "-c", 2, "-W", "1", "10.77.0.2", check=False).stdout
    assert " 0 received" in lost
    assert lost_of(nbxd, "p0") == 0 and lost_of(nbxd, "p1") >= 2, "the kernel may ask for the MAC, too"
    nbxd.nbx("link", "up", "p1", "--cable", "leaf1->p1")
    shortest_ms(FIRST, "10.77.0.2")
    nbxd.nbx("storm", "start", "p1", "priorities=3", "duration=1ms")
    assert nbxd.ask("counters", "p1")["tx_pfc_frames"] > 0 and nbxd.ask("counters", "p0")["tx_pfc_frames"] == 0
    rows = nbxd.ask("report")["network"]["pauses"]
    assert {(row["port"], row["direction"]) for row in rows} == {("p1", "to_node")}


def test_its_lines_and_queues_take_their_time(started):
    nbxd = started(NETWORK.format(propagation="1us", rate="10Mb/s"))
    small, large = shortest_ms(FIRST, "10.77.0.2"), shortest_ms(FIRST, "10.77.0.2", size=1400)
    lines = 2 * CABLES_BETWEEN * (1400 - 56) * 8 / 10e3  # 10e3 bits in a millisecond
    assert lines - 0.5 <= large - small <= lines + 3, "eight lines more of 1344 bytes"
    alone = shortest_ms(SECOND, "10.77.0.11")
    busy = flood(FIRST, "10.77.0.2", seconds=6, megabits=9)
    nbxd.nbx("traffic", "start", "p1", "name=t", "pattern=one_to_one", "from=ghost0", "to=p1", "rate=6Mb/s",
             "sizes.constant=8KiB", "lasts=6s")
    time.sleep(1)
    waits = shortest_ms(SECOND, "10.77.0.11", count=20, lossy=True)
    assert busy.wait(30) == 0
    full_ms = 64 * 1024 * 8 / 10e3
    assert full_ms / 2 <= waits - alone <= full_ms + 20, "the ghost's answers wait behind the other node's frames"
    assert lost_of(nbxd, "p0") == 0 and lost_of(nbxd, "p1") > 0
