"""Cards for the tests: in this process, and on sockets of a server, where the fabric goes on by itself."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fpga

IN_PROCESS = "mock:optweb:4"
# An abort waits 100 ms for a card to stop; replies that come later than that are a card that does not stop.
SLOW = "mock:optweb:4+late=40000"
# Generous, for busy machines.
PATIENCE = 60.0


@contextmanager
def serve(selector: str, directory: Path) -> Iterator[str]:
    """Serves mock cards on vfio-user sockets; gives the selector of these."""
    command = [os.environ["FPGACTL"], "mock", "serve", selector, "--socket-dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            printed = iter(server.stdout.readline, "")
            assert any("serving" in line for line in printed)
            yield f"vfio-user:{directory}"
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The selector of four cards on vfio-user sockets."""
    with serve(IN_PROCESS, tmp_path_factory.mktemp("cards")) as selector:
        yield selector


@pytest.fixture(params=["mock", "vfio-user"])
def slow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The selector of cards on each bus, the launches of which take some tenths of a second: host memory answers late."""
    if request.param == "mock":
        yield SLOW
    else:
        with serve(SLOW, tmp_path) as selector:
            yield selector


@pytest.fixture(params=["mock", "vfio-user"])
def cards(request: pytest.FixtureRequest) -> Iterator[fpga.Cards]:
    """Four cards on each bus."""
    selector = IN_PROCESS if request.param == "mock" else request.getfixturevalue("served")
    with fpga.open(selector, timeout=PATIENCE) as cards:
        yield cards


@pytest.fixture
def mock() -> Iterator[fpga.Cards]:
    """Four cards in this process."""
    with fpga.open(IN_PROCESS, timeout=PATIENCE) as cards:
        yield cards


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder of the package's sources."""
    return Path(__file__).parent.parent
