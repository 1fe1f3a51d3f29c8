"""Compiled kernels that are damaged on disk are compiled anew; caches that cannot be written are replaced or done without."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from softgym_envs.core.errors import StorageError
from softgym_envs.engines import kernel_cache
from softgym_envs.engines.kernel_cache import load_whole
from softgym_envs.engines.numba.engine import inner, kernel
from softgym_envs.engines.warp import engine as warp_engine
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator

CODE = bytes(range(256)) * 8


class Warp:
    """Compiles into a folder what is not there, and loads what is, as Warp does; sees truncation, but no flipped bit."""

    def __init__(self, folder):
        self.folder, self.compiled = folder / "wp_m_0123456", 0

    def __call__(self):
        self.folder.mkdir(exist_ok=True)
        code = self.folder / "m.o"
        if not code.exists():
            self.compiled += 1
            code.write_bytes(CODE)
        found = code.read_bytes()
        if len(found) != len(CODE):
            raise RuntimeError("cannot load")
        return found


@pytest.mark.parametrize(("recorded", "words"), [(0, "compiling a simulator, some 10 s"), (1, "compiling the gradients")])
def test_a_kernel_is_announced_when_it_is_to_be_compiled(tmp_path, monkeypatch, capsys, recorded, words):
    """Forward kernels as well as gradients, until they are cached."""
    engine = TensegritySimulator().engine
    kernel = engine.program.recorded if recorded else engine.program.forward
    for name in ("Buffers", "LaneBuffers"):
        monkeypatch.setattr(warp_engine, name, lambda *_: None)
    monkeypatch.setattr(warp_engine.wp.config, "kernel_cache_dir", str(tmp_path))
    warp_engine._Borrowed(engine, 1, 1, 1, recorded)._new()
    said = capsys.readouterr().err
    assert words in said and said.count("compiling") == 1  # not what is not needed
    folder = tmp_path / f"wp_{kernel.module.name}_0123456"
    folder.mkdir()
    (folder / "m.meta").write_text("")
    warp_engine._Borrowed(engine, 1, 1, 1, recorded)._new()
    assert capsys.readouterr().err == ""


def test_truncation_of_a_warp_module_is_repaired(tmp_path):
    warp = Warp(tmp_path)
    assert load_whole(tmp_path, "m", warp) == load_whole(tmp_path, "m", warp) == CODE and warp.compiled == 1
    for left in (100, 0):
        (warp.folder / "m.o").write_bytes(CODE[:left])
        before = warp.compiled
        assert load_whole(tmp_path, "m", warp) == CODE and warp.compiled == before + 1


ROWS = """
import numpy as np, warp as wp
from softgym_envs.engines.warp import row_kernel

@wp.kernel(enable_backward=False)
def double(x: wp.array2d(dtype=wp.float64), out: wp.array2d(dtype=wp.float64)):
    b = wp.tid()
    out[b, 0] = x[b, 0] + x[b, 0]

print(row_kernel.RowKernel(double, (), (1,), 1)(np.ones((3, 1)))[:, 0].tolist())
"""


def test_damaged_files_of_warp_itself_are_compiled_anew(tmp_path):
    """A task's kernel, with Warp's own files: whole, and cut short."""

    def run():
        done = subprocess.run(
            [sys.executable, "rows.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.splitlines()[-1:], done.stderr

    (tmp_path / "rows.py").write_text(ROWS)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "WARP_CACHE_PATH": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    assert run()[0] == run()[0] == ["[2.0, 2.0, 2.0]"]
    (path,) = (tmp_path / "cache").rglob("*.o")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = run()
    assert found[0] == ["[2.0, 2.0, 2.0]"], found


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    def full():
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"No space left.*WARP_CACHE_PATH names another folder"):
        load_whole(tmp_path, "m", full)


FUNCTION = """
def double(x):
    return 2.0 * x
"""


@pytest.mark.parametrize("ending", ["nbc", "nbi"])
def test_damaged_files_of_numba_are_compiled_anew(tmp_path, monkeypatch, ending):
    path = tmp_path / "module.py"
    path.write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("module", None)
    function = __import__("module").double
    assert kernel(function)(3.0) == 6.0
    again = kernel(function)
    assert again(3.0) == 6.0 and sum(again.stats.cache_hits.values()) == 1
    rng = np.random.default_rng(0)
    for _ in range(5):
        (file,) = tmp_path.rglob(f"*.{ending}")
        content = file.read_bytes()
        file.write_bytes(content[: int(rng.integers(len(content)))])
        assert kernel(function)(3.0) == 6.0
        again = kernel(function)
        assert again(3.0) == 6.0 and sum(again.stats.cache_hits.values()) == 1


def test_every_kernel_of_numba_that_python_calls_is_announced_when_it_is_compiled(tmp_path, monkeypatch, capfd):
    """Not those that only kernels call: they are compiled with them."""
    (tmp_path / "silent.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    function = __import__("silent").double
    assert kernel(function)(3.0) == 6.0
    assert capfd.readouterr().err == "softgym_envs: double kernel: compiling takes 1 to 40 s, cached afterwards\n"
    assert kernel(function)(3.0) == 6.0
    assert capfd.readouterr().err == ""
    assert kernel(function)(3) == 6.0  # of other arguments
    assert "double kernel: compiling" in capfd.readouterr().err
    caller = inner(lambda x: x + 1.0)
    assert kernel(lambda x: caller(x))(1.0) == 2.0
    assert capfd.readouterr().err.count("compiling") == 1


CALLER = """
import sys
from softgym_envs.engines.numba.engine import kernel
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from called import scale

@kernel
def outer(x):
    return scale(x)

outer(1.0)
print(sum(outer.stats.cache_hits.values()), outer(3.0))
"""


def test_a_changed_function_in_another_file_is_compiled_anew(tmp_path):
    def run(factor):
        (tmp_path / "called.py").write_text(f"import numba\n\n@numba.njit\ndef scale(x):\n    return {factor} * x\n")
        done = subprocess.run([sys.executable, "-B", "main.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    (tmp_path / "main.py").write_text("from caller import outer\n")
    (tmp_path / "caller.py").write_text(CALLER)
    assert run(2.0) == ["0", "6.0"]
    assert run(2.0) == ["1", "6.0"]
    assert run(5.0) == ["0", "15.0"]


def test_numba_goes_on_without_system(tmp_path, monkeypatch, capfd):
    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "other.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kernel_cache.CheckedFile, "_save_data", full, raising=False)
    assert kernel(__import__("other").double)(3.0) == 6.0
    assert "cannot be kept" in capfd.readouterr().err


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write")
def test_without_a_home_caches_are_temporary(tmp_path):
    """No kernel is compiled here: Warp starts, and Numba's functions find a place."""
    code = "import softgym_envs.engines.warp.engine, warp; print(warp.config.kernel_cache_dir)"
    none = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none", "WARP_CACHE_PATH": "/proc/none", "TMPDIR": str(tmp_path)}
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, **none, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path)) and "the cache of warp cannot be written" in done.stderr
