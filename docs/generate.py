"""Write the generated documents: environments, diagnostics and systems from the code, task cards from results.

python docs/generate.py            # write the pages that are stale: `make docs`
python docs/generate.py --check    # list them, and fail; tests/unit/test_packaging.py does this
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import tyro

from agents.benchmark_study import page as benchmark
from softgym_envs.core.files import read_json, write_atomically
from softgym_envs.core.interface import Interface
from softgym_envs.core.mismatch import Ladder, MismatchedModel
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.system import NATIVE, System, TaskId
from softgym_envs.core.task import SHARED_OPTIONS, Entry, Task, load
from softgym_envs.envs.settings import Settings
from softgym_envs.systems import systems, tasks
from sysid.diagnostics.sentences import CODES

GIVEN = ("model", "control_period")
"""Arguments of a task's function that come from the keywords of every id."""
CARDS = read_json(Path(__file__).parents[1] / "results/task_cards/numbers.json")
IMAGES = Path(__file__).parent / "images"
"""Folders of task cards and of pictures."""
CELL = 80
"""Most characters of a table's cell."""
NOTE = "<!-- Written by `make docs`; change the code, not this page. -->\n"
SHARED = """\
`gym.make("softgym_envs:{id}")` needs no other import.
`gym.make_vec(..., vectorization_mode="vector_entry_point")` makes a batch.
Actions are in [-1, 1]. `info` holds `reward_<term>`, whose sum is the reward. It also holds `is_success` and `sim_failed`.
Entries of an observation have the order of `env.unwrapped.task.entries`.
"""


@dataclass(frozen=True)
class Args:
    """Generate the pages of docs/ from the code."""

    check: bool = False
    """Write nothing; fail if a page is stale."""
    out: Path = Path("docs")
    """Folder of the pages."""


def index_page() -> str:
    """A table of ids, and settings of all ids."""
    rows = [
        f"| `{task.id}` | [{r.name}](systems/{r.name}.md) | {_first_sentence(task)} |"
        for r in systems().values()
        for task in r.tasks
    ]
    table = ["| id | system | task |", "| --- | --- | --- |", *rows, ""]
    keywords = ["## Keywords of every id\n", *_field_docs(Settings), *_field_docs(Interface), ""]
    return "\n".join([NOTE, "# Environments\n", SHARED.format(id=tasks()[0].id), *table, *keywords])


def system_page(system: System) -> str:
    """Page of a system: models, backends, its ids one by one, identification, parameters."""
    files = ", or a TOML file of your own" if system.read_model else ""
    simulators = {backend: system.simulator(backend=backend) for backend in (NATIVE, *system.ground_truths)}
    page = [
        NOTE,
        f"# {system.name}\n",
        f"{system.summary[0].upper()}{system.summary[1:]}.\n",
        f"Models: {', '.join(f'`{name}`' for name in system.models)}{files}.",
        f"Backends: {', '.join(f'`{name}`' for name in simulators)}, or [your own simulator](../../how-to/ground_truths.md).\n",
        f"Options of the native engine (`options`): {_options(system)}.\n",
        *(_environment(task) for task in system.tasks),
        *_procedure(system),
        *_ladder(simulators),
        *_file(system),
        "## Parameters\n",
    ]
    kinds = {type(s.default_parameters): backend for backend, s in reversed(simulators.items())}
    named = list(reversed(kinds.items()))
    for model in list(system.models)[1:]:
        kind = type(system.simulator(model).default_parameters)
        named += [] if kind in kinds else [(kind, f"model {model}")]
    return "\n".join([*page, *(_constants(kind, where) for kind, where in named)])


def _options(system: System) -> str:
    """Keywords of the engine except model, dt and device, with their defaults."""
    own = inspect.signature(load(system.engine)).parameters
    found = [f"`{name}={p.default!r}`" for name, p in own.items() if name not in ("model", "dt", "device")]
    return ", ".join(found) or "none"


def _procedure(system: System) -> list[str]:
    """The stages of a system's procedure as a table."""
    if not system.procedure:
        return []
    procedure, simulator = load(system.procedure), system.simulator()
    rows = [
        f"| {s.name} | {s.experiment or 'yours'} | {len(s.free_of(simulator))} | {s.method} |" for s in procedure.all_stages
    ]
    fitted = [f"- Stage `{s.name}`: `{', '.join(s.free_of(simulator))}`." for s in procedure.all_stages]
    head = ["| stage | recordings | number of parameters | method |", "| --- | --- | --- | --- |"]
    commands = f"`softgym-envs record {system.name}`, `softgym-envs identify {system.name} --data recordings.h5`"
    name = f"identify_{system.name}"
    film = f"![{system.name} before and after identification](../../images/{name}.gif)\n"
    shown = [film] if (IMAGES / f"{name}.gif").is_file() else []
    return [f"## Identification\n\n{commands}\n", *shown, *head, *rows, "", *fitted, ""]


