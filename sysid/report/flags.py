"""Advice to callers of Python in the words of the command line."""

from __future__ import annotations

import re

AS_FLAGS = {
    "free_motion=True": "--free-motion",
    "free_initial=True": "--free-initial True",
    "errors='clustered'": "--settings errors=clustered",
    "jacobian='differences'": "--settings jacobian=differences",
    "measured=...": "--columns ...",
    "noise is not given": "--noise is not given",
    "build the simulator with dt": "say --fps, or --dt",
    "simulator_options": "--option",
    "raise max_iterations": "raise --max-iterations",
    "with fps=...": "with --fps",
    "say fps=...": "say --fps",
    "meters_per_pixel=...": "--meters-per-pixel ...",
    "meters_per_pixel": "--meters-per-pixel",
}
"""Advice of `sysid` -> its wording for the command line."""


def as_flags(text: str) -> str:
    """The text with flags for arguments: those between backticks, and those of `AS_FLAGS`.

    >>> as_flags("say `max_iterations`")
    'say --max-iterations'
    """
    for advice, flag in AS_FLAGS.items():
        text = text.replace(advice, flag)
    return re.sub(r"`(\w+)`", lambda found: "--" + found[1].replace("_", "-"), text)
