// Runs a trace on SimGrid's torus: `torus FILE`. Each node sends its messages one after another, as the routers of Novo-G# do.
#include <simgrid/s4u.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {
constexpr double kClockHertz     = 142e6;
constexpr double kFlitBytes      = 16;
constexpr double kLatencySeconds = 175.7e-9;

struct Message {
    uint32_t to;
    double bytes;
};

std::vector<sg4::Host*> hosts;

std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>
add_host(sg4::NetZone* zone, const std::vector<unsigned long>&, unsigned long id)
{
    auto* host = zone->create_host("node-" + std::to_string(id), 1e9)->seal();
    if (hosts.size() <= id)
        hosts.resize(id + 1);
    hosts[id] = host;
    return {host->get_netpoint(), nullptr};
}

void send(const std::vector<Message>& messages)
{
    for (const auto& message : messages)
        sg4::Comm::sendto(sg4::this_actor::get_host(), hosts[message.to], static_cast<uint64_t>(message.bytes));
}
} // namespace

int main(int argc, char* argv[])
{
    sg4::Engine engine(&argc, argv);
    if (argc != 2) {
        std::cerr << "usage: torus FILE\n";
        return 2;
    }
    // The data takes what the link gives: no factors of TCP, no acknowledgements on the way back.
    sg4::Engine::set_config("network/model:CM02");
    sg4::Engine::set_config("network/latency-factor:1");
    sg4::Engine::set_config("network/bandwidth-factor:1");
    sg4::Engine::set_config("network/crosstraffic:0");
    sg4::Engine::set_config("contexts/stack-size:64");

    std::ifstream file(argv[1]);
    std::string word;
    unsigned long x = 0, y = 0, z = 0;
    char by = 0;
    if (!(file >> word >> x >> by >> y >> by >> z) || word != "torus") {
        std::cerr << "the first line has no torus\n";
        return 2;
    }
    auto* torus = sg4::create_torus_zone("torus", nullptr, {x, y, z}, sg4::ClusterCallbacks(add_host),
                                         kClockHertz * kFlitBytes, kLatencySeconds, sg4::Link::SharingPolicy::SPLITDUPLEX);
    torus->seal();

    std::vector<std::vector<Message>> messages(x * y * z);
    uint64_t cycle = 0, flits = 0, packets = 0;
    uint32_t from = 0, to = 0;
    while (file >> cycle >> from >> to >> flits) {
        messages.at(from).push_back({to, static_cast<double>(flits) * kFlitBytes});
        packets += 1;
    }
    for (size_t node = 0; node < messages.size(); node++)
        sg4::Actor::create("sender", hosts.at(node), send, messages[node]);
    engine.run();
    std::printf("SimGrid: %lu messages, %.1f us simulated\n", static_cast<unsigned long>(packets), sg4::Engine::get_clock() * 1e6);
    return 0;
}