def _file(system: System) -> list[str]:
    """The form of a TOML file with a robot of one's own, as the docstring of its reader tells it, and the model's fields."""
    if not system.read_model:
        return []
    told = (inspect.getdoc(load(system.read_model)) or "").split("\nRaises:")[0].split("\nArgs:")[0].rstrip()
    page, block = ["## A robot of your own in a TOML file\n"], list[str]()
    for line in [*told.splitlines(), ""]:
        if line.startswith("    ") or (block and not line):
            block.append(line[4:])
        else:
            page += ["```toml", *"\n".join(block).strip("\n").splitlines(), "```", ""] if block else []
            block = []
            page.append(line.replace("::", ":"))
    page += ["```toml", *"\n".join(block).strip("\n").splitlines(), "```", ""] if "".join(block) else []
    model = type(system.model(None, None))
    return [*page, *(_field_docs(model) if f"`{model.__name__}`" in told else []), ""]


def _ladder(simulators: Mapping[str, Simulator]) -> list[str]:
    """Effects of the mismatched models, with their sizes."""
    ladders: dict[Ladder, list[str]] = {}
    for backend, simulator in simulators.items():
        if isinstance(simulator, MismatchedModel):
            ladders.setdefault(simulator.ladder, []).append(backend)
    page = []
    for ladder, backends in ladders.items():
        rows = [f"| {e.name} | {e.unit} | {' | '.join(f'{size:g}' for size in e.sizes)} | {e.text} |" for e in ladder.effects]
        head = ["| effect | unit | level 1 | level 2 | level 3 | |", "| --- | --- | --- | --- | --- | --- |"]
        named = ", ".join(backends)
        page += [f"## Levels of {named}\n\nSee [ground truths](../../how-to/ground_truths.md).\n", *head, *rows, ""]
    return page


def differences(system: System) -> str:
    """What the modules of the ground truths say about differences."""
    found = {backend: _differences_in(path.partition(":")[0]) for backend, path in system.ground_truths.items()}
    return "\n\n".join(f"`{backend}`: {text}" for backend, text in found.items() if text)


def _differences_in(name: str) -> str:
    """The paragraph and list about differences in a module's docstring; "" if it has none."""
    parts = (inspect.getdoc(importlib.import_module(name)) or "").split("\n\n")
    first = next((i for i, part in enumerate(parts) if re.search(r"[Dd]iffer(ences|s?) from|Differences", part)), len(parts))
    rest = parts[first + 1 :]
    stop = next((i for i, part in enumerate(rest) if not part.startswith("* ")), len(rest))
    return "\n\n".join(parts[first : first + 1 + stop])


def _first_sentence(task: TaskId) -> str:
    text = " ".join((inspect.getdoc(load(task.build)) or "").split("\n\n")[0].split())
    return re.sub(r" \(\[.*?\)$", "", text.split(". ")[0].rstrip("."))


def _environment(entry: TaskId) -> str:
    env = gym.make(entry.id)
    task: Task = env.unwrapped.task  # type: ignore[attr-defined]
    summary, keywords = _keywords(load(entry.build))
    seconds = entry.max_episode_steps * env.unwrapped.episodes.settings.control_period  # type: ignore[attr-defined]
    page = [
        f"## {entry.id}\n",
        f"{summary}\n",
        f"![An episode of {entry.id}](../../images/{entry.id}.gif)\n",
        (inspect.getdoc(type(task)) or "").replace("*", "\\*") + "\n",
        f"Reward terms: `{', '.join(_reward_terms(env))}`.\n",
        f"Success: {task.success_definition}\n",
        f"An episode lasts {entry.max_episode_steps} control steps ({seconds:g} s) at most. Keywords:\n",
        *keywords,
        "",
        f"Action: {_space(env.action_space)}: `{_names(task.action_names)}`.\n",
        f"Observation: {_space(env.observation_space)}\n",
        "| entries | number | unit | low | high |",
        "| --- | --- | --- | --- | --- |",
        *_entry_rows(task.entries),
        "",
        f"Options of `reset`: `{', '.join((*SHARED_OPTIONS, *task.option_names))}`.\n",
    ]
    page += _card(entry)
    if task.parameter_values:
        values = ", ".join(f"{name} = {v:g}" for name, v in task.parameter_values.items())
        page.append(f"Parameters that the task sets: `{values}`.\n")
    env.close()
    return "\n".join(page)


