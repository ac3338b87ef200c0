"""The Linux kernel as oracle: a ghost in the place of the server of a capture answers the client as the kernel did.

The client's side of each capture goes through `nbx replay`. Compared are the server's answers (opcode, PSN, syndrome, MSN,
payload) and its own requests (opcode, PSN, address, key, length, immediate, payload), each in order. Freedoms: how
requests and answers interleave, and numbers that an end chooses for itself (communication ids, transaction ids).
"""
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from conversation import CM_DREP, CM_DREQ, CM_REP, CM_REQ, REQUESTS, RESPONSES, Conversation, cm_attribute
from roce import ACK, RESPONSE, packets, records

TESTS = Path(__file__).resolve().parent.parent
NBX = Path(os.environ.get("NBX_BIN", TESTS.parent / "build/bin")) / "nbx"
CAPTURES = ["rxe-ops", "rxe-cm", "rxe-pingpong", "rxe-perftest"]
LOST_EVERY = 7  # RoCEv2 frames of rxe-loss that never arrived, see captures/README.md


def write_pcap(path, rows):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for time, frame in rows:
            file.write(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)) + frame)


def arrived(path):
    """The records of a capture without the frames that were lost behind the capture point."""
    roce = 0
    for time, frame, _ in records(path):
        is_roce = any(frame[at:at + 2] == b"\x12\xb7" for at in (36, 56))
        roce += is_roce
        if not (is_roce and roce % LOST_EVERY == 0):
            yield time, frame


class Replay:
    def __init__(self, folder, name, lossy=False):
        capture = TESTS / "captures" / f"{name}.pcap"
        self.conversation = Conversation(capture)
        cluster, source, self.output = folder / "cluster.yaml", folder / "in.pcap", folder / "out.pcapng"
        cluster.write_text(json.dumps(self.conversation.cluster()))
        write_pcap(source, arrived(capture) if lossy else ((t, f) for t, f, _ in records(capture)))
        done = subprocess.run([NBX, "replay", "--cluster", cluster, "--in", source, "--out", self.output, "--json"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.report = json.loads(done.stdout)
        self.ghost = packets(self.output)


@pytest.fixture(scope="module", params=CAPTURES)
def replay(request, tmp_path_factory):
    return Replay(tmp_path_factory.mktemp(request.param), request.param)


def answers(stream):
    """One row per answer. An ACK that a later one repeats at the same PSN says nothing new."""
    rows = [(p.opcode, p.psn, p.syndrome, p.msn, p.original, p.payload) for p in stream if p.kind in RESPONSES]
    return [row for i, row in enumerate(rows) if i == 0 or row != rows[i - 1]]


def requests(stream):
    return [(p.opcode, p.psn, p.address, p.rkey, p.length, p.immediate, p.payload) for p in stream if p.kind in REQUESTS]


def ghost_side(replay, pair):
    return [p for p in replay.ghost if p.source == pair.server_ip and p.dest_qpn == pair.client_qpn and p.dest_qpn != 1]


def readable(rows):
    return [tuple(f"{len(x)} bytes {x[:8].hex()}" if isinstance(x, bytes) else x for x in row) for row in rows]


def test_every_icrc_is_right(replay):
    assert replay.ghost and all(p.icrc_right for p in replay.ghost)


def test_answers_are_the_kernels(replay):
    for pair in replay.conversation.pairs:
        kernel = answers(replay.conversation.from_server(pair))
        assert readable(answers(ghost_side(replay, pair))) == readable(kernel), pair


def test_requests_are_the_kernels(replay):
    for pair in replay.conversation.pairs:
        kernel = requests(replay.conversation.from_server(pair))
        assert readable(requests(ghost_side(replay, pair))) == readable(kernel), pair


def test_nothing_is_dropped_but_what_is_not_for_the_port(replay):
    allowed = {"exception_path_missing", "not_for_us"}
    assert set(replay.report["drops"]) <= allowed, replay.report["drops"]


def test_connection_management_is_the_kernels(replay):
    server = replay.conversation.server_ips
    kernel = [p for p in replay.conversation.packets if p.source in server and cm_attribute(p)]
    ghost = [p for p in replay.ghost if cm_attribute(p)]
    assert [cm_attribute(p) for p in ghost] == [cm_attribute(p) for p in kernel]
    for mine, theirs in zip(ghost, kernel):
        assert mine.payload[8:16] == theirs.payload[8:16] or cm_attribute(mine) in (CM_REQ, CM_DREQ), "transaction id"
        if cm_attribute(mine) == CM_REP:
            # QPN, EE context, PSN, depths, delays and flags, private data; not the ids and the channel adapter's GUID
            for begin, end in ((28, 32), (36, 60), (68, 256)):
                assert mine.payload[begin:end].hex() == theirs.payload[begin:end].hex(), f"REP bytes {begin} to {end}"
        if cm_attribute(mine) == CM_DREP:
            assert mine.payload[28:32] == theirs.payload[28:32], "the peer's communication id"


def test_under_loss_all_data_arrives_once(tmp_path):
    """rxe-loss: the client's frames as they arrived, gaps included. What the ghost takes in is what the kernel took in."""
    lossless = Replay(tmp_path, "rxe-ops")
    folder = tmp_path / "loss"
    folder.mkdir()
    lossy = Replay(folder, "rxe-loss", lossy=True)
    delivered = lambda replay: [(d["opcode"], d["length"], d.get("imm_data")) for d in replay.report["deliveries"]]
    kernel_naks = [(p.psn, p.syndrome) for pair in lossy.conversation.pairs
                   for p in lossy.conversation.from_server(pair) if p.kind == ACK and p.syndrome == 0x60]
    ghost_naks = [(p.psn, p.syndrome) for pair in lossy.conversation.pairs
                  for p in ghost_side(lossy, pair) if p.kind == ACK and p.syndrome == 0x60]
    assert kernel_naks and ghost_naks == kernel_naks
    assert delivered(lossy) == delivered(lossless)
    assert all(p.icrc_right for p in lossy.ghost)


def test_replay_is_reproducible_to_the_byte(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    assert Replay(first, "rxe-ops").output.read_bytes() == Replay(second, "rxe-ops").output.read_bytes()


@pytest.mark.parametrize("delay_ms", [5, 30])
def test_a_delay_is_exact_to_the_nanosecond(tmp_path, delay_ms):
    """Each answer of the ghost leaves `delay_ms` after the answer of a ghost under an ideal profile."""
    folders = [tmp_path / "ideal", tmp_path / "delayed"]
    times = []
    for folder, profile in zip(folders, ({}, {"to_node": {"delay": {"constant": f"{delay_ms}ms"}}})):
        folder.mkdir()
        replay = Replay(folder, "rxe-perftest")
        cluster = replay.conversation.cluster()
        cluster["ports"][0]["profile"] = {"name": "timed", **profile}
        (folder / "cluster.yaml").write_text(json.dumps(cluster))
        subprocess.run([NBX, "replay", "--cluster", folder / "cluster.yaml", "--in", folder / "in.pcap", "--out",
                        folder / "timed.pcapng"], check=True, timeout=60, capture_output=True)
        times.append([(p.opcode, p.psn, p.time_ns) for p in packets(folder / "timed.pcapng") if p.kind == RESPONSE])
    assert times[0] and [(o, n, t + delay_ms * 10**6) for o, n, t in times[0]] == times[1]
