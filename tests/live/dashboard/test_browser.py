"""The dashboard as people use it, in a real browser: looked at, acted upon, refused, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page

from app.domain.request_origin import short_id
from app.service.tokens import CACHE_TTL_S
from app.store.connection import connect
from tests.live.dashboard.browser import (
    LIVE_MS,
    PATIENCE_MS,
    SHOTS,
    Eyes,
    Stage,
    chromium,
    is_live,
    offences,
    require_chromium,
    spills,
)
from tests.live.dashboard.sample_data import fill
from tests.support.backends import wait_until
from tests.support.gunicorn_service import service


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a service with pools in use, a preemption, a queue, and three recorded hours."""
    require_chromium()
    folder = tmp_path_factory.mktemp("dashboard")
    threads = 320  # 20 open pages: on a busy machine the stream of a closed page holds its slot for some seconds
    with service(folder, api_processes=1, api_threads=threads) as running, connect(running.redis.url) as client:
        made = Stage(running, client)
        fill(made)
        yield made
        assert running.complaints() == []


@pytest.fixture(scope="module")
def eyes(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyes]:
    """Yield the browser's pages."""
    shots = Path(os.environ[SHOTS]).absolute() if SHOTS in os.environ else tmp_path_factory.mktemp("shots")
    shots.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        yield Eyes(browser, stage, shots)


@pytest.fixture(autouse=True)
def nothing_goes_wrong(eyes: Eyes) -> Iterator[None]:
    """Check that the console has no error and the page policy no violation, unless a test expects it."""
    eyes.faults.clear()
    yield
    assert eyes.faults == []


def pages(stage: Stage) -> dict[str, str]:
    """Return the address of every page, by a name for it."""
    waiting, running, blocked = stage.first("queued"), stage.first("active"), stage.first("queued", "licences")
    return {
        "pools": "/",
        "pool": "/pools/gpus",
        "requests": "/requests?state=all",
        "search": "/requests?search=vision",
        "events": "/events",
        "filtered": "/events?pool=gpus&event=allocated",
        "waiting": f"/requests/{waiting}",
        "blocked": f"/requests/{blocked}",
        "running": f"/requests/{running}",
        "cancel": f"/requests/{waiting}/cancel",
        "drop": f"/requests/{running}/drop",
        "resize": "/pools/gpus/resize",
        "policy": "/pools/gpus/policies/orchestrator/physics",
    }


