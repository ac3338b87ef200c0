"""An interface that the emulator shares with its host's kernel: a tap of the real node, bridged to a veth on whose other end
are an AF_XDP port and ordinary addresses.

    real node -- tap0 = bridge = wire0 -- emu0: RoCE, ARP and whatever is for ghosts -> nbxd; the rest -> kernel"""
import os
import re
import socket
import subprocess
import sys

import pytest

from conftest import ADDRESSES, SERVER
from emulator import ROOT
from realnode import RealNode, mac_of

sys.path.insert(0, str(ROOT / "tests/support"))
from nbxd import BIN, Nbxd, run  # noqa: E402

NAMESPACE = f"nbx-xdp-{os.getpid()}"
GHOST, KERNEL = "10.77.0.9", "10.77.0.250"
PORT, BYTES = 5001, 4 << 20
SINK = f"""
import socket
server = socket.create_server(("{KERNEL}", {PORT}))
connection, _ = server.accept()
print(sum(len(piece) for piece in iter(lambda: connection.recv(65536), b"")))
"""
CLUSTER = """
cluster: shared
ports:
  - {{name: p0, device: "net_af_xdp0,iface=emu0", mtu: 1500, profile: {{both: {{}}}}}}
nodes:
  - {{name: real2, port: p0, mac: "{mac}", addresses: [{address}]}}
ghosts: [{server}]
memory: {{size: 160MiB}}
control: {{socket: {folder}/nbxd.sock}}
"""



def kernel_has_af_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()
        return True
    except OSError:
        return False


pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces"),
              pytest.mark.skipif(not kernel_has_af_xdp(), reason="this kernel has no AF_XDP")]


@pytest.fixture(scope="module")
def wires():
    run("ip", "netns", "add", NAMESPACE)
    try:
        for command in ("link set lo up", "link add bridge0 type bridge", "tuntap add tap0 mode tap",
                        "link add emu0 type veth peer name wire0", "link set tap0 master bridge0",
                        "link set wire0 master bridge0", f"address add {KERNEL}/24 dev emu0", "link set bridge0 up",
                        "link set tap0 up", "link set wire0 up", "link set emu0 up"):
            run("ip", "-n", NAMESPACE, *command.split())
        yield
    finally:
        run("ip", "netns", "delete", NAMESPACE)


@pytest.fixture(scope="module")
def nbxd(wires, tmp_path_factory):
    folder = tmp_path_factory.mktemp("xdp")
    address = ADDRESSES["real2"]
    (folder / "cluster.yaml").write_text(CLUSTER.format(folder=folder, mac=mac_of(address), address=address[0],
                                                        server={**SERVER, "port": "p0"}))
    one = Nbxd(NAMESPACE, folder)
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def shared_node(nbxd, reports):
    with RealNode(reports, "real2", ADDRESSES["real2"], net="tap:tap0", mtu=1500, namespace=NAMESPACE) as node:
        yield node


def test_rdma_reaches_ghosts_and_tcp_the_kernel_at_the_same_time(shared_node, nbxd):
    shared_node.run(f"ping -c 1 -W 5 {GHOST} && ping -c 1 -W 5 {KERNEL}")
    sink = subprocess.Popen(["ip", "netns", "exec", NAMESPACE, sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    try:
        writes = shared_node.spawn(f"ib_write_bw -n 500 -d rxe0 -F -x {shared_node.gid_index(shared_node.ipv4)} {GHOST}")
        shared_node.run(f"head -c {BYTES} /dev/zero | nc -w 20 {KERNEL} {PORT}")
        assert int(sink.communicate(timeout=30)[0]) == BYTES
        assert re.search(r"^ *65536 +500 +\d", writes.wait(), re.MULTILINE)
    finally:
        sink.kill()
    counters = nbxd.ask("counters", "p0")
    assert "PASSED" in shared_node.run(f"rcops -c {GHOST}")
    assert counters["rx_bytes_phy"] < 2 * 500 * 65536, "the kernel's TCP is none of the emulator's business"


def test_the_kernel_has_its_interface_back_afterwards(shared_node, nbxd):
    assert "prog/xdp" in run("ip", "-n", NAMESPACE, "link", "show", "emu0").stdout
    nbxd.stop()
    assert "prog/xdp" not in run("ip", "-n", NAMESPACE, "link", "show", "emu0").stdout
    shared_node.run(f"ping -c 1 -W 5 {KERNEL}")
    nbxd.start()


def test_a_program_left_behind_is_said(nbxd, tmp_path):
    text = (nbxd.folder / "cluster.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text(text.replace("nbxd.sock", "second.sock").replace("net_af_xdp0", "net_af_xdp1"))
    done = run("ip", "netns", "exec", NAMESPACE, BIN / "nbxd", tmp_path / "cluster.yaml", check=False)
    assert done.returncode == 2 and "xdp off removes it" in done.stderr
