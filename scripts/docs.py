"""Write docs/environments.md and docs/constants.md from the code: the registered environments and the Parameters classes.

python scripts/docs.py           # write the pages (make docs)
python scripts/docs.py --check   # say which pages are stale and fail; tests/test_packaging.py does this
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import tyro

import softgym_envs
from softgym_envs.core.files import write_atomically
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.room import TaskId
from softgym_envs.core.task import SHARED_OPTIONS, Entry, Task, load
from softgym_envs.envs.episodes import Settings
from softgym_envs.rooms import tasks

DOCS = Path(__file__).resolve().parent.parent / "docs"
GIVEN = ("model", "simulate", "control_period")
"""Arguments of a task's function that come from the keywords of every id."""
NOTE = "<!-- Written by `make docs`; change the code, not this page. -->\n"
SHARED = """\
`gym.make("softgym_envs:TensegrityRoll-v0")` needs no other import;
`gym.make_vec(..., vectorization_mode="vector_entry_point")` makes many at once. Actions are in [-1, 1].
`info` holds `reward_<term>` (their sum is the reward), `is_success` and `sim_failed`.
Entries of an observation stand in the order of `env.unwrapped.task.entries`.

Keywords of every id, beside `render_mode`:
"""


@dataclass(frozen=True)
class Args:
    """Pages of docs/ that are made from the code."""

    check: bool = False
    """Write nothing; fail if a page is stale."""


def environments_page() -> str:
    """Every registered id: what it is, keywords, actions, observation entry by entry, options, limits."""
    page = [NOTE, "# Environments\n", SHARED, *_field_docs(Settings), "", "Keywords of one id stand with that id.\n"]
    return "\n".join([*page, *(_environment(entry) for entry in tasks())])


def constants_page() -> str:
    """Every Parameters class of every room and twin: value, unit, bounds and source of each constant."""
    return "\n".join([NOTE, "# Constants\n", *(_constants(kind) for kind in parameter_classes())])


def parameter_classes() -> list[type[Parameters]]:
    """Parameters classes that no other class refines, in the order of their modules."""
    for path in sorted(Path(softgym_envs.__file__).parent.glob("*/")):
        for name in ("parameters", "mujoco"):
            if path.name != "core" and (path / f"{name}.py").is_file():
                importlib.import_module(f"softgym_envs.{path.name}.{name}")
    found = (kind for kind in _subclasses(Parameters) if kind.__module__.startswith("softgym_envs."))
    return sorted(
        dict.fromkeys(kind for kind in found if not kind.__subclasses__()), key=lambda kind: (kind.__module__, kind.__name__)
    )


def _subclasses(kind: type[Parameters]) -> Iterator[type[Parameters]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def _environment(entry: TaskId) -> str:
    env = gym.make(entry.id)
    task: Task = env.unwrapped.task  # type: ignore[attr-defined]
    summary, keywords = _split_args(inspect.getdoc(load(entry.build)) or "")
    seconds = entry.max_episode_steps * Settings.control_period
    page = [
        f"## {entry.id}\n",
        f"{summary}\n",
        (inspect.getdoc(type(task)) or "").replace("*", "\\*") + "\n",
        f"Success: {task.success_definition}\n",
        f"An episode lasts {entry.max_episode_steps} control steps ({seconds:g} s) at most. Keywords:\n",
        *keywords,
        "",
        f"Action: {_space(env.action_space)}: {_names(task.action_names)}.\n",
        f"Observation: {_space(env.observation_space)}\n",
        "| entries | number | unit | low | high |",
        "| --- | --- | --- | --- | --- |",
        *_entry_rows(task.entries),
        "",
        f"Options of `reset`: {', '.join((*SHARED_OPTIONS, *task.option_names))}.\n",
    ]
    if task.constants:
        page.append(f"Constants that the task sets: {', '.join(f'{name} = {v:g}' for name, v in task.constants.items())}.\n")
    env.close()
    return "\n".join(page)


def _split_args(docstring: str) -> tuple[str, list[str]]:
    """The text of a docstring, and its `Args:` as a Markdown list."""
    text, _, rest = docstring.partition("\nArgs:\n")
    joined = re.sub(r"\n {6,}", " ", rest.split("\n\n")[0])
    lines = [line.strip() for line in joined.splitlines() if line.strip() and line.split(":")[0].strip() not in GIVEN]
    return text.strip(), ["- `" + line.replace(":", "`:", 1) for line in lines]


def _field_docs(kind: type) -> list[str]:
    """Fields of a dataclass and the strings under them, as a Markdown list."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    rows = []
    for a, b in itertools.pairwise(definition.body):
        if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr):
            rows.append(f"- `{ast.unparse(a)}`: {ast.literal_eval(b.value)}")
    return rows


def _space(space: gym.Space[Any]) -> str:
    assert isinstance(space, gym.spaces.Box)
    limits = {(float(low), float(high)) for low, high in zip(space.low, space.high, strict=True)}
    ends = "bounds in the table" if len(limits) > 1 else f"[{space.low[0]:g}, {space.high[0]:g}]"
    return f"{space.dtype}, shape {space.shape}, {ends}"


def _entry_rows(entries: Sequence[Entry]) -> list[str]:
    """One row per unit and bounds, in the order of their first entries."""
    groups: dict[tuple[str, float, float], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.unit, entry.low, entry.high), []).append(entry.name)
    return [f"| {_names(row)} | {len(row)} | {unit} | {low:g} | {high:g} |" for (unit, low, high), row in groups.items()]


def _names(names: Sequence[str]) -> str:
    """Names that differ in their first number only as one: `node0.x ... node11.x`."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(re.sub(r"\d+", "#", name, count=1), []).append(name)
    return ", ".join(f"{row[0]} ... {row[-1]}" if len(row) > 2 else ", ".join(row) for row in families.values())


def _constants(kind: type[Parameters]) -> str:
    rows = [
        f"| {s.name} | {s.default:g} | {s.unit} | {s.bounds[0]:g} ... {s.bounds[1]:g} | {s.scale} | {s.source} |"
        for s in kind.specs().values()
    ]
    head = ["| constant | value | unit | bounds | scale | source |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {kind.__name__}\n", f"`{kind.__module__}`. {inspect.getdoc(kind)}\n", *head, *rows, ""])


def main(args: Args) -> None:
    """Write the pages, or compare them."""
    pages = {"environments.md": environments_page(), "constants.md": constants_page()}
    stale = [name for name, text in pages.items() if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text]
    if args.check:
        sys.exit(f"stale: {', '.join('docs/' + name for name in stale)}; run `make docs`" if stale else 0)
    for name in stale:
        write_atomically(DOCS / name, pages[name].encode())
    print("written: " + (", ".join("docs/" + name for name in stale) or "nothing, all pages are up to date"))


if __name__ == "__main__":
    main(tyro.cli(Args))
