"""The page of the benchmark from its numbers: tables, performance profiles, score against compute.

A score is (J - J_zero) / (J_best - J_zero), J the return of an episode, J_zero and J_best the mean returns of no action and of
the best controller on the same id.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.files import read_json, write_atomically
from softgym_envs.core.simulator import Array
from softgym_envs.data.page import COLORS, new_figure, plain_axes
from softgym_envs.systems import system_of_task, tasks

from ..transfer_study.statistics import Interval, number, performance_profile, share
from .controllers import ROWS, row_of

PUBLISHED = Path(__file__).with_name("numbers.json")
"""The cells that come with the package."""
USUAL = {
    "seed": 0, "options": "", "failed": 0, "simulated": 0, "training_steps": 0, "training_seconds": 0.0, "missed": 0,
    "budget": 0, "plans": 40,
}  # fmt: skip
"""What a published cell does not repeat."""
RESAMPLES = 2000
"""Bootstrap samples of a mean return."""
STYLES, MARKERS = ("-", "--", ":"), "osD"
LOWEST = -0.3
"""Lowest mean score that is drawn; lower ones are drawn there."""
INTRO = """\
Every controller plays the same episodes of the native engine: episode i begins from the same seed. Success and mean return have
95 % intervals (Wilson, bootstrap over episodes). Learners have up to three seeds: the mean, and the seeds in parentheses.

