"""What is installed: types, documentation, examples."""

import doctest
import importlib.metadata
import inspect
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

import fpga
from conftest import PATIENCE


def run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def programs(package: Path) -> list[str]:
    """The programs of docs/python.md."""
    page = (package / ".." / ".." / "docs" / "python.md").read_text()
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(found) > 2
    return found


def test_the_stubs_are_those_of_the_code(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("fpga._fpga.Memory.__buffer__\n" if sys.version_info < (3, 12) else "")
    run(sys.executable, "-m", "mypy.stubtest", "fpga", "--allowlist", str(allowed), folder=tmp_path)


def test_types_are_checked_strictly(package: Path, tmp_path: Path) -> None:
    # In a folder of its own, mypy finds the package as it is installed.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    run(*mypy, str(package / "examples" / "sweep.py"), folder=tmp_path)
    run(*mypy, "-p", "fpga", folder=tmp_path)
    uses = (
        "import fpga, numpy\ncards = fpga.open('x')\nfirst: fpga.Card = cards[numpy.int64(0)]\n"
        "cards.broadcast(b'', root=numpy.int64(1))\ncards.plan('send', numpy.int64(4), peer=numpy.int32(2))\n"
        "cards.timeout = numpy.float32(1)\ncards.barrier().wait(numpy.float64(1))\ncards[0].write(numpy.int64(0), b'')\n"
        "cards.memory(numpy.int64(4))\ncards.plan('barrier').input_bytes(numpy.int64(0))\n"
        "cards.reduce(numpy.ones(4), reduction='max')\n"
        "every: list[fpga.Card] = list(cards)\nnumpy.frombuffer(memoryview(cards.memory(64)), 'f4')\n"
    )
    for number, program in enumerate([*programs(package), uses]):
        path = tmp_path / f"program{number}.py"
        path.write_text(program)
        run(*mypy, str(path), folder=tmp_path)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import fpga\nfpga.open(4)\nfpga.open('x').allreduce([1])\nfpga.open('x')[0].node = 3\n")
    done = subprocess.run([*mypy, str(wrong)], capture_output=True, text=True, cwd=tmp_path)
    assert "Found 3 errors" in done.stdout, done.stdout + done.stderr


def test_the_wheel_has_its_licence(package: Path) -> None:
    licences = [file for file in importlib.metadata.files("fpga") or [] if file.name == "LICENSE-MIT"]
    assert [file.read_text() for file in licences] == [(package / ".." / ".." / "LICENSE-MIT").read_text()]


def test_everything_has_a_docstring() -> None:
    assert importlib.metadata.version("fpga") == fpga.__version__
    for name in fpga.__all__:
        item = getattr(fpga, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(item), name
        if inspect.isclass(item) and not issubclass(item, BaseException):
            for attribute, value in vars(item).items():
                assert attribute.startswith("_") or inspect.getdoc(value), f"{name}.{attribute}"
    # Collectives say which shapes they take.
    for name in ("allreduce", "alltoall", "scatter", "broadcast"):
        assert "shape" in (inspect.getdoc(getattr(fpga.Cards, name)) or "")


def test_examples_in_the_documentation_run(package: Path) -> None:
    assert doctest.testmod(fpga).attempted > 0
    assert doctest.testmod(fpga).failed == 0
    for program in programs(package):
        run(sys.executable, "-c", program)


OTHER_INTERPRETER = """
import importlib, sys
import fpga
interpreters = importlib.import_module("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
# Of the old kind. From Python 3.12 on, one that is isolated refuses modules such as this by itself.
other = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
interpreters.run_string(other, '''
try:
    import fpga._fpga
    print("imported", flush=True)
except ImportError as error:
    print("refused" if "fpga serves one interpreter" in str(error) else error, flush=True)
''')
try:
    fpga.open("bad")
except fpga.UsageError:
    print("caught", flush=True)
"""


def test_a_second_interpreter_is_refused() -> None:
    """Its exceptions would be those of the first."""
    assert run(sys.executable, "-c", OTHER_INTERPRETER) == "refused\ncaught\n"


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_sweep_ends_in_a_plot(package: Path, tmp_path: Path, served: str, suffix: str) -> None:
    figure = tmp_path / f"sweep.{suffix}"
    cards = served if suffix == "svg" else "mock:optweb:4"
    printed = run(
        sys.executable, str(package / "examples" / "sweep.py"), "--cards", cards, "--to", "65536", "--output", str(figure)
    )
    assert "65536" in printed and "wrong" not in printed
    if suffix == "svg":
        root = xml.etree.ElementTree.parse(figure).getroot()
        assert root.tag.endswith("svg") and len(list(root.iter())) > 100
    else:
        assert figure.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and figure.stat().st_size > 10_000
