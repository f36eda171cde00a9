"""The dashboard in a real Chromium: one service, one browser and one filled workspace for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request as Asked
from urllib.request import urlopen

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from app.bootstrap import Services, make_services
from app.domain.clock import RedisClock
from app.domain.models import Request
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, RequestSpec
from app.settings import Settings
from app.store.connection import RedisClient
from tests.support import preemptions
from tests.support.gunicorn_service import Service
from tests.support.programs import require_program

PROGRAM = "/usr/bin/chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOTS = "DASHBOARD_SHOTS"
"""A variable: where all the pictures go, instead of a folder that is thrown away."""
KEPT = "DASHBOARD_PICTURES"
"""The variable with the folder for the pictures of the documentation."""
IN_THE_DOCUMENTATION = {"blocked-dark": "dashboard-request.png"}
HEIGHT = 860
"""Of the page, in pixels."""
PATIENCE_MS = 15_000
LIVE_MS = 2_000
"""The time within which a change is visible, in milliseconds."""


def require_chromium() -> None:
    """Skip the test if the browser is absent; in CI, fail."""
    require_program(PROGRAM, "chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the browser."""
    require_chromium()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=PROGRAM, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Stage:
    """A running service with something to look at, and the tokens to look with."""

    def __init__(self, service: Service, client: RedisClient) -> None:
        self.url, self.client = f"http://127.0.0.1:{service.port}", client
        self.services: Services = make_services(client, Settings())
        self.secrets = {role: self._token(role) for role in ("admin", "operator", "viewer")}
        self.secrets["requester"] = self._token("requester", "vision")

    def _token(self, role: str, *components: str) -> str:
        return self.services.tokens.create(role, role, ["default", "lab"], components)[1]

    def pool(self, name: str, capacity: dict[str, int], **settings: Any) -> None:
        """Create a pool."""
        self.services.pools.create("default", PoolSpec.model_validate({"name": name, "capacity": capacity, **settings}))

    def policy(self, pool: str, component: str, **fields: Any) -> None:
        """Create a policy."""
        self.services.pools.set_policy("default", pool, component, PolicySpec.model_validate(fields))

    def group(self, pool: str, name: str, **fields: Any) -> None:
        """Create a group."""
        self.services.pools.set_group("default", pool, name, GroupSpec.model_validate(fields))

    def submit(self, component: str, workspace: str = "default", **expected: Any) -> Request:
        """Submit a request that lives as long as the tests."""
        more = {"lease_s": 3600, "queue_ttl_s": None, **{name: expected.pop(name) for name in _FIELDS & expected.keys()}}
        ask = RequestSpec.model_validate({"component": component, "resources": expected, **more})
        return self.services.requests.submit(workspace, ask)

    def first(self, view: str, pool: str = "gpus") -> str:
        """Return the id of the first request that waits, or runs."""
        return self.row(view, 0, pool)

    def row(self, view: str, place: int, pool: str = "gpus") -> str:
        """Return the id of the request in this place of the view."""
        return self.services.queries.list_pool_requests("default", pool, view)[0][place].request.id

    def seated(self) -> float:
        """Return the number of streams that the service holds."""
        requests = Asked(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.secrets['viewer']}"})
        with urlopen(requests) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('poolkeeper_http_waiting{kind="stream"'))

    def leave(self, waiter: Request, victim: Request, pool: str) -> None:
        """Preempt a victim for a waiter."""
        assert victim.fence is not None
        preemptions.preempt(self.client, waiter.id, [(victim.id, victim.fence)], pool=pool, clock=RedisClock())


_FIELDS = RequestSpec.model_fields.keys() - {"resources", "component", "settings"}


@dataclass
class Eyes:
    """The pages in a browser, with a record of every fault on them."""

    browser: Browser
    stage: Stage
    shots: Path
    faults: list[str] = field(default_factory=list)
    _page: Page | None = None

    @contextmanager
    def looking(self, role: str | None = "admin", path: str = "/", *, width: int = 1280) -> Iterator[Page]:
        """Yield the page that the tests share, signed in as this role, with nothing of an earlier test on it."""
        page = self._page = self._page or self._new_page()
        page.context.clear_cookies()
        page.set_viewport_size({"width": width, "height": HEIGHT})
        self._sign_in(page, role)
        try:
            page.goto(self.stage.url + path)
            yield page
            page.unroute_all()
            page.goto("about:blank")
        except BaseException:
            self._page = None
            page.context.close()
            raise

    @contextmanager
    def looking_anew(
        self, role: str, path: str, *, scripts: bool = True, init_script: str | None = None, time_zone: str | None = None
    ) -> Iterator[Page]:
        """Yield a new page, signed in as this role; the init script runs before the scripts of the page."""
        page = self._new_page(scripts=scripts, time_zone=time_zone)
        self._sign_in(page, role)
        try:
            if init_script:
                page.context.add_init_script(init_script)
            page.goto(self.stage.url + path)
            yield page
        finally:
            page.context.close()

    def _new_page(self, *, scripts: bool = True, time_zone: str | None = None) -> Page:
        context = self.browser.new_context(
            viewport={"width": 1280, "height": HEIGHT},
            java_script_enabled=scripts,
            reduced_motion="reduce",
            timezone_id=time_zone,
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page

    def _sign_in(self, page: Page, role: str | None) -> None:
        if role:
            secret = self.stage.secrets[role]
            page.context.add_cookies([{"name": "poolkeeper", "value": secret, "url": self.stage.url, "httpOnly": True}])

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"{message.text} {message.location}")

    def shot(self, page: Page, name: str, *, full: bool = False) -> None:
        """Save a screenshot, if a variable asks for them."""
        if not {SHOTS, KEPT} & os.environ.keys():
            return
        path = self.shots / f"{name}.png"
        page.screenshot(path=str(path), full_page=full)
        if name in IN_THE_DOCUMENTATION and KEPT in os.environ:
            shutil.copy(path, Path(os.environ[KEPT]) / IN_THE_DOCUMENTATION[name])


def is_live(page: Page) -> None:
    """Wait until the event stream is connected."""
    page.wait_for_selector("#stream[data-state=live]")


def offences(page: Page, *rules: str) -> list[str]:
    """Return the violations of weight that axe-core finds, by these rules or by all."""
    result = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": list(rules)} if rules else {})
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    rows = page.evaluate("options => axe.run(options)", result)["violations"]  # to list what keeps a rule would take longest
    return [
        f"{item['id']} ({item['impact']}): {node['html'][:200]} {node['failureSummary'][:200]}"
        for item in rows
        if item["impact"] in ("serious", "critical", "moderate")
        for node in item["nodes"]
    ]


def spills(page: Page) -> int:
    """Return the pixels by which the page is wider than the window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
