"""The dashboard of one process, looked at without a browser: cookies, forms and links as one would use them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import dashboard
from app.api.app import HttpOptions, create_app
from app.bootstrap import make_services
from app.settings import Settings
from app.store.connection import RedisClient
from tests.support.fake_redis import fake
from tests.support.in_process_api import BROKERS, Site


class PageRedisProvider:
    """A provider of empty fakes for dry runs."""

    @contextmanager
    def empty_redis(self) -> Iterator[RedisClient]:
        """Yield an empty fake."""
        yield from fake()


class Desk(Site):
    """The API with the dashboard beside it."""

    def __init__(self, client: RedisClient, choices: HttpOptions | None = None) -> None:
        super().__init__(client, choices=choices)
        self.services = make_services(client, Settings(brokers=BROKERS), self.clock, PageRedisProvider())
        self.app = create_app(self.services, choices, extensions=[dashboard.add_dashboard])
        self._http = self.app.test_client()

    def visitor(self, secret: str | None = None) -> Visitor:
        """Return a visitor with a browser of its own, signed in if it has a token."""
        visitor = Visitor(self.app.test_client())
        if secret:
            signed = visitor.send("/sign-in", {"token": secret}, page="/sign-in")
            assert signed.status_code == 303, signed.get_data(as_text=True)
        return visitor


class Visitor:
    """A browser without scripts."""

    def __init__(self, http: FlaskClient) -> None:
        self.http = http

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> TestResponse:
        """Get a page."""
        return self.http.get(path, headers=dict(headers or {}))

    def text(self, path: str) -> str:
        """Return the visible text of a page, which must exist."""
        answer = self.get(path)
        assert answer.status_code == 200, (answer.status_code, words(answer))
        return words(answer)

    def send(
        self,
        path: str,
        fields: Mapping[str, Any] | None = None,
        *,
        page: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> TestResponse:
        """Send a form with the hidden fields of its page."""
        shown = self.get(page or path)
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.get_data(as_text=True)))
        data = {name: html.unescape(value) for name, value in hidden.items()} | dict(fields or {})
        return self.http.post(path, data=data, headers=dict(headers or {}))

    def again(self, answer: TestResponse, path: str) -> TestResponse:
        """Send the form of the page that answered a form."""
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', answer.get_data(as_text=True)))
        return self.http.post(path, data={name: html.unescape(value) for name, value in hidden.items()})


def words(answer: TestResponse) -> str:
    """Return the visible text of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.get_data(as_text=True))).split())
