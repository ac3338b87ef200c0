#!/usr/bin/python3
"""One rank of a job with tensor, data and pipeline parallel groups, as training frameworks make them.

    groups.py FOLDER RANK [split]

The world has 16 ranks: RANK = tp + 2 dp + 8 pp, with 2 tensor, 4 data and 2 pipeline parallel ranks. Ranks 8 and 9
are real and on one node; all others are ghosts, which send zeros and add nothing. Every group has a communicator of
its own, made of a unique id, or by ncclCommSplit. A wrong number ends the program.
"""
import ctypes
import os
import sys

from by_ctypes import FLOAT32, SUM, Failed, cuda, join, nccl, ok

TP, DP, PP = 2, 4, 2
WORLD = TP * DP * PP
REAL = (8, 9)


class Buffer:
    def __init__(self, values):
        self.count = len(values)
        self.pointer = ctypes.c_void_p()
        ok(cuda.cudaMalloc(ctypes.byref(self.pointer), ctypes.c_size_t(4 * self.count)))
        ok(cuda.cudaMemcpy(self.pointer, (ctypes.c_float * self.count)(*values), ctypes.c_size_t(4 * self.count), 1))

    def at(self, element):
        return ctypes.c_void_p(self.pointer.value + 4 * element)

    def expect(self, what, values):
        back = (ctypes.c_float * self.count)()
        ok(cuda.cudaMemcpy(back, self.pointer, ctypes.c_size_t(4 * self.count), 2))
        wrong = [(i, back[i], want) for i, want in enumerate(values) if back[i] != want]
        if len(values) != self.count or wrong:
            print(f"{what}: {len(wrong)} of {self.count} are wrong: element, is, should be {wrong[:3]}", flush=True)
            os._exit(8)
        print(what, "is right", flush=True)


def stream():
    made = ctypes.c_void_p()
    ok(cuda.cudaStreamCreateWithFlags(ctypes.byref(made), 1))
    return made


def size(count):
    return ctypes.c_size_t(count)


def grouped(*calls):
    ok(nccl.ncclGroupStart())
    for call in calls:
        call()
    ok(nccl.ncclGroupEnd())


class Group:
    """A communicator and which world ranks are in it."""

    def __init__(self, rank, members, comm):
        self.members, self.comm, self.rank = members, comm, members.index(rank)
        count, own = ctypes.c_int(), ctypes.c_int()
        ok(nccl.ncclCommCount(comm, ctypes.byref(count)))
        ok(nccl.ncclCommUserRank(comm, ctypes.byref(own)))
        assert (count.value, own.value) == (len(members), self.rank)
        self.real = [member for member in members if member in REAL]

    def all_reduce(self, send, receive, op, on):
        ok(nccl.ncclAllReduce(send.pointer, receive.pointer, size(send.count), FLOAT32, op, self.comm, on))

    def reduce_scatter(self, send, receive, on):
        ok(nccl.ncclReduceScatter(send.pointer, receive.pointer, size(receive.count), FLOAT32, SUM, self.comm, on))

    def all_gather(self, send, receive, on):
        ok(nccl.ncclAllGather(send.pointer, receive.pointer, size(send.count), FLOAT32, self.comm, on))

    def send(self, buffer, peer, on, first=0, count=None):
        ok(nccl.ncclSend(buffer.at(first), size(buffer.count if count is None else count), FLOAT32, peer, self.comm,
                         on))

    def recv(self, buffer, peer, on, first=0, count=None):
        ok(nccl.ncclRecv(buffer.at(first), size(buffer.count if count is None else count), FLOAT32, peer, self.comm,
                         on))


