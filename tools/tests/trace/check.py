"""Opens traces with Perfetto's trace processor and asks it, in SQL, what must be in them. tools/tests/trace/run calls it."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

FPGACTL = sys.argv[1]
PROCESSOR = str(pathlib.Path(__file__).with_name("trace_processor.mjs"))
FOLDER = pathlib.Path(tempfile.mkdtemp())


def fpgactl(*words, code=0):
    """Runs the command, and returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FPGACTL_")}
    environment |= {"FPGACTL_STATS_DIR": "none", "FPGACTL_SYSFS_ROOT": "/nowhere"}
    done = subprocess.run([FPGACTL, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def served(fabric, folder):
    """Serves the cards of a fabric on sockets in a folder; gives the selector of these."""
    folder.mkdir()
    words = [FPGACTL, "mock", "serve", fabric, "--socket-dir", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not any(line.startswith("serving") for line in iter(server.stdout.readline, "")):
                raise AssertionError("the server has ended")
            yield f"vfio-user:{folder}"
        finally:
            server.kill()


class Opened:
    """A trace that is open in the trace processor."""

    def __init__(self, path):
        config = TraceProcessorConfig(bin_path=PROCESSOR, load_timeout=120)
        self.processor = TraceProcessor(trace=str(path), config=config)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.processor.close()

    def rows(self, sql):
        result = self.processor.query(sql)
        return [tuple(getattr(row, name) for name in result.column_names) for row in result]

    def counts(self):
        """Number of spans by name."""
        return dict(self.rows("select name, count(*) from slice group by name"))

    def is_sound(self):
        """What holds of every trace: no error of the importer, no negative or open span, every track named and none but the
        groups without spans or values."""
        errors = self.rows("select name, value from stats where severity = 'error' and value > 0")
        assert errors == [], errors
        assert self.rows("select name, dur from slice where dur < 0") == []
        assert self.rows("select id from track where name is null") == []
        empty = self.rows(
            """select t.name from track t where t.parent_id is not null
               and not exists (select 1 from slice s where s.track_id = t.id)
               and not exists (select 1 from counter c where c.track_id = t.id)"""
        )
        assert [name for (name,) in empty if name != "queue depth"] == [], empty


def argument(name):
    """SQL for an argument of slice s."""
    return f"extract_arg(s.arg_set_id, 'debug.{name}')"


def cards_of(trace):
    return [name for (name,) in trace.rows("select name from track where parent_id is null and name like 'card %'")]


def instructions(trace, name):
    """Card, begin and duration of the instructions of a name."""
    return trace.rows(
        f"""select p.name, s.ts, s.dur from slice s join track t on s.track_id = t.id join track p on t.parent_id = p.id
            where s.name = '{name}' and t.name = 'instructions' order by p.name, s.ts"""
    )


def a_collective_on_four_cards():
    path = FOLDER / "coll"
    printed = json.loads(fpgactl("coll", "allgather", "--bytes", "64KiB", "--json", "--trace", str(path)))
    assert printed["trace"] == {"file": str(path), "bytes": path.stat().st_size, "dropped": 0, "complete": True}
    with Opened(path) as trace:
        trace.is_sound()
        counts = trace.counts()
        for name, number in {"open": 1, "plan": 1, "prepare": 1, "wait": 1, "check": 1, "copy in": 4, "copy out": 4}.items():
            assert counts[name] == number, (name, counts)
        assert (counts["barrier"], counts["allgather"], counts["transfer"]) == (8, 4, 12), counts
        # One to start each card, and one for each copy at least.
        assert counts["doorbell"] >= 4 + 8, counts
        assert cards_of(trace) == [f"card {node} (mock:optweb:4/{node})" for node in range(4)]
        # The cards agree with what the command printed.
        for _, _, duration in instructions(trace, "allgather"):
            assert abs(duration / 1000 - printed["t2_us"]) <= 0.002, (duration, printed["t2_us"])
        values = trace.rows(
            f"""select {argument('rank')}, {argument('bytes')}, {argument('peers[0]')}, {argument('t1_cycles')}
                from slice s where name = 'allgather' order by 1"""
        )
        assert [value[0] for value in values] == [0, 1, 2, 3] and all(None not in value for value in values), values


def transfers_are_inside_their_instruction():
    for cards in ["mock:optweb:4", "mock:optweb:2x4", "mock:circus:2x4", "mock:optweb:4+drift=99", "mock:alveo-xdma:4"]:
        path = FOLDER / "transfers"
        fpgactl("coll", "alltoall", "--bytes", "16KiB", "--cards", cards, "--trace", str(path))
        with Opened(path) as trace:
            trace.is_sound()
            pairs = trace.rows(
                f"""select i.ts, i.dur, s.ts, s.dur, {argument('gbps')}, {argument('link_gbps')} from slice s
                    join flow f on f.slice_in = s.id join slice i on f.slice_out = i.id where s.name = 'transfer'"""
            )
            assert len(pairs) == trace.counts()["transfer"] > 0, (cards, len(pairs), trace.counts())
            for begin, duration, first, length, rate, link in pairs:
                assert begin <= first and first + length <= begin + duration, (cards, begin, duration, first, length)
                assert 0 < rate <= link * 1.001, (cards, rate, link)


def instructions_follow_each_other():
    path = FOLDER / "order"
    fpgactl("coll", "allreduce", "--op", "sum", "--dtype", "f32", "--bytes", "64KiB", "--repeat", "50", "--trace", str(path))
    with Opened(path) as trace:
        trace.is_sound()
        overlaps = trace.rows(
            """select a.name from slice a join slice b on a.track_id = b.track_id and a.id < b.id and a.depth = b.depth
               where a.ts + a.dur > b.ts and b.ts + b.dur > a.ts limit 1"""
        )
        assert overlaps == [], overlaps
        # A card is never told of more than its ring has room for, and at the end nothing is in flight.
        depths = trace.rows("select c.value from counter c order by c.ts desc")
        assert depths[0] == (0.0,) and all(0 <= depth <= 1024 for (depth,) in depths), depths[:3]


def programs():
    path, program = FOLDER / "run", FOLDER / "pair.seq"
    program.write_text(PROGRAM)
    printed = json.loads(fpgactl("run", str(program), "--cards", "mock:optweb:2", "--json", "--trace", str(path)))
    assert printed["trace"]["complete"] and printed["trace"]["dropped"] == 0
    with Opened(path) as trace:
        trace.is_sound()
        counts = trace.counts()
        assert (counts["sendrecv"], counts["transfer"]) == (2, 2), counts
        peers = trace.rows(f"select {argument('rank')}, {argument('peers[0]')} from slice s where name = 'sendrecv' order by 1")
        assert peers == [(0, 1), (1, 0)], peers


def a_sweep():
    path = FOLDER / "sweep"
    words = ["bench", "coll", "broadcast", "-b", "64", "-e", "64K", "-f", "32", "--json", "--trace", str(path)]
    lines = [json.loads(line) for line in fpgactl(*words).splitlines()]
    assert lines[-1]["schema"] == "fpgactl.bench-coll-trace/1" and lines[-1]["trace"]["complete"], lines[-1]
    with Opened(path) as trace:
        trace.is_sound()
        counts = trace.counts()
        assert counts["plan"] == counts["wait"] == counts["check"] == len(lines) - 1, counts


def cards_of_a_server():
    path = FOLDER / "served"
    with served("mock:optweb:2", FOLDER / "sockets") as cards:
        fpgactl("coll", "allgather", "--cards", cards, "--bytes", "4KiB", "--trace", str(path))
    with Opened(path) as trace:
        trace.is_sound()
        assert trace.counts()["allgather"] == 2 and "transfer" not in trace.counts()
        # Each card has a clock of its own, with its error.
        errors = trace.rows(f"select {argument('error_ns')} from slice s where s.name = 'clock'")
        assert len(errors) >= 2 and all(error > 0 for (error,) in errors), errors


def files_of_ranks_are_one_when_concatenated():
    ranks, path, meet = 3, FOLDER / "ranks.pftrace", f"unix:{FOLDER / 'meet'}"
    with served(f"mock:optweb:{ranks}", FOLDER / "job") as cards:
        words = ["coll", "allgather", "--cards", cards, "--bytes", "4KiB", "--trace", str(path)]
        with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
            job = ["--of", str(ranks), "--meet", meet, "--timeout", "120"]
            list(pool.map(lambda rank: fpgactl(*words, "--rank", str(rank), *job), range(ranks)))
    spans = """select p.name as of, t.name as on_track, s.name as name, s.ts as ts, s.dur as dur from slice s
               join track t on s.track_id = t.id join track p on p.id = t.parent_id"""
    files, apart = [FOLDER / f"ranks-{rank}.pftrace" for rank in range(ranks)], []
    for rank, file in enumerate(files):
        with Opened(file) as trace:
            trace.is_sound()
            assert len(cards_of(trace)) == 1
            found = trace.rows(spans)
            assert {group for group, *_ in found if group.startswith("host")} == {f"host (rank {rank})"}, found
            apart += found
    path.write_bytes(b"".join(file.read_bytes() for file in files))
    with Opened(path) as trace:
        trace.is_sound()
        assert len(set(cards_of(trace))) == ranks, cards_of(trace)
        assert sorted(trace.rows(spans)) == sorted(apart)


def a_failure_is_in_its_trace():
    path = FOLDER / "stopped"
    words = ["coll", "allgather", "--cards", "mock:optweb:4+stop=2@30", "--bytes", "1MiB", "--timeout", "0.5"]
    fpgactl(*words, "--trace", str(path), code=5)
    with Opened(path) as trace:
        trace.is_sound()
        stuck = "select p.name as card, s.name from slice s join track t on s.track_id = t.id join track p on p.id = t.parent_id"
        stuck = trace.rows(f"{stuck} where t.name = 'in flight at the end'")
        assert stuck and set(stuck) == {("card 2 (mock:optweb:4/2)", "copy")}, stuck


def the_messages_are_those_of_the_published_schema():
    """Every field of the file is known to Perfetto's own classes."""
    file = perfetto_trace_pb2.Trace()
    file.ParseFromString((FOLDER / "coll").read_bytes())

    def check(message):
        assert len(UnknownFieldSet(message)) == 0, message
        for _, value in message.ListFields():
            for one in [value] if hasattr(value, "ListFields") else value if hasattr(value, "__iter__") else []:
                if hasattr(one, "ListFields"):
                    check(one)

    check(file)
    assert len(file.packet) > 100


PROGRAM = """\
ranks 2
buffer here = card size 4KiB
buffer there = card size 4KiB
sendrecv peer 1 - rank, root 1 - rank, source here, destination there, bytes 4KiB, tag 9
"""

CHECKS = [
    a_collective_on_four_cards,
    transfers_are_inside_their_instruction,
    instructions_follow_each_other,
    programs,
    a_sweep,
    cards_of_a_server,
    files_of_ranks_are_one_when_concatenated,
    a_failure_is_in_its_trace,
    the_messages_are_those_of_the_published_schema,
]

passed = failed = 0
for check in CHECKS:
    try:
        check()
        passed += 1
        print(f"test {check.__name__} ... ok", flush=True)
    except Exception:
        failed += 1
        traceback.print_exc()
        print(f"test {check.__name__} ... FAILED", flush=True)
print(f"\ntest result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
sys.exit(1 if failed else 0)
