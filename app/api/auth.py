"""Who calls, and whether he may: the token, its workspace, its permission, its rate."""

from __future__ import annotations

import ipaddress
import math

from werkzeug.datastructures import Headers

from app.api.errors import Malformed, Refusal
from app.domain.names import NAME_PATTERN, RULES, is_name
from app.domain.tokens import ANYBODY, Permission, Token
from app.service.tokens import Tokens


class Access:
    """The door. With `required` it lets nobody in without a token, even while there is none."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens, self._required = tokens, required

    def needs_token(self) -> bool:
        """Whether one is needed just now."""
        return self._required or self._tokens.exist()

    def caller(self, headers: Headers, host: str) -> Token:
        """Whose token this is; without one everybody on this machine may do everything, where none is needed."""
        authorization = headers.get("Authorization")
        if authorization is None:
            return self.bearer(None, headers, host)
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _who_are_you("no_token", "Authorization must be Bearer and a token")
        return self.bearer(secret.strip(), headers, host)

    def bearer(self, secret: str | None, headers: Headers, host: str) -> Token:
        """Whose secret this is, however it came here; None is that none came."""
        if secret is None:
            if self.needs_token():
                raise _who_are_you("no_token", "a token is needed: Authorization: Bearer <token>")
            _check_from_here(headers, host)
            return ANYBODY
        token = self._tokens.recognise(secret)
        if token is None:
            raise _who_are_you("unknown_token", "this token is unknown, expired or revoked")
        return token

    def workspace(self, token: Token, header: str | None) -> str:
        """The workspace that is meant, if the token may use it; without a word the default one, or the only one it is for."""
        workspace = token.usual_workspace if header is None else header.strip()
        if not is_name(workspace):
            raise Malformed([("Poolkeeper-Workspace", RULES[NAME_PATTERN])], "a header")
        if not token.may_use(workspace):
            raise Refusal(403, "other_workspace", f"this token is not for workspace {workspace}")
        return workspace

    def allow(self, token: Token, permission: Permission) -> None:
        """Raises unless the token has the permission, and has not called too often."""
        wait_s = self._tokens.throttled(token)
        if wait_s is not None:
            after = {"Retry-After": str(max(1, math.ceil(wait_s)))}
            raise Refusal(429, "too_many_requests", f"this token calls too often; again in {wait_s:.2f} s", after)
        if not token.may(permission):
            raise forbidden(permission)


def forbidden(permission: Permission) -> Refusal:
    """The answer to who lacks a permission."""
    return Refusal(403, "not_permitted", f"this token may not {permission}")


def _who_are_you(code: str, detail: str) -> Refusal:
    return Refusal(401, code, detail, {"WWW-Authenticate": 'Bearer realm="poolkeeper"'})


FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
"""What a proxy adds: who is behind it is not on this machine, or is not known to be."""


def _check_from_here(headers: Headers, host: str) -> None:
    """Without tokens neither a page of elsewhere in a browser of here is served, whatever its name server says, nor a proxy."""
    if headers.get("Sec-Fetch-Site") == "cross-site" or any(name in headers for name in FORWARDED):
        raise Refusal(403, "foreign_host", "without tokens only requests from and to localhost are served, by no proxy")
    origin = headers.get("Origin")
    named = [host] if origin is None else [host, origin.partition("://")[2]]
    for one in named:
        name = one[1:].partition("]")[0] if one.startswith("[") else one.partition(":")[0]
        if not is_loopback(name):
            raise Refusal(403, "foreign_host", "without tokens only requests from and to localhost are served")


def is_loopback(host: str) -> bool:
    """Whether this names the machine itself and cannot be reached from others."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
