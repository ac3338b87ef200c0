"""What the VM suite shares: the real node, booted once, and runs of the emulator for it.

The node's NIC reconnects by itself, so each profile gets an nbxd of its own while the node stays up. Logs, cluster files
and captures of every run stay in build/reports/vm/.
"""
import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest

from emulator import ROOT, Emulator, Port
from realnode import RealNode, mac_of

LINK_LIMIT_S = 15
ADDRESSES = {f"real{i}": [f"10.77.0.{i + 1}/24", f"fd77::{i + 1}/64"] for i in range(3)}
GHOST_IPV4, GHOST_IPV6 = "10.77.0.9", "fd77::9"
SERVER = {"name": "server", "mac": "02:00:00:00:00:09", "addresses": [f"{GHOST_IPV4}/24", f"{GHOST_IPV6}/64"],
          "personalities": ["perftest", "pingpong", "rping", "rcops", "echo", "sink"]}


@pytest.fixture(scope="session")
def reports():
    folder = ROOT / "build/reports/vm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="session")
def sockets():
    """A folder with a short name: the path of a unix socket has room for 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="nbx-vm-"))
    yield folder
    shutil.rmtree(folder)


def plug(sockets, number, profile, ghosts=()):
    """Port number `number` with its real node behind it."""
    name = f"real{number}"
    node = {"name": name, "mac": mac_of(ADDRESSES[name]), "addresses": ADDRESSES[name]}
    return Port(sockets / f"p{number}.sock", profile, [node], list(ghosts))


def wait_for_link(node, address):
    """The NIC reconnects within a second of nbxd's start; after that the ghost answers pings."""
    node.run(f"n=0; until ping -c 1 -W 1 {address} > /dev/null; do n=$((n+1)); [ $n -lt {LINK_LIMIT_S} ] || exit 1; done",
             limit_s=2 * LINK_LIMIT_S)


def boot(number, reports, sockets):
    """Boots the real node of a port. A vhost-user NIC needs somebody at the other end, so an idle nbxd is there."""
    name = f"real{number}"
    node = RealNode(reports, name, ADDRESSES[name], net=f"vhost:{sockets / f'p{number}.sock'}")
    with Emulator(reports / f"boot-{name}", {f"p{number}": plug(sockets, number, {})}), contextlib.ExitStack() as undo:
        undo.callback(node.stop)
        node.start()
        undo.pop_all()
    return node


@pytest.fixture(scope="session")
def node(reports, sockets):
    first = boot(0, reports, sockets)
    yield first
    first.stop()


@pytest.fixture(scope="module")
def second_node(reports, sockets):
    second = boot(1, reports, sockets)
    yield second
    second.stop()
