// Connects and disconnects through the CM, over and over: cmchurn ADDRESS PORT COUNT.
// Nothing is sent on the connections; prints how many came up and went down, exits 0 when all did.
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

static int once(struct rdma_addrinfo* where) {
  struct ibv_qp_init_attr attributes = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  struct rdma_cm_id* id;
  if (rdma_create_ep(&id, where, NULL, &attributes)) {
    perror("rdma_create_ep");
    return 1;
  }
  int failed = rdma_connect(id, &parameters) || rdma_disconnect(id);
  if (failed) perror("rdma_connect or rdma_disconnect");
  rdma_destroy_ep(id);
  return failed;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: cmchurn ADDRESS PORT COUNT\n");
    return 64;
  }
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *where;
  if (rdma_getaddrinfo(argv[1], argv[2], &hints, &where)) {
    perror("rdma_getaddrinfo");
    return 2;
  }
  const int count = atoi(argv[3]);
  int done = 0;
  while (done < count && once(where) == 0) done++;
  printf("%d of %d connections\n", done, count);
  return done != count;
}
