"""nbxd on one end of a veth pair, an ordinary Linux kernel on the other: ARP, ND, ping, TCP by the exception path, and
every command of nbx that talks to nbxd. Needs root, for network namespaces."""
import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import BIN, Nbxd, run  # noqa: E402

GHOST_IPV4, GHOST_IPV6, GHOST_MAC = "10.77.0.9", "fd77::9", "02:00:00:00:00:09"
OTHER_GHOST_IPV4 = "10.77.0.10"
NODE_IPV4, NODE_IPV6 = "10.77.0.1", "fd77::1"
PERFTEST_PORT = 18515
EMULATOR = f"nbx-emu-{os.getpid()}"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

CLUSTER = """
cluster: linux-peer
ports:
  - name: p0
    device: "net_af_packet0,iface=emu0"
    mtu: 1500
    profile: ./clean.yaml
nodes:
  - {{name: node0, port: p0, mac: "{mac}", addresses: [10.77.0.1/24, "fd77::1/64"]}}
ghosts:
  - {{name: ghost0, port: p0, mac: "02:00:00:00:00:09", addresses: [10.77.0.9/24, "fd77::9/64"], personalities: [perftest]}}
  - {{name: ghost1, port: p0, mac: "02:00:00:00:00:0a", addresses: [10.77.0.10/24]}}
memory: {{size: 64MiB}}
control: {{socket: {folder}/nbxd.sock}}
report: {folder}/report.json
"""


def in_namespace(name):
    """Moves this thread into a network namespace and back: for sockets made in it."""
    class Inside:
        def __enter__(self):
            self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            with open(f"/run/netns/{name}", encoding="ascii") as there:
                enter(there.fileno())

        def __exit__(self, *_):
            enter(self.home)
            os.close(self.home)
    return Inside()


