// Every reliable-connection operation once, on a connection made through the CM, with all data checked at both ends.
//
//   rcops -s ADDRESS [PORT] [BYTES]   responder: owns the memory, receives
//   rcops -c ADDRESS [PORT] [BYTES]   requester: SEND, SEND with immediate, WRITE, WRITE with immediate, READ, atomics
//
// ADDRESS is IPv4 or IPv6, PORT 7471 and BYTES 10000 unless told. The exchange: the responder's first SEND advertises
// its memory (address, rkey, length, big endian); each step's bytes follow pattern(i, step); 16-byte SENDs of either
// side say "go on". Prints a line per step and what was received; exits 0 only when everything was as expected.
#include <arpa/inet.h>
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { bulk_max = 1 << 20, control_offset = bulk_max + 256, memory_size = bulk_max + 4096, signal_bytes = 16 };
enum { ack_timeout_exponent = 16 };  // 4.096 us * 2^16 = 0.27 s: a loss costs little, a slow machine is no loss

struct advertisement {
  uint64_t address;
  uint32_t rkey;
  uint32_t length;
};

static char* memory;        // bulk data
static uint64_t* counters;  // behind it: what the atomics work on
static char* control;       // behind those: small messages
static struct ibv_mr* region;
static struct rdma_cm_id* id;
static int failures;

static void die(const char* what) {
  perror(what);
  exit(2);
}

static void report(bool right, const char* step, uint32_t bytes) {
  printf("%-10s %u bytes %s\n", step, bytes, right ? "ok" : "WRONG");
  failures += !right;
}

static char pattern(uint32_t i, int step) { return (char)(i * 7 + step + i / 251); }

static void fill(char* data, uint32_t length, int step) {
  for (uint32_t i = 0; i < length; i++) data[i] = pattern(i, step);
}

static bool matches(const char* data, uint32_t length, int step) {
  for (uint32_t i = 0; i < length; i++) {
    if (data[i] != pattern(i, step)) return false;
  }
  return true;
}

static struct ibv_wc checked(struct ibv_wc completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    printf("completion: %s (opcode %d)\n", ibv_wc_status_str(completion.status), completion.opcode);
    exit(3);
  }
  return completion;
}

static void post_receive(char* data, uint32_t length) {
  if (rdma_post_recv(id, NULL, data, length, region)) die("rdma_post_recv");
}

static struct ibv_wc received(void) {
  struct ibv_wc completion;
  if (rdma_get_recv_comp(id, &completion) < 0) die("rdma_get_recv_comp");
  return checked(completion);
}

static void complete(struct ibv_send_wr request, void* data, uint32_t length) {
  struct ibv_sge piece = {(uintptr_t)data, length, region->lkey};
  struct ibv_send_wr* bad;
  struct ibv_wc completion;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  if (ibv_post_send(id->qp, &request, &bad)) die("ibv_post_send");
  if (rdma_get_send_comp(id, &completion) < 0) die("rdma_get_send_comp");
  checked(completion);
}

static void send_bytes(void* data, uint32_t length) {
  complete((struct ibv_send_wr){.opcode = IBV_WR_SEND}, data, length);
}

static void send_signal(void) { send_bytes(control + 64, signal_bytes); }

static void rdma(enum ibv_wr_opcode opcode, uint32_t length, const struct advertisement* peer, uint32_t immediate) {
  complete((struct ibv_send_wr){.opcode = opcode,
                                .imm_data = htonl(immediate),
                                .wr.rdma = {.remote_addr = peer->address, .rkey = peer->rkey}},
           memory, length);
}

// The first counter of the peer is the target; what it held comes back into our second.
static void atomic(enum ibv_wr_opcode opcode, const struct advertisement* peer, uint64_t compare_add, uint64_t swap) {
  complete((struct ibv_send_wr){.opcode = opcode,
                                .wr.atomic = {.remote_addr = peer->address + bulk_max,
                                              .rkey = peer->rkey,
                                              .compare_add = compare_add,
                                              .swap = swap}},
           &counters[1], sizeof counters[1]);
}

