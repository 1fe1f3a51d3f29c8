"""The command `softgym-envs <verb>`; in a checkout also `python scripts <verb>`. Every other file of this folder is a verb.

A verb has a dataclass `Args` and a function `main(args)` that returns an exit code or None.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent


def verbs() -> dict[str, str]:
    """Verb -> summary in its file; nothing is imported."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not path.stem.startswith("_") and any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return found


def usage() -> str:
    """Text of all verbs."""
    lines = [f"  {verb:10s} {summary}" for verb, summary in verbs().items()]
    return "\n".join(["usage: softgym-envs <verb> [options]; softgym-envs <verb> --help tells its options", "", *lines])


def load_verb(name: str) -> ModuleType:
    """Module of a verb: a sibling of this one, in the installed package and in a checkout."""
    return importlib.import_module(f".{name}", __package__) if __package__ else importlib.import_module(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; returns its exit code, 2 if there is no such verb."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0
    if given[0] == "--version":
        print(f"softgym-envs {importlib.metadata.version('softgym-envs')}")
        return 0
    if given[0] not in verbs():
        print(f"unknown verb {given[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    flags = [word.partition("=")[0] for word in given if word.startswith("--")]
    twice = [flag for flag in dict.fromkeys(flags) if flags.count(flag) > 1]
    if twice:  # only the last one would count
        print(f"{twice[0]} is given twice: name all its values after one", file=sys.stderr)
        return 2
    try:
        import tyro
    except ImportError:
        print('the verbs need tyro: pip install ".[scripts]" in a clone of the repository', file=sys.stderr)
        return 2
    module = load_verb(given[0])
    if (here := str(Path.cwd())) not in sys.path:  # location of a user's own "module:function"
        sys.path.append(here)
    args = tyro.cli(module.Args, args=given[1:], prog=f"softgym-envs {given[0]}", description=module.__doc__)
    try:
        code = int(module.main(args) or 0)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