def enter(namespace):
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).setns(namespace, clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def finish_checksums(interface):
    """A veth leaves checksums and segmentation to a device that is not there; here the frames must be complete."""
    siocethtool, stxcsum = 0x8946, 0x17
    value = ctypes.create_string_buffer(struct.pack("II", stxcsum, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocethtool, struct.pack("16sQ16x", interface.encode(), ctypes.addressof(value)))


class Node:
    """The namespace whose kernel is the peer."""
    name = f"nbx-node-{os.getpid()}"

    def run(self, *command, **options):
        return run("ip", "netns", "exec", self.name, *command, **options)

    def ping(self, address, count=3):
        """Round-trip times in milliseconds."""
        output = self.run("ping", "-n", "-c", count, "-i", "0.2", "-W", "2", address).stdout
        return [float(time_ms) for time_ms in re.findall(r"time=([\d.]+)", output)]

    def connect(self, address, port):
        with in_namespace(self.name):
            return socket.create_connection((address, port), timeout=5)


@pytest.fixture(scope="module")
def node():
    one = Node()
    for name in (Node.name, EMULATOR):
        run("ip", "netns", "add", name)
    try:
        run("ip", "-n", EMULATOR, "link", "add", "emu0", "type", "veth", "peer", "name", "eth0", "netns", Node.name)
        run("ip", "-n", EMULATOR, "link", "set", "emu0", "up")
        for command in ("link set lo up", f"address add {NODE_IPV4}/24 dev eth0",
                        f"address add {NODE_IPV6}/64 dev eth0 nodad", "link set eth0 up"):
            run("ip", "-n", Node.name, *command.split())
        with in_namespace(Node.name):
            finish_checksums("eth0")
        yield one
    finally:
        for name in (Node.name, EMULATOR):
            run("ip", "netns", "delete", name)


@pytest.fixture(scope="module")
def nbxd(node, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nbxd")
    mac = json.loads(node.run("ip", "-j", "link", "show", "eth0").stdout)[0]["address"]
    (folder / "cluster.yaml").write_text(CLUSTER.format(folder=folder, mac=mac))
    (folder / "clean.yaml").write_text("description: slow enough for little memory\nboth: {rate: 1Gb/s}\n")
    one = Nbxd(EMULATOR, folder)
    one.start()
    yield one
    if one.process.poll() is None:
        one.stop()


@pytest.mark.parametrize("address", [GHOST_IPV4, GHOST_IPV6, OTHER_GHOST_IPV4])
def test_ping(node, nbxd, address):
    assert len(node.ping(address)) == 3


def test_linux_learns_the_ghosts_mac(node, nbxd):
    node.ping(GHOST_IPV4, 1)
    node.ping(GHOST_IPV6, 1)
    neighbours = {entry["dst"]: entry.get("lladdr") for entry in json.loads(node.run("ip", "-j", "neigh").stdout)}
    assert neighbours[GHOST_IPV4] == neighbours[GHOST_IPV6] == GHOST_MAC
    counters = nbxd.ask("counters")
    assert counters["arp_requests_answered"] > 0 and counters["nd_solicits_answered"] > 0
    assert counters["icmp_echoes_answered"] >= 2


@pytest.mark.parametrize("address", [GHOST_IPV4, GHOST_IPV6])
def test_tcp_to_a_listening_personality(node, nbxd, address):
    with node.connect(address, PERFTEST_PORT) as connection:
        assert connection.getpeername()[0] == address


def test_tcp_to_a_port_where_nobody_listens(node, nbxd):
    with pytest.raises(ConnectionRefusedError):
        node.connect(GHOST_IPV4, 4)


def test_tcp_to_a_ghost_that_does_not_listen(node, nbxd):
    """The port is open for another ghost only: the connection must not stay."""
    with pytest.raises(ConnectionError):
        with node.connect(OTHER_GHOST_IPV4, PERFTEST_PORT) as connection:
            assert connection.recv(1) == b""
            raise ConnectionResetError("closed")


def test_status(nbxd):
    status = nbxd.ask("status")
    assert status["cluster"] == "linux-peer" and status["exception_path"] == "works"
    port, = status["ports"]
    assert port["name"] == "p0" and port["link"] == "up" and port["ghosts"] == 2 and port["worker"] == "runs"
    assert port["worker_busy"] < 0.9, "an idle port leaves its core to others"


def test_ghosts_and_ports(nbxd):
    ghosts = nbxd.ask("ghosts")["ghosts"]
    assert [ghost["name"] for ghost in ghosts] == ["ghost0", "ghost1"]
    assert ghosts[0]["mac"] == GHOST_MAC and f"{GHOST_IPV4}/24" in ghosts[0]["addresses"]
    assert nbxd.ask("ports")["ports"][0]["driver"] == "net_af_packet"
    assert nbxd.ask("qps") == {"qps": []}


def test_text_is_for_people(nbxd):
    assert "linux-peer" in nbxd.nbx("status").stdout
    assert "icmp_echoes_answered" in nbxd.nbx("counters").stdout


def test_metrics(nbxd):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(nbxd.socket))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert re.search(r'^nbx_rx_packets_phy\{port="p0"\} [1-9]', text, re.MULTILINE)
    assert re.search(r'^nbx_drops\{port="p0",reason="loss"\} 0', text, re.MULTILINE)


def test_capture(node, nbxd):
    file = nbxd.folder / "ping.pcapng"
    nbxd.nbx("capture", "start", file)
    assert "stop it first" in nbxd.nbx("capture", "start", file, check=False).stderr
    node.ping(GHOST_IPV4, 2)
    nbxd.nbx("capture", "stop")
    assert nbxd.nbx("capture", "stop", check=False).returncode == 1
    seen = run("tshark", "-r", file, "-Y", "icmp", "-T", "fields", "-e", "icmp.type").stdout.split()
    assert seen == ["8", "0"] * 2


def test_live_changes(node, nbxd):
    assert min(node.ping(GHOST_IPV4)) < 20
    nbxd.nbx("set", "p0", "to_node.delay=[{constant: 30ms}]")
    assert min(node.ping(GHOST_IPV4)) >= 30
    nbxd.nbx("set", "p0", "from_node.delay=[{constant: 20ms}]")
    assert min(node.ping(GHOST_IPV4)) >= 50, "what was set before stays"
    nbxd.nbx("profile", "load", "p0", nbxd.folder / "clean.yaml")
    assert min(node.ping(GHOST_IPV4)) < 20


def is_answered(node, address):
    return node.run("ping", "-c", 1, "-W", 1, address, check=False).returncode == 0


def test_a_ghost_dies_and_another_profile_brings_it_back(node, nbxd):
    assert is_answered(node, GHOST_IPV4) and is_answered(node, OTHER_GHOST_IPV4)
    nbxd.nbx("set", "p0", "failures=[{at: 0s, ghosts_down: ghost0}]")
    assert not is_answered(node, GHOST_IPV4) and is_answered(node, OTHER_GHOST_IPV4)
    assert nbxd.ask("counters")["silent"] > 0
    nbxd.nbx("profile", "load", "p0", nbxd.folder / "clean.yaml")
    assert is_answered(node, GHOST_IPV4)


def test_a_half_open_link_hears_and_is_not_heard(node, nbxd):
    nbxd.nbx("link", "down", "p0", "--direction", "to_node")
    answered = nbxd.ask("counters")["icmp_echoes_answered"]
    assert not is_answered(node, OTHER_GHOST_IPV4)
    assert nbxd.ask("counters")["icmp_echoes_answered"] == answered + 1
    nbxd.nbx("link", "up", "p0")
    assert is_answered(node, OTHER_GHOST_IPV4)


@pytest.mark.parametrize("change", ["to_node.delay=[{constant: 5}]", "to_nodes.delay=[]", "to_node.loss={"])
def test_a_wrong_change_is_refused(nbxd, change):
    done = nbxd.nbx("set", "p0", change, check=False)
    assert done.returncode == 1 and "error" in done.stderr


def test_a_second_emulator_is_refused(nbxd):
    cluster = nbxd.folder / "second.yaml"
    cluster.write_text((nbxd.folder / "cluster.yaml").read_text().replace("net_af_packet0,iface=emu0", "net_null0"))
    done = run(BIN / "nbxd", cluster, check=False)
    assert done.returncode == 2 and str(nbxd.socket) in done.stderr and "busy" in done.stderr
    assert nbxd.ask("status")["ports"], "the first one is untouched"


def test_end(node, nbxd):
    """The last test: SIGTERM gives a report, and nothing of the emulator stays."""
    assert nbxd.stop() == 0
    assert "delay" in nbxd.said()
    report = json.loads((nbxd.folder / "report.json").read_text())
    delay, = (row for row in report["delays"] if row["direction"] == "to_node")
    lateness, = (row for row in report["lateness"] if row["direction"] == "to_node")
    counted = sum(frames for kind in ("undisturbed_ns", "interrupted_ns") for _, frames in lateness[kind])
    assert counted == delay["frames"], "every delayed frame is in one histogram"
    assert delay["asked_max_ns"] == 30e6 and delay["late_median_ns"] < 2e6
    assert not nbxd.socket.exists()
    done = nbxd.nbx("status", check=False)
    assert done.returncode == 1 and "no nbxd" in done.stderr and len(done.stderr.splitlines()) == 1
