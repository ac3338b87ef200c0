// DCQCN's notification point for soft-RoCE, which has none: answers RoCEv2 packets that come with CE by CNPs.
//
//   np INTERFACE INTERVAL_US
//
// IPv4 only. A CNP (IBTA A17.9.3) goes to the queue pair that this machine last sent a request or an answer to at that
// address: enough for one connection per peer. At most one per peer and interval. Runs until it is ended; then prints
// how many packets were marked and how many CNPs were sent.
#include <arpa/inet.h>
#include <endian.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { roce_port = 4791, opcode_cnp = 0x81, bth_bytes = 12, cnp_payload = 16, icrc_bytes = 4, gsi_qpn = 1 };

struct frame {
  struct ether_header ethernet;
  struct iphdr ip;
  struct udphdr udp;
  uint8_t bth[bth_bytes];
  uint8_t rest[cnp_payload + icrc_bytes];
} __attribute__((packed));

struct peer {
  uint8_t qpn[3];  // where we send to
  int known;
  double next;
};

static struct peer peers[256];  // by the last octet of the address
static volatile sig_atomic_t over;

static void end(int signal) {
  (void)signal;
  over = 1;
}

static uint32_t crc32_of(uint32_t crc, const void* data, size_t length) {
  const uint8_t* bytes = data;
  for (size_t i = 0; i < length; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320U & -(crc & 1));
  }
  return crc;
}

// IBTA A17.3.3: over 8 bytes of ones, and IP, UDP and BTH with what changes on the way as ones.
static uint32_t icrc_of(struct frame f) {
  const uint64_t ones = ~0ULL;
  f.ip.tos = f.ip.ttl = 0xff;
  f.ip.check = 0xffff;
  f.udp.check = 0xffff;
  f.bth[4] = 0xff;
  uint32_t crc = crc32_of(~0U, &ones, sizeof ones);
  return ~crc32_of(crc, &f.ip, sizeof f - sizeof f.ethernet - icrc_bytes);
}

static uint16_t ip_checksum(struct iphdr ip) {
  uint16_t words[sizeof ip / 2];
  uint32_t sum = 0;
  memcpy(words, &ip, sizeof ip);
  for (size_t i = 0; i < sizeof ip / 2; i++) sum += words[i];
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct frame cnp_for(const struct frame* marked, const uint8_t* qpn) {
  struct frame f;
  memset(&f, 0, sizeof f);
  memcpy(f.ethernet.ether_dhost, marked->ethernet.ether_shost, ETH_ALEN);
  memcpy(f.ethernet.ether_shost, marked->ethernet.ether_dhost, ETH_ALEN);
  f.ethernet.ether_type = htons(ETHERTYPE_IP);
  f.ip.version = 4;
  f.ip.ihl = 5;
  f.ip.tos = 48 << 2;
  f.ip.tot_len = htons(sizeof f - sizeof f.ethernet);
  f.ip.frag_off = htons(IP_DF);
  f.ip.ttl = 64;
  f.ip.protocol = IPPROTO_UDP;
  f.ip.saddr = marked->ip.daddr;
  f.ip.daddr = marked->ip.saddr;
  f.ip.check = ip_checksum(f.ip);
  f.udp.source = htons(0xc000);
  f.udp.dest = htons(roce_port);
  f.udp.len = htons(sizeof f - sizeof f.ethernet - sizeof f.ip);
  f.bth[0] = opcode_cnp;
  f.bth[2] = f.bth[3] = 0xff;  // the default P_Key
  f.bth[4] = 0x40;             // BECN
  memcpy(f.bth + 5, qpn, 3);
  const uint32_t icrc = htole32(icrc_of(f));
  memcpy(f.rest + cnp_payload, &icrc, sizeof icrc);
  return f;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const double interval = atof(argv[2]) * 1e-6;
  const int sock = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));  // ETH_P_ALL: what leaves, too
  struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
  at.sll_ifindex = (int)if_nametoindex(argv[1]);
  if (sock < 0 || bind(sock, (struct sockaddr*)&at, sizeof at)) {
    perror("np");
    return 2;
  }
  signal(SIGTERM, end);
  const int room = 16 << 20;  // this machine is slow: nothing may be missed
  setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  const struct timeval patience = {.tv_usec = 100000};  // so that the end is seen
  setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  unsigned long marked = 0, sent = 0;
  while (!over) {
    struct frame f;
    struct sockaddr_ll from;
    socklen_t size = sizeof from;
    const ssize_t got = recvfrom(sock, &f, sizeof f, 0, (struct sockaddr*)&from, &size);
    const ssize_t least = (ssize_t)(offsetof(struct frame, bth) + bth_bytes);
    if (got < least || f.ethernet.ether_type != htons(ETHERTYPE_IP) || f.ip.ihl != 5 || f.ip.protocol != IPPROTO_UDP ||
        f.udp.dest != htons(roce_port)) {
      continue;
    }
    const int outgoing = from.sll_pkttype == PACKET_OUTGOING;
    struct peer* peer = &peers[ntohl(outgoing ? f.ip.daddr : f.ip.saddr) & 0xff];
    if (outgoing && f.bth[0] != opcode_cnp && (f.bth[5] || f.bth[6] || f.bth[7] != gsi_qpn)) {
      memcpy(peer->qpn, f.bth + 5, 3);
      peer->known = 1;
    } else if (!outgoing && (f.ip.tos & 3) == 3) {
      marked++;
      const double now = seconds();
      if (peer->known && now >= peer->next) {
        const struct frame cnp = cnp_for(&f, peer->qpn);
        sent += send(sock, &cnp, sizeof cnp, 0) == (ssize_t)sizeof cnp;
        peer->next = now + interval;
      }
    }
  }
  printf("marked %lu, sent %lu\n", marked, sent);
  return 0;
}
