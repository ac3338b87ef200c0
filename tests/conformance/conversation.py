"""What the server of a capture was, as the cluster file of a ghost that takes its place.

Numbers that programs told each other (QPN, PSN, keys) are read from the CM's messages and from the TCP hand-shakes;
what the server's program did by itself (its own requests) becomes a list of requests at the captured times.
"""
import struct
from collections import defaultdict
from dataclasses import dataclass, field

from roce import ACK, ATOMIC, ATOMIC_ACK, FIRST, LAST, READ, RESPONSE, SEND, WRITE, packets, records

REQUESTS = {SEND, WRITE, READ, ATOMIC}
RESPONSES = {ACK, RESPONSE, ATOMIC_ACK}
RC, UC, UD = 0, 1, 3
CM_REQ, CM_REJ, CM_REP, CM_RTU, CM_DREQ, CM_DREP = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16
REGION_SIZE_MIN = 8


def cm_attribute(packet):
    """The attribute of a CM message, or None."""
    if packet.transport == UD and packet.dest_qpn == 1 and packet.payload[1] == 7:
        return struct.unpack_from(">H", packet.payload, 16)[0]
    return None


@dataclass
class Pair:
    """A queue pair of the server and the client's at the other end."""
    server_qpn: int
    client_qpn: int
    server_psn: int
    client_psn: int
    type: str = "rc"
    mtu: int = 4096
    qkey: int = 0
    server_ip: str = ""
    client_ip: str = ""
    service: int = None  # connected by the CM on this service
    established_ns: int = None
    ids: frozenset = frozenset()  # communication ids of both ends
    private_data: bytes = b""     # of the server's REP


def cm_pairs(all_packets):
    requests, pairs = {}, {}
    for p in all_packets:
        attribute = cm_attribute(p)
        mad = p.payload
        if attribute == CM_REQ:
            requests[struct.unpack_from(">I", mad, 24)[0]] = p
        elif attribute == CM_REP:
            local, remote = struct.unpack_from(">II", mad, 24)
            req = requests[remote].payload
            word = lambda data, at: struct.unpack_from(">I", data, at)[0] >> 8
            # The start PSN in a message is the one from which its receiver will send.
            pairs[local] = Pair(word(mad, 36), word(req, 56), word(req, 68), word(mad, 44), server_ip=p.source,
                                client_ip=p.destination, service=struct.unpack_from(">Q", req, 32)[0],
                                mtu=128 << (req[74] >> 4), ids=frozenset({local, remote}), private_data=bytes(mad[60:256]).rstrip(b"\0"))
        elif attribute == CM_RTU:
            remote = struct.unpack_from(">I", mad, 28)[0]
            pairs[remote].established_ns = p.time_ns
    return list(pairs.values())


