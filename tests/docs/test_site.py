# SPDX-License-Identifier: Apache-2.0
"""The website: links, what it loads, and that a reader finds what they look for by searching."""

import html.parser
import json
import re
import urllib.parse

import pytest

LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(html.parser.HTMLParser):
    """Collects what a page loads, where it links to, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if target := values.get(LOADED.get(tag)):
            self.loads.append(target)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert len(pages) > 60
    assert {target for page in pages.values() for target in page.loads if "//" in target} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", styles) == []


def test_links_lead_to_pages_and_anchors(site, pages):
    wrong = []
    for path, page in pages.items():
        for target in {*page.links, *page.loads}:
            name, _, anchor = urllib.parse.unquote(target).partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            file = (path.parent / name).resolve() if name else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].anchors):
                wrong.append(f"{path.relative_to(site)}: {target}")
    assert wrong == []


@pytest.fixture(scope="module")
def search(site):
    """Pages of which a section has all words, as the website's search finds them."""
    index = json.loads((site / "search/search_index.json").read_text())["docs"]

    def find(*words):
        texts = [(entry["location"], f"{entry['title']} {entry['text']}".lower()) for entry in index]
        return {location for location, text in texts if all(word.lower() in text for word in words)}

    return find


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (("pip install", "wheel"), "install.html"),
        (("model.fit", "horovodrun"), "quickstart/keras.html"),
        (("has been shut down",), "reference/errors.html"),
        (("start-timeout", "(30)"), "reference/horovodrun.html"),
        (("does it use my GPU",), "operate/troubleshooting.html"),
        (("HOROVOD_FUSION_THRESHOLD",), "reference/environment.html"),
        (("torchrun", "DistributedDataParallel"), "guides/migrating.html"),
        (("grouped_allreduce",), "reference/api/horovod.numpy.html"),
        (("hvd_submit",), "reference/api/c.html"),
        (("reducescatter",), "reference/api/cpp.html"),
    ],
)
def test_searching_finds(search, words, page):
    assert page in {location.partition("#")[0] for location in search(*words)}
