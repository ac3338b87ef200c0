"""The symbols of libnccl-net-neuronabox.so called as NCCL calls them, without NCCL: both ends are in this process, on
two addresses of loopback. Layouts of the tables are restated here from NCCL's documented interface."""
import ctypes
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIBRARY = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")) / "libnccl-net-neuronabox.so"
LIMIT_S = 20
REMOTE_ERROR = 6
POINTER_HOST = 1
HANDLE_SIZE = 128
V8, V9, V10, V11 = 8, 9, 10, 11
COMMON = "name init devices properties listen connect accept regMr regMrDmaBuf deregMr isend irecv iflush test closeSend " \
         "closeRecv closeListen getDeviceMr irecvConsumed".split()
TABLES = {V8: COMMON, V9: [*COMMON, "makeVDevice"], V10: [*COMMON, "makeVDevice"],
          V11: [*COMMON, "makeVDevice", "finalize", "setNetAttr"]}
SPEED_AT = {V8: 32, V9: 36, V10: 36, V11: 36}
PROPERTIES_SIZE = {V8: 64, V9: 104, V10: 104, V11: 112}
P2P_BYTES_AT = 88
MESSAGES = itertools.count(1)

LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p,
                          ctypes.c_char_p)
warnings = []


@LOGGER
def logger(level, _flags, _file, _line, _form, text):
    if level == 2:
        warnings.append(text.decode())


class Failed(Exception):
    pass


class Plugin:
    def __init__(self, version):
        self.version = version
        table = ctypes.CDLL(str(LIBRARY))
        fields = TABLES[version]
        words = (ctypes.c_void_p * len(fields)).in_dll(table, f"ncclNetPlugin_v{version}")
        self.functions = {field: ctypes.CFUNCTYPE(ctypes.c_int)(word) for field, word in zip(fields, words) if word}
        self.name = ctypes.string_at(words[0]).decode()
        self.context = ctypes.c_void_p()
        extra = [None] if version >= V10 else []
        front = [ctypes.byref(self.context), ctypes.c_uint64(7), None] if version >= V11 else []
        self.call("init", *front, logger, *extra)

    def call(self, name, *arguments):
        result = self.functions[name](*arguments)
        if result != 0:
            raise Failed(result)

    def front(self):
        return [self.context] if self.version >= V11 else []

    def devices(self):
        count = ctypes.c_int()
        self.call("devices", ctypes.byref(count))
        return count.value

    def properties(self, device):
        image = ctypes.create_string_buffer(b"\xee" * 256, 256)
        self.call("properties", device, image)
        return image.raw

    def connected(self):
        """A sender on device 1 and a receiver on device 0."""
        handle, listener = ctypes.create_string_buffer(HANDLE_SIZE), ctypes.c_void_p()
        self.call("listen", *self.front(), 0, handle, ctypes.byref(listener))
        sender, receiver = ctypes.c_void_p(), ctypes.c_void_p()
        end = time.monotonic() + LIMIT_S
        while not (sender and receiver):
            assert time.monotonic() < end, warnings
            config = [None] if self.version == V10 else []
            if not sender:
                self.call("connect", *self.front(), 1, *config, handle, ctypes.byref(sender), None)
            if not receiver:
                self.call("accept", listener, ctypes.byref(receiver), None)
        self.call("closeListen", listener)
        return sender, receiver

    def register(self, comm, buffer):
        memory = ctypes.c_void_p()
        self.call("regMr", comm, buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), POINTER_HOST, ctypes.byref(memory))
        return memory

    def isend(self, comm, buffer, size, tag, memory):
        request = ctypes.c_void_p()
        extra = [None] if self.version >= V10 else []
        width = ctypes.c_int if self.version == V8 else ctypes.c_size_t
        self.call("isend", comm, buffer, width(size), tag, memory, *extra, ctypes.byref(request))
        return request

    def irecv(self, comm, buffers, tags, memories):
        n, request = len(buffers), ctypes.c_void_p()
        width = ctypes.c_int if self.version == V8 else ctypes.c_size_t
        extra = [None] if self.version >= V10 else []
        self.call("irecv", comm, n, (ctypes.c_void_p * n)(*(ctypes.addressof(b) for b in buffers)),
                  (width * n)(*(ctypes.sizeof(b) for b in buffers)), (ctypes.c_int * n)(*tags),
                  (ctypes.c_void_p * n)(*(m.value for m in memories)), *extra, ctypes.byref(request))
        return request

    def wait(self, request):
        done, sizes = ctypes.c_int(), (ctypes.c_int * 8)()
        end = time.monotonic() + LIMIT_S
        while not done.value:
            assert time.monotonic() < end, "not done"
            self.call("test", request, ctypes.byref(done), sizes)
            time.sleep(0.0005)
        return list(sizes)

    def is_done(self, request):
        done = ctypes.c_int()
        self.call("test", request, ctypes.byref(done), None)
        return bool(done.value)


