// A broadcast from C++: handles close themselves, and errors are exceptions.
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fpga.h>

static void check(int status) {
    if (status != FPGA_OK) {
        throw std::runtime_error(fpga_error_text());
    }
}

struct Close {
    void operator()(fpga_cluster *cluster) const { fpga_cluster_close(cluster); }
    void operator()(fpga_collective *collective) const { fpga_collective_release(collective); }
};

int main(int argc, char **argv) try {
    fpga_cluster *opened = nullptr;
    check(fpga_cluster_open(argc > 1 ? argv[1] : "mock:optweb:4", &opened));
    std::unique_ptr<fpga_cluster, Close> cluster(opened);

    std::vector<std::uint8_t> data(65536, 42);
    fpga_request request = {};
    request.operation = "broadcast";
    request.bytes = data.size();
    request.root = 1;
    fpga_collective *planned = nullptr;
    check(fpga_collective_plan(cluster.get(), &request, sizeof request, &planned));
    std::unique_ptr<fpga_collective, Close> collective(planned);

    check(fpga_collective_write(collective.get(), request.root, 0, data.data(), data.size()));
    check(fpga_collective_launch(collective.get()));
    check(fpga_collective_wait(collective.get(), 10000000));

    std::uint32_t ranks = 0;
    check(fpga_cluster_cards(cluster.get(), &ranks));
    for (std::uint32_t rank = 0; rank < ranks; rank++) {
        std::vector<std::uint8_t> output(data.size());
        check(fpga_collective_read(collective.get(), rank, 0, output.data(), output.size()));
        if (output != data) {
            throw std::runtime_error("rank " + std::to_string(rank) + ": wrong data");
        }
    }
    std::cout << "broadcast of " << data.size() << " bytes to " << ranks << " cards\n";
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
