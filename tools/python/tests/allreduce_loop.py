"""As allreduce_loop.rs of tools/collective, in Python: allreduce_loop.py COUNT [memory] prints the median in ns.

With "memory", the arrays are in memory of the cards.
"""

import sys
import time

import numpy

import fpga


def main() -> None:
    count = int(sys.argv[1])
    with fpga.open("mock:optweb:4") as cards:
        make = cards.zeros if "memory" in sys.argv else numpy.zeros
        rows = make((4, 256), numpy.float32)
        total = make((4, 256), numpy.float32)
        rows[...] = 1
        times = []
        for _ in range(count):
            began = time.perf_counter_ns()
            cards.allreduce(rows, "sum", out=total).wait()
            times.append(time.perf_counter_ns() - began)
        assert (total == 4).all()
    print(sorted(times)[count // 2])


main()