def _reward_terms(env: gym.Env[Any, Any]) -> list[str]:
    """Names of the terms in the `info` of a step."""
    env.reset(seed=0)
    return [name.removeprefix("reward_") for name in env.step(env.action_space.sample())[4] if name.startswith("reward_")]


def _card(entry: TaskId) -> list[str]:
    """Task card of the id as a table, if it has been measured (experiments/task_cards.py)."""
    if entry.id not in CARDS:
        return []
    card = CARDS[entry.id]
    worlds = list(dict.fromkeys((run["backend"], run["level"]) for run in card["runs"]))
    worlds.sort(key=lambda world: (world[1] or 0.0, world[0] != NATIVE))
    names = list(dict.fromkeys(run["controller"] for run in card["runs"]))
    runs = {(run["backend"], run["level"], run["controller"]): run for run in card["runs"]}
    head = [f"{backend}{'' if level is None else f', level {level:g}'}" for backend, level in worlds]
    rows = [f"| {name} | {' | '.join(_cell(runs.get((*world, name))) for world in worlds)} |" for name in names]
    return [
        "Success in % with its 95 % interval, mean return, and number of episodes if it is not 100:\n",
        f"| controller | {' | '.join(head)} |", f"| --- |{' --- |' * len(head)}", *rows, "",
        *_speed(card),
    ]  # fmt: skip


def _speed(card: Mapping[str, Any]) -> list[str]:
    """Speed under random actions and of MPC, and its settings."""
    mpc = {run["backend"]: run for run in card["runs"] if "settings" in run}
    rows = [
        f"| {backend} | {v['single']:.0f} | {v['batch']:.0f} ({v['rows']}) | "
        f"{format(mpc[backend]['seconds_per_step'], 'g') if backend in mpc else ''} |"
        for backend, v in card["speed"].items()
    ]
    settings = [", ".join(f"{name} {value:g}" for name, value in run["settings"].items()) for run in list(mpc.values())[:1]]
    head = "| processor time, busy machine | steps/s, one row | steps/s (rows) | MPC [s/step] |"
    return [*(f"Settings of MPC: `{text}`.\n" for text in settings), head, "| --- | --- | --- | --- |", *rows, ""]


CARDS_INTRO = """\
# Task cards

Baseline scores of every id: success in %, by `experiments/task_cards.py`. An empty cell was not measured.
Ids with levels show the first and the last one. Intervals, returns, other levels and speeds: [systems](environments.md).

| controller | what it is |
| --- | --- |
| zero, random | no action, random actions |
| blind | a controller without task observations |
| policy of | the policy of another id |
| heuristic, planner | a controller of the system that knows the robot |
| mpc | sampling MPC in the native engine, with the full state |
| policy | the trained policy that comes with the package |
"""
ASKED = """
Requirements on every id:

- Zero below 5 % and random below 20 %.
- A controller that knows the robot reaches 90 % at the first level. A blind one reaches half of that at most.
- No controller is significantly better at a higher level.
- A controller with over half of its episodes successful earns more than zero.

"""


def cards_page() -> str:
    """All cards in one table, their shortfalls, then a picture per id."""
    entries = [(system, entry) for system in systems().values() for entry in system.tasks if entry.id in CARDS]
    page = [NOTE, CARDS_INTRO, f"| id | backend | {' | '.join(NAMES)} |", f"| --- | --- |{' --- |' * len(NAMES)}"]
    short = []
    for _, entry in entries:
        runs = CARDS[entry.id]["runs"]
        page += [f"| `{entry.id}`{row}" for row in table_rows(runs)]
        short += [f"- `{entry.id}`: {text}." for text in shortfalls(runs)]
    page += [ASKED + ("Missed:\n" if short else "All are met."), *short]
    page += ["", "An episode of the best controller:\n", "| id | system | episode |", "| --- | --- | --- |"]
    for system, entry in entries:
        if (IMAGES / f"{entry.id}.gif").is_file():
            link, picture = f"[{system.name}](systems/{system.name}.md)", f"../images/{entry.id}.gif"
            page.append(f"| `{entry.id}` | {link} | ![An episode]({picture}) |")
    return "\n".join([*page, ""])


