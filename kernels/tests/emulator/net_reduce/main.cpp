// The broadcast and the reductions between two hosts: the calls and the oracle of reduce/main.cpp.
#include "net.h"

static void on_network(symm::NetReduceParams q) {
  symm_net_reduce(q);
  network::ended();
}

struct NetReduceLaunches : NetLaunches<symm::net::sums::Sums, symm::NetReduceParams> {
  void add(void (*)(symm::ReduceParams), const symm::ReduceParams& params, unsigned blocks, Order order = Order::Together) {
    symm::NetReduceParams q;
    q.reduce = params;
    start(on_network, q, q.reduce.exchange, q.net, q.remote, blocks, order);
  }
};

#define REDUCE_LAUNCHES NetReduceLaunches
#include "../reduce/main.cpp"