class Job:
    def __init__(self, folder, rank, split):
        self.folder, self.rank = folder, rank
        ok(cuda.cudaSetDevice(rank - REAL[0]))
        self.compute, self.side = stream(), stream()
        tp, dp, pp = rank % TP, rank // TP % DP, rank // (TP * DP)
        self.lists = {
            "world": list(range(WORLD)),
            "tensor": [rank - tp + t for t in range(TP)],
            "data": [rank + (d - dp) * TP for d in range(DP)],
            "pipeline": [rank + (p - pp) * TP * DP for p in range(PP)],
            "stage": [pp * TP * DP + r for r in range(TP * DP)],
        }
        self.groups = {}
        self.make("world")
        if split:
            self.split("stage", pp)
            self.split("pipeline", rank % (TP * DP))
        else:
            for name in ("tensor", "data", "pipeline", "stage"):
                self.make(name)

    def make(self, name):
        """The first real rank of a group makes its id."""
        members = self.lists[name]
        first = next(member for member in members if member in REAL)
        id_file = os.path.join(self.folder, f"{name}-{first}")
        comm = join(id_file, len(members), members.index(self.rank), self.rank == first)
        self.groups[name] = Group(self.rank, members, comm)

    def split(self, name, color):
        comm = ctypes.c_void_p()
        ok(nccl.ncclCommSplit(self.groups["world"].comm, color, self.rank, ctypes.byref(comm), None))
        self.groups[name] = Group(self.rank, self.lists[name], comm)

    def wait(self):
        for each in (self.compute, self.side):
            ok(cuda.cudaStreamSynchronize(each))

    def value(self, rank, i):
        return float((rank * 7 + i * 3) % 50 + 1)

    def own(self, count, rank=None):
        return [self.value(self.rank if rank is None else rank, i) for i in range(count)]

    def total(self, group, count):
        return [sum(self.value(rank, i) for rank in group.real) for i in range(count)]

    # What a training step is made of.

    def reduce_everywhere(self, *names):
        """A sum in every group, one after the other without waiting, on two streams in turn."""
        count, under_way = 5003, []
        for turn in range(2):
            for i, name in enumerate(names):
                send, receive = Buffer(self.own(count)), Buffer([0.0] * count)
                self.groups[name].all_reduce(send, receive, SUM, (self.compute, self.side)[(i + turn) % 2])
                under_way.append((name, receive))
        self.wait()
        for name, receive in under_way:
            receive.expect(f"sum over {name}", self.total(self.groups[name], count))

    def shards(self):
        """Gradients scattered and weights gathered over the data parallel group, while the pipeline moves on another
        stream: activations come from the stage before, gradients go back to it."""
        data, pipeline = self.groups["data"], self.groups["pipeline"]
        part = 1001
        gradients, shard = Buffer(self.own(part * DP)), Buffer([0.0] * part)
        weights, activations, back = Buffer([0.0] * part * DP), Buffer([9.0] * 70001), Buffer(self.own(70001))
        for _ in range(3):  # microbatches
            pipeline.recv(activations, 0, self.side)
            pipeline.send(back, 0, self.side)
        data.reduce_scatter(gradients, shard, self.compute)
        data.all_gather(shard, weights, self.compute)
        self.wait()
        mine = self.total(data, part * DP)[data.rank * part:(data.rank + 1) * part]
        shard.expect("scattered gradients", mine)
        weights.expect("gathered weights", [0.0] * part * data.rank + mine + [0.0] * part * (DP - 1 - data.rank))
        activations.expect("activations of a ghost", [0.0] * 70001)

    def exchange(self):
        """Experts: everybody sends everybody a part, and both pipeline directions in one group."""
        stage, pipeline = self.groups["stage"], self.groups["pipeline"]
        part, n = 3001, len(stage.members)
        send, receive = Buffer(self.own(part * n)), Buffer([9.0] * part * n)
        grouped(*[lambda p=p: stage.send(send, p, self.compute, p * part, part) for p in range(n)],
                *[lambda p=p: stage.recv(receive, p, self.compute, p * part, part) for p in range(n)])
        both = Buffer([9.0] * 100)
        grouped(lambda: pipeline.send(send, 0, self.side, 0, 100), lambda: pipeline.recv(both, 0, self.side))
        self.wait()
        want = []
        for member in stage.members:
            given = self.own(part * n, member) if member in REAL else [0.0] * part * n
            want += given[part * stage.rank:part * (stage.rank + 1)]
        receive.expect("all to all", want)
        both.expect("both ways", [0.0] * 100)

    def one_group(self, *names):
        """Collectives of several communicators in one group call."""
        count = 257
        buffers = [(name, Buffer(self.own(count)), Buffer([0.0] * count)) for name in names]
        grouped(*[lambda n=n, s=s, r=r: self.groups[n].all_reduce(s, r, SUM, self.compute) for n, s, r in buffers])
        self.wait()
        for name, _, receive in buffers:
            receive.expect(f"sum in one call over {name}", self.total(self.groups[name], count))

    def end(self):
        for name in reversed(list(self.groups)):
            ok(nccl.ncclCommDestroy(self.groups[name].comm))
        print("ended", flush=True)


def main():
    folder, rank, split = sys.argv[1], int(sys.argv[2]), "split" in sys.argv[3:]
    job = Job(folder, rank, split)
    if split:
        job.reduce_everywhere("world", "stage", "pipeline")
        job.exchange()
    else:
        job.reduce_everywhere("world", "tensor", "data", "pipeline", "stage")
        job.shards()
        job.exchange()
        job.one_group("data", "stage", "world")
    job.end()


try:
    main()
except Failed as failure:
    print(failure, flush=True)
    os._exit(9)  # NCCL's threads may still wait for what will not come
