"""The tokens on one Redis and their rate limits. They belong to the service and to no workspace of a user."""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any

from app.domain.clock import Clock, RedisClock
from app.domain.errors import Conflict, NotFound
from app.domain.tokens import Role, Token, default_wait_limits
from app.domain.workspace_limits import WaitLimits
from app.store.connection import RedisClient
from app.store.keys import OWN
from app.store.scripts import Scripts


class TokenStore:
    """The tokens by the digest of their secret. The secrets themselves never come here."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def create_token(self, digest: str, token: Token, lasts_s: int | None = None) -> Token:
        """Create a token; return it with its times, which Redis sets. Raise Conflict if the name or id exists."""
        reply = self._scripts.call(
            "create_token",
            OWN,
            now=self._clock.now_ms(),
            digest=digest,
            name=token.name,
            record=_encode_token(digest, token),
            lasts_s=lasts_s,
        )
        if reply.tag == "taken":
            raise Conflict("token_exists", f"there is a token {token.name} already")
        return _decode_token(json.loads(reply.fields["record"]))

    def find_token(self, digest: str) -> Token | None:
        """Return the token with this digest; None if it does not exist or has expired."""
        reply = self._scripts.call("find_token", OWN, now=self._clock.now_ms(), digest=digest)
        if reply.tag == "not_found":
            return None
        record = json.loads(reply.fields["record"])
        return _decode_token(record) if hmac.compare_digest(record["digest"], digest) else None

    def list_tokens(self) -> list[Token]:
        """Return all tokens, oldest first, with the expired ones that are not revoked."""
        return self._list_tokens()[0]

    def list_expiring_tokens(self, within_s: int, count: int) -> list[tuple[Token, float]]:
        """Return the tokens that expire within this time, the earliest first, each with the seconds until then."""
        tokens, now_ms = self._list_tokens()
        left = [(token, (token.expires_ms - now_ms) / 1000) for token in tokens if token.expires_ms is not None]
        expiring = [(token, left_s) for token, left_s in left if 0 < left_s <= within_s]
        return sorted(expiring, key=lambda row: (row[1], row[0].name))[:count]

    def _list_tokens(self) -> tuple[list[Token], int]:
        fields = self._scripts.call("list_tokens", OWN, now=self._clock.now_ms()).fields
        tokens = (_decode_token(json.loads(record)) for record in fields["records"])
        return sorted(tokens, key=lambda token: (token.created_ms, token.id)), int(fields["now_ms"])

    def count_waiters(self, token: str, workspace: str) -> tuple[int, int]:
        """Return the numbers of waiters and of their shapes, for a token with limits in a workspace."""
        fields = self._scripts.call("count_subject_waiters", workspace, subject=f"token/{token}").fields
        return int(fields["waiting"]), int(fields["shapes"])

    def revoke_token(self, id_or_name: str, operation: str | None = None) -> Token:
        """Revoke a token. A call with the same `operation` may be repeated."""
        op = operation or secrets.token_hex(16)
        reply = self._scripts.call("revoke_token", OWN, now=self._clock.now_ms(), op=op, id_or_name=id_or_name)
        if reply.tag == "not_found":
            raise NotFound("token", id_or_name)
        return _decode_token(json.loads(reply.fields["record"]))

    def throttle_token(self, token: str, per_s: int) -> int:
        """Count one more HTTP request of a token. Return 0 if it may pass, else the milliseconds until it may."""
        reply = self._scripts.call("throttle", OWN, now=self._clock.now_ms(), token=token, per_s=per_s)
        return int(reply.fields["ms"]) if reply.tag == "wait" else 0

    def charge_token(self, token: str, per_s: int, count: int) -> None:
        """Charge a token for further calls. Its next call may have to wait longer for that reason."""
        args: dict[str, str | int] = {"op": secrets.token_hex(8), "token": token, "per_s": per_s, "count": count}
        self._scripts.call("charge", OWN, now=self._clock.now_ms(), **args)


def _encode_token(digest: str, token: Token) -> str:
    """Return the record of a token without its times, which the script adds."""
    return json.dumps(
        {
            "digest": digest,
            "id": token.id,
            "name": token.name,
            "role": token.role,
            "sensitive": token.sensitive,
            "workspaces": token.workspaces,
            "components": token.components,
            "rate_per_s": token.rate_per_s,
            "max_waiting": token.wait_limits.max_waiting,
            "max_shapes": token.wait_limits.max_shapes,
        }
    )


def _decode_token(record: dict[str, Any]) -> Token:
    defaults = default_wait_limits(Role(record["role"]))  # an older record lacks these fields
    return Token(
        id=record["id"],
        name=record["name"],
        role=Role(record["role"]),
        workspaces=tuple(record["workspaces"]),
        components=tuple(record["components"]),
        sensitive=record["sensitive"],
        rate_per_s=record["rate_per_s"],
        wait_limits=WaitLimits(record.get("max_waiting", defaults.max_waiting), record.get("max_shapes", defaults.max_shapes)),
        created_ms=record["created_ms"],
        expires_ms=record.get("expires_ms"),
    )
