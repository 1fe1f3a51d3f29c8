"""Cells of text files: separators, decimal signs, empty cells, and names with units."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import FileFormatError, shown
from ...core.files import read_text
from ...core.units import unit_named

MISSING = frozenset(("", "-", "--", "na", "n/a", "#n/a", "nan", "null", "none", "nil"))
"""Cells that say that nothing was measured, in small letters."""
SUFFIXES = frozenset(
    "s sec secs seconds ms msec us usec ns nsec m cm mm um rad deg degrees mrad rpm dps m_s m_per_s mps rad_s rad_per_s deg_s "
    "deg_per_s m_s2 mps2 rad_s2 N mN kN Nm Nmm mNm Pa hPa kPa kpa MPa mpa bar mbar psi lpm V mV A mA kg g Hz hz percent pct "
    "px".split()
)
"""Units that a name without [unit] may end in, as time_s, press_psi_1."""
_SUFFIX = re.compile(rf"(.+?)_({'|'.join(sorted(SUFFIXES, key=len, reverse=True))})(_\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d{1,3}(\.\d{3})*,\d+([eE][+-]?\d+)?|[+-]?\d+,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")


def lines_of(path: Path) -> list[str]:
    """Lines of a text file in UTF-8, UTF-16 with its mark, or Windows-1252."""
    return read_text(path, "CSV").splitlines()


def cells_of(path: str, number: int, line: str, separator: str) -> list[str]:
    """Cells of a line, without spaces around them; separator " " stands for any white space.

    Raises:
        FileFormatError: It cannot be divided.
    """
    if separator == " ":
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=separator != "\t"))]
    except csv.Error as error:
        raise FileFormatError(f"{path}, line {number} is no line of CSV: {error}") from error
    except StopIteration:
        return []


def separator_of(lines: Sequence[str]) -> str:
    """What separates the cells of these lines: tab, semicolon, comma, or white space if nothing else does."""
    first = lines[0]
    for separator in ("\t", ";", ","):
        if separator in re.sub(r'"[^"]*"', "", first):
            return separator
    few = lines[1:3]
    return " " if few and all(len(line.split()) > 1 and not re.search(r"[,;\t]", line) for line in few) else ","


def columns_of(path: str, rows: Sequence[Sequence[str]], separator: str) -> tuple[tuple[str, ...], ...]:
    """Columns of cells, "" where nothing was measured, decimals with a point.

    Raises:
        FileFormatError: Commas may be decimal signs or separate thousands.
    """
    columns = tuple(zip(*rows, strict=True))
    if any("," in cell for column in columns for cell in column):
        columns = _with_points(path, columns, separator)
    return tuple(tuple("" if cell.lower() in MISSING else cell for cell in column) for column in columns)


def _with_points(path: str, columns: tuple[tuple[str, ...], ...], separator: str) -> tuple[tuple[str, ...], ...]:
    """Columns whose decimals have a point, and thousands no sign."""
    commas = [cell for column in columns for cell in column if "," in cell]
    decimal = all(_DECIMAL_COMMA.fullmatch(cell) for cell in commas)
    thousands = all(_THOUSANDS.fullmatch(cell) for cell in commas)
    if decimal and thousands and separator == ",":
        raise FileFormatError(f"{path}: {commas[0]!r} may be a decimal or a whole number; save it with a decimal point")
    if decimal:
        return tuple(tuple(_with_point(cell) for cell in column) for column in columns)
    if thousands:
        return tuple(tuple(cell.replace(",", "") for cell in column) for column in columns)
    return columns  # a cell that is no number is named later, with its line


def _with_point(cell: str) -> str:
    """A number with a decimal comma, and perhaps points between thousands, as one with a decimal point."""
    grouped = "," in cell or re.fullmatch(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", cell)
    return cell.replace(".", "").replace(",", ".") if grouped else cell


def name_and_unit(path: str, cell: str) -> tuple[str, str]:
    """Name and unit of a header: `x [mm]`, `x (mm)`, `x_mm`, `q[0]`, `q[0] [rad]`.

    >>> [name_and_unit("a.csv", cell) for cell in ("q[0] [rad]", "q[1]", "press_psi_1", "Time (Seconds)", "force_x")]
    [('q[0]', 'rad'), ('q[1]', ''), ('press_1', 'psi'), ('Time', 's'), ('force_x', '')]

    Raises:
        FileFormatError: Brackets do not match.
    """
    match = re.fullmatch(r"(.*?)\s*(?:\[\s*(?!\d+\])([^\[\]]*?)\s*\])?", cell)
    name, unit = (match[1], match[2] or "") if match else (cell, "")
    if not name or re.search(r"[\[\]]", re.sub(r"\[\d+\]", "", name)):
        raise FileFormatError(f"{path}: column header {shown(cell)} is not of the form 'name [unit]'")
    if unit:
        return name, unit_named(unit) or unit
    inside = re.fullmatch(r"(.*\S)\s*\(\s*([^()]+?)\s*\)", name)
    if inside and (known := unit_named(inside[2])):
        return inside[1], known
    if ending := _SUFFIX.fullmatch(name):
        return ending[1] + (ending[3] or ""), unit_named(ending[2]) or ending[2]
    return name, ""
