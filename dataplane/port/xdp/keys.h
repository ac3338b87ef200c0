/* What the XDP program's maps hold: the one thing that it and nbxd share. */
#pragma once

#include <linux/types.h>

#define NBX_XDP_GHOSTS_MAX 131072

struct nbx_xdp_mac {
  __u8 bytes[6];
  __u8 set; /* until then all frames are the kernel's */
  __u8 pad;
};

/* IPv4 as in ::ffff:0:0/96 */
struct nbx_xdp_address {
  __u8 bytes[16];
};
