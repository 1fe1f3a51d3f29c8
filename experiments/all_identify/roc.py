"""Area under the ROC curve of the test statistic, between ground truths of the model's own class and those that it misses.

The statistic is a fit's `misfit`. Ground truths of the own class should be explained; ground truths of a level that the fitted
model misses by more than the noise should not. The area is the share of pairs, one of each, of which the second has the larger
misfit. A row from before fits reported their misfit gives only its side of 1: pairs that this leaves open count as wrong.

Pairs that share a ground truth are not independent, so the exact interval uses disjoint pairs: the k-th of one list with the
k-th of the other, in the order of seeds (Clopper and Pearson 1934).
"""

from __future__ import annotations

from typing import Any

from scipy.stats import binomtest

Row = dict[str, Any]


def range_of(row: Row) -> tuple[float, float]:
    """Smallest and largest possible misfit of a row."""
    if "misfit" in row:
        return row["misfit"], row["misfit"]
    return (0.0, 1.0) if row["explains"] else (1.0, float("inf"))


def told(own: Row, missing: Row) -> bool:
    """Whether the second certainly has the larger misfit."""
    (_, own_most), (least, _) = range_of(own), range_of(missing)
    return own_most < least or (own_most == least == 1.0 and own["explains"] and not missing["explains"])


def parted(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows with a fit: those of the own class, and those of levels that the model misses by more than the noise."""
    ordered = sorted((row for row in rows if "explains" in row), key=lambda row: (row["seed"], row["level"]))
    own = [row for row in ordered if row["level"] == "own"]
    return own, [row for row in ordered if row["level"] != "own" and row["miss"] > 1.0]


def interval(right: int, count: int) -> tuple[float, float]:
    """Exact 95 % interval of a share."""
    found = binomtest(right, count).proportion_ci(method="exact")
    return float(found.low), float(found.high)


def line(name: str, rows: list[Row]) -> str:
    """Row of the table in Markdown; all systems together are compared within each system."""
    right = total = apart = pairs = mine = others = 0
    for system in dict.fromkeys(row["system"] for row in rows):
        own, missing = parted([row for row in rows if row["system"] == system])
        right += sum(told(one, other) for one in own for other in missing)
        total += len(own) * len(missing)
        apart += sum(told(one, other) for one, other in zip(own, missing, strict=False))
        pairs += min(len(own), len(missing))
        mine, others = mine + len(own), others + len(missing)
    if not total:
        return f"| {name} | {mine} | {others} | - | - |"
    low, high = interval(apart, pairs)
    return f"| {name} | {mine} | {others} | {right / total:.3f} | {apart} of {pairs}: {low:.2f} ... {high:.2f} |"


def table_of(rows: list[Row]) -> str:
    """Table in Markdown: areas, and how often a fit without reservations was false."""
    systems = dict.fromkeys(row["system"] for row in rows)
    lines = ["| system | own class | missed by more than the noise | area under the ROC curve | disjoint pairs, 95 % |"]
    lines.append("| --- " * 5 + "|")
    lines += [line(system, [row for row in rows if row["system"] == system]) for system in systems] + [line("all", rows)]
    judged = [row for row in rows if "explains" in row]
    false, sure = sum(row["false"] for row in judged), sum(row["identified"] for row in judged)
    most = [100 * interval(false, count)[1] if count else 100.0 for count in (len(judged), sure)]
    lines += ["", f"Falsely identified: {false} of {len(judged)} ground truths, at most {most[0]:.1f} % (exact, 97.5 %); "]
    lines[-1] += f"of the {sure} that were identified without reservations at most {most[1]:.1f} %."
    return "\n".join([*lines, ""])


__all__ = ["interval", "parted", "range_of", "table_of", "told"]
