"""The examples of the OpenAPI document: bodies and answers of the API itself, recorded in a small installation.

`make generated` writes them to `app/api/examples.json`. Every status of every route is brought about once, so the document has
each status that can come, and no other.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from app.api.app import HttpOptions
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route
from app.domain import ids
from app.domain.tokens import Permission
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Said, Site

BY_ID = {route.operation_id: route for route in (*ROUTES, *AT_ROOT)}
REQUEST_ID = "9bf586aac3fff7f7"
START_MS = 1_700_000_000_000
EVENT_ID = re.compile(r"\b[0-9]{13}-[0-9]+\b")
ABSENT = {"pool": "tpus", "component": "absent", "group": "nowhere", "request": "1m7qarzqdrzq14e3tgzg", "task": "absent"}
"""Path parameters that name no object."""
JSON = {"Accept": "application/json"}


class MissingCall(Exception):  # noqa: N818
    """An operation that the scenario does not call."""


class ExampleRecorder:
    """Calls routes by their operation ids, and keeps what was sent and answered.

    An answer that is larger than an example should be is kept by its first rows.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.token = site.token("admin", name="ana")
        self.operations: dict[str, dict[str, Any]] = {}
        self.problems: dict[str, dict[str, Any]] = {}
        self.paths: dict[str, dict[str, str]] = {}
        """Path parameters of the last success of each operation."""
        self.bodies: dict[str, Any] = {}
        self._tokens: dict[str, str] = {}

    def call(self, operation: str, body: Any = None, *, expect: int, **options: Any) -> Any:
        """Make a call, check its status and keep it; return the body of the answer. `path` has the path parameters."""
        route, path = BY_ID[operation], options.pop("path", {})
        answer = self._send(route, path, body, options)
        assert answer.status == expect, (operation, expect, answer)
        if answer.status >= 400:
            self._keep_problem(route, answer)
        else:
            self._keep_success(route, path, body, answer)
        return answer.body

    def _send(self, route: Route, path: Mapping[str, str], body: Any, options: dict[str, Any]) -> Said:
        headers = {"X-Request-Id": REQUEST_ID} | options.pop("headers", {})
        token = options.pop("token", self.token if route.permission else None)
        filled = re.sub(r"{(\w+)}", lambda name: path[name[1]], route.path)
        is_root = route in AT_ROOT
        return self.site.ask(route.method, filled, body, token=token, headers=headers, root=is_root, **options)

    def _keep_success(self, route: Route, path: Mapping[str, str], body: Any, answer: Said) -> None:
        kept = self.operations.setdefault(route.operation_id, {})
        if path:
            kept.setdefault("path", dict(path))
        if body is not None:
            kept.setdefault("request", body)
        self.paths[route.operation_id], self.bodies[route.operation_id] = dict(path), body
        responses = kept.setdefault("responses", {})
        if answer.status != 204:
            responses.setdefault(
                str(answer.status), answer.body if route is not BY_ID["get_metrics"] else _excerpt(answer.body)
            )

    def stream_events(self, after: str, count: int) -> None:
        """Read the first events of the stream, and keep them as they are sent."""
        headers = {"Authorization": f"Bearer {self.token}", "Last-Event-ID": after}
        answer = self.site.app.test_client().get(f"{PREFIX}/events", headers=headers, buffered=False)
        parts: Iterator[Any] = iter(answer.response)
        text = b"".join(
            part.encode() if isinstance(part, str) else part for part in itertools.islice(parts, count + 1)
        ).decode()
        answer.close()
        self.operations["list_events"]["stream"] = text

    def _keep_problem(self, route: Route, answer: Said) -> None:
        problem = answer.refused(answer.status, answer.body["code"])
        code = problem["code"]
        name = next((name for name, known in self.problems.items() if known == problem), None)
        if name is None:
            name = f"{code}-{route.operation_id}" if code in self.problems else code
            self.problems[name] = problem
        problems = self.operations.setdefault(route.operation_id, {}).setdefault("problems", {})
        names = problems.setdefault(str(answer.status), [])
        if name not in names:
            names.append(name)

    def problem(self, operation: str, status: int) -> None:
        """Bring about a refusal that is the same for many routes."""
        route, path, body = BY_ID[operation], self.paths[operation], self.bodies[operation]
        if status == 404:
            path = {name: ABSENT[name] for name in path}
        if status in (413, 415):
            body = None
        self.call(operation, body, path=path, expect=status, **self._cause(route, status))

    def _cause(self, route: Route, status: int) -> dict[str, Any]:
        """Return the options of a call that is answered with the status."""
        size = route.body_limit.within(HttpOptions().max_body_bytes).bytes + 1
        reads = route.permission is Permission.READ
        causes: dict[int, dict[str, Any]] = {
            400: {"colour": "red"},
            401: {"token": "pk_of-yesterday"},
            403: {"token": self._tokens["lab" if reads else "viewer"], "workspace": "default"},
            404: {},
            413: {"raw": b" " * size, "headers": {"Content-Type": "application/json"}},
            415: {"raw": b"gpu=2", "headers": {"Content-Type": "text/plain"}},
            429: {"token": self._tokens["slow"]},
            503: {"token": "pk_" + 43 * "x"}
            if route.operation_id == "whoami"
            else {},  # other tokens are remembered for a while
        }
        return {"headers": JSON} | causes[status]

    def make_tokens(self) -> None:
        """Make the tokens that are refused for a reason."""
        self._tokens |= {
            "lab": self.site.token("admin", name="lab", workspaces=["lab"]),
            "viewer": self.site.token("viewer", name="eve"),
            "slow": self.site.token("admin", name="slow", rate=1),
        }
        self.site.get("/whoami", token=self._tokens["slow"])

    def document(self) -> dict[str, Any]:
        """Return the examples, in the order of the routes."""
        return {
            "operations": {name: self.operations[name] for name in BY_ID},
            "problems": dict(sorted(self.problems.items())),
        }


