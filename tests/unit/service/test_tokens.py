"""Tokens as the service makes, recognises, throttles and revokes them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from app.domain.clock import ManualClock
from app.domain.errors import Conflict, NotFound
from app.domain.tokens import ANONYMOUS, Token
from app.domain.workspace_limits import WaitUse
from app.service import tokens as service
from app.service.tokens import Tokens
from app.store.connection import RedisClient
from app.store.tokens import TokenStore
from tests.support.world import World

STRANGER = "pk_" + "A" * 43


class CountingStore(TokenStore):
    """Notes which questions reach Redis."""

    def __init__(self, client: RedisClient, clock: ManualClock) -> None:
        super().__init__(client, clock)
        self.calls: list[str] = []

    def find_token(self, digest: str) -> Token | None:
        self.calls.append("find_token")
        return super().find_token(digest)

    def list_tokens(self) -> list[Token]:
        self.calls.append("list_tokens")
        return super().list_tokens()

    def throttle_token(self, token: str, per_s: int) -> int:
        self.calls.append("throttle_token")
        return super().throttle_token(token, per_s)


class Process:
    """The tokens as one process of the service has them, its time moved by hand."""

    def __init__(self, client: RedisClient, clock: ManualClock, default_rate: int = 0) -> None:
        self.store, self.now = CountingStore(client, clock), 0.0
        self.tokens = Tokens(self.store, default_rate, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def here(client: RedisClient, clock: ManualClock) -> Process:
    return Process(client, clock)


def test_a_secret_is_recognised_and_not_kept(client: RedisClient, here: Process) -> None:
    token, secret = here.tokens.create("ci", "requester", ["default"], ["ml", "batch/x"], sensitive=True, rate=7, expires_s=60)
    assert re.fullmatch(r"pk_[A-Za-z0-9_-]{43}", secret)
    assert (token.name, token.role, token.workspaces, token.components) == ("ci", "requester", ("default",), ("ml", "batch/x"))
    assert (token.sensitive, token.rate_per_s, token.expires_ms) == (True, 7, token.created_ms + 60_000)
    assert here.tokens.authenticate(secret) == token
    stored = dict(client.hgetall("pk:{_}:tokens"))
    assert list(stored) == [hashlib.sha256(secret.encode()).hexdigest()]
    assert secret[3:] not in str(stored)


def test_no_two_tokens_are_alike(here: Process) -> None:
    made = [here.tokens.create(f"t{number}", "viewer", ["*"]) for number in range(5)]
    assert len({secret for _, secret in made}) == len({token.id for token, _ in made}) == 5
    assert [here.tokens.authenticate(secret) for _, secret in made] == [token for token, _ in made]


NO_SECRETS = ["", "pk_", STRANGER[:-1], STRANGER + "A", STRANGER + "\n", "xx" + STRANGER[2:], STRANGER.replace("A", "é")]


@pytest.mark.parametrize("secret", NO_SECRETS, ids=range(len(NO_SECRETS)))
def test_what_cannot_be_a_secret_is_nobodys_without_asking(here: Process, secret: str) -> None:
    assert here.tokens.authenticate(secret) is None
    assert here.store.calls == []


def test_what_was_found_is_remembered_for_a_second(here: Process) -> None:
    token, secret = here.tokens.create("ci", "viewer", ["*"])
    for _ in range(3):
        assert here.tokens.authenticate(secret) == token
    here.pass_time(0.99)
    assert here.tokens.authenticate(secret) == token
    assert here.store.calls == ["find_token"]
    here.pass_time(0.01)
    assert here.tokens.authenticate(secret) == token
    assert here.store.calls == ["find_token", "find_token"]


def test_strangers_are_not_remembered(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CACHED", 2)
    token, secret = here.tokens.create("ci", "viewer", ["*"])
    here.tokens.authenticate(secret)
    for number in range(5):
        assert here.tokens.authenticate(f"pk_{number:043}") is None
    here.store.calls.clear()
    assert here.tokens.authenticate(secret) == token
    assert here.store.calls == []
    assert here.tokens.authenticate(STRANGER) is None
    assert here.tokens.authenticate(STRANGER) is None
    assert here.store.calls == ["find_token", "find_token"]


def test_no_more_are_remembered_than_there_is_room_for(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CACHED", 2)
    secrets = [here.tokens.create(f"t{number}", "viewer", ["*"])[1] for number in range(3)]
    for secret in secrets:
        here.tokens.authenticate(secret)
    here.store.calls.clear()
    for secret in (secrets[1], secrets[2]):
        here.tokens.authenticate(secret)
    assert here.store.calls == []
    assert here.tokens.authenticate(secrets[0])
    assert here.store.calls == ["find_token"]


def test_a_revoked_token_is_refused_here_at_once_and_elsewhere_within_a_second(client: RedisClient, clock: ManualClock) -> None:
    here, there = Process(client, clock), Process(client, clock)
    token, secret = here.tokens.create("ci", "viewer", ["*"])
    assert here.tokens.authenticate(secret) == there.tokens.authenticate(secret) == token
    assert here.tokens.revoke("ci") == token
    assert here.tokens.authenticate(secret) is None
    there.pass_time(1)
    assert there.tokens.authenticate(secret) is None
    with pytest.raises(NotFound):
        here.tokens.revoke(token.id)


def test_an_expired_token_is_nobodys_within_a_second(here: Process, clock: ManualClock) -> None:
    _, secret = here.tokens.create("ci", "viewer", ["*"], expires_s=30)
    assert here.tokens.authenticate(secret)
    clock.advance(30)
    here.pass_time(1)
    assert here.tokens.authenticate(secret) is None


def test_a_name_is_taken_once(here: Process) -> None:
    token, _ = here.tokens.create("ci", "viewer", ["*"])
    with pytest.raises(Conflict, match="there is a token ci already"):
        here.tokens.create("ci", "admin", ["*"])
    assert here.tokens.list_tokens() == [token]


def test_whether_there_are_any_is_remembered_for_a_second(client: RedisClient, clock: ManualClock) -> None:
    here, there = Process(client, clock), Process(client, clock)
    assert [here.tokens.any_exist(), there.tokens.any_exist(), there.tokens.any_exist()] == [False, False, False]
    assert there.store.calls == ["list_tokens"]
    here.tokens.create("ci", "viewer", ["*"], expires_s=30)
    assert here.tokens.any_exist()
    there.pass_time(1)
    assert there.tokens.any_exist()
    clock.advance(60)
    there.pass_time(1)
    assert there.tokens.any_exist()  # an expired token does not open the door again
    there.tokens.revoke("ci")
    assert not there.tokens.any_exist()


def test_workspaces_and_components_are_listed_once(here: Process) -> None:
    token, _ = here.tokens.create("ci", "requester", ["a", "b", "a"], ["x", "x"])
    assert (token.workspaces, token.components) == (("a", "b"), ("x",))


def test_a_pattern_is_kept_with_its_type(here: Process) -> None:
    token, _ = here.tokens.create("ci", "requester", ["w"], ["user-*", "orchestrator/user-*", "*", "intern/*"])
    assert token.components == ("orchestrator/user-*", "orchestrator/*", "intern/*")
    assert here.tokens.list_tokens() == [token]
    assert here.tokens.create("all", "viewer", ["a", "*"])[0].workspaces == ("*",)


GOOD: dict[str, Any] = {"name": "ci", "role": "requester", "workspaces": ["default"], "components": ["ml"]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "a token cannot be called '': it must be"),
        ({"name": "two words"}, "a token cannot be called 'two words'"),
        ({"name": "_"}, "begin with a letter or digit"),
        ({"role": "king"}, "there is no role 'king'; there are: admin, operator, requester, viewer"),
        ({"workspaces": []}, "a token is for one workspace at least"),
        ({"workspaces": ["default", "_"]}, "a workspace cannot be called '_'"),
        ({"workspaces": ["a*"]}, "a workspace cannot be called"),
        ({"components": []}, "a requester acts for the components of its token"),
        ({"components": ["a/b/c"]}, "component 'a/b/c': must be"),
        ({"components": ["/ml"]}, "component '/ml': must be"),
        ({"components": ["ml", "batch/"]}, "component 'batch/': must be"),
        ({"components": ["in*tern/x"]}, "component 'in*tern/x': must be a name or type/name"),
        ({"components": ["intern/**"]}, "a pattern has one *, at its end"),
        ({"role": "operator"}, "only a requester has components, and the role is operator"),
        ({"rate": -1}, "-1 requests a second: it must be from 0 to 1000000"),
        ({"rate": 10**6 + 1}, "requests a second"),
        ({"expires_s": 0}, "0 seconds it lasts: it must be from 1 to"),
        ({"expires_s": 10**10}, "seconds it lasts"),
    ],
)
def test_what_cannot_be_a_token_is_said_in_one_line(here: Process, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        here.tokens.create(**GOOD | wrong)
    assert "\n" not in str(refused.value)
    assert here.tokens.list_tokens() == []


# ---- the use of limits


def test_the_use_of_a_tokens_limits_is_the_largest_of_its_workspaces(world: World) -> None:
    process = Process(world.client, world.clock)
    limits = {"max_waiting": 5, "max_shapes": None}
    ci, _ = process.tokens.create("ci", "operator", ["test", "empty"], limits=limits)
    free, _ = process.tokens.create("free", "operator", ["test"])
    world.pool(gpu=1)
    world.policy()
    for gpu in (1, 1, 1):
        for token in (ci, free):
            world.ledger.submit("test", world.request_spec(gpu=gpu), token=token.as_limited)
    assert process.tokens.read_wait_use(ci, ["test", "empty", "other"]) == WaitUse(waiting=2, shapes=1)
    assert process.tokens.read_wait_use(ci, ["empty"]) == WaitUse(0, 0)
    assert process.tokens.read_wait_use(ci, ["other"]) == WaitUse(0, 0), "the token may not use it"
    assert process.tokens.read_wait_use(free, ["test"]) == WaitUse(0, 0)


# ---- the rate


def test_without_a_rate_nothing_is_counted(here: Process) -> None:
    token, _ = here.tokens.create("ci", "viewer", ["*"])
    assert [here.tokens.throttle(token) for _ in range(5)] == [None] * 5
    assert here.store.calls == []


def test_the_services_rate_holds_for_those_without_their_own(client: RedisClient, clock: ManualClock) -> None:
    here = Process(client, clock, default_rate=2)
    rates = {"plain": None, "quick": 4, "free": 0}
    plain, quick, free = (here.tokens.create(name, "viewer", ["*"], rate=rate)[0] for name, rate in rates.items())
    assert [here.tokens.throttle(plain) for _ in range(3)] == [None, None, 0.5]
    assert [here.tokens.throttle(quick) for _ in range(5)] == [None] * 4 + [0.25]
    assert [here.tokens.throttle(ANONYMOUS) for _ in range(3)] == [None, None, 0.5]
    here.store.calls.clear()
    assert here.tokens.throttle(free) is None
    assert here.store.calls == []
    clock.advance(0.5)
    assert here.tokens.throttle(plain) is None


def test_a_rate_is_one_over_all_processes(client: RedisClient, clock: ManualClock) -> None:
    here, there = Process(client, clock), Process(client, clock)
    token, _ = here.tokens.create("ci", "viewer", ["*"], rate=2)
    assert [here.tokens.throttle(token), there.tokens.throttle(token), here.tokens.throttle(token)] == [None, None, 0.5]
