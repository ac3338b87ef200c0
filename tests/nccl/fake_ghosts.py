"""The other end of the announcements: takes down what the preload library says (nccl-glue/announce/protocol.hpp), and
answers as a test wants."""
import socket
import struct
import threading
import time
from collections import namedtuple

HELLO, COMM_INIT, COMM_READY, COMM_SPLIT, COMM_DESTROY, OPERATION, GROUP_END, DECISION, COMM_SHRINK = range(1, 10)
WELCOME, FAILURE = 64, 65
MAGIC = 0x4e425831
COLLECTIVES = {0: "broadcast", 1: "reduce", 2: "allgather", 3: "reducescatter", 4: "allreduce", 6: "send", 7: "recv"}

Hello = namedtuple("Hello", "magic nccl_version pid inflate buffsize ll_buffsize ll128_buffsize chunk p2p_min p2p_max")
CommRef = namedtuple("CommRef", "comm")
CommInit = namedtuple("CommInit", "comm ranks rank id")
CommSplit = namedtuple("CommSplit", "parent comm color key")
CommShrink = namedtuple("CommShrink", "parent comm parent_ranks flags excluded")
Operation = namedtuple("Operation", "comm sequence count root collective type op")
Decision = namedtuple("Decision", "comm sequence algorithm protocol channels")

FIXED = {HELLO: (Hello, "<IIiI6I"), COMM_INIT: (CommInit, "<Qii128s"), COMM_READY: (CommRef, "<Q"),
         COMM_SPLIT: (CommSplit, "<QQii"), COMM_DESTROY: (CommRef, "<Q"), OPERATION: (Operation, "<QQQiBBBx"),
         GROUP_END: (CommRef, "<Q"), DECISION: (Decision, "<QQBBB5x")}


def record(kind, body=b""):
    return struct.pack("<II", 4 + len(body), kind) + body


WELCOMED = record(WELCOME, struct.pack("<iI", 0, 0))


def read(kind, body):
    if kind == COMM_SHRINK:
        *fields, ranks, flags = struct.unpack_from("<QQII", body)
        bits = body[24:]
        return CommShrink(*fields, ranks, flags, [r for r in range(ranks) if bits[r // 8] >> r % 8 & 1])
    shape, layout = FIXED[kind]
    return shape(*struct.unpack(layout, body))


class Talk:
    """One process's connection."""

    def __init__(self, connection):
        self.connection = connection
        self.records = []
        self.times = {}  # kind -> when the first of it came
        self.ended = threading.Event()

    @property
    def hello(self):
        return self.records[0][1]

    @property
    def rank(self):
        return self.of(COMM_INIT)[0].rank

    def of(self, *kinds):
        return [body for kind, body in self.records if kind in kinds]


class FakeGhosts:
    """Listens on a port of its own. `answer(talk, kind, body)` is called for every record; None: welcome, no more."""

    def __init__(self, answer=None):
        self.talks = []
        self._answer = answer or (lambda talk, kind, _: talk.connection.sendall(WELCOMED) if kind == HELLO else None)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        for talk in self.talks:
            talk.connection.close()

    def wait(self, ranks=1, limit_s=10):
        """The conversations by rank, once their processes have ended."""
        deadline = time.monotonic() + limit_s
        for talk in self.talks:
            assert talk.ended.wait(max(0.0, deadline - time.monotonic())), "a process still talks"
        assert len(self.talks) == ranks
        return sorted(self.talks, key=lambda talk: talk.rank)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            talk = Talk(connection)
            self.talks.append(talk)
            threading.Thread(target=self._listen, args=(talk,), daemon=True).start()

    def _listen(self, talk):
        pending = b""
        try:
            while data := talk.connection.recv(65536):
                pending += data
                while len(pending) >= 4 and len(pending) >= 4 + (size := struct.unpack_from("<I", pending)[0]):
                    kind, = struct.unpack_from("<I", pending, 4)
                    body = read(kind, pending[8:4 + size])
                    pending = pending[4 + size:]
                    talk.times.setdefault(kind, time.monotonic())
                    talk.records.append((kind, body))
                    self._answer(talk, kind, body)
        except OSError:
            pass
        talk.ended.set()
