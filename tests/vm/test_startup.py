"""What cannot start says why in one line, exits with 2, and leaves nothing half-started."""
import socket
import subprocess

from conftest import plug
from emulator import BIN, Emulator

LIMIT_S = 20


def refused(emulator):
    done = subprocess.run([BIN / "nbxd", emulator.cluster], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2, done
    return [line for line in done.stderr.splitlines() if "error" in line]


def test_port_that_does_not_exist(reports, sockets):
    emulator = Emulator(reports / "no-port", {"p0": plug(sockets, 2, {})})
    emulator.cluster.write_text(emulator.cluster.read_text().replace("net_vhost0,iface=", "net_af_packet0,iface=none"))
    line, = refused(emulator)
    assert "net_af_packet0" in line
    assert not emulator.control.exists()


def test_busy_vhost_path(reports, sockets):
    port = plug(sockets, 2, {})
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(port.socket))
        other.listen()
        line, = refused(Emulator(reports / "busy", {"p0": port}))
    assert str(port.socket) in line
    port.socket.unlink()


def test_mistakes_in_a_profile_are_all_reported(reports, sockets):
    emulator = Emulator(reports / "mistakes", {"p0": plug(sockets, 2, {"to_node": {"delay": [{"constant": 5}]},
                                                                       "to_nodes": {}})})
    lines = refused(emulator)
    assert len(lines) == 2 and all("p0.yaml:" in line for line in lines), lines
