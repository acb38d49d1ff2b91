// An all-to-all on a torus of 4 x 4 x 4 nodes in SimGrid: the job of tests/examples/flit_hops.rs. Every node sends so many
// messages of eight flits (128 B) to every other one, all at once.
//
//     alltoall PLATFORM ROUNDS

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

constexpr int nodes = 64;
constexpr int flits = 8;
constexpr int flit_bytes = 16;

static sg4::Mailbox* mailbox(int node) { return sg4::Mailbox::by_name("node " + std::to_string(node)); }

static void sender(int self, int rounds)
{
    static int nothing = 0;
    std::vector<sg4::CommPtr> messages;
    for (int round = 0; round < rounds; round++)
        for (int ahead = 1; ahead < nodes; ahead++)
            messages.push_back(mailbox((self + ahead) % nodes)->put_async(&nothing, flits * flit_bytes));
    for (auto& message : messages)
        message->wait();
}

static void receiver(int self, int rounds)
{
    for (int message = 0; message < rounds * (nodes - 1); message++)
        mailbox(self)->get<int>();
}

int main(int argc, char** argv)
{
    sg4::Engine engine(&argc, argv);
    if (argc != 3) {
        std::cerr << "usage: alltoall PLATFORM ROUNDS\n";
        return 2;
    }
    engine.load_platform(argv[1]);
    const int rounds = std::atoi(argv[2]);
    const auto hosts = engine.get_all_hosts();
    if (hosts.size() != nodes || rounds < 1) {
        std::cerr << "expected " << nodes << " hosts and at least one round\n";
        return 2;
    }
    long hops = 0;
    for (int from = 0; from < nodes; from++)
        for (int to = 0; to < nodes; to++)
            for (int side = 1, axis = 0; axis < 3; side *= 4, axis++) {
                const int ahead = (to / side % 4 - from / side % 4 + 4) % 4;
                hops += ahead > 2 ? 4 - ahead : ahead;
            }
    for (int node = 0; node < nodes; node++) {
        auto* host = sg4::Host::by_name("node-" + std::to_string(node));
        sg4::Actor::create("sender", host, sender, node, rounds);
        sg4::Actor::create("receiver", host, receiver, node, rounds);
    }
    const auto begin = std::chrono::steady_clock::now();
    engine.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double flit_hops = double(hops) * flits * rounds;
    std::cout << "SimGrid: " << rounds << " rounds, " << flit_hops / 1e6 << " million flit-hops in " << took.count()
              << " s: " << flit_hops / 1e6 / took.count() << " million a second; simulated "
              << sg4::Engine::get_clock() * 1e6 << " us\n";
    return 0;
}
