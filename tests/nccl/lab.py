"""A real node and its ghosts on one machine: a network namespace with unmodified NCCL on the phantom GPU and the net
plugin, a veth, and nbxd on the other end. Needs root, for the namespaces."""
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import BIN, ROOT, Nbxd, run  # noqa: E402

FIRST_GHOST = "10.77.0.100"
NEIGHBOURS_MAX = 500  # Linux keeps 1,024 of all namespaces together (gc_thresh3): beyond, ghosts are behind a route
ROUTED = "10.78.0.0/15"
MTU = 1500
LINK_LIMIT_S = 10
LOCAL_ADDRESS = "10.77.1."  # and the rank, where several share a node
LABS = itertools.count()


class Lab(Nbxd):
    """One namespace per real node in `nodes`, behind a bridge when there are several. A node with several ranks has an
    address for each: RoCEv2 has one UDP port, so the plugin's processes cannot share one."""

    def __init__(self, folder, ghosts, nccl, profile="{}", nodes=(0,), ranks_per_node=1, seed=1, memory="128MiB"):
        self.nodes, self.prefix = nodes, f"nbx{os.getpid()}-{next(LABS)}-"
        self.ranks_per_node = ranks_per_node
        super().__init__(f"{self.prefix}emu", folder)
        self.capture = folder / "wire.pcapng"
        self.routed = ghosts > NEIGHBOURS_MAX
        self.first_ghost = "10.78.0.1" if self.routed else FIRST_GHOST
        router = f"  - {{name: router, port: p0, addresses: [{FIRST_GHOST}/16]}}" if self.routed else ""
        (folder / "profile.yaml").write_text(profile)
        settings = "\n".join(f"  {line}" for line in nccl.strip().splitlines())
        (folder / "cluster.yaml").write_text(f"""
cluster: nccl
seed: {seed}
ports:
  - name: p0
    device: "net_af_packet0,iface=emu0"
    mtu: {MTU}
    profile: ./profile.yaml
ghosts:
{router}
  - {{name: g, count: {ghosts}, port: p0, addresses: [{self.first_ghost}/{15 if self.routed else 16}]}}
nccl:
  ghosts: g
{settings}
memory: {{size: {memory}}}
control: {{socket: {self.socket}}}
report: {folder}/report.json
capture: {self.capture}
""")

    def node(self, rank=0):
        return f"{self.prefix}{rank}"

    @staticmethod
    def address(rank=0):
        return f"10.77.0.{rank + 1}"

    def __enter__(self):
        run("ip", "netns", "add", self.namespace)
        for rank in self.nodes:
            run("ip", "netns", "add", self.node(rank))
        try:
            self._wire()
            self.start()
            for rank in self.nodes:
                self._wait_for_link(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.stop()
        for name in [self.namespace] + [self.node(rank) for rank in self.nodes]:
            run("ip", "netns", "delete", name, check=False)

    def _wire(self):
        emu = ["ip", "-n", self.namespace]
        bridged = len(self.nodes) > 1
        if bridged:
            run(*emu, "link", "add", "emu0", "mtu", MTU, "type", "veth", "peer", "name", "br-emu")
            run(*emu, "link", "add", "br0", "mtu", MTU, "type", "bridge")
            run(*emu, "link", "set", "br-emu", "mtu", MTU, "master", "br0")
        for rank in self.nodes:
            outer = f"up{rank}" if bridged else "emu0"
            run(*emu, "link", "add", outer, "mtu", MTU, "type", "veth", "peer", "name", "eth0", "netns",
                self.node(rank))
            if bridged:
                run(*emu, "link", "set", outer, "master", "br0", "up")
            node = ["ip", "-n", self.node(rank)]
            run(*node, "link", "set", "lo", "up")
            run(*node, "link", "set", "eth0", "mtu", MTU)
            run(*node, "address", "add", f"{self.address(rank)}/16", "dev", "eth0")
            for local in range(self.ranks_per_node if self.ranks_per_node > 1 else 0):
                run(*node, "address", "add", f"{LOCAL_ADDRESS}{local}/16", "dev", "eth0")
            run(*node, "link", "set", "eth0", "up")
            if self.routed:
                run(*node, "route", "add", ROUTED, "via", FIRST_GHOST)
            run("ip", "netns", "exec", self.node(rank), "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso",
                "off")
        for name in ["emu0"] + (["br-emu", "br0"] if bridged else []):
            run(*emu, "link", "set", name, "up")

    def _wait_for_link(self, rank):
        """Until the kernel has seen that the veth of a node is connected: NCCL takes no interface before."""
        end = time.monotonic() + LINK_LIMIT_S
        while " state UP " not in run("ip", "-n", self.node(rank), "link", "show", "eth0").stdout:
            assert time.monotonic() < end, f"the link of node {rank} has not come up in {LINK_LIMIT_S} s"
            time.sleep(0.01)

    def kill_node(self, rank=0):
        for pid in run("ip", "netns", "pids", self.node(rank)).stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    def command(self, *program, node=0, options=(), **environment):
        """The command line of a program under `nbx run` on a real node."""
        variables = [f"{name}={value}" for name, value in
                     {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_SHM_DISABLE": 1, **environment}.items()]
        return ["ip", "netns", "exec", self.node(node), "env", *variables, BIN / "nbx", "run", "--announce",
                f"{self.first_ghost}:4790", "--net", "plugin", *options, "--", ROOT / "tests/nccl/phantom-run",
                *program]

    def begin(self, *program, **options):
        return subprocess.Popen([str(word) for word in self.command(*program, **options)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def call(self, *program, limit_s=120, check=True, **options):
        return run(*self.command(*program, **options), limit_s=limit_s, check=check)
