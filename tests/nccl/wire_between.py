"""Network namespaces on one Ethernet segment whose switch is here: it sees every frame, keeps the RoCE packets, and
loses those that it is told to."""
import ctypes
import fcntl
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
import roce  # noqa: E402

ALL_PROTOCOLS = 3
UP_LIMIT_S = 10


def ip(*words):
    subprocess.run(["ip", *(str(word) for word in words)], check=True, timeout=10, capture_output=True)


def finish_checksums(interface):
    """A veth leaves checksums and segmentation to a device that is not there; here the frames must be complete."""
    siocethtool, stxcsum = 0x8946, 0x17
    value = ctypes.create_string_buffer(struct.pack("II", stxcsum, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocethtool, struct.pack("16sQ16x", interface.encode(), ctypes.addressof(value)))


class Wire:
    """Namespaces PREFIX0, PREFIX1, ..., each with an interface `nic` of address 10.78.0.(10 + number)."""

    def __init__(self, nodes, mtu=4200, loses=lambda number, packet: False):
        """`loses(n, packet)` decides on the n-th RoCE packet."""
        self.prefix, self.nodes, self.loses = f"nbxw{os.getpid() % 100000}-", nodes, loses
        self.packets, self.lost = [], 0
        self.ports, self.stopping = {}, False
        for node in range(nodes):
            name, port = self.namespace(node), f"nbxw{node}"
            ip("netns", "add", name)
            ip("link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", "nic", "netns", name, "mtu", mtu)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "nic")
            subprocess.run(["ip", "netns", "exec", name, sys.executable, __file__, "nic"], check=True, timeout=10)
            ip("-n", name, "link", "set", "nic", "up")
            ip("link", "set", port, "up")
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
            tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)     # SO_RCVBUFFORCE
            tap.setsockopt(263, 23, 1)                          # SOL_PACKET, PACKET_IGNORE_OUTGOING
            tap.bind((port, 0))
            tap.setblocking(False)
            self.ports[node] = tap
        deadline = time.monotonic() + UP_LIMIT_S
        while not all(self.is_up(node) for node in range(nodes)):
            assert time.monotonic() < deadline, "the interfaces do not come up"
            time.sleep(0.05)
        self.thread = threading.Thread(target=self.switch, daemon=True)
        self.thread.start()

    def namespace(self, node):
        return f"{self.prefix}{node}"

    @staticmethod
    def address(node):
        return f"10.78.0.{10 + node}"

    def is_up(self, node):
        shown = subprocess.run(["ip", "-n", self.namespace(node), "link", "show", "dev", "nic"], capture_output=True,
                               text=True, timeout=10, check=True).stdout
        return "state UP" in shown

    def switch(self):
        selector, where, number = selectors.DefaultSelector(), {}, 0
        for node, tap in self.ports.items():
            selector.register(tap, selectors.EVENT_READ, node)
        while not self.stopping:
            for key, _ in selector.select(timeout=0.2):
                for _ in range(64):
                    try:
                        frame = key.fileobj.recv(65536)
                    except BlockingIOError:
                        break
                    where[frame[6:12]] = key.data
                    packet = roce.decode(time.monotonic_ns(), frame)
                    if packet:
                        number += 1
                        self.packets.append(packet)
                        if self.loses(number, packet):
                            self.lost += 1
                            continue
                    known = where.get(frame[:6])
                    for node in self.ports if known is None else [known]:
                        if node != key.data:
                            self.forward(self.ports[node], frame)
        selector.close()

    @staticmethod
    def forward(tap, frame):
        try:
            tap.send(frame)
        except OSError:
            pass        # a namespace that is going away

    def close(self):
        self.stopping = True
        self.thread.join()
        for node, tap in self.ports.items():
            tap.close()
            ip("link", "del", f"nbxw{node}")
            ip("netns", "del", self.namespace(node))


if __name__ == "__main__":
    finish_checksums(sys.argv[1])