- **Budget**: simulated control steps per executed one (planners), or control steps of the training (learners; none: the steps
  of the id's settings).
- **Sees**: "full state" includes the parameters that an episode drew. "Sensors" is the observation of the id.
- **Plan**: processor time of one plan of one robot, median and 95th percentile. A late plan takes longer than a control period.
- **`action_latency`**: a row with this keyword pays for late plans: it acts so many seconds later. Planners predict through it.
- **Processor**: processor time of all episodes of a row, and of its training.
- **Steps**: simulated control steps per executed one, measured. A step with exact derivatives counts as one.
- **Settings**: horizons and knots are the system's (`System.planning`), the rest are defaults. None was tuned for this table,
  except PPO's: they were chosen for each id (`System.learning`), by trials on the same engine.
- **Pictures**: scores from 0 (no action) to 1 (the best mean return on an id), over the ids and keywords that a controller
  played.
- **`mppi_sensors`** gets what policies get. Its filter estimates state, goal and drawn parameters.
"""


class Line(NamedTuple):
    """One line of a table: all seeds of a controller on an id."""

    id: str
    controller: str
    budget: int
    options: str
    cells: tuple[Mapping[str, Any], ...]

    @property
    def label(self) -> str:
        """Controller, and its budget if it has one."""
        return f"{self.controller} {self.budget:,}" if self.budget else self.controller

    @property
    def reason(self) -> str:
        """Why there are no episodes; "" if there are."""
        return str(self.cells[0].get("reason", ""))

    @property
    def returns(self) -> Array:
        """Returns of all episodes, (S, E)."""
        return np.array([cell["returns"] for cell in self.cells], dtype=np.float64)

    @property
    def success(self) -> Interval:
        """Share of successes."""
        hits = [cell["success"].count("1") for cell in self.cells]
        counts = [len(cell["success"]) for cell in self.cells]
        if len(hits) == 1:
            return share(hits[0], counts[0])
        return Interval(sum(hits) / sum(counts), None, None, tuple(h / c for h, c in zip(hits, counts, strict=True)))

    @property
    def mean_return(self) -> Interval:
        """Mean return."""
        returns = self.returns
        if len(returns) > 1:
            return Interval(float(returns.mean()), None, None, tuple(map(float, returns.mean(axis=1))))
        drawn = np.random.default_rng(0).choice(returns[0], (RESAMPLES, returns.shape[1])).mean(axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        return Interval(float(returns.mean()), float(low), float(high))

    @property
    def milliseconds(self) -> float:
        """Mean processor time of a control step of one robot [ms]."""
        return float(np.mean([1e3 * cell["period"] / cell["real_time_factor"] for cell in self.cells]))

    def mean(self, key: str, per: str = "") -> float:
        """Mean of a number over the cells, over another one if given."""
        return float(np.mean([cell[key] / (max(cell[per], 1) if per else 1.0) for cell in self.cells]))


def lines_of(cells: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Lines in the order of ids and controllers; a user's own controllers come last."""
    groups: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = {}
    for cell in sorted(cells, key=lambda cell: cell["seed"]):
        groups.setdefault((cell["id"], cell["controller"], cell["budget"], cell["options"]), []).append(cell)
    ids, names = [task.id for task in tasks()], list(ROWS)

    def place(line: Line) -> tuple[Any, ...]:
        known = line.controller in names
        at = (0, names.index(line.controller)) if known else (1, line.controller)
        return ids.index(line.id), line.options, at, line.budget

    return sorted((Line(*key, tuple(some)) for key, some in groups.items()), key=place)


def published(others: bool = False) -> list[dict[str, Any]]:
    """The cells that come with the package: of the controllers of the table, or of the others, such as oracles."""
    cells = [USUAL | cell for cell in read_json(PUBLISHED)["cells"]] if PUBLISHED.is_file() else []
    return [cell for cell in cells if (cell["controller"] not in ROWS) == others]


def markdown(cells: Sequence[Mapping[str, Any]], pictures: str, findings: Sequence[str] = (), note: str = "") -> str:
    """The page, as Markdown.

    Args:
        cells: Records of cells.
        pictures: Path of the folder of pictures, as seen from the page.
        findings: Sentences that stand first.
        note: What stands before all else.
    """
    lines = lines_of(cells)
    page = [
        "# Controller benchmark\n",
        *filter(None, [note]),
        INTRO,
        *(["## Findings\n", *(f"{k}. {text}" for k, text in enumerate(findings, start=1)), ""] if findings else []),
        *_controllers(lines),
        *_summary(lines),
    ]
    for family in families(cells):
        own = [line for line in lines if system_of_task(line.id).name == family]
        page += [f"## {family}\n", f"![Performance profiles and score against compute, {family}]({pictures}{family}.png)\n"]
        page += _table([line for line in own if not line.reason])
        page += _empty([line for line in own if line.reason])
    return "\n".join(page)


def families(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Systems of cells, in the order of ids."""
    return list(dict.fromkeys(system_of_task(line.id).name for line in lines_of(cells)))


def _controllers(lines: Sequence[Line]) -> list[str]:
    names = dict.fromkeys(line.controller for line in lines)
    rows = [
        f"| `{name}` | {row_of(name).text} | {_sees(name, lines)} | {row_of(name).budget} | `{_command(name, lines)}` |"
        for name in names
    ]
    head = ["| controller | what it is | sees | budget | command |", "| --- | --- | --- | --- | --- |"]
    return ["## Controllers\n", "A command runs a row again on all ids; add an id to run one cell.\n", *head, *rows, ""]


def _command(name: str, lines: Sequence[Line]) -> str:
    """Command of a controller's rows."""
    budgets, command = sorted({line.budget for line in lines if line.controller == name}), f"softgym-envs benchmark {name}"
    if row_of(name).budget == "planning":
        return f"{command} --budget {' '.join(map(str, budgets))}"
    return "`, `".join(f"{command} --training-steps {budget}" if budget else command for budget in budgets)


def _sees(name: str, lines: Sequence[Line]) -> str:
    seen = [cell["sees"] for line in lines if line.controller == name for cell in line.cells if "sees" in cell]
    return ", ".join(sorted(set(seen)))


def _summary(lines: Sequence[Line]) -> list[str]:
    """Success in % of all controllers on all ids."""
    labels = sorted({line.label for line in lines}, key=lambda label: [line.label for line in lines].index(label))
    labels.sort(key=lambda label: list(ROWS).index(label.split()[0]) if label.split()[0] in ROWS else len(ROWS))
    head = [f"| id | {' | '.join(labels)} |", f"| --- |{' --- |' * len(labels)}"]
    rows = []
    for id, options in dict.fromkeys((line.id, line.options) for line in lines):
        here = {line.label: line for line in lines if (line.id, line.options) == (id, options) and not line.reason}
        each = [f"{100 * here[label].success.value:.0f}" if label in here else "" for label in labels]
        rows.append(f"| `{id}`{f' {options}' if options else ''} | {' | '.join(each)} |")
    return ["## Success in %\n", *head, *rows, "", "An empty cell has its reason below, or was not run.\n"]


def _table(lines: Sequence[Line]) -> list[str]:
    head = (
        "| id | controller | success [%] | return | episodes | steps | training steps | plan p50 [ms] | p95 [ms] | period [ms]"
    )
    head += " | late plans | real-time factor | processor [s] |"
    return [head, "| --- " * 13 + "|", *map(_row, lines), ""]


def _row(line: Line) -> str:
    found = line.success
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    success = Interval(100 * found.value, low, high, tuple(100 * run for run in found.runs))
    plans, late = sum(cell["plans"] for cell in line.cells), sum(cell["missed"] for cell in line.cells)
    simulated, trained = line.mean("simulated", "executed"), line.mean("training_steps")
    cells = [
        f"`{line.id}`{f' {line.options}' if line.options else ''}", f"`{line.label}`", _text(success), _text(line.mean_return),
        str(sum(cell["episodes"] for cell in line.cells)), f"{simulated:,.0f}" if simulated else "",
        f"{trained:,.0f}" if trained else "", *(number(1e3 * line.mean(key)) for key in ("plan_p50", "plan_p95", "period")),
        f"{late} of {plans}", number(line.mean("real_time_factor")),
        number(sum(cell["processor_seconds"] + cell["training_seconds"] for cell in line.cells)),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _text(interval: Interval) -> str:
    return str(interval).replace("runs ", "")


def _empty(lines: Sequence[Line]) -> list[str]:
    return ["Empty cells:\n", *(f"- `{line.id}`, `{line.label}`: {line.reason}" for line in lines), ""] if lines else []


def scores_of(lines: Sequence[Line]) -> dict[tuple[str, str], Array]:
    """(id, label) -> scores of all its episodes; see the module docstring. Ids without a difference are left out."""
    found = dict[tuple[str, str], Array]()
    for id, options in dict.fromkeys((line.id, line.options) for line in lines):
        here = [line for line in lines if (line.id, line.options) == (id, options) and not line.reason]
        still = [line.returns.mean() for line in here if line.controller == "zero"]
        best = max((line.returns.mean() for line in here), default=0.0)
        if still and best > still[0]:
            found |= {(f"{id} {options}", line.label): (line.returns.ravel() - still[0]) / (best - still[0]) for line in here}
    return found


def draw(cells: Sequence[Mapping[str, Any]], family: str) -> bytes:
    """PNG of a system: performance profiles over its ids, and mean score against processor time per control step."""
    lines = [line for line in lines_of(cells) if system_of_task(line.id).name == family]
    scores, thresholds = scores_of(lines), np.linspace(0.0, 1.1, 56)
    labels = list(dict.fromkeys(label for _, label in scores))
    figure = new_figure(11.0, 4.0)
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2)
    handles = []
    for k, label in enumerate(labels):
        group = k // len(COLORS) % len(STYLES)
        color, style, marker = COLORS[k % len(COLORS)], STYLES[group], MARKERS[group]
        each = [found for (_, name), found in scores.items() if name == label]
        profile = np.mean([performance_profile(found[None], thresholds) for found in each], axis=0)
        left.plot(thresholds, profile, style, color=color, linewidth=1.5)
        own = [line for line in lines if line.label == label and not line.reason]
        spent = np.exp(np.mean([np.log(line.milliseconds) for line in own]))
        mean = max(float(np.mean([found.mean() for found in each])), LOWEST)
        right.semilogx(spent, mean, marker, color=color)
        handles += left.plot([], [], style + marker, color=color, label=label)
    left.set(xlabel="score s", ylabel="share of episodes with a score above s", ylim=(0.0, 1.02))
    right.set(xlabel="processor time per control step [ms]", ylabel="mean score", ylim=(LOWEST - 0.05, 1.1))
    for axes in (left, right):
        plain_axes(axes)
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=80)
    return stream.getvalue()


def of_one(name: str, lines: Sequence[Line], note: str) -> str:
    """Markdown: the page of one controller, with its place among all on every id."""
    own = [line for line in lines if line.controller == name and not line.reason]
    scores, rows = scores_of(lines), ["| id | controller | score | place by return |", "| --- | --- | --- | --- |"]
    for line in own:
        rivals = [other for other in lines if (other.id, other.options) == (line.id, line.options) and not other.reason]
        better = sum(other.mean_return.value > line.mean_return.value for other in rivals)
        score = scores.get((f"{line.id} {line.options}", line.label))
        shown = "" if score is None else f"{score.mean():.2f}"
        options = f" {line.options}" if line.options else ""
        rows.append(f"| `{line.id}`{options} | `{line.label}` | {shown} | {better + 1} of {len(rivals)} |")
    page = [f"# `{name}`\n", f"{row_of(name).text} It sees: {_sees(name, lines)}. [All controllers](benchmark.md).\n"]
    empty = [line for line in lines if line.controller == name and line.reason]
    return "\n".join([*page, *filter(None, [note]), *rows, "", *_table(own), *_empty(empty)])


def _counts(known: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> str:
    """How many episodes published cells and those of a folder played; "" where there are not both."""
    theirs, mine = ({cell["episodes"] for cell in cells if "episodes" in cell} for cells in (known, own))
    if not (theirs and mine):
        return ""
    first = " or ".join(map(str, sorted(mine)))
    played = f"Published rows played up to {max(theirs)} episodes, rows of this folder the first {first}"
    return f"{played}. A row of this folder replaces the published one of the same name.\n"


def write(cells: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write the page, those of single controllers and pictures into a folder, beside the published cells of the same ids."""
    keys = ("id", "controller", "budget", "seed", "options")
    own = {tuple(cell[key] for key in keys) for cell in cells}
    ids = {cell["id"] for cell in cells}
    known = [cell for cell in published() if cell["id"] in ids and tuple(cell[key] for key in keys) not in own]
    together, note = [*known, *cells], _counts(known, cells)
    write_atomically(out / "benchmark.md", markdown(together, "", note=note).encode())
    lines = lines_of(together)
    for name in dict.fromkeys(cell["controller"] for cell in cells):
        write_atomically(out / f"{''.join(c if c.isalnum() else '-' for c in name)}.md", of_one(name, lines, note).encode())
    for family in families(together):
        write_atomically(out / f"{family}.png", draw(together, family))


def packed(cells: Sequence[Mapping[str, Any]]) -> bytes:
    """JSON with a line per cell."""
    rows = ",\n".join(json.dumps({k: v for k, v in cell.items() if k != "seconds"}, separators=(",", ":")) for cell in cells)
    return f'{{"cells":[\n{rows}\n]}}\n'.encode()
