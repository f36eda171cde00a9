"""The page for people at `/docs`: all that it needs comes from here."""

from __future__ import annotations

import re

import pytest

from app.api.swagger_ui import FILES
from tests.support.in_process_api import Site

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "png": "image/png"}


def test_the_page_and_all_it_asks_for_are_served(site: Site) -> None:
    page = site.get("/docs", root=True)
    assert (page.status, page.kind) == (200, "text/html; charset=utf-8")
    assert "//" not in page.body.replace("<!doctype html>", ""), "no address of another host"
    requests = re.findall(r'(?:<link [^>]*href|src)="([^"]+)"', page.body)
    assert sorted(requests) == sorted([f"/docs/{name}" for name in ("start.js", "theme.js", "page.css", *FILES)])
    for path in requests:
        answer = site.app.test_client().get(path)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == KINDS[path.rpartition(".")[2]]
        assert len(answer.get_data()) > 100


def test_the_start_script_shows_our_document_and_asks_no_other_host(site: Site) -> None:
    script = site.get("/docs/start.js", root=True).body
    (document,) = re.findall(r'url: "([^"]+)"', script)
    assert "//" not in script
    assert "validatorUrl: null" in script, "or the page would send the document's address to a validator of others"
    assert site.get(document, root=True).body["openapi"] == "3.1.0"


def test_the_page_leads_back_and_follows_the_colour_scheme(site: Site) -> None:
    assert '<header><a href="/">Poolkeeper</a>' in site.get("/docs", root=True).body
    theme = site.get("/docs/theme.js", root=True).body
    assert "prefers-color-scheme: dark" in theme
    assert ".dark-mode .swagger-ui" in site.app.test_client().get("/docs/swagger-ui.css").get_data(as_text=True)
    assert 'classList.toggle("dark-mode", dark.matches)' in theme


def test_a_browser_is_told_to_load_nothing_from_elsewhere(site: Site) -> None:
    policy = site.get("/docs", root=True).headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "frame-ancestors": "'none'",
    }


@pytest.mark.parametrize("name", ["index.html", "swagger-ui.js", "..%2F__init__.py", "%2e%2e", "a%0Ab", "start.js.map"])
def test_no_other_file_is_served(site: Site, name: str) -> None:
    site.get(f"/docs/{name}", root=True).refused(404, "no_such_route")


def test_the_page_needs_no_token(site: Site) -> None:
    site.token()
    for path in ("/docs", "/docs/start.js", "/api/v1/openapi.json"):
        assert site.get(path, root=True).status == 200


def test_a_range_beyond_a_file_is_refused(site: Site) -> None:
    site.get("/docs/swagger-ui.css", root=True, headers={"Range": "bytes=99999999-"}).refused(416, "refused")