def _excerpt(metrics: str) -> str:
    """Return the metrics that are the same each time, of those of the first kinds."""
    return "".join(line for line in metrics.splitlines(keepends=True) if "poolkeeper_pool_capacity" in line)


@contextmanager
def fixed_ids() -> Iterator[None]:
    """Make the ids of requests the same each time."""
    generator, times = random.Random(8), iter(range(START_MS, START_MS + 1_000_000, 1000))
    with (
        patch.object(ids, "secrets", SimpleNamespace(randbits=generator.getrandbits)),
        patch.object(ids, "time", SimpleNamespace(time_ns=lambda: next(times) * 1_000_000)),
    ):
        yield


GENERIC = (400, 401, 403, 404, 413, 415, 429)


def record() -> dict[str, Any]:
    """Return the recorded examples."""
    from tests.support import openapi_scenario

    with fixed_ids():
        recorder = ExampleRecorder(Site(new_fake()))
        openapi_scenario.play(recorder)
        if missing := [operation for operation in BY_ID if operation not in recorder.paths]:
            raise MissingCall(f"tests/support/openapi_scenario.py does not call {', '.join(missing)} with success")
        recorder.make_tokens()
        for operation, route in BY_ID.items():
            for status in GENERIC:
                if status in route.failure_statuses and not _has_own_cause(route, status):
                    recorder.problem(operation, status)
        record_without_tokens(recorder)
        recorder.site.services.long_polls.close()
        client: Any = recorder.site.client
        client.connection_pool.connection_kwargs["server"].connected = False
        logging.disable()
        for operation, route in BY_ID.items():
            if 503 in route.failure_statuses:
                recorder.problem(operation, 503)
        logging.disable(logging.NOTSET)
    return recorder.document()


def _has_own_cause(route: Route, status: int) -> bool:
    """True if the status of the route is brought about by the scenario, or by a caller without a token."""
    return (status == 404 and not route.path_names) or (status == 403 and not route.has_workspace)


def record_without_tokens(recorder: ExampleRecorder) -> None:
    """Record the refusal of a caller that is not on this machine, where there is no token yet."""
    with_tokens, recorder.site = recorder.site, Site(new_fake())
    recorder.call("get_metrics", expect=403, token=None, headers={"X-Forwarded-For": "192.0.2.7"})
    recorder.site, with_tokens = with_tokens, recorder.site
    with_tokens.services.long_polls.close()


def examples_file() -> str:
    """Return the text of the file. Ids of events, which Redis makes by its own clock, are numbered."""
    text = json.dumps(record(), ensure_ascii=False, indent=1) + "\n"
    event_ids = sorted(set(EVENT_ID.findall(text)), key=lambda event_id: [int(part) for part in event_id.split("-")])
    numbers = {event_id: f"{START_MS + number}-0" for number, event_id in enumerate(event_ids)}
    return EVENT_ID.sub(lambda event_id: numbers[event_id[0]], text)
