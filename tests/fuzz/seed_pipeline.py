#!/usr/bin/env python3
"""Makes an input of fuzz_pipeline from a capture: what the client of tests/captures said, with its pauses.

    seed_pipeline.py CAPTURE.pcap SEED [FRAMES]
"""
import struct
import sys
from pathlib import Path

CLIENT_MAC = bytes.fromhex("525400000002")
PAUSE_UNIT_NS = 20_000


def frames(capture):
    data = Path(capture).read_bytes()
    scale = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}[struct.unpack_from("<I", data)[0]]
    offset = 24
    while offset < len(data):
        seconds, fraction, size, _ = struct.unpack_from("<IIII", data, offset)
        yield seconds * 10**9 + fraction * scale, data[offset + 16:offset + 16 + size]
        offset += 16 + size


def main(capture, seed, limit="80"):
    out, before = bytearray(), None
    mine = [(time, frame) for time, frame in frames(capture) if frame[6:12] == CLIENT_MAC and len(frame) < 5000]
    for time, frame in mine[:int(limit)]:
        pause = 0 if before is None else min((time - before) // PAUSE_UNIT_NS, 255)
        out += struct.pack(">BH", pause, len(frame)) + frame
        before = time
    Path(seed).write_bytes(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