def _cell(run: dict[str, Any] | None) -> str:
    """Result of one run: 95 [89, 98], 1.23."""
    if run is None:
        return ""
    low, high = run["success_95"]
    few = "" if run["episodes"] == 100 else f" ({run['episodes']})"
    return f"{100 * run['success']:.0f} [{100 * low:.0f}, {100 * high:.0f}]{few}, {run['return']:.3g}"


def _keywords(build: Callable[..., Any]) -> tuple[str, list[str]]:
    """The text of a task's docstring, and its keywords with their defaults as a Markdown list: those of its signature."""
    text, _, rest = (inspect.getdoc(build) or "").partition("\nArgs:\n")
    lines = re.sub(r"\n {6,}", " ", rest.split("\n\n")[0]).splitlines()
    told = dict(line.strip().split(": ", 1) for line in lines if ": " in line)
    own = {name: p.default for name, p in inspect.signature(build).parameters.items() if name not in GIVEN}
    plain = (int, float, str, tuple, dict, type(None))
    shown = {
        name: f"{name}={default!r}".replace("'", '"') if isinstance(default, plain) else name for name, default in own.items()
    }
    return text.strip(), [f"- `{shown[name]}`: {told.get(name, '')}".rstrip(": ") for name in own]


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
    return [
        f"| {_names(part)} | {len(part)} | {unit} | {low:g} | {high:g} |"
        for (unit, low, high), row in groups.items()
        for part in _parts(row)
    ]


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Parts of names that fit into a table's cell."""
    while names:
        size = max((n for n in range(1, len(names) + 1) if len(_names(names[:n])) <= CELL), default=1)
        yield names[:size]
        names = names[size:]


