"""Tokens in Redis, and the rate of each, on every backend."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.domain.clock import ManualClock
from app.domain.errors import Conflict, NotFound
from app.domain.tokens import Role, Token
from app.store.connection import RedisClient
from app.store.keys import OWN, key
from app.store.tokens import TokenStore
from app.store.workspaces import WorkspaceRegistry

CI = Token(
    id="id-ci", name="ci", role=Role.REQUESTER, workspaces=("default", "lab"), components=("ml", "batch/x"), sensitive=True,
    rate_per_s=5,
)  # fmt: skip
OPS = Token(id="id-ops", name="ops", role=Role.OPERATOR, workspaces=("*",))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(client: RedisClient, clock: ManualClock) -> TokenStore:
    return TokenStore(client, clock)


def test_what_is_kept_is_what_was_made(store: TokenStore, clock: ManualClock) -> None:
    ci = store.create_token("d1", CI, lasts_s=60)
    clock.advance(1)
    ops = store.create_token("d2", OPS)
    assert ci == replace(CI, created_ms=1_700_000_000_000, expires_ms=1_700_000_060_000)
    assert ops == replace(OPS, created_ms=1_700_000_001_000)
    assert (store.find_token("d1"), store.find_token("d2"), store.find_token("d3")) == (ci, ops, None)
    assert store.list_tokens() == [ci, ops]


def test_without_a_clock_the_times_are_those_of_redis(client: RedisClient) -> None:
    made = TokenStore(client).create_token("d1", CI, lasts_s=60)
    seconds, parts = client.time(target_nodes="random") if hasattr(client, "get_nodes") else client.time()
    assert 0 <= seconds * 1000 + parts // 1000 - made.created_ms < 20_000
    assert made.expires_ms == made.created_ms + 60_000


def test_it_stands_in_no_workspace(client: RedisClient, store: TokenStore) -> None:
    store.create_token("d1", CI)
    store.throttle_token("id-ci", 5)
    assert sorted(client.scan_iter("*")) == ["pk:{_}:rate:id-ci", "pk:{_}:tokens"]
    assert WorkspaceRegistry(client).list_names() == []
    assert list(client.hgetall("pk:{_}:tokens")) == ["d1"]


def test_a_token_ends_when_it_expires(store: TokenStore, clock: ManualClock) -> None:
    ci = store.create_token("d1", CI, lasts_s=60)
    clock.advance(59.999)
    assert store.find_token("d1") == ci
    clock.advance(0.001)
    assert store.find_token("d1") is None
    assert store.list_tokens() == [ci]


def test_a_name_is_taken_once(client: RedisClient, store: TokenStore) -> None:
    store.create_token("d1", CI)
    before = client.hgetall(key("tokens", OWN))
    for name in ("ci", "id-ci"):
        with pytest.raises(Conflict, match=f"there is a token {name} already") as error:
            store.create_token("d2", replace(OPS, name=name))
        assert error.value.code == "token_exists"
    assert client.hgetall(key("tokens", OWN)) == before


def test_an_expired_one_gives_its_name_up(store: TokenStore, clock: ManualClock) -> None:
    store.create_token("d1", CI, lasts_s=60)
    clock.advance(60)
    anew = store.create_token("d2", replace(CI, id="other"), lasts_s=60)
    assert (store.list_tokens(), store.find_token("d1"), store.find_token("d2")) == ([anew], None, anew)


def test_a_creation_repeated_says_the_same(store: TokenStore, clock: ManualClock) -> None:
    first = store.create_token("d1", CI, lasts_s=60)
    clock.advance(5)
    assert store.create_token("d1", CI, lasts_s=60) == first
    assert store.list_tokens() == [first]


def test_it_is_revoked_by_id_or_by_name(store: TokenStore) -> None:
    ci, ops = store.create_token("d1", CI), store.create_token("d2", OPS)
    assert (store.revoke_token("ci"), store.find_token("d1"), store.list_tokens()) == (ci, None, [ops])
    assert (store.revoke_token("id-ops"), store.list_tokens()) == (ops, [])
    for name in ("ci", "id-ops", "d1"):
        with pytest.raises(NotFound, match=f"there is no token {name}"):
            store.revoke_token(name)


def test_a_revocation_that_is_named_may_be_repeated(store: TokenStore) -> None:
    ci = store.create_token("d1", CI)
    assert [store.revoke_token("ci", operation="one") for _ in range(2)] == [ci, ci]
    anew = store.create_token("d2", replace(CI, id="other"))
    assert store.revoke_token("ci", operation="one") == ci
    assert store.list_tokens() == [anew]


def test_a_record_under_another_digest_is_nobodys(client: RedisClient, store: TokenStore) -> None:
    store.create_token("d1", CI)
    record = str(client.hget("pk:{_}:tokens", "d1"))
    assert json.loads(record)["digest"] == "d1"
    client.hset("pk:{_}:tokens", "d2", record)
    assert store.find_token("d2") is None
    assert store.find_token("d1")


@pytest.mark.parametrize("name", ["é", '"', "\\", "a\nb"])
def test_any_text_comes_back_as_it_was(store: TokenStore, name: str) -> None:
    made = store.create_token("d1", replace(CI, name=name))
    assert (made.name, store.find_token("d1"), store.revoke_token(name)) == (name, made, made)


# ---- the rate


@pytest.mark.parametrize("rate", [1, 2, 3, 7, 30, 100])
def test_a_burst_of_a_seconds_worth_passes(store: TokenStore, clock: ManualClock, rate: int) -> None:
    assert [store.throttle_token("t", rate) for _ in range(rate)] == [0] * rate
    wait_ms = store.throttle_token("t", rate)
    assert 1000 / rate - 1 <= wait_ms <= 1000 / rate + 1
    clock.advance(1 + wait_ms / 1000)
    assert [store.throttle_token("t", rate) for _ in range(rate)] == [0] * rate
    assert store.throttle_token("t", rate) > 0


def test_a_call_after_its_retry_after_passes(store: TokenStore, clock: ManualClock) -> None:
    for _ in range(3):
        store.throttle_token("t", 3)
    for _ in range(5):
        wait_ms = store.throttle_token("t", 3)
        assert 0 < wait_ms <= 334
        clock.advance(wait_ms / 1000)
        assert store.throttle_token("t", 3) == 0


def test_a_refusal_costs_nothing(store: TokenStore, clock: ManualClock) -> None:
    assert store.throttle_token("t", 1) == 0
    assert [store.throttle_token("t", 1) for _ in range(5)] == [1000] * 5
    clock.advance(0.4)
    assert store.throttle_token("t", 1) == 600


def test_over_any_second_no_more_than_two_seconds_worth_pass(store: TokenStore, clock: ManualClock) -> None:
    passed = []
    for _ in range(150):
        passed.append(store.throttle_token("t", 10) == 0)
        clock.advance(0.02)
    assert sum(passed) == 10 + 29  # the burst, then one each 100 ms of 2.98 s
    assert max(sum(passed[i : i + 50]) for i in range(100)) <= 20


def test_the_asks_of_a_batch_count_and_the_next_call_waits_for_them(store: TokenStore, clock: ManualClock) -> None:
    assert store.throttle_token("t", 10) == 0
    store.charge_token("t", 10, 99)
    assert store.throttle_token("t", 10) == 9100
    clock.advance(9.1)
    assert store.throttle_token("t", 10) == 0
    assert store.throttle_token("t", 10) == 100


def test_each_token_has_its_own_rate(store: TokenStore) -> None:
    assert (store.throttle_token("a", 1), store.throttle_token("b", 1)) == (0, 0)
    assert (store.throttle_token("a", 1), store.throttle_token("b", 1)) == (1000, 1000)


def test_the_highest_rate_lets_a_million_pass(client: RedisClient, store: TokenStore, clock: ManualClock) -> None:
    assert [store.throttle_token("t", 10**6) for _ in range(20)] == [0] * 20
    taken = float(str(client.get(key("rate", OWN, "t"))).split()[0]) - clock.now_ms()
    assert 0.01 <= taken <= 0.03


def test_a_rate_is_forgotten_by_itself(client: RedisClient, store: TokenStore) -> None:
    store.throttle_token("t", 1)
    assert 0 < client.pttl(key("rate", OWN, "t")) <= 11_000


def test_a_clock_that_was_set_back_delays_no_call(client: RedisClient, store: TokenStore, clock: ManualClock) -> None:
    ahead = TokenStore(client, ManualClock(clock.now_ms() + 3_600_000))
    assert ahead.throttle_token("t", 1) == 0
    assert store.throttle_token("t", 1) <= 1000
