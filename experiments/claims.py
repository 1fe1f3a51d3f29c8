"""Published figures stay true: docs/claims.toml lists them, docs/measured.md is written from it.

    python experiments/claims.py             # write docs/measured.md; nothing is run
    python experiments/claims.py --run       # make claims: first run again what takes under a minute, 15 minutes in all
    python experiments/claims.py --stamp     # after a change that keeps behaviour bit for bit, as test_golden.py says

An experiment of docs/claims.toml has a title, a part of the page, a command, its seconds on two cores, the modules that its
figures depend on, and figures: what it is, its text, its value as an expression of `n` (results/<experiment>/numbers.json), and
`quoted`, files that quote it and their words. A command that writes a JSON file into the folder OUT is run again and compared;
the others take longer. `made` is the commit of the figures, `digest` the digest of their modules then: another one now makes
them stale. Names, comments, docstrings, imports and places of files do not enter it, so renaming does not make a figure stale.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tyro

from softgym_envs.core.files import git_commit, read_json, read_toml, write_atomically

ROOT = Path(__file__).parents[1]
CLAIMS, PAGE = ROOT / "docs" / "claims.toml", ROOT / "docs" / "measured.md"
NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?: \d{3})*(?:\.\d+)?(?:e-?\d+)?")
KEPT = ("results/{}/numbers.json", "results/{}/table.md", "reproductions/{}/README.md")
ALLOWED: dict[str, Callable[..., Any]] = {f.__name__: f for f in (abs, all, any, len, max, min, round, sorted, sum)}


@dataclass(frozen=True)
class Args:
    """Options."""

    run: bool = False
    """Run again what takes under a minute, compare, and stamp what is the same."""
    stamp: bool = False
    """Take the present modules for those that made the figures."""
    only: tuple[str, ...] = ()
    """Experiments; none: all."""


def claims() -> dict[str, dict[str, Any]]:
    """Experiment -> its entry."""
    return read_toml(CLAIMS)


def numbers_of(name: str) -> dict[str, Any]:
    """Numbers of an experiment or of a reproduction."""
    folder = ROOT / ("reproductions" if (ROOT / "reproductions" / name).is_dir() else "results") / name
    return read_json(next(folder / kept for kept in ("numbers.json", "expected.json") if (folder / kept).exists()))


def value_of(figure: dict[str, Any], numbers: dict[str, Any]) -> list[float]:
    """Value of a figure as a flat list of numbers: of an interval, the value and its ends."""

    def flat(value: Any) -> Iterator[float]:
        for inner in value if isinstance(value, (list, tuple)) else [value]:
            yield from flat(inner) if isinstance(inner, (list, tuple)) else [float(inner)]

    return list(flat(eval(figure["value"], {"__builtins__": {}, **ALLOWED, "n": numbers})))


def told(text: str) -> list[tuple[float, float]]:
    """Numbers of a text, and half of the last digit shown."""
    found = []
    for shown in NUMBER.findall(text):
        plain = shown.replace("−", "-").replace(" ", "")
        mantissa, _, power = plain.partition("e")
        digits = len(mantissa.partition(".")[2])
        found.append((float(plain), 0.5 * 10.0 ** (int(power or 0) - digits)))
    return found


def differs(figure: dict[str, Any], numbers: dict[str, Any], tolerance: float = 0.0) -> str:
    """What is wrong with the text of a figure; "" if its numbers are those of the results, rounded.

    Args:
        figure: Entry of docs/claims.toml.
        numbers: Numbers of its experiment.
        tolerance: Relative difference allowed beyond rounding.
    """
    try:
        values = value_of(figure, numbers)
    except (KeyError, IndexError, TypeError, NameError, ZeroDivisionError) as error:
        return f"{figure['what']}: {figure['value']} cannot be read: {error!r}"
    shown = told(figure["text"])
    near = 0 < len(shown) <= len(values) and all(  # a quotation may leave out the interval
        abs(value - number) <= half * (1 + 1e-9) + tolerance * abs(number)
        for (number, half), value in zip(shown, values, strict=False)
    )
    return "" if near else f"{figure['what']}: text {figure['text']!r}, results {[float(f'{v:.6g}') for v in values]}"


def digest(modules: list[str]) -> str:
    """Digest of what modules compute: files, or folders with all that is in them; see the module's docstring."""
    files = {path for name in modules for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))}
    parts = sorted(_digest_of(path.read_text(encoding="utf-8")) for path in files)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


