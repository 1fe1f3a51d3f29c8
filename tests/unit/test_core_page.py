"""Report pages: one file, nothing fetched from elsewhere, text escaped."""

import re

import pytest

from softgym_envs.data.page import Section, embed, embed_image, new_figure, plain_axes, render_sections


def test_a_page_holds_everything_and_escapes_text(tmp_path):
    figure = new_figure(3, 2)
    plain_axes(figure.add_subplot())
    (tmp_path / "dot.gif").write_bytes(b"GIF89a")
    sections = (
        Section("Table <1>", "a & b", ("name", "x"), (("one", "1"), ("two", "2"))),
        Section("Pictures", images=(embed(figure), embed_image(tmp_path / "dot.gif"))),
        Section("Links", links=(("fit", "fit/report.html"),)),
    )
    page = render_sections("A title", "beneath", sections)
    assert "Table &lt;1&gt;" in page and "a &amp; b" in page and "<title>A title</title>" in page
    assert page.count("<tr>") == 3 and page.count("<img ") == 2 and 'href="fit/report.html"' in page
    assert not re.search(r"(src|href)=\"(?!data:|fit/)", page) and "<script" not in page
    assert "data:image/svg+xml;base64," in page and "data:image/gif;base64,R0lGODlh" in page


def test_equal_figures_are_equal_text():
    def draw():
        figure = new_figure(3, 2)
        figure.add_subplot().plot([0, 1], [1, 0])
        return embed(figure)

    assert draw() == draw()


def test_a_name_that_is_missing_is_an_error(tmp_path):
    jinja2 = pytest.importorskip("jinja2")
    from softgym_envs.data.page import render_page

    (tmp_path / "page2.html").write_text('{% extends "page.html" %}{% block body %}{{ nothing }}{% endblock %}')
    with pytest.raises(jinja2.UndefinedError):
        render_page(tmp_path / "page2.html")
