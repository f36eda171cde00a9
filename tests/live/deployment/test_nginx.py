"""config/nginx/poolkeeper.conf in a real nginx on loopback, with a certificate of its own, before a real API."""

from __future__ import annotations

import http.cookiejar
import json
import os
import pwd
import re
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, HTTPSHandler, Request, build_opener

import pytest
from poolkeeper import Client

from app.api.schemas.inputs import LONGEST_POLL_S
from app.settings import Settings
from tests.support.backends import free_port, running, wait_until
from tests.support.certificates import certify
from tests.support.gunicorn_api import Live, live_api
from tests.support.paths import ROOT
from tests.support.programs import require_program

CONF = (ROOT / "config" / "nginx" / "poolkeeper.conf").read_text("utf-8")


@dataclass(frozen=True)
class Proxy:
    """A running nginx before an API that needs a token."""

    api: Live
    token: str
    certificate: Path
    http_port: int
    https_port: int

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return f"https://localhost:{self.https_port}"

    @property
    def tls(self) -> ssl.SSLContext:
        """Return what a client needs to trust the certificate."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def connect(self) -> HTTPSConnection:
        """Return a new connection."""
        return HTTPSConnection("localhost", self.https_port, timeout=20, context=self.tls)

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of a call."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **more}

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, dict[str, str], str]:
        """Return status, headers and body of an answer of the API."""
        connection = self.connect()
        try:
            connection.request(method, f"/api/v1{path}", body, {**self.headers(), **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode()
        finally:
            connection.close()

    def polls(self) -> float:
        """Return the wait slots that long polls use."""
        page = self.api.ask("GET", "/metrics", headers=self.headers()).body
        return sum(
            float(line.split()[-1]) for line in page.splitlines() if line.startswith('poolkeeper_http_waiting{kind="poll"')
        )


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Yield nginx with the file of the repository; only ports and the paths of the certificate are others."""
    nginx = require_program("nginx", "nginx-light")
    folder, http_port, https_port = tmp_path_factory.mktemp("nginx"), free_port(), free_port()
    certificate, _ = certify(folder)
    with live_api(folder, require_token=1) as api:
        (folder / "poolkeeper.conf").write_text(adapted(folder, api.port, http_port, https_port), "utf-8")
        (folder / "nginx.conf").write_text(surrounding(folder), "utf-8")
        command = [nginx, "-p", str(folder), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log", "-g", "daemon off;"]
        with running(command, folder / "nginx.log"):
            made = Proxy(api, api.token("admin"), certificate, http_port, https_port)
            wait_until(lambda: made.ask("GET", "/whoami")[0] == 200, f"nginx answers; see {folder}")
            yield made


def adapted(folder: Path, port: int, http_port: int, https_port: int) -> str:
    """Return the file of the repository with other ports and paths."""
    text = re.sub(r"^ *listen \[::\].*\n", "", CONF, flags=re.M)
    places = {
        "127.0.0.1:8080": f"127.0.0.1:{port}",
        "listen 80;": f"listen 127.0.0.1:{http_port};",
        "listen 443": f"listen 127.0.0.1:{https_port}",
        "/etc/ssl/poolkeeper": str(folder),
    }
    for there, here in places.items():
        assert there in text
        text = text.replace(there, here)
    return text


def surrounding(folder: Path) -> str:
    """Return a file that includes it, as the one of Debian does."""
    user = f"user {pwd.getpwuid(os.geteuid()).pw_name};\n" if os.geteuid() == 0 else ""
    temporary = "".join(f"    {kind}_temp_path {folder};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return (
        f"{user}worker_processes 1;\npid {folder}/nginx.pid;\nevents {{}}\n"
        f"http {{\n{temporary}    access_log off;\n    include {folder}/poolkeeper.conf;\n}}\n"
    )


@pytest.fixture
def client(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Yield the Python client, which trusts the certificate as the page says."""
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
    with Client(proxy.url, proxy.token) as made:
        pools = [{"name": "gpus", "capacity": {"gpu": 2}, "policies": [{"component": "vision"}]}]
        made.apply({"pools": pools})
        yield made
        for request in made.requests():
            proxy.ask("DELETE", f"/requests/{request.id}")


def test_plain_http_is_redirected(proxy: Proxy) -> None:
    connection = HTTPConnection("127.0.0.1", proxy.http_port, timeout=20)
    connection.request("POST", "/api/v1/requests?wait_s=1", b"{}", {"Host": "poolkeeper.example"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (308, "https://poolkeeper.example/api/v1/requests?wait_s=1")
    connection.close()


def test_a_submit_over_https(client: Client) -> None:
    assert client.submit("vision", gpu=2).status == "allocated"


def test_http_2_is_spoken(proxy: Proxy) -> None:
    options = ("-s", "-o", "/dev/null", "--cacert", str(proxy.certificate), "-H", f"Authorization: Bearer {proxy.token}")
    command = [require_program("curl", "curl"), *options, "-w", "%{http_version} %{http_code}", f"{proxy.url}/api/v1/whoami"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout == "2 200"


def test_a_long_poll_answers_as_soon_as_units_are_free(proxy: Proxy, client: Client) -> None:
    holder, waiter = client.submit("vision", gpu=2), client.submit("vision", gpu=1)
    with ThreadPoolExecutor() as pool:
        before_s = time.monotonic()
        poll = pool.submit(proxy.ask, "GET", f"/requests/{waiter.id}?wait_s=30&status=queued")
        wait_until(lambda: proxy.polls() == 1, "the poll waits")
        client.release(holder.id, holder.fence or 0)
        status, _, body = poll.result(timeout=20)
    assert (status, json.loads(body)["status"]) == (200, "allocated")
    assert time.monotonic() - before_s < 15


def test_the_longest_poll_is_shorter_than_the_patience_of_nginx() -> None:
    seconds = re.search(r"proxy_read_timeout (\d+)s;", CONF)
    assert seconds
    assert int(seconds[1]) > LONGEST_POLL_S


def test_a_poller_that_leaves_gives_its_wait_slot_back(proxy: Proxy, client: Client) -> None:
    client.submit("vision", gpu=2)
    waiter = client.submit("vision", gpu=1)
    connection = proxy.connect()
    connection.request("GET", f"/api/v1/requests/{waiter.id}?wait_s=60&status=queued", headers=proxy.headers())
    wait_until(lambda: proxy.polls() == 1, "the poll waits")
    connection.close()
    wait_until(lambda: proxy.polls() == 0, "its slot is free")


def test_each_event_passes_at_once(proxy: Proxy, client: Client) -> None:
    connection = proxy.connect()
    connection.request("GET", "/api/v1/events", headers=proxy.headers(Accept="text/event-stream"))
    stream = connection.getresponse()
    assert stream.readline().startswith(b"retry:")
    for _ in range(2):
        request = client.submit("vision", gpu=1)
        line = b""
        while not (line.startswith(b"data:") and request.id.encode() in line):
            line = stream.readline()  # the socket's timeout ends a test whose event is buffered
            assert line
    connection.close()


def test_a_body_beyond_the_limit_is_refused_in_the_form_of_the_api(proxy: Proxy) -> None:
    most = Settings().max_body_bytes
    status, headers, text = proxy.ask("POST", "/requests/batch", b" " * (most + 1))
    problem = json.loads(text)
    assert (status, headers["Content-Type"]) == (413, "application/problem+json")
    assert (problem["status"], problem["code"], problem["detail"]) == (413, "body_too_large", f"a body may have {most} bytes")
    status, _, text = proxy.ask("POST", "/requests/batch", b" " * most)
    assert (status, json.loads(text)["code"]) == (400, "malformed")


def test_the_client_s_address_survives_and_cannot_be_forged(proxy: Proxy) -> None:
    forged = proxy.headers(**{"X-Forwarded-For": "203.0.113.9", "X-Request-Id": "forged"})
    own_address = ("127.0.0.2", 0)  # another one than that of nginx
    connection = HTTPSConnection("localhost", proxy.https_port, timeout=20, context=proxy.tls, source_address=own_address)
    connection.request("GET", "/api/v1/pools/none", headers=forged)
    assert connection.getresponse().status == 404
    connection.close()
    lines = [line for line in proxy.api.lines() if line.get("request_id") == "forged"]
    assert [line["client"] for line in lines] == ["127.0.0.2"]


def test_the_host_and_the_scheme_survive_so_that_a_browser_can_sign_in(proxy: Proxy) -> None:
    cookies = http.cookiejar.CookieJar()
    browser = build_opener(HTTPSHandler(context=proxy.tls), HTTPCookieProcessor(cookies))
    page = browser.open(f"{proxy.url}/sign-in", timeout=20).read().decode()
    form = re.search(r'name="form" value="([^"]+)"', page)
    assert form
    fields = urlencode({"form": form[1], "token": proxy.token, "next": "/"}).encode()
    signed = browser.open(Request(f"{proxy.url}/sign-in", fields, {"Origin": proxy.url}), timeout=20)
    assert signed.url == f"{proxy.url}/"
    assert {(cookie.name, cookie.secure) for cookie in cookies} == {
        ("__Host-poolkeeper", True),
        ("__Host-poolkeeper-visit", True),
    }