def tcp_pairs(path, all_packets):
    """From the text records of perftest (108 bytes) and the pingpongs (52 bytes): the first one of each side."""
    ends = defaultdict(dict)
    for _, frame, _ in records(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        size = struct.unpack_from(">H", frame, 16)[0]
        header = 14 + 20 + (frame[46] >> 4) * 4
        data = frame[header:14 + size]
        if len(data) not in (52, 108) or data[4:5] != b":":
            continue
        ports = struct.unpack_from(">HH", frame, 34)
        fields = data.rstrip(b"\0").decode().split(":")
        qpn, psn = (fields[2], fields[3]) if len(data) == 108 else (fields[1], fields[2])
        side = "server" if ports[0] == 18515 else "client"
        ends[max(ports)].setdefault(side, (int(qpn, 16), int(psn, 16)))
    pairs = []
    for end in ends.values():
        (server_qpn, server_psn), (client_qpn, client_psn) = end["server"], end["client"]
        mine = [p for p in all_packets if p.dest_qpn == server_qpn and p.kind in REQUESTS and p.psn == client_psn]
        first = mine[0]
        large = max(len(p.payload) for p in all_packets if p.dest_qpn in (server_qpn, client_qpn))
        pairs.append(Pair(server_qpn, client_qpn, server_psn, client_psn, {RC: "rc", UC: "uc", UD: "ud"}[first.transport],
                          mtu=1024 if large <= 1024 else 4096, qkey=0x11111111, server_ip=first.destination,
                          client_ip=first.source))
    return pairs


@dataclass
class Conversation:
    """One connection of the CM, or (`which` None) all those that were agreed on over TCP."""
    path: object
    which: int = None
    server_mac: str = "52:54:00:00:00:01"
    client_mac: str = "52:54:00:00:00:02"
    server_ips: tuple = ("10.77.0.1", "fe80::5054:ff:fe00:1")
    packets: list = field(init=False)
    pairs: list = field(init=False)

    def __post_init__(self):
        self.packets = packets(self.path)
        self.start_ns = next(records(self.path))[0]
        if self.which is None:
            self.pairs = tcp_pairs(self.path, self.packets)
        else:
            self.pairs = [cm_pairs(self.packets)[self.which]]

    def concerns(self, packet):
        """Whether a RoCE packet belongs to this conversation."""
        if cm_attribute(packet):
            return self.which is not None and bool(set(struct.unpack_from(">II", packet.payload, 24)) & self.pairs[0].ids)
        return packet.dest_qpn in {qpn for pair in self.pairs for qpn in (pair.server_qpn, pair.client_qpn)}

    def to_server(self, pair):
        return [p for p in self.packets if p.destination == pair.server_ip and p.dest_qpn == pair.server_qpn]

    def from_server(self, pair):
        return [p for p in self.packets if p.source == pair.server_ip and p.dest_qpn == pair.client_qpn]

    # --- the cluster file ---

    def cluster(self):
        memory, qps, listeners = [], [], defaultdict(list)
        for key, region in self.regions().items():
            memory.append({"key": key, **region})
        for pair in self.pairs:
            requests = self.requests(pair, memory)
            common = {"path_mtu": pair.mtu, "access": ["remote_write", "remote_read", "remote_atomic"], "timeout": 14}
            receives = {"count": 64, "size": "64KiB"}
            if pair.service is None:
                qps.append({"type": pair.type, "qpn": pair.server_qpn, "sq_psn": pair.server_psn,
                            "rq_psn": pair.client_psn, "qkey": pair.qkey,
                            "peer": {"address": pair.client_ip, "mac": self.client_mac, "qpn": pair.client_qpn},
                            **common, "receives": receives, "requests": requests})
            else:
                listeners[pair.service].append({"service_id": pair.service, "receives": receives, "requests": requests,
                                                "private_data": {"hex": pair.private_data.hex()},
                                                "qp": {"qpn": pair.server_qpn, "rq_psn": pair.client_psn, **common}})
        ghost = {"name": "server", "port": "p0", "mac": self.server_mac, "addresses": ["10.77.0.1/24"], "memory": memory,
                 "qps": qps, "listen": [one for several in listeners.values() for one in several]}
        return {"cluster": "oracle", "ports": [{"name": "p0"}], "ghosts": [ghost]}

    def regions(self):
        """What the client's requests touch, with what its READs of untouched memory returned as content."""
        spans, content = defaultdict(list), {}
        for pair in self.pairs:
            written = set()
            for p in self.to_server(pair):
                if p.kind in (WRITE, READ, ATOMIC) and p.address is not None and (p.length or p.kind == ATOMIC):
                    length = p.length or 8
                    spans[p.rkey].append((p.address, p.address + length))
                    if p.kind == WRITE:
                        written.add((p.rkey, p.address))
                    elif p.kind == READ and (p.rkey, p.address) not in written:
                        content[p.rkey, p.address] = self.answer(pair, p)[:length]
                    elif p.kind == ATOMIC and (p.rkey, p.address) not in written:
                        written.add((p.rkey, p.address))
                        original = next(a.original for a in self.from_server(pair) if a.kind == ATOMIC_ACK and a.psn == p.psn)
                        content[p.rkey, p.address] = struct.pack("<Q", original)
        regions = {}
        for key, parts in spans.items():
            first, end = min(a for a, _ in parts), max(b for _, b in parts)
            image = bytearray(end - first)
            for (rkey, address), data in content.items():
                if rkey == key:
                    image[address - first:address - first + len(data)] = data
            regions[key] = {"addr": first, "length": f"{len(image)}B", "backing": "memory", "content": {"hex": image.hex()},
                            "access": ["local_write", "remote_write", "remote_read", "remote_atomic"]}
        return regions

    def answer(self, pair, read):
        count = -(-read.length // pair.mtu)
        parts = {}
        for p in self.from_server(pair):
            offset = (p.psn - read.psn) & 0xFFFFFF
            if p.kind == RESPONSE and offset < count:
                parts[offset] = p.payload
        return b"".join(parts[i] for i in sorted(parts))

    def requests(self, pair, memory):
        """The server's own messages: each a request at the time of its first packet, with its data in a region of its own."""
        requests, message, seen = [], None, set()
        for p in self.from_server(pair):
            if p.kind not in REQUESTS or p.psn in seen:
                continue
            seen.add(p.psn)
            code = p.opcode & 0x1F
            if p.kind in (READ, ATOMIC) or code in FIRST:
                message = {"packet": p, "data": b"", "immediate": None}
            if p.kind in (SEND, WRITE):
                message["data"] += p.payload
                message["immediate"] = p.immediate if p.immediate is not None else message["immediate"]
                if code not in LAST:
                    continue
            requests.append(self.request(pair, message, memory))
        return requests

    def request(self, pair, message, memory):
        p, data = message["packet"], message["data"]
        key = 0x7000 + len(memory)
        length = len(data) if p.kind in (SEND, WRITE) else p.length or 8
        memory.append({"key": key, "addr": key << 32, "length": f"{max(length, REGION_SIZE_MIN)}B", "access": ["local_write"],
                       "backing": "memory", **({"content": {"hex": data.hex()}} if data else {})})
        begin = self.start_ns if pair.service is None else pair.established_ns
        op = {SEND: "send", WRITE: "rdma_write", READ: "rdma_read"}[p.kind]
        request = {"at": f"{max(p.time_ns - begin, 0)}ns", "op": op, "local": {"key": key, "addr": key << 32, "length": f"{length}B"}}
        if message["immediate"] is not None:
            request |= {"op": op + "_with_imm", "imm": message["immediate"]}
        if p.address is not None:
            request["remote"] = {"addr": p.address, "rkey": p.rkey}
        return request
