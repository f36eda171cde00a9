"""Tokens: create, authenticate, throttle and revoke.

A secret is 32 random bytes, so its SHA-256 is as safe as a slow hash, and cheap. Only the hash is stored. A process caches a
token for a second. So most calls need no read, and a revoked token is refused after a second at most.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType

from app.domain.names import NAME_PATTERN, PATTERN_TEXTS, is_component_pattern, is_name, is_template
from app.domain.queue_score import MAX_AMOUNT
from app.domain.tokens import ALL_WORKSPACES, Role, Token, default_wait_limits, full_component
from app.domain.workspace_limits import WaitLimits, WaitUse
from app.store.tokens import TokenStore

CACHE_TTL_S = 1.0
MAX_CACHED = 1000
"""The most valid secrets that a process caches."""

EXPIRES_SOON_S = 7 * 86_400
"""Seconds before its end from which `token list` and the metrics name a token."""
MAX_EXPIRING = 20
"""The most tokens that the metrics name at a time."""

COMPONENT_TEXT = (
    "must be a name or type/name, each 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit; "
    "a pattern has one *, at its end"
)
MAX_RATE_PER_S = 10**6
MAX_LIFETIME_S = 10 * 365 * 86_400
_EXPIRED = False, float("-inf")
_SECRET = re.compile(r"pk_[A-Za-z0-9_-]{43}")


class Tokens:
    """The tokens of the service."""

    def __init__(self, store: TokenStore, default_rate: int = 0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._default_rate, self._monotonic = store, default_rate, monotonic
        self._cache: dict[str, tuple[Token, float]] = {}
        self._existence = _EXPIRED
        self._lock = Lock()

    def create(
        self,
        name: str,
        role: str,
        workspaces: Iterable[str],
        components: Iterable[str] = (),
        *,
        sensitive: bool = False,
        rate: int | None = None,
        limits: Mapping[str, int | None] = MappingProxyType({}),
        expires_s: int | None = None,
    ) -> tuple[Token, str]:
        """Return a new token and its secret, which is not stored. Raise ValueError with the reason if a value is invalid.

        `limits` are `max_waiting` and `max_shapes`; None is no limit, and an absent limit has the default of the role.
        """
        token = Token(
            id=secrets.token_hex(6),
            name=_checked_name("a token", name),
            role=_checked_role(role),
            workspaces=_checked_workspaces(workspaces),
            components=_checked_components(role, components),
            sensitive=sensitive,
            rate_per_s=_checked_range("requests a second", rate, 0, MAX_RATE_PER_S),
            wait_limits=_checked_limits(role, limits),
        )
        lifetime_s = _checked_range("seconds it lasts", expires_s, 1, MAX_LIFETIME_S)
        secret = "pk_" + secrets.token_urlsafe(32)
        created = self._store.create_token(_digest(secret), token, lifetime_s)
        self._existence = _EXPIRED
        return created, secret

    def list_tokens(self) -> list[Token]:
        """Return every token, the oldest first. Expired tokens are included until they are revoked."""
        return self._store.list_tokens()

    def read_wait_use(self, token: Token, workspaces: Iterable[str]) -> WaitUse:
        """Return the use of a token's limits: each number is the largest among these workspaces, as far as the token may use
        them."""
        if token.wait_limits.is_unlimited:  # the waiters of such a token are not counted
            return WaitUse(0, 0)
        counts = [self._store.count_waiters(token.id, workspace) for workspace in workspaces if token.can_access(workspace)]
        return WaitUse(max((waiting for waiting, _ in counts), default=0), max((shapes for _, shapes in counts), default=0))

    def list_expiring(self, count: int = MAX_EXPIRING) -> list[tuple[Token, float]]:
        """Return the tokens that expire within `EXPIRES_SOON_S`, the earliest first, each with the seconds until then."""
        return self._store.list_expiring_tokens(EXPIRES_SOON_S, count)

    def revoke(self, id_or_name: str) -> Token:
        """Revoke a token. This process refuses it at once, other processes within a second."""
        token = self._store.revoke_token(id_or_name)
        with self._lock:
            self._cache.clear()
            self._existence = _EXPIRED
        return token

    def authenticate(self, secret: str) -> Token | None:
        """Return the token with this secret; None if there is none, or if it has expired or was revoked."""
        if not _SECRET.fullmatch(secret):
            return None
        digest, now = _digest(secret), self._monotonic()
        token, until = self._cache.get(digest, (None, now))
        if token and now < until:
            return token
        token = self._store.find_token(digest)
        self._cache_token(digest, token, now + CACHE_TTL_S)
        return token

    def _cache_token(self, digest: str, token: Token | None, until: float) -> None:
        with self._lock:
            self._cache.pop(digest, None)
            if token:
                self._cache[digest] = token, until
            if len(self._cache) > MAX_CACHED:
                del self._cache[next(iter(self._cache))]

    def any_exist(self) -> bool:
        """True if there is any token, even an expired one; the answer may be a second old."""
        exists, until = self._existence
        now = self._monotonic()
        if now >= until:
            exists = bool(self._store.list_tokens())
            self._existence = exists, now + CACHE_TTL_S
        return exists

    def charge(self, token: Token, count: int) -> None:
        """Charge a token for the further requests of a batch that was counted as one call."""
        rate = self._rate(token)
        if rate and count > 0:
            self._store.charge_token(token.id, rate, count)

    def _rate(self, token: Token) -> int:
        return self._default_rate if token.rate_per_s is None else token.rate_per_s

    def throttle(self, token: Token) -> float | None:
        """Count a call of a token. Return None if the call is accepted, else the seconds until the next call is accepted."""
        rate = self._rate(token)
        wait_ms = self._store.throttle_token(token.id, rate) if rate else 0
        return wait_ms / 1000 if wait_ms else None


def _checked_limits(role: str, limits: Mapping[str, int | None]) -> WaitLimits:
    numbers = {name: _checked_range(f"as {name}", number, 0, MAX_AMOUNT) for name, number in limits.items()}
    return replace(default_wait_limits(_checked_role(role)), **numbers)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checked_name(subject: str, name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{subject} cannot be called {name!r}: it {PATTERN_TEXTS[NAME_PATTERN]}")
    return name


def _checked_role(role: str) -> Role:
    if role not in list(Role):
        raise ValueError(f"there is no role {role!r}; there are: {', '.join(Role)}")
    return Role(role)


def _checked_workspaces(names: Iterable[str]) -> tuple[str, ...]:
    workspaces = tuple(dict.fromkeys(names))
    if not workspaces:
        raise ValueError(f"a token is for one workspace at least, or for all: {ALL_WORKSPACES}")
    if ALL_WORKSPACES in workspaces:
        return (ALL_WORKSPACES,)
    return tuple(_checked_name("a workspace", name) for name in workspaces)


def _checked_components(role: str, names: Iterable[str]) -> tuple[str, ...]:
    components = tuple(dict.fromkeys(full_component(name) if is_template(name) else name for name in names))
    if role == Role.REQUESTER and not components:
        raise ValueError("a requester acts for the components of its token: name at least one")
    if role != Role.REQUESTER and components:
        raise ValueError(f"only a requester has components, and the role is {role}")
    for component in components:
        if not is_component_pattern(component):
            raise ValueError(f"component {component!r}: {COMPONENT_TEXT}")
    return components


def _checked_range(unit: str, number: int | None, minimum: int, maximum: int) -> int | None:
    if number is not None and not minimum <= number <= maximum:
        raise ValueError(f"{number} {unit}: it must be from {minimum} to {maximum}")
    return number
