// The exchange between two hosts: the calls and the oracle of exchange/main.cpp.
#include "net.h"

static void on_network(symm::NetExchangeParams q) {
  symm_net_exchange(q);
  network::ended();
}

struct NetExchangeLaunches : NetLaunches<symm::net::collective::OfBlock, symm::NetExchangeParams> {
  void add(const symm::ExchangeParams& params, unsigned blocks) {
    symm::NetExchangeParams q;
    q.exchange = params;
    start(on_network, q, q.exchange, q.net, q.remote, blocks, Order::Together);
  }
};

#define EXCHANGE_LAUNCHES NetExchangeLaunches
#include "../exchange/main.cpp"