@cache
def _digest_of(source: str) -> str:
    """Digest of a file's syntax tree; equal names are equal numbers, in order of appearance."""
    names: dict[str, int] = {}
    said: list[str] = []

    def walk(node: ast.AST) -> None:
        documented = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if documented or isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
            return
        said.append(type(node).__name__)
        for _, value in ast.iter_fields(node):
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    walk(inner)
                elif isinstance(inner, str):
                    said.append(f"#{names.setdefault(inner, len(names))}")
                elif inner is not None:
                    said.append(repr(inner))

    walk(ast.parse(source))
    return hashlib.sha256(" ".join(said).encode()).hexdigest()


def stale(entry: dict[str, Any]) -> bool:
    """Whether modules changed since then."""
    return entry.get("digest") != digest(entry["modules"])


def page() -> str:
    """The page of all figures as Markdown."""
    lines = ["<!-- Written by `make claims` from docs/claims.toml; change that file, not this page. -->", "", "# Measured", ""]
    entries = claims()
    lines += [f"{text}\n" for text in entries.pop("about")["text"]]
    parts = list(dict.fromkeys(entry["part"] for entry in entries.values()))
    for name, entry in sorted(entries.items(), key=lambda item: parts.index(item[1]["part"])):
        if f"## {entry['part']}" not in lines:
            lines += [f"## {entry['part']}", ""]
        kept = [path for place in KEPT if (path := ROOT / place.format(name)).exists()]
        more = [f"[{path.stem}](../{path.relative_to(ROOT).as_posix()})" for path in kept]
        lines += [f"### {entry['title']}", ""]
        if stale(entry):
            lines += ["**Stale**" + (f", made at commit `{entry['made']}`" if entry["made"] else "") + ".", ""]
        where = f" ({', '.join(more)})" if more else ""
        lines += [f"`{entry['command'].replace('OUT', 'runs/again')}`{where}", "", "| what | value |", "|---|---|"]
        lines += [f"| {figure['what']} | {figure['text']} |" for figure in entry["figures"]]
        lines += ["", *(f"- {text}" for text in entry.get("notes", [])), *([""] if "notes" in entry else [])]
    return "\n".join(lines).rstrip() + "\n"


def run_again(name: str, entry: dict[str, Any]) -> list[str]:
    """Run the command of an experiment; what is wrong with its figures."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("OUT", folder) for word in shlex.split(entry["command"])]
        words = [sys.executable, *(words[1:] if words[0] == "python" else ["scripts/__main__.py", *words[1:]])]
        ended = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        written = [*Path(folder).glob("*.json")]
        if not written:
            return [f"{name}: the command wrote nothing, exit code {ended.returncode}"]
        found = read_json(written[0])
    wrong = [differs(figure, found, entry.get("tolerance", 0.0)) for figure in entry["figures"]]
    return [f"{name}: {text}" for text in wrong if text]


def main(args: Args) -> int:
    """Run, stamp, write the page; 1 if a figure is no longer what is published."""
    wrong: list[str] = []
    text = CLAIMS.read_text(encoding="utf-8")
    for name, entry in claims().items():
        again, problems, began = args.run and "OUT" in entry.get("command", ""), [], time.monotonic()
        if name == "about" or (args.only and name not in args.only):
            continue
        if again:
            problems = run_again(name, entry)
            print(f"{name}: {time.monotonic() - began:.0f} s", *problems or ["as published"], sep="\n  ", flush=True)
            wrong += problems
        if not problems and (args.stamp or again):
            new = {"digest": digest(entry["modules"]), "made": git_commit()[:8] if again else entry["made"]}
            head, section, rest = re.split(rf"(^\[{name}\]$)", text, maxsplit=1, flags=re.MULTILINE)
            for key, value in new.items():
                rest = re.sub(rf'^{key} = ".*"$', f'{key} = "{value}"', rest, count=1, flags=re.MULTILINE)
            text = head + section + rest
    write_atomically(CLAIMS, text.encode())
    write_atomically(PAGE, page().encode())
    names = [name for name, entry in claims().items() if name != "about" and stale(entry)]
    print("docs/measured.md written; stale:", ", ".join(names) or "none")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
