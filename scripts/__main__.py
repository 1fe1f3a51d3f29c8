"""The command `softgym-envs <subcommand>`, or `python scripts <subcommand>`: every other file here is one.

A subcommand has a dataclass `Args` and a function `main(args)` that returns an exit code or None.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

FOLDER = Path(__file__).resolve().parent
EXTRAS = {
    "casadi": "sysid", "cma": "sysid", "cv2": "video", "elastica": "elastica", "jinja2": "report", "matplotlib": "report",
    "minari": "datasets", "mujoco": "mujoco", "osqp": "control", "pinocchio": "pinocchio", "ray": "ray",
    "stable_baselines3": "learn", "torch": "learn", "tqdm": "scripts",
    "viser": "viewer",
}  # fmt: skip
"""Optional package -> the extra that brings it."""
LATER = 0.02
"""[s] After which a signal that cannot be raised is tried again."""


def subcommands() -> dict[str, str]:
    """Subcommand -> summary in its file; nothing is imported."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not path.stem.startswith("_") and any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body):
            found[path.stem.removesuffix("_file")] = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return found


def usage() -> str:
    """Text of all subcommands."""
    lines = [f"  {subcommand:10s} {summary}" for subcommand, summary in subcommands().items()]
    return "\n".join(
        ["usage: softgym-envs <subcommand> [options]; softgym-envs <subcommand> --help lists its options", "", *lines]
    )


def load_subcommand(name: str) -> ModuleType:
    """Module of a subcommand: a sibling of this one, in the installed package and in a checkout.

    `inspect` is in inspect_file.py: in a checkout, a module of that name would hide the one of Python.
    """
    name = name if (FOLDER / f"{name}.py").exists() else f"{name}_file"
    return importlib.import_module(f".{name}", __package__) if __package__ else importlib.import_module(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code: 2 for bad input or no such subcommand, 130 after Ctrl-C or SIGTERM."""
    return guarded(lambda: run_subcommand(list(sys.argv[1:] if arguments is None else arguments)))


def guarded(work: Callable[[], int]) -> int:
    """Result of `work`, or the exit code of what it raises: one sentence on stderr, no traceback."""
    try:
        with interruptible():
            return work()
    except BrokenPipeError:  # the reader has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:  # its text, if any, says what is kept
        print(in_flags("; ".join(["interrupted", *map(str, stop.args)])), file=sys.stderr)
        return 130
    except Exception as error:
        if not (said := sentence(error)):
            raise
        print(f"error: {said}", file=sys.stderr)
        return 2


def sentence(error: Exception) -> str:
    """What a user can do about an error, in a sentence; "" for a fault of ours."""
    if isinstance(error, ModuleNotFoundError) and (package := (error.name or "").partition(".")[0]) in EXTRAS:
        return f'{package} is not installed: pip install ".[{EXTRAS[package]}]" in a clone of the repository'
    if isinstance(error, OSError):  # a full disk, a file of somebody else
        return str(error)
    try:
        from gymnasium.error import Error

        from softgym_envs.core.errors import SoftgymError
    except ImportError:
        return ""
    return in_flags(str(error)) if isinstance(error, (SoftgymError, Error)) else ""


def in_flags(text: str) -> str:
    """Text in which arguments of functions, in backticks, are flags."""
    from sysid.diagnostics.sentences import as_flags

    return as_flags(text)


def run_subcommand(given: Sequence[str]) -> int:
    """Body of `main`."""
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0
    if given[0] == "--version":
        print(f"softgym-envs {importlib.metadata.version('softgym-envs')}")
        return 0
    if given[0] not in subcommands():
        print(f"unknown subcommand {given[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    flags = [word.partition("=")[0] for word in given if word.startswith("--")]
    twice = [flag for flag in dict.fromkeys(flags) if flags.count(flag) > 1]
    if twice:  # only the last one would count
        print(f"{twice[0]} is given twice: name all its values after one", file=sys.stderr)
        return 2
    try:
        import tyro
    except ImportError:
        print('the subcommands need tyro: pip install ".[scripts]" in a clone of the repository', file=sys.stderr)
        return 2
    module = load_subcommand(given[0])
    if (here := str(Path.cwd())) not in sys.path:  # location of a user's own "module:function"
        sys.path.append(here)
    args = tyro.cli(module.Args, args=given[1:], prog=f"softgym-envs {given[0]}", description=module.__doc__)
    code = int(module.main(args) or 0)
    sys.stdout.flush()
    return code


# --- Signals --------------------------------------------------------------------------------------------------------------


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGINT and SIGTERM, but where an exception would be lost; ignored signals stay ignored.

    Python drops exceptions of finalizers and of callbacks from C, of which llvmlite has some: compiling then fails later with
    another error, or goes on. A signal that arrives there is raised `LATER`. Does nothing outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [signal.SIGINT, signal.SIGTERM, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])]
    before = {number: signal.getsignal(number) for number in handled}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal."""
    if hasattr(signal, "setitimer") and _is_lost_in(frame):
        signal.setitimer(signal.ITIMER_REAL, LATER)
        return
    raise KeyboardInterrupt


def _is_lost_in(frame: FrameType | None) -> bool:
    """Whether an exception that is raised in this frame does not reach the outermost one."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__", "").startswith("llvmlite."):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main())
