"""A cluster whose ghosts send in a ring, for tests of deadlocks.

Of the dragonfly's three groups of two routers, router 0 of a group has the cable to router 1 of the next: a ring of
six. Every ghost writes to one two routers on, so each cable of the ring waits for the one behind it.
"""
DRAGONFLY = {"dragonfly": {"hosts_per_router": 2, "routers_per_group": 2, "global_links": 1}}
LEAF_SPINE = {"leaf_spine": {"leaves": 6, "spines": 2, "hosts_per_leaf": 2}}
# Host 4 g + 2 r + i is host i of router r of group g; host 0 is the real node.
FLOWS = [(2, 6), (3, 7), (1, 4), (1, 5), (6, 10), (7, 11), (4, 8), (5, 9), (10, 2), (11, 3), (8, 1), (9, 1)]
BYTES = 4 << 20
RING = ["router0.1", "router0.0", "router1.1", "router1.0", "router2.1", "router2.0"]


def address(host):
    return f"10.77.0.{host + 1}"


def mac(host):
    return f"02:00:00:00:00:{host:02x}"


def ghost(host):
    qps = []
    for number, (source, target) in enumerate(FLOWS, 0x100):
        if host not in (source, target):
            continue
        peer = target if host == source else source
        qp = {"qpn": number, "peer": {"address": address(peer), "mac": mac(peer), "qpn": number},
              "sq_psn": 0, "rq_psn": 0, "path_mtu": 1024, "access": "remote_write", "max_outstanding_packets": 1024,
              "timeout": 20}
        if host == source:
            qp["requests"] = [{"op": "rdma_write", "local": {"key": 1, "addr": 0, "length": f"{BYTES}B"},
                               "remote": {"addr": 0, "rkey": 1}}]
        qps.append(qp)
    return {"name": f"host{host}", "mac": mac(host), "addresses": [address(host) + "/24"], "dscp": 24, "qps": qps,
            "memory": [{"addr": 0, "length": f"{BYTES}B", "key": 1, "backing": "sink", "access": "remote_write"}]}


def cluster(topology, **more):
    return {"cluster": "ring", "ports": [{"name": "p0", "mtu": 1500}], "ghosts": [ghost(host) for host in range(1, 12)],
            "network": {"topology": topology, "host_rate": "100Gb/s", "fabric_rate": "100Gb/s", "propagation": "500ns",
                        "buffer": "4MiB", "priorities": [{"priority": 3, "lossless": True, "xoff": "20000B"}]}, **more}
