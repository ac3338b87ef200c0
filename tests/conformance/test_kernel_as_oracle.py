"""The Linux kernel as oracle: a ghost in the place of the server of a capture answers the client as the kernel did.

The client's side of each conversation goes through `nbx replay`. Compared are the server's answers (opcode, PSN, syndrome,
MSN, payload) and its own requests (opcode, PSN, address, key, length, immediate, payload), each in order. Freedoms: how
requests and answers interleave, what a timer sends again, and numbers that an end chooses for itself: the client's
messages to the ghost's CM are given the ghost's communication id.
"""
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from conversation import CM_DREP, CM_DREQ, CM_REP, CM_REQ, REQUESTS, RESPONSES, Conversation, cm_attribute
from roce import ACK, RESPONSE, decode, icrc, packets, records

TESTS = Path(__file__).resolve().parent.parent
NBX = Path(os.environ.get("NBX_BIN", TESTS.parent / "build/bin")).resolve() / "nbx"
LOST_EVERY = 7  # RoCEv2 frames of rxe-loss that never arrived, see captures/README.md
CONVERSATIONS = [("rxe-ops", 0), ("rxe-cm", 0), ("rxe-cm", 1), ("rxe-pingpong", None), ("rxe-perftest", None),
                 ("rxe-perftest", 0), ("rxe-perftest", 1)]
CUT = {"rxe-pingpong"}  # ends before the server's last answers
# The server's program filled this memory itself between the client's WRITE and READ of it.
FILLED_BY_THE_PROGRAM = {("rxe-ops", 0), ("rxe-loss", 0)}
HARMLESS = {"exception_path_missing",  # the TCP hand-shake: a replay has no kernel
            "not_for_us",              # neighbour discovery of others
            "response_stale", "duplicate_request",  # of what one of the two kernels sent again
            "mad_unexpected"}          # the answer to a DREQ that the server's program had sent
MAD_REMOTE_ID = 14 + 20 + 8 + 12 + 8 + 28


def write_pcap(path, rows):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for time, frame in rows:
            file.write(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)) + frame)


class Replay:
    def __init__(self, folder, name, which, lossy=False, profile=None):
        self.name, self.which = name, which
        capture = TESTS / "captures" / f"{name}.pcap"
        self.conversation = Conversation(capture, which)
        self.folder, self.lossy = folder, lossy
        cluster = self.conversation.cluster()
        if profile:
            cluster["ports"][0]["profile"] = {"name": "under test", **profile}
        (folder / "cluster.yaml").write_text(json.dumps(cluster))
        self.run({})
        self.run({id: reply for p in self.ghost if cm_attribute(p) == CM_REP
                  for reply in [struct.unpack_from(">I", p.payload, 24)[0]] for id in self.conversation.pairs[0].ids})

    def input(self, ids):
        """What arrived at the server, of this conversation, with the communication id of the ghost in the kernel's place."""
        roce = 0
        for time, frame, _ in records(self.conversation.path):
            packet = decode(time, frame)
            roce += packet is not None
            if packet and (not self.conversation.concerns(packet) or self.lossy and roce % LOST_EVERY == 0):
                continue
            if packet and cm_attribute(packet) not in (None, CM_REQ):
                remote = struct.unpack_from(">I", frame, MAD_REMOTE_ID)[0]
                changed = frame[:MAD_REMOTE_ID] + struct.pack(">I", ids.get(remote, remote)) + frame[MAD_REMOTE_ID + 4:-4]
                frame = changed + struct.pack("<I", icrc(changed[14:], 20))
            yield time, frame

    def run(self, ids):
        source, self.output = self.folder / "in.pcap", self.folder / "out.pcapng"
        write_pcap(source, self.input(ids))
        done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--in", "in.pcap", "--out", "out.pcapng", "--json"],
                              cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.report = json.loads(done.stdout)
        self.ghost = packets(self.output)

    def from_ghost(self, pair):
        return [p for p in self.ghost if p.source == pair.server_ip and p.dest_qpn == pair.client_qpn]


@pytest.fixture(scope="module", params=CONVERSATIONS, ids=lambda c: f"{c[0]}-{'tcp' if c[1] is None else c[1]}")
def replay(request, tmp_path_factory):
    return Replay(tmp_path_factory.mktemp(request.param[0]), *request.param)


def readable(row):
    return tuple(f"{len(x)} bytes {x[:8].hex()} {hash(x)}" if isinstance(x, bytes) else x for x in row)


def answers(stream, payload=True):
    """One row per answer. An ACK that a later one repeats at the same PSN says nothing new."""
    rows = [readable((p.opcode, p.psn, p.syndrome, p.msn, p.original, p.payload if payload else len(p.payload)))
            for p in stream if p.kind in RESPONSES]
    return [row for i, row in enumerate(rows) if i == 0 or row != rows[i - 1]]


def requests(stream):
    """One row per request packet, the first time that it was sent."""
    rows = {p.psn: readable((p.opcode, p.psn, p.address, p.rkey, p.length, p.immediate, p.payload))
            for p in reversed(stream) if p.kind in REQUESTS}
    return [rows[psn] for psn in dict.fromkeys(p.psn for p in stream if p.kind in REQUESTS)]


