// Whether what UCX got is there when its worker's flush ends. Two processes get from each other, flush, and compare every word.
//
//   cc -O1 -I UCX/include ucx_flush.c -L UCX/lib -l:libucp.so.0 -l:libucs.so.0 -o ucx_flush
//   ./ucx_flush TRANSPORTS [ROUNDS]          as in UCX_TLS: posix, or tcp,self
//
// The exit status is 1 if a word was not there, 2 if something else is wrong. UCX says of the flush that what was asked for before it is
// complete behind it, "both at the origin and at the target". Over shared memory (posix, sysv) it is not, with UCX 1.13 and 1.19 to 1.22:
// a get that waits for room in the peer's queue is not among what the flush waits for, and shared memory itself has nothing outstanding.
// It happens the more often, the shorter the queue is (UCX_POSIX_FIFO_SIZE). TCP counts what it has not sent. So made-up hosts meet over
// TCP (ucx_by_settings.c).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { GETS = 33, BYTES = 524272, ALL = GETS * BYTES, WORDS = BYTES / 4 };

// What a process says of itself.
struct place {
  size_t address_bytes, key_bytes;
  uint64_t memory;
  char address[4096], key[1024];
};

static ucp_worker_h worker;

static void check(const char *call, ucs_status_t status) {
  if (status == UCS_OK) return;
  fprintf(stderr, "%s: %s\n", call, ucs_status_string(status));
  exit(2);
}

static unsigned word(int owner, size_t at) { return (unsigned)at * 0x9E3779B1u ^ (unsigned)owner << 20; }

static void done(void *request, ucs_status_t status, void *unused) {
  (void)unused;
  check("ucp_get_nbx", status);
  ucp_request_free(request);
}

static void flush(void) {
  ucp_request_param_t none = {0};
  void *request = ucp_worker_flush_nbx(worker, &none);
  if (UCS_PTR_IS_ERR(request)) check("ucp_worker_flush_nbx", UCS_PTR_STATUS(request));
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
  ucp_request_free(request);
}

static void all(ssize_t (*move)(int, void *, size_t), int fd, void *what, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t moved = move(fd, (char *)what + at, bytes - at);
    if (moved <= 0) exit(2);
    at += moved;
  }
}

// One process: it exits with 1 if a word was not there.
static void run(int me, int fd, const char *transports, int rounds) {
  ucp_config_t *config;
  check("ucp_config_read", ucp_config_read(NULL, NULL, &config));
  check("ucp_config_modify", ucp_config_modify(config, "TLS", transports));
  ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
  ucp_context_h context;
  check("ucp_init", ucp_init(&wanted, config, &context));
  ucp_worker_params_t threads = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
  check("ucp_worker_create", ucp_worker_create(context, &threads, &worker));

  unsigned *mine = malloc(ALL), *got = malloc(ALL);
  for (size_t at = 0; at < ALL / 4; at++) mine[at] = word(me, at);
  ucp_mem_map_params_t region = {
      .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH, .address = mine, .length = ALL};
  ucp_mem_h memory;
  check("ucp_mem_map", ucp_mem_map(context, &region, &memory));
  struct place here = {.memory = (uint64_t)mine}, there;
  void *key;
  ucp_address_t *address;
  check("ucp_rkey_pack", ucp_rkey_pack(context, memory, &key, &here.key_bytes));
  check("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &here.address_bytes));
  if (here.key_bytes > sizeof here.key || here.address_bytes > sizeof here.address) exit(2);
  memcpy(here.key, key, here.key_bytes), memcpy(here.address, address, here.address_bytes);
  all((ssize_t(*)(int, void *, size_t))write, fd, &here, sizeof here);
  all(read, fd, &there, sizeof there);
  ucp_ep_params_t peer = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)there.address};
  ucp_ep_h endpoint;
  ucp_rkey_h access;
  check("ucp_ep_create", ucp_ep_create(worker, &peer, &endpoint));
  check("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(endpoint, there.key, &access));

  long missing = 0;
  ucp_request_param_t call = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = done};
  for (int round = 0; round < rounds; round++) {
    memset(got, 0xAB, ALL);
    // Some, then a flush, as blocks of a kernel ask for them.
    for (int first = 0, next; first < GETS; first = next) {
      next = first + 1 + rand() % (GETS - first);
      for (int k = first; k < next; k++) {
        void *request = ucp_get_nbx(endpoint, (char *)got + (size_t)k * BYTES, BYTES, there.memory + (uint64_t)k * BYTES, access, &call);
        if (UCS_PTR_IS_ERR(request)) check("ucp_get_nbx", UCS_PTR_STATUS(request));
      }
      for (int k = rand() % 50; k > 0; k--) ucp_worker_progress(worker);
      flush();
      for (int k = first; k < next; k++) {
        size_t at = (size_t)k * WORDS, end = at + WORDS;
        while (at < end && got[at] == word(!me, at)) at++;
        missing += at < end;
      }
    }
  }
  printf("process %d, UCX %s, %s: %ld of %ld gets were not there after the flush\n", me, ucp_get_version_string(), transports, missing,
         (long)rounds * GETS);
  fflush(stdout);
  // Serves the other one until it has ended, too, and has what was under way.
  char end = 1;
  if (write(fd, &end, 1) != 1) exit(2);
  for (ssize_t got_end; (got_end = recv(fd, &end, 1, MSG_DONTWAIT)) != 1; ucp_worker_progress(worker))
    if (got_end == 0) exit(2);
  for (int k = 0; k < 100000; k++) ucp_worker_progress(worker);
  _exit(missing != 0);
}

// A process of this program, and what ends it with its parent: without a peer it would flush for ever.
static pid_t start(int me, int fd, int other, const char *transports, int rounds) {
  pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(2);
  close(other);
  run(me, fd, transports, rounds);
  _exit(2);
}

int main(int argc, char **argv) {
  int ends[2], status = 0, rounds = argc > 2 ? atoi(argv[2]) : 60;
  if (argc < 2 || rounds < 1) return fprintf(stderr, "usage: ucx_flush TRANSPORTS [ROUNDS]\n"), 2;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return perror("socketpair"), 2;
  pid_t pids[2];
  for (int me = 0; me < 2; me++) pids[me] = start(me, ends[me], ends[!me], argv[1], rounds);
  close(ends[0]), close(ends[1]);
  if (pids[0] < 0 || pids[1] < 0) return perror("fork"), 2;
  for (int k = 0, one; k < 2; k++) {
    pid_t pid = wait(&one);
    if (pid < 0) return perror("wait"), 2;
    if (WIFEXITED(one) && WEXITSTATUS(one) < 2) {
      if (status == 0) status = WEXITSTATUS(one);
      continue;
    }
    // The other one cannot end without it.
    if (k == 0) kill(pids[pid == pids[0]], SIGKILL);
    status = 2;
  }
  return status;
}
