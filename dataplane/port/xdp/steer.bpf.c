// SPDX-License-Identifier: BSD-3-Clause
// Which frames of an interface the emulator takes; all others go on to the kernel as if it were not there.
// The kernel's types come first.
// clang-format off
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on

#include "keys.h"

#define MAC_CONTROL 0x8808  // IEEE 802.3 31.4.1.3: PAUSE and PFC
#define NEIGHBOUR_SOLICIT 135

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, 64);  // queues
  __type(key, __u32);
  __type(value, __u32);
} xsks_map SEC(".maps");  // the name that DPDK looks for

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nbx_xdp_mac);
} nbx_own_mac SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, NBX_XDP_GHOSTS_MAX);
  __type(key, struct nbx_xdp_address);
  __type(value, __u8);
} nbx_ghosts SEC(".maps");

struct vlan {
  __be16 tci, type;
};
struct arp {
  __u8 fixed[8], sender_mac[6], sender[4], target_mac[6], target[4];
};
struct ipv4 {
  __u8 before[16];
  __u8 destination[4];
};
struct ipv6 {
  __u8 before[6];
  __u8 next_header, hop_limit;
  __u8 source[16], destination[16];
};
struct solicit {
  __u8 type, code;
  __u8 rest[6];
  __u8 target[16];
};

/// There is no memcmp() in the kernel for programs.
static __always_inline int same_mac(const __u8 a[ETH_ALEN], const __u8 b[ETH_ALEN]) {
  int difference = 0;
  for (int i = 0; i < ETH_ALEN; ++i) {
    difference |= a[i] ^ b[i];
  }
  return difference == 0;
}

static __always_inline int is_ghosts(const struct nbx_xdp_address* address) {
  return bpf_map_lookup_elem(&nbx_ghosts, address) != 0;
}

static __always_inline int is_ghosts_v4(const __u8 v4[4]) {
  struct nbx_xdp_address mapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
  __builtin_memcpy(mapped.bytes + 12, v4, 4);
  return is_ghosts(&mapped);
}

/// Of a frame for the interface's own MAC or for everybody: whether a ghost is the one that it asks for.
static __always_inline int asks_for_ghost(__be16 type, const void* at, const void* end) {
  if (type == bpf_htons(ETH_P_ARP)) {
    const struct arp* arp = at;
    return (const void*)(arp + 1) <= end && is_ghosts_v4(arp->target);
  }
  if (type == bpf_htons(ETH_P_IP)) {
    const struct ipv4* ip = at;
    return (const void*)(ip + 1) <= end && is_ghosts_v4(ip->destination);
  }
  if (type == bpf_htons(ETH_P_IPV6)) {
    const struct ipv6* ip = at;
    const struct solicit* icmp = (const void*)(ip + 1);
    if ((const void*)(ip + 1) > end) {
      return 0;
    }
    struct nbx_xdp_address address;
    __builtin_memcpy(address.bytes, ip->destination, sizeof address.bytes);
    if (is_ghosts(&address)) {
      return 1;
    }
    if (ip->next_header != IPPROTO_ICMPV6 || (const void*)(icmp + 1) > end || icmp->type != NEIGHBOUR_SOLICIT) {
      return 0;
    }
    __builtin_memcpy(address.bytes, icmp->target, sizeof address.bytes);
    return is_ghosts(&address);
  }
  return 0;
}

static __always_inline int is_emulators(const void* at, const void* end) {
  const struct ethhdr* ethernet = at;
  const __u32 zero = 0;
  const struct nbx_xdp_mac* own = bpf_map_lookup_elem(&nbx_own_mac, &zero);
  if ((const void*)(ethernet + 1) > end || own == 0 || !own->set) {
    return 0;
  }
  // The kernel drops what is for another station: so whatever MAC a ghost has, nobody else misses its frames.
  if ((ethernet->h_dest[0] & 1) == 0 && !same_mac(ethernet->h_dest, own->bytes)) {
    return 1;
  }
  __be16 type = ethernet->h_proto;
  at = ethernet + 1;
  if (type == bpf_htons(ETH_P_8021Q)) {
    const struct vlan* vlan = at;
    if ((const void*)(vlan + 1) > end) {
      return 0;
    }
    type = vlan->type;
    at = vlan + 1;
  }
  return type == bpf_htons(MAC_CONTROL) || asks_for_ghost(type, at, end);
}

SEC("xdp")
int nbx_steer(struct xdp_md* frame) {
  if (!is_emulators((const void*)(long)frame->data, (const void*)(long)frame->data_end)) {
    return XDP_PASS;
  }
  return (int)bpf_redirect_map(&xsks_map, frame->rx_queue_index, XDP_PASS);
}

char dual_license[] SEC("license") = "Dual BSD/GPL";
