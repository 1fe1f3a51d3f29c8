"""The site: built strictly, with a page per id, links that lead somewhere, and nothing from elsewhere."""

import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from helpers import IDS, ROOT, run


class Page(HTMLParser):
    """Links, files and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        loads = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
        if (address := given.get(loads.get(tag, ""))) and given.get("rel") != "canonical":
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder), cwd=ROOT, NO_MKDOCS_2_WARNING="1")
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_id_has_a_page_and_a_place_in_the_gallery(site, pages):
    for env_id in IDS:
        assert f"environments/{env_id}.html" in pages[site / "index.html"].links
        text = (site / f"environments/{env_id}.html").read_text("utf-8")
        for heading in ("Task", "Parameters", "Keywords of every id", "Differences of ground truths"):
            assert f">{heading}<" in text, (env_id, heading)
        assert "Reward terms: " in text and ">policy</td>" in text and "<img" in text, env_id


def test_llms_txt_lists_every_page_with_a_sentence(site, pages):
    listed = dict(re.findall(r"^- \[.+?\]\((\S+?)\): (.+)$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE))
    assert listed.keys() == {path.relative_to(site).as_posix() for path in pages}


def test_links_of_the_site_lead_somewhere(site, pages):
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            address = urlsplit(link)
            if not address.scheme:
                found = (path.parent / unquote(address.path)).resolve() if address.path else path
                assert found.is_file(), f"{path.relative_to(site)}: {link}"
                assert found not in pages or unquote(address.fragment) in pages[found].anchors, f"{path}: {link}"


def test_the_site_loads_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [address for address in page.loaded if urlsplit(address).netloc], path


def test_the_index_names_every_page_of_the_documentation():
    """It is the index on GitHub, and gives the navigation of the site."""
    named = set(re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs/README.md").read_text("utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"README.md", "index.md"} <= named