def test_every_page_is_whole_and_accessible(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("admin") as page:
        for name, path in pages(stage).items():
            page.goto(stage.url + path)
            if page.query_selector("#stream"):
                is_live(page)
            if name == "pool":
                page.wait_for_selector("#plot canvas")
            assert page.locator("h1").count() == 1
            _check_accessibility_in_both_schemes(eyes, page, name)
    with eyes.looking(None) as page:
        assert page.get_by_label("Token").is_visible()
        _check_accessibility_in_both_schemes(eyes, page, "sign-in")


def _check_accessibility_in_both_schemes(eyes: Eyes, page: Page, name: str) -> None:
    eyes.shot(page, f"{name}-light", full=name in ("pool", "blocked"))
    assert offences(page) == [], name
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    eyes.shot(page, f"{name}-dark", full=name in ("pool", "blocked"))
    assert offences(page, "color-contrast") == [], (name, "dark")  # the other rules do not depend on colours
    page.emulate_media(color_scheme="light")


WITHIN = "some => some.filter((one) => one.scrollWidth > one.parentElement.clientWidth).map((one) => one.className)"
"""Tables that are wider than where they are."""


def test_a_phone_shows_all_without_scrolling_sideways(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("admin", width=375) as page:
        for name, path in pages(stage).items():
            page.goto(stage.url + path)
            eyes.shot(page, f"{name}-phone")
            assert spills(page) == 0, name
            assert page.locator("table:visible").evaluate_all(WITHIN) == [], name


def test_a_change_is_seen_within_two_seconds_and_without_a_reload(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("viewer", "/pools/gpus") as page:
        is_live(page)
        page.evaluate("window.untouched = true; document.querySelector('#history-table').open = true")
        stays = stage.first("queued")
        page.locator(f"#q-{stays} a.id").focus()
        began = time.monotonic()
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector(f"#q-{item.id}", timeout=LIVE_MS)
        stage.services.requests.cancel("default", item.id)
        page.wait_for_selector(f"#q-{item.id}", state="detached", timeout=LIVE_MS)
        stage.policy("gpus", "newcomer", priority=3)  # makes no event
        page.wait_for_selector("#policy-orchestrator\\:newcomer", timeout=LIVE_MS)
        assert time.monotonic() - began < 3 * LIVE_MS / 1000
        assert page.evaluate("window.untouched && document.querySelector('#history-table').open"), "what was open stays open"
        assert page.evaluate("document.activeElement.title") == stays, "and what had the focus has it"
        stage.services.pools.delete_policy("default", "gpus", "newcomer")
        page.wait_for_selector("#policy-orchestrator\\:newcomer", state="detached", timeout=LIVE_MS)


FAST = """
const now = Date.now; window.fast = 3600000; Date.now = () => now() + window.fast;
Object.defineProperty(performance, 'timeOrigin', { value: performance.timeOrigin + 3600000 });
"""
"""A script that sets the clock of the page an hour fast; `window.fast = 0` puts it right."""


def test_the_feed_and_a_countdown_go_on_by_themselves(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("viewer", "/events") as page:
        is_live(page)
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector(f"tr:has-text('{short_id(item.id)}')", timeout=LIVE_MS)
        stage.services.requests.cancel("default", item.id)
        page.wait_for_selector(f"tr:has-text('{short_id(item.id)}') >> text=cancelled", timeout=LIVE_MS)
    with eyes.looking("viewer", "/pools/gpus") as page:
        lease = "document.querySelector('[data-label=\\'Lease lapses\\'] [data-relative]').innerText"
        page.wait_for_function(f"before => {lease} !== before", arg=page.evaluate(lease))
    with eyes.looking_anew("viewer", "/pools/gpus", init_script=FAST) as page:
        is_live(page)
        leases = """document.querySelectorAll('[data-label="Lease lapses"] [data-relative]')"""
        counted = f"[...{leases}].map((one) => one.innerText)"
        assert all(text.startswith("in 5") and "min" in text for text in page.evaluate(counted)), page.evaluate(counted)
        page.evaluate("window.fast = 0")
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector(f"#q-{item.id}", timeout=LIVE_MS)
        assert all(text.startswith("in 5") and "min" in text for text in page.evaluate(counted)), page.evaluate(counted)
        stage.services.requests.cancel("default", item.id)


LABELS = """
window.labels = [];
const canvas = CanvasRenderingContext2D.prototype;
const fillText = canvas.fillText;
canvas.fillText = function (text, ...rest) { labels.push(text); fillText.call(this, text, ...rest); };
"""
"""A script that notes what is written on a canvas."""


@pytest.mark.parametrize("hours", [1, 6, 12])
@pytest.mark.parametrize("pool", ["gpus", "new"])
def test_no_label_of_the_plot_is_repeated(eyes: Eyes, stage: Stage, pool: str, hours: int) -> None:
    if pool == "new" and "new" not in stage.services.pools.list_names("default"):
        stage.pool("new", {"gpu": 2})
        stage.services.usage_history.record("default")  # its only sample
    with eyes.looking_anew("viewer", f"/pools/{pool}?hours={hours}", init_script=LABELS) as page:
        page.wait_for_selector("#plot canvas")
        page.wait_for_function("() => labels.filter((label) => label.includes(':')).length > 3")
        times = page.evaluate("labels.filter((label) => label.includes(':'))")
        amounts = page.evaluate("labels.filter((label) => !label.includes(':'))")
        assert len(set(times)) == len(times), times
        assert len(set(amounts)) == len(amounts), amounts
        assert all(amount.replace(",", "").isdecimal() for amount in amounts), "units are whole"
        eyes.shot(page, f"plot-{pool}-{hours}", full=True)


def test_times_are_those_of_the_browser_and_their_title_has_the_date(eyes: Eyes, stage: Stage) -> None:
    at = stage.services.requests.get("default", stage.first("active")).submitted_ms / 1000
    place = ZoneInfo("Asia/Dubai")
    local, utc = datetime.fromtimestamp(at, place), datetime.fromtimestamp(at, UTC)
    with eyes.looking_anew("viewer", f"/requests/{stage.first('active')}", time_zone=place.key) as page:
        is_live(page)
        moment = page.locator(".facts time").first
        assert moment.inner_text().endswith(f"{local:%H:%M:%S}")
        title = moment.get_attribute("title") or ""
        assert f"{local:%-d %b %Y, %H:%M:%S} " in title
        assert title.endswith(f"{utc:%H:%M:%S} UTC")
        assert "Asia/Dubai" in page.inner_text("#zone")
        served = "document.getElementById('now').dataset.now"
        before = page.evaluate(served)
        page.evaluate("htmx.trigger(document.getElementById('live'), 'refresh')")
        page.wait_for_function(f"before => {served} !== before", arg=before)
        assert moment.inner_text().endswith(f"{local:%H:%M:%S}"), "a new part has them as well"


def test_the_run_time_goes_on(eyes: Eyes) -> None:
    with eyes.looking("viewer", "/pools/gpus") as page:
        lasts = "document.querySelector('[data-elapsed]').innerText"
        page.wait_for_function(f"before => {lasts} !== before", arg=page.evaluate(lasts))


def test_the_list_of_workspaces_shows_that_of_the_page_also_after_a_way_back(eyes: Eyes, stage: Stage) -> None:
    selected = "document.getElementById('workspace').value"
    with eyes.looking("admin", "/") as page:
        page.get_by_label("Workspace").select_option("lab")
        page.get_by_role("button", name="Go").click()
        page.wait_for_url("**/?workspace=lab")
        assert page.evaluate(selected) == "lab"
        page.go_back()
        page.wait_for_url(f"{stage.url}/")
        page.wait_for_selector("text=in workspace default")
        assert page.evaluate(selected) == "default"


def test_what_is_pointed_at_stays(eyes: Eyes, stage: Stage) -> None:
    item = stage.submit("sweeps", gpu=2)
    with eyes.looking("operator", "/pools/gpus") as page:
        is_live(page)
        control = page.get_by_label(f"Cancel request {short_id(item.id)}")
        control.hover()
        stage.services.requests.cancel("default", item.id)
        page.wait_for_selector("#stream[data-state=held]")
        assert control.is_visible()
        assert page.inner_text("#stream-announcement") == "", "it is not read out"
        page.mouse.move(2, 2)
        page.wait_for_selector(f"#q-{item.id}", state="detached", timeout=LIVE_MS)
        assert page.locator("#stream[data-state=live]").is_visible()


def test_an_operator_sees_what_would_come_of_it_and_then_does_it(eyes: Eyes, stage: Stage) -> None:
    item = stage.submit("classroom", matlab=1)
    holder = stage.first("active", "licences")
    with eyes.looking("operator", "/pools/licences") as page:
        page.get_by_label(f"Drop request {short_id(holder)}").click()
        assert "would be granted" in page.inner_text("#dry-run")
        eyes.shot(page, "dry-run-light")
        assert stage.services.requests.get("default", holder).ended_ms is None, "nothing has been done yet"
        page.get_by_role("button", name="Drop the request").click()
        page.wait_for_selector("text=The request was dropped.")
        assert page.url.startswith(f"{eyes.stage.url}/requests/{holder}")
        assert page.inner_text("h1 + .chip") == "released"
    stage.services.requests.drop("default", item.id)


def test_an_operator_resizes_a_pool_and_edits_a_policy(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("operator", "/pools/licences") as page:
        page.get_by_role("link", name="Resize…").click()
        page.get_by_label("Capacity of matlab").fill("6")
        page.get_by_role("button", name="Show what would happen").click()
        assert "capacity matlab: 4 -> 6" in page.inner_text("main")
        assert stage.services.pools.get("default", "licences").capacity == {"matlab": 4}
        page.get_by_role("button", name="Change the pool").click()
        page.wait_for_selector("text=The pool was changed.")
        assert stage.services.pools.get("default", "licences").capacity == {"matlab": 6}
        page.get_by_label("Edit the policy of classroom").click()
        page.get_by_label("Limit").fill("3")
        page.get_by_role("button", name="Show what would happen").click()
        assert "limit matlab: 2 -> 3" in page.inner_text("main")
        page.get_by_role("button", name="Change the policy").click()
        page.wait_for_selector("text=The policy was changed.")
    assert stage.services.pools.get_policy("default", "licences", "classroom")[1].limit == {"matlab": 3}


def test_a_viewer_finds_no_control_and_is_refused(eyes: Eyes, stage: Stage) -> None:
    waiting = stage.first("queued")
    with eyes.looking("viewer", "/pools/gpus") as page:
        assert page.locator("main a.button, main button").count() == 0
        deeds = (f"/requests/{waiting}/cancel", f"/requests/{waiting}/drop", "/pools/gpus/resize")
        for path in (*deeds, "/pools/gpus/policies/orchestrator/vision"):
            answer = page.goto(eyes.stage.url + path)
            assert answer
            assert answer.status == 403
            assert "may not" in page.inner_text("main")
    eyes.faults.clear()  # the browser notes each 403


def test_all_can_be_done_by_keyboard(eyes: Eyes, stage: Stage) -> None:
    item = stage.submit("sweeps", gpu=3)
    with eyes.looking(None, "/pools/gpus") as page:
        page.wait_for_selector("#token:focus")  # which a busy browser gives it a moment after the page is there
        page.keyboard.type(stage.secrets["operator"])
        page.keyboard.press("Enter")
        page.wait_for_url("**/pools/gpus")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        _tab_to(page, f"Cancel request {short_id(item.id)}")
        page.keyboard.press("Enter")
        page.wait_for_selector("#confirm")
        _tab_to(page, "Cancel the request")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=The request was cancelled and has left the queue.")
        _tab_to(page, "Sign out")
        page.keyboard.press("Enter")
        page.wait_for_url("**/sign-in")


def test_a_request_is_searched_by_keyboard_while_the_list_goes_on(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("viewer", "/requests") as page:
        is_live(page)
        _tab_until(page, "document.activeElement.id === 'search'")
        page.keyboard.type("swe")
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector(f"#r-{item.id}", timeout=LIVE_MS)
        assert page.input_value("#search") == "swe", "what is being typed stays"
        page.keyboard.type("eps")
        page.keyboard.press("Enter")
        page.wait_for_url("**/requests?search=sweeps")
        assert set(page.locator("[data-label=Component]").all_inner_texts()) == {"sweeps"}
        _tab_until(page, "document.activeElement.textContent.startsWith('Ended')")
        page.keyboard.press("Enter")
        page.wait_for_url("**/requests?state=ended&search=sweeps")
        assert page.locator(f"#r-{item.id}").count() == 0
        stage.services.requests.cancel("default", item.id)
        page.wait_for_selector(f"#r-{item.id}", timeout=LIVE_MS)
        assert page.locator(f"#r-{item.id} .chip").inner_text() == "cancelled"


def _tab_until(page: Page, condition: str) -> None:
    """Press Tab until the condition holds in the page."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    raise AssertionError(f"no focus with {condition}")


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the control of this name has the focus."""
    named = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"
    _tab_until(page, f"{named} === {json.dumps(name)}")


def test_a_revoked_token_ends_the_visit(eyes: Eyes, stage: Stage) -> None:
    stage.secrets["guest"] = stage.services.tokens.create("guest", "viewer", ["default"])[1]
    with eyes.looking("guest", "/pools/gpus") as page:
        is_live(page)
        stage.services.tokens.revoke("guest")
        page.wait_for_url("**/sign-in?*", timeout=PATIENCE_MS)
    eyes.faults.clear()  # the browser notes the 401
    wait_until(lambda: stage.seated() == 0, "no stream holds a seat any more", within_s=5 + CACHE_TTL_S)


def test_it_is_said_when_the_stream_is_down_and_the_page_goes_on(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("viewer", "/pools/gpus") as page:
        is_live(page)
        page.route("**/live?*", lambda route: route.abort())
        page.evaluate("document.getElementById('stream')._htmx.sse.reader.cancel()")
        page.wait_for_selector("#stream[data-state=down]")
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector(f"#q-{item.id}", timeout=PATIENCE_MS)
        page.unroute("**/live?*")
        is_live(page)
        stage.services.requests.cancel("default", item.id)
    eyes.faults.clear()  # the browser notes what was cut


AWAY = """
Object.defineProperty(document, "hidden", { get: () => window.away === true });
const ran = performance.now.bind(performance);
performance.now = () => ran() + (window.slept ?? 0);
window.turn = (away) => { window.away = away; document.dispatchEvent(new Event("visibilitychange")); };
"""
NOTED = """
const stream = document.getElementById("stream");
window.said = [];
new MutationObserver(() => said.push(stream.dataset.state)).observe(stream, { attributes: true });
stream.addEventListener("htmx:sse:after:connection", () => { window.connected = true; });
"""


def test_a_page_shown_again_after_a_while_reports_no_outage(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking_anew("viewer", "/pools/gpus", init_script=AWAY) as page:
        is_live(page)
        announcement = page.inner_text("#stream-announcement")  # on a busy machine the first connection may take its time
        page.evaluate(NOTED)
        page.evaluate("turn(true)")
        item = stage.submit("sweeps", gpu=2)
        page.evaluate("window.slept = 60000; turn(false)")  # a minute later
        page.wait_for_function("() => window.connected")
        page.wait_for_selector(f"#q-{item.id}", timeout=LIVE_MS)
        is_live(page)
        assert "down" not in page.evaluate("said")
        assert page.inner_text("#stream-announcement") == announcement
        stage.services.requests.cancel("default", item.id)


def test_it_is_said_when_the_page_cannot_be_had_though_the_stream_lives(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking("viewer", "/pools/gpus") as page:
        is_live(page)
        page.route("**/pools/gpus", lambda route: route.fulfill(status=503, body="Redis is away"))
        item = stage.submit("sweeps", gpu=2)
        page.wait_for_selector("#stream[data-state=down]")
        assert (
            page.inner_text("#stream-status") == page.inner_text("#stream-announcement") == "not up to date, retries every 5 s"
        )
        assert page.locator("h1").inner_text().endswith("gpus"), "what was there stays"
        page.unroute("**/pools/gpus")
        page.wait_for_selector(f"#q-{item.id}", timeout=PATIENCE_MS)
        is_live(page)
        assert page.inner_text("#stream-announcement") == "live again"
        stage.services.requests.cancel("default", item.id)
    eyes.faults.clear()  # the browser notes each 503


def test_without_scripts_all_is_there(eyes: Eyes, stage: Stage) -> None:
    with eyes.looking_anew("operator", "/", scripts=False) as page:
        page.get_by_role("link", name="gpus").click()
        page.locator(f"#q-{stage.first('queued')} a.id").click()
        assert "waits in gpus as number 1" in page.inner_text("#sentence")
        page.get_by_role("link", name="Cancel…").click()
        assert page.get_by_role("button", name="Cancel the request").is_visible()
        page.get_by_role("link", name="Back without a change").click()
        page.get_by_label("Workspace").select_option("lab")
        page.get_by_role("button", name="Go").click()
        assert "0 in workspace lab" in page.inner_text("main")