def test_every_icrc_is_right(replay):
    assert replay.ghost and all(p.icrc_right for p in replay.ghost)


def test_answers_are_the_kernels(replay):
    for pair in replay.conversation.pairs:
        payload = (replay.name, replay.which) not in FILLED_BY_THE_PROGRAM
        kernel = answers(replay.conversation.from_server(pair), payload)
        ghost = answers(replay.from_ghost(pair), payload)
        assert (ghost[:len(kernel)] if replay.name in CUT else ghost) == kernel, pair


def test_requests_are_the_kernels(replay):
    for pair in replay.conversation.pairs:
        assert requests(replay.from_ghost(pair)) == requests(replay.conversation.from_server(pair)), pair


def test_nothing_is_dropped_without_cause(replay):
    assert set(replay.report["drops"]) <= HARMLESS, replay.report["drops"]


def test_connection_management_is_the_kernels(replay):
    """A DREQ of the server was its program's decision; a static ghost never ends a connection."""
    def messages(stream):
        return [p for p in stream if cm_attribute(p) not in (None, CM_DREQ) and replay.conversation.concerns(p)]

    kernel = messages(p for p in replay.conversation.packets if p.source in replay.conversation.server_ips)
    ghost = [p for p in replay.ghost if cm_attribute(p)]
    assert [cm_attribute(p) for p in ghost] == [cm_attribute(p) for p in kernel]
    for mine, theirs in zip(ghost, kernel):
        assert mine.payload[8:16] == theirs.payload[8:16], "transaction id"
        assert mine.payload[28:32] == theirs.payload[28:32], "the peer's communication id"
        if cm_attribute(mine) == CM_REP:
            # QPN, PSN, depths, delays and counts, private data; not the channel adapter's GUID, and not whether the
            # server's program asked for end-to-end flow control (bit 0 of byte 50), which rxe does not do either
            mine, theirs = (bytes(p.payload[:50]) + bytes([p.payload[50] & 0xFE]) + p.payload[51:] for p in (mine, theirs))
            for begin, end in ((36, 52), (60, 256)):
                assert mine[begin:end].hex() == theirs[begin:end].hex(), f"REP bytes {begin} to {end}"


def test_under_loss_all_data_arrives_once(tmp_path):
    """rxe-loss: the client's frames as they arrived, gaps included. What the ghost takes in is what the kernel took in."""
    folders = [tmp_path / "lossless", tmp_path / "loss"]
    for folder in folders:
        folder.mkdir()
    lossless, lossy = Replay(folders[0], "rxe-ops", 0), Replay(folders[1], "rxe-loss", 0, lossy=True)

    def delivered(replay):
        return [(d["opcode"], d["length"], d.get("imm_data")) for d in replay.report["deliveries"]]

    def naks(stream):
        return [(p.psn, p.syndrome) for p in stream if p.kind == ACK and p.syndrome == 0x60]

    pair = lossy.conversation.pairs[0]
    kernel = naks(lossy.conversation.from_server(pair))
    assert kernel and naks(lossy.from_ghost(pair)) == kernel
    reads = {"rdma_read", "atomic_cmp_and_swp", "atomic_fetch_and_add"}  # asked for again when their answer was lost
    assert [d for d in delivered(lossy) if d[0] not in reads] == [d for d in delivered(lossless) if d[0] not in reads]
    assert {d for d in delivered(lossy) if d[0] in reads} == {d for d in delivered(lossless) if d[0] in reads}
    assert all(p.icrc_right for p in lossy.ghost)


def test_replay_is_reproducible_to_the_byte(tmp_path):
    outputs = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        outputs.append(Replay(folder, "rxe-ops", 0).output.read_bytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("delay_ms", [5, 30])
def test_a_delay_is_exact_to_the_nanosecond(tmp_path, delay_ms):
    """Each answer of the ghost leaves `delay_ms` after the answer of a ghost under an ideal profile."""
    times = []
    for profile in (None, {"to_node": {"delay": {"constant": f"{delay_ms}ms"}}}):
        folder = tmp_path / str(len(times))
        folder.mkdir()
        replay = Replay(folder, "rxe-perftest", None, profile=profile)
        times.append([(p.opcode, p.psn, p.time_ns) for p in replay.ghost if p.kind == RESPONSE])
    assert times[0] and [(opcode, psn, time + delay_ms * 10**6) for opcode, psn, time in times[0]] == times[1]


def test_a_lost_answer_is_given_again(tmp_path):
    """The ghost's first READ response packet is lost on its way out: the counters say so, and it was in no capture."""
    profile = {"to_node": {"loss": {"match": {"nth": [1], "class": ["data"]}, "probability": 1.0}}}
    clean_folder, lossy_folder = tmp_path / "clean", tmp_path / "lossy"
    for folder in (clean_folder, lossy_folder):
        folder.mkdir()
    clean, lossy = Replay(clean_folder, "rxe-perftest", None), Replay(lossy_folder, "rxe-perftest", None, profile=profile)
    data = [[p for p in replay.ghost if p.kind in REQUESTS | {RESPONSE}] for replay in (clean, lossy)]
    assert lossy.report["drops"]["loss"] == 1
    assert len(data[1]) == len(data[0]), "a lost frame is in the capture, with a comment"
    assert sum("dropped loss" in p.comment for p in data[1]) == 1
