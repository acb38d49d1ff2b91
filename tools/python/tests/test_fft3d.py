"""fpgactl fft3d on mock cards of Novo-G#, beside NumPy."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.parametrize(("points", "cards"), [(16, "2x2x2"), (32, "4x4x4")])
def test_the_result_is_that_of_numpy(points: int, cards: str, tmp_path: Path) -> None:
    parts = np.random.default_rng(points).standard_normal((2, points, points, points))
    array = (parts[0] + 1j * parts[1]).astype(np.complex64)
    source, result = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(source, array)
    command = [os.environ["FPGACTL"], "fft3d", "--n", str(points), "--cards", f"mock:novo-g:{cards}"]
    subprocess.run([*command, "--input", str(source), "--output", str(result)], check=True, stdout=subprocess.DEVNULL)
    found, right = np.load(result), np.fft.fftn(array.astype(np.complex128))
    assert found.dtype == np.complex64
    # Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2, with rounded factors.
    unit = np.finfo(np.float32).eps / 2
    bound = 3 * np.log2(points) * unit * (1 + 4 * np.sqrt(2))
    distance = np.linalg.norm(found - right) / np.linalg.norm(right)
    assert 0 < distance < bound
