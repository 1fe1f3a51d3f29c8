"""Table of the results: results/silicone_beam_identify/table.md."""

from __future__ import annotations

from typing import Any


def table(document: dict[str, Any]) -> str:
    """Table of held-out predictions, and the modulus."""
    lines = [
        "# A clamped beam of silicone rubber, with a load at its tip",
        "",
        "`python experiments/silicone_beam_identify/silicone_beam_identify.py fit --data DIR`;",
        "recordings of [Dubied2022], 0 g (two) and 52 g (one).",
        "",
        "| fitted to | predicted | frequency [Hz] | decay [1/s] | swing | path, rms up / along | blind, up | rest | noise |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_line(x["fitted to"], x) for x in document["held_out"]),
        *(_line("all (not held out)", x) for x in document["fitted"]),
        "",
        "Measured -> predicted, lengths in mm. Path: from 0.34 s after the release on, with two numbers of the start",
        "from the 0.2 s before; blind: let go straight, at rest, at once. Rest: error of the place 2.2 s after the release.",
        "",
    ]
    held = document["held_out"]
    worst = {n: max(abs(x[n]) for x in held) for n in ("frequency_error", "decay_error")}
    path = max(x["up_mm"] / x["swing_mm"] for x in held)
    soft = ", ".join(f"{value:.3f} ({name})" for name, value in document["softening_alone"].items())
    loads = zip(document["loads"], document["two_numbers"], strict=True)
    f, d = document["tolerance"]
    lines += [
        f"Largest errors held out: frequency {100 * worst['frequency_error']:.1f} %, decay {100 * worst['decay_error']:.0f} %, "
        f"path {100 * path:.0f} % of the swing. Paths are not explained to the markers' noise (last column).",
        f"95 % of repeats differ from their mean by less than {100 * f:.1f} % in frequency and {100 * d:.0f} % in decay.",
        "",
        f"Softening in larger motion: {document['softening']:.3f} of the frequency at an amplitude of 5 mm; "
        f"of single recordings from 0.34 s on: {soft}.",
        "",
        "| load, held straight [g] | frequency [Hz] | decay [1/s] | a spring and a mass from 0 and 52 g [Hz] |",
        "| --- | --- | --- | --- |",
        *(f"| {load:.0f} | {hertz:.3f} | {decay:.2f} | {simple:.3f} |" for (load, hertz, decay), simple in loads),
        "",
    ]
    e = document["modulus"]
    low, high = (1e-3 * x for x in e["interval"])
    alone = ", ".join(f"{1e-3 * value:.0f} ({name})" for name, value in e["alone"].items())
    lines += [
        f"E that lasts: {1e-3 * e['lasting']:.0f} kPa, 95 % [{low:.0f}, {high:.0f}], t over recordings fitted alone: {alone}.",
        "",
        "| load [g] | frequency [Hz] | E' of the fit, in small motion [kPa] | E of a Timoshenko beam that rings so |",
        "| --- | --- | --- | --- |",
        *(f"| {load:.0f} | {f:.3f} | {1e-3 * ours:.0f} | {1e-3 * theory:.0f} |" for f, ours, theory, load in e["at_Hz"]),
        "",
        "The authors' finite elements: 264 kPa, one modulus for rest and motion.",
        "",
        "Diagnostics of the fit that is frozen: " + "; ".join(document["diagnostics"]) + ".",
        "",
    ]
    return "\n".join(lines)


def _line(fitted: str, x: dict[str, Any]) -> str:
    f, d = x["frequency"], x["decay"]
    cells = [
        fitted, f"{x['recording']} ({x['load_g']:.0f} g)", f"{f[0]:.3f} -> {f[1]:.3f} ({100 * x['frequency_error']:+.2f} %)",
        f"{d[0]:.2f} -> {d[1]:.2f} ({100 * x['decay_error']:+.0f} %)", f"{x['swing_mm']:.1f}",
        f"{x['up_mm']:.2f} / {x['along_mm']:.2f}", f"{x['blind_up_mm']:.2f}", f"{x['rest_mm']:+.2f} of {x['sag_mm']:.1f}",
        f"{x['noise_mm']:.3f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"
