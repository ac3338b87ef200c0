"""Two Linux kernels, each on a port of one nbxd: they ping each other and the ghosts of both ports, with a worker for
each port and with one for both. Needs root, for network namespaces."""
import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import Nbxd, run, veth_pairs  # noqa: E402

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
    running = []

    def start(more, profile="ideal"):
        (tmp_path / "cluster.yaml").write_text(CLUSTER.format(folder=tmp_path, more=more, profile=profile))
        running.append(Nbxd(EMULATOR, tmp_path))
        running[0].start()
        return running[0]

    with veth_pairs(EMULATOR, NODES):
        yield start
        for one in running:
            one.stop()


def shortest_ms(node, address, count=5):
    said = run("ip", "netns", "exec", node, "ping", "-n", "-c", count, "-i", "0.2", "-W", "2", address).stdout
    assert f" {count} received" in said, said
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
