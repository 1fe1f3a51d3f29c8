"""Requirements on an id's task card, its shortfalls, and its rows of a table. Cards are made by studies/task_cards."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from softgym_envs.core.room import NATIVE

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
