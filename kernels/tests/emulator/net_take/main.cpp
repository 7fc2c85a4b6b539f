// The forms that take between two hosts: the calls and the oracle of take/main.cpp.
#include "net.h"

static void on_network(symm::NetTakeParams q) {
  symm_net_take(q);
  network::ended();
}

struct NetTakeLaunches : NetLaunches<symm::net::sums::Sums, symm::NetTakeParams> {
  void add(void (*kernel)(symm::TakeParams), const symm::TakeParams& params, unsigned blocks, Order order = Order::Together);
};

#define TAKE_LAUNCHES NetTakeLaunches
#include "../take/main.cpp"

void NetTakeLaunches::add(void (*kernel)(TakeParams), const TakeParams& params, unsigned blocks, Order order) {
  NetTakeParams q;
  q.take = params;
  q.adds = kernel != symm_take_copy;
  start(on_network, q, q.take.reduce.exchange, q.net, q.remote, blocks, order);
}
