"""nbxd in a network namespace of its own, for tests that talk to it over a veth. Every wait is bounded."""
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("NBX_BIN", ROOT / "build/bin"))
START_LIMIT_S, STOP_LIMIT_S, COMMAND_LIMIT_S = 60, 20, 30


def text(output):
    return (output or b"").decode(errors="replace")[-4000:]


def run(*command, limit_s=COMMAND_LIMIT_S, check=True, **options):
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
                              **options)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{words}: ended after {limit_s} s\n{text(late.stdout)}\n{text(late.stderr)}") from late
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@contextlib.contextmanager
def veth_pairs(emulator, nodes):
    """Network namespaces of real nodes, by name with the node's address, each on a cable of its own to the emulator's:
    eth0 there, emu0, emu1, ... here."""
    for name in (*nodes, emulator):
        run("ip", "netns", "add", name)
    try:
        for i, (node, address) in enumerate(nodes.items()):
            run("ip", "-n", emulator, "link", "add", f"emu{i}", "type", "veth", "peer", "name", "eth0", "netns", node)
            run("ip", "-n", emulator, "link", "set", f"emu{i}", "up")
            run("ip", "-n", node, "address", "add", address, "dev", "eth0")
            run("ip", "-n", node, "link", "set", "eth0", "up")
        yield
    finally:
        for name in (*nodes, emulator):
            run("ip", "netns", "delete", name)


def veth_pair(emulator, node, address="10.77.0.1/24"):
    return veth_pairs(emulator, {node: address})


class Nbxd:
    """`folder` holds cluster.yaml, whose control socket is nbxd.sock there."""

    def __init__(self, namespace, folder):
        self.namespace, self.folder = namespace, folder
        self.socket, self.log = folder / "nbxd.sock", folder / "nbxd.log"
        self.process = None

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", self.namespace, BIN / "nbxd",
                                             self.folder / "cluster.yaml"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_LIMIT_S
        while "nbxd: ready" not in self.said():
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT_S)

    def said(self):
        return self.log.read_text(errors="replace")

    def nbx(self, *command, **options):
        return run(BIN / "nbx", *command, "--control", self.socket, **options)

    def ask(self, *command):
        return json.loads(self.nbx(*command, "--json").stdout)


@contextlib.contextmanager
def started_on(emulator, nodes, folder):
    """Cables as of veth_pairs(), and a function that starts nbxd at them with the text of a cluster file."""
    running = []

    def start(cluster):
        (folder / "cluster.yaml").write_text(cluster)
        running.append(Nbxd(emulator, folder))
        running[-1].start()
        return running[-1]

    with veth_pairs(emulator, nodes):
        yield start
        for one in running:
            one.stop()
