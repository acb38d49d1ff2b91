"""Sweeps an allreduce over sizes, checks every result, and plots latencies by the cards' clock and the host's.

    python sweep.py --cards mock:optweb:4 --output sweep.svg
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy

import fpga

REPETITIONS = 20


@dataclass
class Row:
    """One size."""

    bytes: int
    algorithm: str
    predicted_us: float
    cards_us: float
    host_us: float


def measure(cards: fpga.Cards, size: int) -> Row:
    """Runs an allreduce of `size` bytes of each rank, in memory that the cards read and write themselves."""
    rows = cards.zeros((len(cards), size // 4), numpy.float32)
    total = cards.zeros(rows.shape, numpy.float32)
    rows[:] = numpy.arange(len(cards))[:, None]
    plan = cards.plan("allreduce", size, reduction="sum", element="f32")
    on_cards, on_host = [], []
    for _ in range(REPETITIONS):
        total.fill(0)
        began = time.perf_counter()
        operation = plan.launch(rows, out=total)
        operation.wait()
        on_host.append((time.perf_counter() - began) * 1e6)
        assert operation.times is not None
        on_cards.append(operation.times.t2_us)
        if not (total == sum(range(len(cards)))).all():
            raise SystemExit(f"{size} bytes: the result is wrong")
    plan.release()
    return Row(size, plan.algorithm, plan.predicted_us, statistics.median(on_cards), statistics.median(on_host))


def plot(rows: list[Row], title: str, output: str) -> None:
    """Draws the latencies over the sizes."""
    sizes = [row.bytes for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.loglog(sizes, [row.host_us for row in rows], "s-", label="host, with both copies")
    axes.loglog(sizes, [row.cards_us for row in rows], "o-", label="cards (T2, with the wait for each other)")
    axes.loglog(sizes, [row.predicted_us for row in rows], "--", color="0.4", label="predicted arrival")
    axes.set(xlabel="bytes of each rank", ylabel="microseconds", title=title)
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(output)


def main() -> None:
    """Parses options, measures and plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", default="mock:optweb:4", help="the selector (default: %(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=64, help="smallest size, bytes (default: %(default)s)")
    parser.add_argument("--to", dest="last", type=int, default=1 << 20, help="largest size, bytes (default: %(default)s)")
    parser.add_argument("--output", default="sweep.svg", help="the figure: .svg or .png (default: %(default)s)")
    arguments = parser.parse_args()
    rows = []
    with fpga.open(arguments.cards) as cards:
        print(f"{'bytes':>10}  {'algorithm':10} {'predicted':>12} {'cards':>12} {'host':>12}")
        size = arguments.first
        while size <= arguments.last:
            row = measure(cards, size)
            rows.append(row)
            times = f"{row.predicted_us:9.2f} us {row.cards_us:9.2f} us {row.host_us:9.2f} us"
            print(f"{row.bytes:10}  {row.algorithm:10} {times}")
            size *= 2
        kind = f"{len(cards)} cards, {cards[0].kind}"
    plot(rows, f"allreduce, sum of f32, {kind}", arguments.output)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