static void respond(uint32_t length, struct rdma_conn_param* parameters) {
  counters[0] = 40;
  post_receive(memory, bulk_max / 2);
  post_receive(memory + bulk_max / 2, bulk_max / 2);
  for (int i = 0; i < 3; i++) post_receive(control, signal_bytes);
  if (rdma_accept(id, parameters)) die("rdma_accept");

  struct advertisement mine = {htobe64((uintptr_t)memory), htonl(region->rkey), htonl(bulk_max)};
  memcpy(control + 64, &mine, sizeof mine);
  send_bytes(control + 64, sizeof mine);

  struct ibv_wc got = received();
  report(got.byte_len == length && matches(memory, length, 1), "SEND", got.byte_len);
  got = received();
  report(got.byte_len == length && matches(memory + bulk_max / 2, length, 2) && (got.wc_flags & IBV_WC_WITH_IMM) &&
             ntohl(got.imm_data) == 0x11223344,
         "SEND_IMM", got.byte_len);
  send_signal();

  received();
  report(matches(memory, length, 3), "WRITE", length);
  send_signal();

  got = received();
  report(matches(memory, length, 4) && got.opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(got.imm_data) == 0x55667788,
         "WRITE_IMM", length);
  fill(memory, length, 5);
  send_signal();

  received();
  report(counters[0] == 107, "ATOMICS", sizeof counters[0]);
}

static void request(uint32_t length, struct rdma_conn_param* parameters) {
  post_receive(control, 64);
  for (uint32_t i = 0; i < 3; i++) post_receive(control + 128 + i * signal_bytes, signal_bytes);
  if (rdma_connect(id, parameters)) die("rdma_connect");

  received();
  struct advertisement peer;
  memcpy(&peer, control, sizeof peer);
  peer.address = be64toh(peer.address);
  peer.rkey = ntohl(peer.rkey);

  fill(memory, length, 1);
  send_bytes(memory, length);
  report(true, "SEND", length);
  fill(memory, length, 2);
  complete((struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0x11223344)}, memory, length);
  report(true, "SEND_IMM", length);
  received();

  fill(memory, length, 3);
  rdma(IBV_WR_RDMA_WRITE, length, &peer, 0);
  send_signal();
  received();
  report(true, "WRITE", length);

  fill(memory, length, 4);
  rdma(IBV_WR_RDMA_WRITE_WITH_IMM, length, &peer, 0x55667788);
  received();
  report(true, "WRITE_IMM", length);

  memset(memory, 0, length);
  rdma(IBV_WR_RDMA_READ, length, &peer, 0);
  report(matches(memory, length, 5), "READ", length);

  atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &peer, 40, 100);
  report(counters[1] == 40, "CMP_SWAP", sizeof counters[1]);
  atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &peer, 7, 0);
  report(counters[1] == 100, "FETCH_ADD", sizeof counters[1]);
  send_signal();
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  uint32_t length = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 10000;
  if (argc < 3 || (strcmp(argv[1], "-s") && strcmp(argv[1], "-c")) || length == 0 || length > bulk_max / 2) {
    fprintf(stderr, "usage: rcops -s|-c ADDRESS [PORT] [BYTES <= %d]\n", bulk_max / 2);
    return 64;
  }
  bool responder = argv[1][1] == 's';
  struct rdma_addrinfo hints = {.ai_flags = responder ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP}, *where;
  if (rdma_getaddrinfo(argv[2], argc > 3 ? argv[3] : "7471", &hints, &where)) die("rdma_getaddrinfo");
  struct ibv_qp_init_attr attributes = {.cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct rdma_cm_id* endpoint;
  if (rdma_create_ep(&endpoint, where, NULL, &attributes)) die("rdma_create_ep");
  if (responder) {
    if (rdma_listen(endpoint, 1)) die("rdma_listen");
    if (rdma_get_request(endpoint, &id)) die("rdma_get_request");
  } else {
    id = endpoint;
  }
  uint8_t timeout = ack_timeout_exponent;
  if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout)) die("ack timeout");

  if (posix_memalign((void**)&memory, 4096, memory_size)) die("memory");
  memset(memory, 0, memory_size);
  counters = (uint64_t*)(memory + bulk_max);
  control = memory + control_offset;
  region =
      ibv_reg_mr(id->pd, memory, memory_size,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  if (!region) die("ibv_reg_mr");

  struct rdma_conn_param parameters = {
      .responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
  (responder ? respond : request)(length, &parameters);
  rdma_disconnect(id);
  printf("%s\n", failures ? "FAILED" : "PASSED");
  return failures != 0;
}
