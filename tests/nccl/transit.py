"""Real ranks on ports of their own and one emulated network for all: what `nbx calibrate` compares. Every link is
emulated once, where its sender's frames enter: from_node of the sender's port; a ghost's link is to_node of the port
of the real rank that it sends to, and the ghosts' own hop between two of them.

    sudo /usr/bin/python3 tests/nccl/transit.py --ranks 4 --tolerance 1"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import BIN, FIRST_GHOST, ROOT, Lab, run

MTU = 8100       # of the veths: RoCE packets of 4096 bytes
RING = "framesz=8192,blocksz=65536,framecnt=1024"  # of AF_PACKET: a frame each
RATE, DELAY = "1Gb/s", "1ms"
QUEUE = "16MiB"  # of a link: all that NCCL has on its way at a time
IN_A_ROW = 2     # calls to a repeat: two real ranks are never quite in step, and each one's calls are short and long in turn
# The same choices in both runs.
NCCL = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_SHM_DISABLE": 1, "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple",
        "NCCL_MIN_NCHANNELS": 1, "NCCL_MAX_NCHANNELS": 1, "NCCL_IB_TIMEOUT": 19,
        "NBX_NET_WINDOW": 256}  # as a ghost's


class TransitLab(Lab):
    def __init__(self, folder, ranks, hop="", more="", rate=RATE, delay=DELAY):
        self.rate, self.delay = rate, delay
        hops = f"hop: {{latency: {delay}, rate: {rate}{', ' if hop else ''}{hop}}}"
        super().__init__(folder, ranks - 1, f"ranks: {ranks}\nreal: [0]\npatience: 20s\n{hops}\n{more}",
                         nodes=range(ranks), memory="512MiB")
        self.ranks = ranks
        cluster = folder / "cluster.yaml"
        text = cluster.read_text()
        ports = "".join(f"""
  - name: p{rank}
    device: "net_af_packet{rank},iface=emu{rank},{RING}"
    mtu: {MTU}
    profile:
      from_node: {{rate: {{limit: {rate}, queue: {QUEUE}}}, delay: {delay}}}
      to_node: {{rate: {{limit: {rate}, queue: {QUEUE}}}}}""" for rank in self.nodes)
        before, rest = text.split("ports:", 1)
        after = rest.split("ghosts:", 1)[1].replace(f"capture: {self.capture}\n", "")
        cluster.write_text(f"{before}ports:{ports}\nghosts:{after}")

    def _wire(self):
        for rank in self.nodes:
            node = ["ip", "-n", self.node(rank)]
            run("ip", "-n", self.namespace, "link", "add", f"emu{rank}", "mtu", MTU, "type", "veth", "peer", "name",
                "eth0", "netns", self.node(rank))
            run("ip", "-n", self.namespace, "link", "set", f"emu{rank}", "up")
            run(*node, "link", "set", "lo", "up")
            run(*node, "link", "set", "eth0", "mtu", MTU)
            run(*node, "address", "add", f"{self.address(rank)}/16", "dev", "eth0")
            run(*node, "link", "set", "eth0", "up")
            run("ip", "netns", "exec", self.node(rank), "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso",
                "off")

    def start(self):
        super().start()
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -15)

    def rank(self, *program, ghosts):
        """The command of one rank, for a shell."""
        variables = [f"{name}={value}" for name, value in {**NCCL, "NCCL_HOSTID": "host-{rank}"}.items()]
        as_rank = ["ip", "netns", "exec", f"{self.prefix}{{rank}}", "nice", "-n", "-10", "env", *variables]
        phantom = [ROOT / "tests/nccl/phantom-run"]
        if ghosts:
            phantom = [BIN / "nbx", "run", "--announce", f"{FIRST_GHOST}:4790", "--net", "plugin", "--", *phantom]
        else:
            phantom += ["NCCL_NET=NeuronaBox", f"NCCL_NET_PLUGIN={BIN}/libnccl-net-neuronabox.so"]
        return shlex.join(str(word) for word in (*as_rank, *phantom, *program))

    def calibrate(self, *options, program, limit_s=170):
        probe = [BIN / "nbx-probe", *program, f"--each={IN_A_ROW}", "--json", "--check", 0, "--ranks", self.ranks]
        real = self.rank(*probe, "--rank", "{rank}", "--id-file", f"{self.folder}/{{run}}", ghosts=False)
        # The network between ghosts is where it was; that from ghosts to the real rank is in to_node from now on.
        link = [BIN / "nbx", "set", "--control", self.socket, "p0",
                f"to_node.rate={{limit: {self.rate}, queue: {QUEUE}}}", f"to_node.delay={self.delay}"]
        ghosts = (shlex.join(str(word) for word in link) + " >&2 && exec " +
                  self.rank(*probe, "--real-ranks", 1, ghosts=True))
        return subprocess.run([str(word) for word in (BIN / "nbx", "calibrate", "--ranks", self.ranks, "--limit",
                                                      limit_s // 2, *options, "--real", real, "--ghosts", ghosts)],
                              stdout=subprocess.PIPE, text=True, timeout=limit_s, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tolerance", default="1")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--sizes", default="-b 64K -e 16M -f 16", help="as of nbx-probe")
    parser.add_argument("--rate", default=RATE, help="of each link")
    parser.add_argument("--delay", default=DELAY, help="of each link")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--hop", default="", help="a ghost's own work, as in 'per_message: 60us, reduce_rate: 20Gb/s'")
    parser.add_argument("--more", default="", help="another line of the cluster file's nccl section")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, TransitLab(Path(folder), args.ranks, args.hop, args.more, args.rate,
                                                              args.delay) as lab:
        done = lab.calibrate("--tolerance", args.tolerance,
                             program=["all_reduce", *args.sizes.split(), "-n",
                                      IN_A_ROW * args.repeats, "-w", args.warm_up], limit_s=args.limit)
        print(done.stdout, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
