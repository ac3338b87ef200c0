"""RoCEv2 packets of captures, decoded without the project's own code: an independent witness for the tests.

Written from the headers' definitions (IBTA volume 1 chapter 9, annex A17); the ICRC comes from zlib.
"""
import ipaddress
import struct
import zlib
from dataclasses import dataclass, field

UDP_PORT = 4791
SEND, WRITE, READ, RESPONSE, ACK, ATOMIC_ACK, ATOMIC, OTHER = "send write read response ack atomic_ack atomic other".split()
KINDS = {**dict.fromkeys([0, 1, 2, 3, 4, 5, 0x16, 0x17], SEND), **dict.fromkeys([6, 7, 8, 9, 10, 11], WRITE), 12: READ,
         **dict.fromkeys([13, 14, 15, 16], RESPONSE), 17: ACK, 18: ATOMIC_ACK, 19: ATOMIC, 20: ATOMIC}
FIRST, LAST = {0, 4, 5, 6, 10, 11, 0x17}, {2, 3, 4, 5, 8, 9, 10, 11, 0x16, 0x17}
RETH, IMMEDIATE, AETH = {6, 10, 11, 12}, {3, 5, 9, 11}, {13, 15, 16, 17, 18}


@dataclass
class Packet:
    time_ns: int
    frame: bytes
    source_mac: str
    source: str
    destination: str
    opcode: int
    dest_qpn: int
    psn: int
    ack_request: bool
    icrc_right: bool
    payload: bytes
    comment: str = ""
    syndrome: int = None
    msn: int = None
    address: int = None
    rkey: int = None
    length: int = None
    immediate: int = None
    original: int = None
    operands: tuple = None
    source_qpn: int = None
    transport: int = field(init=False)
    kind: str = field(init=False)

    def __post_init__(self):
        self.transport = self.opcode >> 5
        self.kind = KINDS.get(self.opcode & 0x1f, OTHER) if self.transport in (0, 1, 3) else OTHER


def records(path):
    """(nanoseconds, bytes, comment) of each packet of a pcap or pcapng file, little-endian as these tests write them."""
    data = open(path, "rb").read()
    if struct.unpack_from("<I", data)[0] == 0x0A0D0D0A:
        for time_ns, _, frame, comment in pcapng_records(data):
            yield time_ns, frame, comment
        return
    scale = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}[struct.unpack_from("<I", data)[0]]
    at = 24
    while at < len(data):
        seconds, fraction, size, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + fraction * scale, data[at + 16:at + 16 + size], ""
        at += 16 + size


def records_by_interface(path):
    """(nanoseconds, name of the interface, bytes, comment) of each packet of a pcapng file."""
    return pcapng_records(open(path, "rb").read())


def options(data, at, end):
    """(code, value) of each option of a block."""
    while at < end:
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def pcapng_records(data):
    at, interfaces = 0, []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 1:
            interfaces.append(dict(options(data, at + 16, at + size - 4)).get(2, b"").decode())
        if kind == 6:
            interface, high, low, captured, _ = struct.unpack_from("<IIIII", data, at + 8)
            said = dict(options(data, at + 28 + (captured + 3) // 4 * 4, at + size - 4))
            yield (high << 32 | low, interfaces[interface], data[at + 28:at + 28 + captured],
                   said.get(1, b"").decode())
        at += size


def icrc(l3, udp_offset):
    """Of the packet from its IP header up to the ICRC: mutable fields and eight bytes in front count as ones."""
    masked = bytearray(l3)
    if l3[0] >> 4 == 4:
        masked[1] = masked[8] = 0xFF
        masked[10:12] = b"\xff\xff"
    else:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    masked[udp_offset + 6:udp_offset + 8] = b"\xff\xff"
    masked[udp_offset + 8 + 4] = 0xFF
    return zlib.crc32(bytes(8 * [0xFF]) + bytes(masked))


def decode(time_ns, frame, comment=""):
    """A Packet, or None when the frame is not RoCEv2."""
    at, ether_type = 12, struct.unpack_from(">H", frame, 12)[0]
    while ether_type in (0x8100, 0x88A8):
        at += 4
        ether_type = struct.unpack_from(">H", frame, at)[0]
    l3 = at + 2
    if ether_type == 0x0800 and frame[l3 + 9] == 17:
        udp, end = (frame[l3] & 15) * 4, struct.unpack_from(">H", frame, l3 + 2)[0]
        addresses = frame[l3 + 12:l3 + 16], frame[l3 + 16:l3 + 20]
    elif ether_type == 0x86DD and frame[l3 + 6] == 17:
        udp, end = 40, 40 + struct.unpack_from(">H", frame, l3 + 4)[0]
        addresses = frame[l3 + 8:l3 + 24], frame[l3 + 24:l3 + 40]
    else:
        return None
    packet = frame[l3:l3 + end]
    if struct.unpack_from(">H", packet, udp + 2)[0] != UDP_PORT:
        return None
    bth = udp + 8
    opcode, flags = packet[bth], packet[bth + 1]
    words = struct.unpack_from(">II", packet, bth + 4)
    result = Packet(time_ns, frame, frame[6:12].hex(":"), *(str(ipaddress.ip_address(a)) for a in addresses), opcode,
                    words[0] & 0xFFFFFF, words[1] & 0xFFFFFF, bool(words[1] >> 31),
                    icrc(packet[:-4], udp) == struct.unpack("<I", packet[-4:])[0], b"", comment)
    rest = packet[bth + 12:-4]
    code = opcode & 0x1F
    if result.transport == 3:
        result.source_qpn = struct.unpack_from(">I", rest, 4)[0] & 0xFFFFFF
        rest = rest[8:]
    if result.kind in (WRITE, READ) and code in RETH:
        result.address, result.rkey, result.length = struct.unpack_from(">QII", rest)
        rest = rest[16:]
    if result.kind == ATOMIC:
        result.address, result.rkey, *operands = struct.unpack_from(">QIQQ", rest)
        result.operands, rest = tuple(operands), rest[28:]
    if result.transport == 0 and code in AETH:
        word = struct.unpack_from(">I", rest)[0]
        result.syndrome, result.msn, rest = word >> 24, word & 0xFFFFFF, rest[4:]
    if result.kind == ATOMIC_ACK:
        result.original, rest = struct.unpack_from(">Q", rest)[0], rest[8:]
    if result.kind in (SEND, WRITE) and code in IMMEDIATE:
        result.immediate, rest = struct.unpack_from(">I", rest)[0], rest[4:]
    result.payload = rest[:len(rest) - (flags >> 4 & 3)]
    return result


def packets(path):
    return [p for p in (decode(*record) for record in records(path)) if p]
