"""Print size and words of the checkout: files, megabytes, lines of the packages, flags, public names, prose."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("softgym_envs", "sysid", "agents")


def prose(text: str) -> str:
    """The text without code blocks, tables, pictures and headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    kept = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!", "<"))]
    return re.sub(r"`[^`]*`|\]\([^)]*\)", " ", "\n".join(kept))


def main() -> None:
    """Print the counts."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    results = [f for f in files if f.relative_to(ROOT).parts[0] == "results"]
    whole, part = (sum(f.stat().st_size for f in some) / 1e6 for some in (files, results))
    print(f"{len(files)} files, {whole:.1f} MB, of which results {part:.1f} MB")
    for package in PACKAGES:
        lines = sum(f.read_text().count("\n") for f in (ROOT / package).rglob("*.py"))
        print(f"{package}: {lines} lines, {len(importlib.import_module(package).__all__)} public names")
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for name, texts in (("README.md", [pages[0].read_text()]), ("docs", [page.read_text() for page in pages[1:]])):
        said = prose("\n".join(texts))
        words, sentences = said.split(), max(len(re.findall(r"[.!?:](\s|$)", said)), 1)
        numbers = len(re.findall(r"(?<![\w.])\d[\d.,]*", said))
        print(
            f"{name}: {len(words)} words, {said.count(',') / sentences:.2f} commas a sentence, "
            f"{100 * numbers / len(words):.1f} numbers per 100 words"
        )


if __name__ == "__main__":
    main()
