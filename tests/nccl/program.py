#!/usr/bin/python3
"""A small NCCL program that looks its functions up at run time, as frameworks with bindings of their own do.

    program.py RANKS RANK ID-FILE STEP...

Every step is an operation on float32 buffers; what it leaves in the receive buffer is printed. Rank 0 makes the id,
unless KEEP_ID says that it is there.
"""
import ctypes
import os
import random
import sys
import time

from by_ctypes import AVG, FLOAT32, SUM, Failed, cuda, join, nccl, ok

ELEMENTS = 1 << 16


class Program:
    def __init__(self, ranks, rank, id_file):
        self.ranks, self.rank = ranks, rank
        self.stream = ctypes.c_void_p()
        ok(cuda.cudaStreamCreate(ctypes.byref(self.stream)))
        self.send, self.receive = ctypes.c_void_p(), ctypes.c_void_p()
        for buffer in (self.send, self.receive):
            ok(cuda.cudaMalloc(ctypes.byref(buffer), ctypes.c_size_t(4 * ELEMENTS)))
        self.comm = join(id_file, ranks, rank, rank == 0 and "KEEP_ID" not in os.environ)
        self.world = self.comm

    def say(self, *words):
        print(*words, flush=True)

    def fill(self, value):
        data = (ctypes.c_float * ELEMENTS)(*[value] * ELEMENTS)
        ok(cuda.cudaMemcpy(self.send, data, ctypes.c_size_t(4 * ELEMENTS), 1))

    def show(self, name):
        back = (ctypes.c_float * ELEMENTS)()
        ok(cuda.cudaStreamSynchronize(self.stream))
        ok(cuda.cudaMemcpy(back, self.receive, ctypes.c_size_t(4 * ELEMENTS), 2))
        self.say(name, back[0])

    def all_reduce(self, op, count=1000):
        ok(nccl.ncclAllReduce(self.send, self.receive, ctypes.c_size_t(count), FLOAT32, op, self.comm, self.stream))

    # Steps.

    def sum(self):
        self.fill(self.rank + 1)
        self.all_reduce(SUM)
        self.show("sum")

    def avg(self):
        self.fill(self.rank + 1)
        self.all_reduce(AVG)
        self.show("avg")

    def zeros(self):
        """What a ghost contributes."""
        self.fill(0)
        self.all_reduce(SUM)
        self.show("zeros")

    def group(self):
        """A small and a large one: NCCL runs them in an order of its own."""
        ok(nccl.ncclGroupStart())
        self.all_reduce(SUM, 100)
        self.all_reduce(SUM, 60000)
        ok(nccl.ncclGroupEnd())
        self.show("group")

    def alltoall(self):
        ok(nccl.ncclAlltoAll(self.send, self.receive, ctypes.c_size_t(10), FLOAT32, self.comm, self.stream))
        self.show("alltoall")

    def allgather(self):
        ok(nccl.ncclAllGather(self.send, self.receive, ctypes.c_size_t(10), FLOAT32, self.comm, self.stream))
        self.show("allgather")

    def split(self):
        """From here on in the communicator of the even or odd ranks."""
        child = ctypes.c_void_p()
        ok(nccl.ncclCommSplit(self.comm, self.rank % 2, -self.rank, ctypes.byref(child), None))
        self.comm = child

    def shrink(self):
        """From here on without the last rank, which takes no part."""
        child = ctypes.c_void_p()
        if self.rank == self.ranks - 1:
            return
        excluded = (ctypes.c_int * 1)(self.ranks - 1)
        ok(nccl.ncclCommShrink(self.comm, excluded, 1, ctypes.byref(child), None, 0))
        self.comm = child

    def size(self):
        count, rank = ctypes.c_int(), ctypes.c_int()
        ok(nccl.ncclCommCount(self.comm, ctypes.byref(count)))
        ok(nccl.ncclCommUserRank(self.comm, ctypes.byref(rank)))
        self.say("size", count.value, rank.value)

    def train(self):
        """200 steps of gradient descent on a line through noisy points; the gradient is summed over the ranks."""
        noise = random.Random(1)
        points = [(x / 50, 3 * x / 50 - 1 + noise.gauss(0, 0.1)) for x in range(100)]
        slope = offset = loss = 0.0
        for _ in range(200):
            errors = [slope * x + offset - y for x, y in points]
            loss = sum(error * error for error in errors) / len(points)
            own = [sum(error * x for error, (x, _) in zip(errors, points)), sum(errors)]
            ok(cuda.cudaMemcpy(self.send, (ctypes.c_float * 2)(*own), ctypes.c_size_t(8), 1))
            self.all_reduce(SUM, 2)
            ok(cuda.cudaStreamSynchronize(self.stream))
            gradient = (ctypes.c_float * 2)()
            ok(cuda.cudaMemcpy(gradient, self.receive, ctypes.c_size_t(8), 2))
            slope -= 0.005 * gradient[0]
            offset -= 0.005 * gradient[1]
        self.say("trained", loss, slope, offset)

    def sleep(self):
        time.sleep(60)

    def destroy(self):
        if self.comm is not self.world:
            ok(nccl.ncclCommDestroy(self.comm))
        ok(nccl.ncclCommDestroy(self.world))


def main():
    try:
        program = Program(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
        for step in sys.argv[4:]:
            getattr(program, step)()
    except Failed as failure:
        print("failed:", failure, flush=True)
        sys.stdout.flush()
        os._exit(9)  # NCCL's threads may still wait for what will not come


main()
