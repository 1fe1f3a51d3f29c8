"""Report pages: one style, one way to embed figures; every page is one file that fetches nothing.

A page is a template that extends `templates/page.html` and fills its blocks `title` and `body`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import MissingDependencyError

TEMPLATES = Path(__file__).parent / "templates"
INK, BLUE, ORANGE, GREY = "#1d2733", "#1f6fb4", "#d9822b", "#9aa7b4"
COLORS = (BLUE, ORANGE, "#2a9d6f", "#b0413e", "#7a5ba6", "#6b7785", "#c2a83e", "#3f8f9f")


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure [inches], outside of pyplot's state.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing(error) from error
    return Figure(figsize=(width, height))


def plain_axes(axes: Any) -> None:
    """Remove the frame and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e6ebf0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)


def embed(figure: Any) -> str:
    """A figure as a data URI; SVG stays sharp, and equal figures are equal text."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": "softgym"}):
        figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
    return _uri("image/svg+xml", stream.getvalue())


def embed_image(path: Path) -> str:
    """A GIF or PNG as a data URI."""
    return _uri(f"image/{path.suffix[1:].lower()}", path.read_bytes())


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64," + base64.b64encode(content).decode()


@dataclass(frozen=True)
class Section:
    """A part of a plain page: words, a table, pictures, links, each optional."""

    title: str
    text: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    images: tuple[str, ...] = ()
    """Data URIs."""
    links: tuple[tuple[str, str], ...] = ()
    """(name, path)"""


def render_sections(title: str, sub: str, sections: Sequence[Section]) -> str:
    """A plain page of sections.

    Raises:
        MissingDependencyError: jinja2 is not installed.
    """
    return render_page(TEMPLATES / "sections.html", title=title, sub=sub, sections=sections)


def render_page(template: Path, **values: Any) -> str:
    """Fill a template; text is escaped, and a missing name is an error.

    Raises:
        MissingDependencyError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise _missing(error) from error
    folders = [template.parent, TEMPLATES]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined)
    return str(environment.get_template(template.name).render(**values))


def _missing(error: ImportError) -> MissingDependencyError:
    return MissingDependencyError.of(f"the report needs matplotlib and jinja2 ({error})", "report")