def buffer(size, fill=None):
    made = ctypes.create_string_buffer(size)
    if fill is not None:
        seed = (next(MESSAGES) * 37 + fill) % 251
        made.raw = bytes((seed + i * 7 + i // 256) % 256 for i in range(size))
    return made


# Each table and release gets a process of its own: the plugin reads its environment once.

def in_process(function, version, **variables):
    code = f"import test_net_plugin as t; t.{function}(t.Plugin({version})); assert t.warnings == [], t.warnings"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, timeout=3 * LIMIT_S, text=True,
                          capture_output=True, check=False,
                          env={**os.environ, "NBX_NET_INTERFACE": "127.79.0.1,127.79.0.2", "NBX_NCCL_VERSION": "2.29.7",
                               **{name: str(value) for name, value in variables.items()}})
    assert done.returncode == 0, done.stderr


def exchange(plugin, size, offered=None, count=1):
    sender, receiver = plugin.connected()
    out, into = buffer(max(size, 1), fill=1), buffer(offered or max(size, 1))
    out_memory, into_memory = plugin.register(sender, out), plugin.register(receiver, into)
    for _ in range(count):
        receive = plugin.irecv(receiver, [into], [5], [into_memory])
        send = plugin.isend(sender, out, size, 5, out_memory)
        arrived = min(size, offered or size)
        assert plugin.wait(receive)[0] == arrived
        plugin.wait(send)
        assert into.raw[:arrived] == out.raw[:arrived]
    plugin.call("deregMr", sender, out_memory)
    plugin.call("deregMr", receiver, into_memory)
    plugin.call("closeSend", sender)
    plugin.call("closeRecv", receiver)


def use_table(plugin):
    assert plugin.name == "NeuronaBox"
    assert plugin.devices() == 2
    image = plugin.properties(0)
    assert image[PROPERTIES_SIZE[plugin.version]:] == b"\xee" * (256 - PROPERTIES_SIZE[plugin.version])
    assert int.from_bytes(image[24:28], "little") == POINTER_HOST
    speed_at = SPEED_AT[plugin.version]
    assert int.from_bytes(image[speed_at:speed_at + 4], "little") > 0
    if plugin.version > V8:
        assert 0 < int.from_bytes(image[P2P_BYTES_AT:P2P_BYTES_AT + 8], "little") <= 1 << 40
    exchange(plugin, 1_000_003)
    if plugin.version == V11:
        plugin.call("finalize", plugin.context)


def use_sizes(plugin):
    for size in (0, 1, 63, 4096, 4097, 131_072):
        exchange(plugin, size)
    exchange(plugin, 5000, offered=3000)     # cut to what the receiver offers
    exchange(plugin, 64, count=600)          # the FIFO of 256 slots goes round


def use_groups(plugin):
    """Sends meet the receives of their tag, in whatever order; the group is sent when it is complete."""
    sender, receiver = plugin.connected()
    into, out = [buffer(9000) for _ in range(3)], [buffer(9000, fill=i) for i in range(3)]
    into_memories = [plugin.register(receiver, b) for b in into]
    out_memories = [plugin.register(sender, b) for b in out]
    receive = plugin.irecv(receiver, into, [10, 11, 12], into_memories)
    sizes = [9000, 300, 5000]
    sends = [plugin.isend(sender, out[i], sizes[i], 10 + i, out_memories[i]) for i in (2, 0)]
    time.sleep(0.1)
    assert not any(plugin.is_done(send) for send in sends)
    sends.append(plugin.isend(sender, out[1], sizes[1], 11, out_memories[1]))
    assert plugin.wait(receive)[:3] == sizes
    for send in sends:
        plugin.wait(send)
    for i in range(3):
        assert into[i].raw[:sizes[i]] == out[i].raw[:sizes[i]], i


def use_closed_peer(plugin, seen_before_s=0):
    """A receive fails whether the peer's end comes behind it or, if there is time to see it, before."""
    sender, receiver = plugin.connected()
    into = buffer(100)
    memory = [plugin.register(receiver, into)]
    receive = None if seen_before_s else plugin.irecv(receiver, [into], [1], memory)
    plugin.call("closeSend", sender)
    time.sleep(seen_before_s)
    try:
        plugin.wait(receive or plugin.irecv(receiver, [into], [1], memory))
    except Failed as failure:
        assert failure.args == (REMOTE_ERROR,)
    else:
        raise AssertionError("a receive from nobody is done")
    assert any("has closed the connection with requests outstanding" in text for text in warnings), warnings
    warnings.clear()


def use_peer_that_had_closed(plugin):
    use_closed_peer(plugin, seen_before_s=0.3)


@pytest.mark.parametrize("table", TABLES)
def test_tables(table):
    in_process("use_table", table)


@pytest.mark.parametrize("release", ["2.22.3", "2.27.7", "2.28.9", "2.29.7"])
def test_releases(release):
    in_process("use_sizes", V9, NBX_NCCL_VERSION=release)


@pytest.mark.parametrize("release", ["2.28.9", "2.29.7"])
@pytest.mark.parametrize("queue_pairs, split", [(1, 0), (4, 0), (4, 1)])
def test_grouped_receives(release, queue_pairs, split):
    in_process("use_groups", V10, NBX_NCCL_VERSION=release, NCCL_IB_QPS_PER_CONNECTION=queue_pairs,
               NCCL_IB_SPLIT_DATA_ON_QPS=split)


def test_peer_that_had_closed():
    in_process("use_peer_that_had_closed", V11)


def test_closed_peer():
    in_process("use_closed_peer", V11)