def _names(names: Sequence[str]) -> str:
    """Names in their order; blocks that repeat with other numbers are cut.

    >>> _names(["left0", "right0", "left1", "right1", "left2", "right2", "brake"])
    'left0, right0 ... left2, right2, brake'
    """
    families = [re.sub(r"\d+", "#", name, count=1) for name in names]
    found, i = [], 0
    while i < len(names):
        runs = []
        for period in range(1, (len(names) - i) // 2 + 1):
            end = i + period
            while end < len(names) and families[end] == families[end - period]:
                end += 1
            runs.append(((end - i) // period * period, -period))
        size, period = max(runs, default=(0, -1))
        if size >= -3 * period and "#" in "".join(families[i : i - period]):
            found.append(f"{', '.join(names[i : i - period])} ... {', '.join(names[i + size + period : i + size])}")
            i += size
        else:
            found.append(names[i])
            i += 1
    return ", ".join(found)


def _constants(kind: type[Parameters], backend: str) -> str:
    """Table of parameters."""
    rows = [
        f"| {s.name} | {s.default:g} | {s.unit} | {s.bounds[0]:g} ... {s.bounds[1]:g} | {s.scale} | {s.source} |"
        for s in kind.specs().values()
    ]
    head = ["| parameter | value | unit | bounds | scale | source |", "| --- | --- | --- | --- | --- | --- |"]
    text = inspect.getdoc(kind) or ""
    said = [] if text.startswith(f"{kind.__name__}(") else [f"{text}\n"]  # else the signature that dataclass writes
    return "\n".join([f"### {backend}: {kind.__name__}\n", *said, *head, *rows, ""])


# --- requirements on task cards -------------------------------------------------------------------------------------------

NAMES = ("zero", "random", "blind", "policy of", "heuristic", "planner", "mpc", "policy", "policy, noise and delay")
"""Controllers in the order of the table."""
LIMITS = {"zero": 0.05, "random": 0.2}
"""Controller -> upper limit of its success, on every world and level."""
KNOWING = ("heuristic", "planner", "mpc")
"""Controllers with knowledge of the robot: one of them must solve the task."""
SURE = 0.9
"""Least success of the best of them at the first level."""
BLIND = 0.5
"""Largest success of a blind controller at the first level, over that of the best of them."""
MOST = 0.5
"""A controller with more success than this must earn more than "zero" there."""

Run = Mapping[str, Any]
"""A line of a card: backend, controller, level, success, success_95, return."""


def is_blind(controller: str) -> bool:
    """Whether the controller is blind to what the task is about.

    >>> [is_blind(name) for name in ("blind", "policy of VineGrow-v0", "policy")]
    [True, True, False]
    """
    return controller == "blind" or controller.startswith("policy of")


def shortfalls(runs: Sequence[Run]) -> list[str]:
    """One sentence per shortfall of a card; missing runs are none, except the reference.

    Options of an id ("muscles: heuristic") are judged separately.
    """
    options = dict.fromkeys(run["controller"].rpartition(": ")[0] for run in runs)
    found = []
    for option in options:
        own = [
            {**run, "controller": name}
            for run in runs
            for before, _, name in [run["controller"].rpartition(": ")]
            if before == option
        ]
        found += [
            f"{option}: {text}" if option else text
            for text in (*_limits(own), *_references(own), *_levels(own), *_returns(own))
        ]
    return found


def table_rows(runs: Sequence[Run]) -> list[str]:
    """Success in % of `NAMES`, an option, world and level per row: our engine first, the first level first, options last.

    Only the first and last levels. A row begins behind the id, with its option if it has one.
    """
    worlds = {(run["level"], run["backend"]) for run in runs if run["level"] in (None, 1.0, 3.0)}
    rows = []
    for level, backend in sorted(worlds, key=lambda world: (world[0] or 0.0, world[1] != NATIVE)):
        here = [run for run in runs if (run["level"], run["backend"]) == (level, backend)]
        found = {re.sub(r"^policy of .*", "policy of", run["controller"]): run for run in here}
        for option in dict.fromkeys(name.rpartition(": ")[0] for name in found):
            each = [found.get(f"{option}: {name}" if option else name) for name in NAMES]
            cells = [f"{100 * run['success']:.0f}" if run else "" for run in each]
            rows.append(f"{f', {option}' if option else ''} | {_world(here[0])} | {' | '.join(cells)} |")
    return rows


def _limits(runs: Iterable[Run]) -> Iterator[str]:
    """Shortfalls of `LIMITS`: controllers without observation succeed."""
    for run in runs:
        limit = LIMITS.get(run["controller"], 2.0)
        if run["success"] >= limit:
            yield f'on {_world(run)}, "{run["controller"]}" succeeds in {_percent(run)}, allowed is below {100 * limit:g} %'


def _references(runs: Sequence[Run]) -> Iterator[str]:
    """Shortfalls at the first level: no controller with knowledge succeeds, or a blind one does nearly as well."""
    first = [run for run in runs if run["level"] in (None, 1.0)]
    for backend in dict.fromkeys(run["backend"] for run in first):
        here = [run for run in first if run["backend"] == backend]
        best = max((run for run in here if run["controller"] in KNOWING), key=lambda run: run["success"], default=None)
        if best is None:
            yield f"on {backend}, nobody who knows the robot was measured"
            continue
        if best["success"] < SURE:
            yield f'on {_world(best)}, nobody who knows the robot succeeds in 90 %: "{best["controller"]}" in {_percent(best)}'
        for run in here:
            if is_blind(run["controller"]) and run["success"] > BLIND * best["success"]:
                yield f'on {_world(run)}, "{run["controller"]}" succeeds in {_percent(run)}, though it is blind'


def _levels(runs: Sequence[Run]) -> Iterator[str]:
    """Shortfalls of levels: a higher level is easier for a controller, with its interval above that of the lower level."""
    for low, high in itertools.permutations(runs, 2):
        same = all(low[key] == high[key] for key in ("backend", "controller"))
        if same and (low["level"] or 0) < (high["level"] or 0) and low["success_95"][1] < high["success_95"][0]:
            was = f"at level {low['level']:g} in {_percent(low)}"
            yield f'on {_world(high)}, "{high["controller"]}" succeeds in {_percent(high)}, {was}'


def _returns(runs: Sequence[Run]) -> Iterator[str]:
    """Shortfalls of the reward: a controller succeeds in most episodes and earns no more than zero action."""
    still = {(run["backend"], run["level"]): run["return"] for run in runs if run["controller"] == "zero"}
    for run in runs:
        least = still.get((run["backend"], run["level"]), -math.inf)
        if run["success"] > MOST and run["return"] <= least:
            yield (
                f'on {_world(run)}, "{run["controller"]}" succeeds in {_percent(run)} and earns {run["return"]:.3g}, '
                f"doing nothing {least:.3g}"
            )


def _world(run: Run) -> str:
    return run["backend"] if run["level"] is None else f"{run['backend']}, level {run['level']:g}"


def _percent(run: Run) -> str:
    return f"{100 * run['success']:.0f} %"


# --- controller benchmark -------------------------------------------------------------------------------------------------

FINDINGS = (
    "With the full state, planning beats the trained policy on rough ground. On TensegrityTerrain at level 3, `mppi` with "
    "100 steps succeeds in all episodes. "
    "The heuristic reaches 67 % and the shipped policy 47 %.",
    "The budget that solves UpperBodyReach does not run in real time. Ten times the budget take `mppi` from 20 % to 100 %. "
    "Then all timed plans are late: 22 ms in a period of 20 ms. With actions 40 ms late it still succeeds in 90 %.",
    "A minute of learning from sensors beats every planner on fast motions. On LoopBend with periods of 1 to 1.5 s and a "
    "tolerance of 5 mm, PPO from scratch succeeds in 99 %. The best planner that was tried (`cem` with "
    "1,000 steps) reaches 20 %, the heuristic 0.",
    "Sensors cost a planner little where they show what matters. With an ensemble Kalman filter in front, `mppi` with "
    "100 steps keeps 97 of 100 % on ArmHold, whose load no sensor shows, 80 of 83 % on TensegrityRoll and 87 of 90 % on "
    "VineSqueeze. It falls from 100 to 57 % on TensegrityTerrain, and from 83 % to 0 of 10 episodes on VineNavigate.",
    "Exact derivatives solve TensegrityRoll, but not in time. `linear` with 100 steps succeeds in 10 of 10 episodes, where "
    "`mppi` reaches 83 %. One of its plans takes 1.1 s, in a period of 0.1 s.",
    "Static friction hides the slope of the reward. On SlidingBlock, `ilqg` and `linear` earn what no action earns. "
    "Sampling with up to 1,000 steps reaches 10 % at most, `mppi` with 10,000 steps 80 %. "
    "The heuristic succeeds in all episodes.",
    "Exact derivatives save simulated steps. With 100 steps `linear` succeeds in 100 % on LoopReach, 97 % on LoopBend and 70 % "
    "on UpperBodyReach, and no plan is late. `mppi` with 100 steps reaches 93, 0 and 20 %.",
    "Sixteen episodes of a planner are too few to clone it. From them behaviour cloning reaches "
    "64 % on ArmReach and 54 % on ArmHold, and at most 10 % anywhere else.",
)
"""What the table shows, in sentences; read them again when its numbers change."""
BENCHMARK = "reference/benchmark.md"


ORACLES = {
    "plan_far": "sampling MPC with a horizon of 9 s, 4,500 steps per executed one",
    "detour": "a way past an end of the ridge, by the heuristic's law of rolling",
    "regulate": "a linear-quadratic regulator about a reference",
    "reach_stiffly": "the heuristic with stiffer springs",
    "foresee": "iLQG over the whole profile at once, replayed open loop",
    "try_policy": "a success among 512 simulated tries of the shipped policy with noise",
}
"""Function of experiments/hard_settings.py -> what it is."""
UNSOLVED = 0.6
"""Success that the best controller of the table does not reach."""


def unsolved() -> str:
    """Markdown: settings that only oracles solve, of the published cells."""
    lines, others = benchmark.lines_of(benchmark.published()), benchmark.lines_of(benchmark.published(others=True))
    rows = [
        "\n## Settings that are not solved yet\n",
        "The best of the table stays below 60 % here, and no action, random actions and a blind controller below 5 %. "
        "Controllers with an empty cell above were not tried. An oracle with full knowledge shows that it can be done: "
        "[experiments/hard_settings.py](../../experiments/hard_settings.py).\n",
        "| id | keywords | best [%] | zero, random [%] | blind [%] | oracle [%] | oracle |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]

    def percent(found: Any) -> str:
        return f"{100 * found.success.value:.0f}"

    for oracle in [line for line in others if line.controller.startswith("hard_settings:")]:
        setting, what = (oracle.id, oracle.options), oracle.controller.partition(":")[2]
        here = {line.label: line for line in lines if (line.id, line.options) == setting and not line.reason}
        best = max(here.values(), key=lambda line: line.success.value)
        if best.success.value >= UNSOLVED:
            continue
        blind = [line for line in others if (line.id, line.options) == setting and line is not oracle]
        rows.append(
            f"| `{oracle.id}` | `{oracle.options}` | {percent(best)} (`{best.label}`) | {percent(here['zero'])}, "
            f"{percent(here['random'])} | {', '.join(map(percent, blind))} | {percent(oracle)} | `{what}`: {ORACLES[what]} |"
        )
    return "\n".join([*rows, "\nAt `heading=0.0` the heuristic of TensegrityTerrain is blind: it rolls straight on.\n"])


def benchmark_page() -> str:
    """The published cells of the controller benchmark."""
    more = unsolved() + (
        "\nPPO's success beside processor time, and on the MuJoCo models: [table](../../results/all_train_ppo/table.md).\n\n"
        "![Success against processor time](../../results/all_train_ppo/picture.png)\n\n"
        "The best planner or heuristic of one id of each system and, right of it, the worst one, in the first "
        "episode:\n\n![Best and worst controllers](../images/benchmark.gif)\n\n"
        "Films of every id: [task cards](task_cards.md).\n"
    )
    return NOTE + benchmark.markdown(benchmark.published(), "../images/benchmark_", FINDINGS) + more


# --- solver differences ---------------------------------------------------------------------------------------------------

SOLVERS = read_json(Path(__file__).parents[1] / "results/solver_differences/numbers.json")
SOLVERS_INTRO = """\
# Solver differences

Native engine, MuJoCo and a second physics on the same motions: [Pinocchio](systems/upper_body.md) for the upper body,
[PyElastica](systems/loop.md) for the loop. `experiments/solver_differences.py` measures it.

## The same motions

| column | meaning |
| --- | --- |
| dt | physics step |
| period | of the upper body's slowest mode without dampers, and of the wrist of the loop's arm |
| energy | share that is left after 3 s; the loop's arm has dampers |
| gap | largest difference of angles from the native engine at 0.1 ms, after random torques for 0.5 s |
| lift | height by which a peg lifts the lowest link of a hanging loop: contact |
| speed | processor time for a second of one robot |

"""
MATRIX_INTRO = """
## Transfer matrix

Success in % with its 95 % interval, over {episodes} episodes; those of `LoopReach-v0` and `LoopPeg-v0` last 5 s.
A controller was made in one simulator and runs in the others.
Changed robots have parameters that no controller was made with: {robots}.
Identified: the planner's parameters come from a recording of the robot. `policy` comes with the package.
`planner` of the loop: a constant action under which it rests at the goal, by simulation where it was made; no feedback.
`planner` of the upper body: inverse kinematics, weak springs, and torques that hold the pose where it was made.

"""


def solvers_page() -> str:
    """Motions, identification and transfer matrix of `experiments/solver_differences.py`, and differences in words."""
    page = [NOTE + SOLVERS_INTRO]
    for name in ("upper_body", "loop"):
        runs = {key.split()[1:][0] + " " + key.split()[2]: v for key, v in SOLVERS["motions"].items() if key.split()[0] == name}
        contact = ("lift [mm] |", " --- |") if name == "loop" else ("", "")
        moved = next(iter(runs.values()))["moved"]
        page += [
            f"`{name}` (the random torques move its angles by up to {moved:.2g} rad):\n",
            f"| simulator | dt [ms] | period [s] | energy [%] | gap [mrad] | {contact[0]} speed [s/s] |",
            f"| --- | --- | --- | --- | --- |{contact[1]} --- |",
            *(
                f"| {key.split()[0]} | {1e3 * float(key.split()[1]):g} | {run['period']:.4f} | {100 * run['energy']:.4g} | "
                f"{1e3 * run['gap']:.2g} | " + (f"{1e3 * run['lifted']:.1f} | " if contact[0] else "") + f"{run['speed']:.2g} |"
                for key, run in runs.items()
            ),
            "",
        ]
    page += ["## Differences in words\n"]
    for name in ("upper_body", "loop"):
        page += [f"### {name}\n", differences(systems()[name]), ""]
    page += ["## Identification from recordings\n", *_identifications()]
    robots = "; ".join(
        f"`{name}`: {', '.join(f'{k} {v:g}' for k, v in given.items())}" for name, given in SOLVERS["robots"].items()
    )
    page += [
        MATRIX_INTRO.format(episodes=SOLVERS["episodes"], robots=robots),
        *_transfers(),
        *(f"- {text}" for text in SHOWN),
        "",
    ]
    return "\n".join(page)


SHOWN: tuple[str, ...] = (
    "Upper body: Pinocchio at 2 ms and MuJoCo at 0.2 ms lie within the native engine's error at 0.1 ms, 0.15 mrad.",
    "Loop: PyElastica's rod differs from the native engine by 9 of 250 mrad at either step. MuJoCo's rod differs by 71 mrad.",
    "A peg lifts the loop equally in the native engine and in PyElastica, by the same law. MuJoCo's contact is stiffer.",
    "Controllers made in the native engine or in MuJoCo keep their success on the second physics with the same parameters.",
    "LoopIdentify is an exception: its estimator uses the native model. On the rod 3 % of its estimates are within tolerance.",
    "Another payload and softer springs bring the upper body's planners to 3 %. Identified ones bring 87 to 93 %.",
)
"""What the numbers show, in sentences; read them again when they change."""


def _identifications() -> list[str]:
    """Parameters that were changed, and how many of all intervals hold the given value, per recording."""
    rows = []
    for key, fit in SOLVERS["identification"].items():
        name, backend = key.split()
        if backend == NATIVE:
            continue  # exact: the recording has no noise, and the model no error
        inside = [p["interval"][0] <= p["given"] <= p["interval"][1] for p in fit["parameters"].values()]
        for parameter in SOLVERS["robots"][name]:
            p = fit["parameters"][parameter]
            low, high = p["interval"]
            rows.append(
                f"| {name} | {backend} | {parameter} | {p['given']:g} | {p['value']:.4g} [{low:.4g}, {high:.4g}] | "
                f"{sum(inside)} of {len(inside)} |"
            )
    head = ["| system | recorded on | parameter | given | estimate, 95 % interval | intervals that hold, of all parameters |"]
    return [*head, "| --- | --- | --- | --- | --- | --- |", *rows]


def _transfers() -> list[str]:
    """Rows: id, controller, where it was made, identified; columns: worlds."""
    cells = {tuple(part.strip() for part in key.split("|")): value for key, value in SOLVERS["matrix"].items()}
    rows = dict.fromkeys((id, *row) for id, _, *row in cells)
    worlds = (NATIVE, "mujoco", "second physics")
    second = {"UpperBodyReach-v0": "pinocchio"}
    found = []
    for id, *row in rows:
        here = [cells.get((id, second.get(id, "elastica") if world == worlds[2] else world, *row)) for world in worlds]
        found.append(f"| `{id}` | {' | '.join(row)} | {' | '.join(_share(cell) for cell in here)} |")
    head = f"| id | robot | controller | made in | identified | {' | '.join(worlds)} |"
    return [head, "| --- | --- | --- | --- | --- | --- | --- | --- |", *sorted(found, key=lambda row: row.split("|")[1]), ""]


def _share(cell: Mapping[str, Any] | None) -> str:
    """Success with its interval."""
    if cell is None:
        return ""
    low, high = cell["success_95"]
    return f"{100 * cell['success']:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


DIAGNOSTICS = """\
# Diagnostics

`sysid.identify` returns diagnostics, the headline first. Each is a value: `Diagnostic(code, severity, parameter, value, limit,
facts)`. `fit.json` holds all of them, with a hint and a sentence. Programs read codes and numbers, never sentences.

| severity | meaning |
| --- | --- |
| ok | All tests passed. |
| note | A fact that limits nothing. |
| warning | It limits what the parameters mean. |
| do_not_use | The parameters must not be used, or only to predict; `fit.toml` says so, too. |

False alarms are measured on fits of right models. An empty cell was not measured.

| code | meaning | what to do | false alarms |
| --- | --- | --- | --- |
"""


def diagnostics_page() -> str:
    """Table of all codes of diagnostics."""
    rows = [f"| `{name}` | {code.meaning} | {code.hint} | {code.alarms} |" for name, code in CODES.items()]
    return "\n".join([f"{NOTE}{DIAGNOSTICS}{rows[0]}", *rows[1:], ""])


def main(args: Args) -> int:
    """Write the pages, or compare them: 1 if one is stale."""
    pages = {
        "reference/environments.md": index_page(),
        "reference/task_cards.md": cards_page(),
        "reference/diagnostics.md": diagnostics_page(),
        BENCHMARK: benchmark_page(),
        "reference/solver_differences.md": solvers_page(),
        **{f"reference/systems/{r.name}.md": system_page(r) for r in systems().values()},
    }
    stale = [
        name for name, text in pages.items() if not (args.out / name).is_file() or (args.out / name).read_text("utf-8") != text
    ]
    if args.check:
        print(f"stale: {', '.join(str(args.out / name) for name in stale)}; run `make docs`" if stale else "all up to date")
        return int(bool(stale))
    if BENCHMARK in stale:
        for family in benchmark.families(benchmark.published()):
            write_atomically(IMAGES / f"benchmark_{family}.png", benchmark.draw(benchmark.published(), family))
    for name in stale:
        write_atomically(args.out / name, pages[name].encode())
    print("written: " + (", ".join(str(args.out / name) for name in stale) or "nothing, all pages are up to date"))
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
