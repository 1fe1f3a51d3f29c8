"""Hooks of mkdocs.yml: pages that code gives, links that lead out of docs/, the navigation, llms.txt.

The Markdown of the repository stays as GitHub shows it. A link out of docs/ brings its file into the site.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import itertools
import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from generate import differences  # noqa: E402

from softgym_envs.core.system import System, TaskId  # noqa: E402
from softgym_envs.systems import systems  # noqa: E402

LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
PACKAGES = ("softgym_envs", "sysid", "agents")
NO_CONTENTS = "---\nhide: [toc]\n---\n"
"""Head of a page without a list of its headings."""
INDEX = ROOT / "docs" / "README.md"
SOURCES: dict[str, str] = {}
"""Page of the site -> its path in the repository; pages that code gives are as in docs/."""
FOUND: list[Page] = []
"""Pages of the site in the order of the navigation."""


class Doctests(griffe.Extension):
    """Examples of docstrings become blocks of code: Markdown takes `>>>` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **others: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^>>> (?:.+\n?)+", r"```python\n\g<0>\n```\n", obj.docstring.value, flags=re.MULTILINE
            )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that code gives, and all files outside docs/ to which pages link; set the navigation."""
    pages = {uri: file.content_string for uri, file in files.src_uris.items() if uri.endswith(".md")}
    notebooks = {uri: _notebook(file.content_string) for uri, file in files.src_uris.items() if uri.endswith(".ipynb")}
    given = {"index.md": _home(pages["index.md"]), "contents.md": INDEX.read_text("utf-8"), **_generated()}
    files.remove(files.src_uris["index.md"])
    for uri, text in given.items():
        files.append(File.generated(config, uri, content=text))
    for uri, text in notebooks.items():
        name = posixpath.basename(uri)
        files.append(File.generated(config, _uri(uri), content=f'{text}\n<a href="{name}" download>Download {name}</a>\n'))
    SOURCES.clear()
    SOURCES.update({uri: f"docs/{uri}" for uri in files.src_uris} | {"contents.md": "docs/README.md"})
    queue = [(SOURCES[uri], text) for uri, text in (pages | given).items()]
    for path, text in queue:
        for found in (_target(path, link) for link in LINK.findall(text)):
            if found and _uri(found) not in SOURCES and (ROOT / found).is_file():
                SOURCES[_uri(found)] = found
                files.append(File.generated(config, _uri(found), abs_src_path=str(ROOT / found)))
                queue += [(found, (ROOT / found).read_text("utf-8"))] if found.endswith(".md") else []
    config.nav = _nav()
    return files


def _target(path: str, target: str) -> str:
    """Path in the repository of a link on the page at `path`; "" if it leads elsewhere. A folder is its README."""
    if re.match(r"[a-z]+:", target):
        return ""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return f"{found}/README.md" if (ROOT / found / "README.md").is_file() else found


def _uri(path: str) -> str:
    """Address in the site of a path in the repository."""
    page = path.removeprefix("docs/")
    return {"README.md": "index.md", "docs/README.md": "contents.md"}.get(path, re.sub(r"\.ipynb$", ".md", page))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository become links of the site; fences as GitHub reads them."""
    uri = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        path = _target(SOURCES[uri], match[0])
        if path and (ROOT / path).is_dir():
            return f"{(config.repo_url or '').rstrip('/')}/tree/main/{path}"
        return posixpath.relpath(_uri(path), posixpath.dirname(uri) or ".") if path else match[0]

    if uri.startswith("results/"):  # words of tables would bury the pages that explain them
        page.meta["search"] = {"exclude": True}
    if uri.startswith("results/") and not markdown.startswith("# "):
        markdown = f"# {Path(uri).parent.name}\n\n{markdown}"
    if uri in ("reference/environments.md", "reference/task_cards.md"):
        markdown = re.sub(r"^\| `(\w+-v\d)`", r"| [`\1`](../environments/\1.md)", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^(```\w+) file=(\S+)$", r'\1 title="\2"', markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^(```\w+) needs=\S+$", r"\1", markdown, flags=re.MULTILINE)
    return LINK.sub(link, markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep the order of pages for llms.txt."""
    own = list(nav.pages)
    FOUND[:] = own + [file.page for file in files.documentation_pages() if file.page and file.page not in own]
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt: a summary, and every page with one sentence."""
    lines = [f"# {config.site_name}\n", f"> {config.site_description}\n", _paragraph(FOUND[0].markdown or ""), ""]
    contents = {page: text for table in _tables().values() for page, text in table.items()}
    for section, pages in itertools.groupby(FOUND, lambda page: [*page.ancestors][-1].title if page.ancestors else "Further"):
        lines.append(f"\n## {section}\n")
        for page in pages:
            sentence = re.split(r"(?<=[a-z\d)%])\. ", _paragraph(page.markdown or ""))[0].rstrip(".:")
            text = contents.get(page.file.src_uri) or sentence
            lines.append(f"- [{page.title}]({page.file.url}): {text or 'a table'}")
    Path(config.site_dir, "llms.txt").write_text("\n".join([*lines, ""]), "utf-8")


def _paragraph(markdown: str) -> str:
    """The first paragraph of prose, as plain text."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|^!!!.*$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    for part in re.split(r"\n\s*\n", text):
        part = " ".join(part.split())
        if part and part[0] not in "#|!<-:`[":
            return re.sub(r"!?\[([^\]]*)\]\([^)]*\)|`|\*\*", r"\1", part)
    return ""


def _tables() -> dict[str, dict[str, str]]:
    """Tables "NAME | content" of the index: name -> page of the site -> what it holds."""
    row = re.compile(r"^\|[^|]*?\]\(([^)]+)\)[^|]*\| (.*?) *\|$", re.MULTILINE)
    tables = re.findall(r"^\| (\S+) \| content \|\n(.*?)(?:\n\n|\Z)", INDEX.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {name: {_uri(_target("docs/README.md", link)): text for link, text in row.findall(rows)} for name, rows in tables}


def _nav() -> list[object]:
    """Navigation: the tables of the index, a section each; the ids under their systems; the packages and commands."""
    tables = {name: list(table) for name, table in _tables().items()}
    ids = {name: [f"environments/{task.id}.md" for task in system.tasks] for name, system in systems().items()}
    environments, *reference = tables["reference"]
    return [
        {"Home": ["index.md", "contents.md"]},
        {"Tutorials": tables["tutorials"]},
        {"Notebooks": tables["notebooks"]},
        {"How-to": tables["how-to"]},
        {"Environments": [environments, *({name: [f"reference/systems/{name}.md", *pages]} for name, pages in ids.items())]},
        {"Reference": [*reference, *(f"reference/api/{name}.md" for name in PACKAGES), "reference/commands.md"]},
        {"Explanation": [page for page in tables["explanation"] if not page.startswith("reproductions/")]},
        {
            "Reproductions": sorted(
                (uri for uri in SOURCES if re.match("reproductions/.*md$", uri)), key=lambda uri: (uri.count("/"), uri)
            )
        },
        {"Project": ["CONTRIBUTING.md", "CHANGELOG.md"]},
    ]


# --- pages that code gives ------------------------------------------------------------------------------------------------


def _generated() -> dict[str, str]:
    """Pages of ids, packages and commands."""
    ids = {f"environments/{t.id}.md": _id_page(s, t) for s in systems().values() for t in s.tasks}
    return {**ids, **{f"reference/api/{name}.md": _api(name) for name in PACKAGES}, "reference/commands.md": _commands()}


def _picture(system: System, task: TaskId) -> str:
    """Path in docs/ of an id's GIF, else of its model's or system's; "" if there is none."""
    found = [f"images/{name}.gif" for name in (task.id, task.model, system.name)]
    return next((path for path in found if (ROOT / "docs" / path).is_file()), "")


def _home(text: str) -> str:
    """The first page with its gallery."""
    cards, index = [], (ROOT / "docs/reference/environments.md").read_text("utf-8")
    for system in systems().values():
        for task in system.tasks:
            (said,) = re.findall(rf"^\| `{task.id}` \|.*\| (.*) \|$", index, flags=re.MULTILINE)
            page, picture = f"environments/{task.id}.md", _picture(system, task)
            shown = f"[![{task.id}]({picture})]({page})\n\n    " if picture else ""
            command = f"```bash\n    softgym-envs play {task.id} --policy pretrained\n    ```"
            cards.append(f"-   {shown}**[{task.id}]({page})**\n\n    {said}.\n\n    {command}\n")
    fits = [
        f"-   ![{name} before and after identification](images/{path.name})\n\n    [{name}](reference/systems/{name}.md)\n"
        for name in systems()
        for path in [ROOT / f"docs/images/identify_{name}.gif"]
        if path.is_file()
    ]
    text = NO_CONTENTS.replace("toc", "navigation, toc") + text.replace("<!-- gallery -->", _grid(cards))
    shown = "## Before and after identification\n\n" + _grid(fits, " wide") if fits else ""
    return text.replace("<!-- identification -->", shown)


def _grid(cards: list[str], kind: str = "") -> str:
    return "\n".join([f'<div class="grid cards{kind}" markdown>\n', *cards, "</div>"])


def _notebook(text: str) -> str:
    """A notebook as Markdown: its cells, what they print, and their pictures."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            picture, said = output.get("data", {}).get("image/png"), "".join(output.get("text", ""))
            parts.append(
                f"![What the cell draws](data:image/png;base64,{picture.strip()})" if picture else f"```text\n{said}```"
            )
    return "\n\n".join(parts) + "\n"


def _sections(text: str) -> dict[str, str]:
    """Heading of the second level -> its text."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _id_page(system: System, task: TaskId) -> str:
    """Page of an id: its section of the system's page, and what of that page holds for it."""
    sections = _sections((ROOT / f"docs/reference/systems/{system.name}.md").read_text("utf-8"))
    keywords = _sections((ROOT / "docs/reference/environments.md").read_text("utf-8"))["Keywords of every id"]
    levels = [name for name in sections if name.startswith("Levels of")]
    sections_below = {
        "Differences of ground truths": differences(system),
        **{name: sections[name].replace("../../how-to", "../how-to") for name in [*levels, "Parameters"]},
        "Keywords of every id": keywords,
    }
    picture = _picture(system, task)
    return "\n".join(
        [
            f"# {task.id}\n",
            sections[task.id].strip().split("\n\n")[0] + "\n",
            f"![An episode](../{picture})\n" if picture else "",
            "```bash",
            f"softgym-envs play {task.id}",
            f"softgym-envs play {task.id} --policy pretrained",
            f"softgym-envs train {task.id}",
            f"softgym-envs evaluate pretrained {task.id} --backend mujoco",
            "```\n",
            f'```python\nimport gymnasium as gym\n\nenv = gym.make("softgym_envs:{task.id}")\n```\n',
            f"System: [{system.name}](../reference/systems/{system.name}.md).\n",
            "## Task\n",
            *sections[task.id].strip().split("\n\n", 1)[1:],
            *(f"\n## {name}\n\n{text.strip()}\n" for name, text in sections_below.items() if text.strip()),
        ]
    )


def _api(name: str) -> str:
    """Reference of a package: the names of `__all__`."""
    package = importlib.import_module(name)
    said = (inspect.getdoc(package) or "").split("\n\n")[0]
    names = sorted(package.__all__, key=str.lower)
    links = ", ".join(f"[`{public}`][{name}.{public}]" for public in names)
    return "\n".join(
        [NO_CONTENTS, f"# Python: {name}\n", f"{said}\n\n{links}\n", *(f"::: {name}.{public}\n" for public in names)]
    )


def _commands() -> str:
    """Reference of the command line: what every subcommand says of itself, and its parser's list of options."""
    import tyro

    os.environ["COLUMNS"] = "80"
    page = ["# Command line\n", "Every subcommand of `softgym-envs`, as `--help` prints it.\n"]
    for name in importlib.import_module("scripts.__main__").subcommands():
        file = name if (ROOT / f"scripts/{name}.py").is_file() else f"{name}_file"
        module, said = importlib.import_module(f"scripts.{file}"), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            tyro.cli(module.Args, args=["--help"], prog=f"softgym-envs {name}", description=" ")
        options = re.sub(r"\n\s*\n+", "\n\n", re.sub(r"^ *-{9,} *\n", "", said.getvalue(), flags=re.MULTILINE))
        page += [f"## {name}\n", f"{inspect.getdoc(module)}\n", "```text", options.strip(), "```\n"]
    return "\n".join(page)
