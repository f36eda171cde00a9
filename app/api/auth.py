"""Authentication and authorization: the token of a request, its workspace, its permission and its rate limit."""

from __future__ import annotations

import ipaddress
import math
import re
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

from app.api.errors import HttpRefusal, MalformedInput
from app.domain.names import NAME_PATTERN, PATTERN_TEXTS, is_name
from app.domain.tokens import ANONYMOUS, PERMISSION_ACTIONS, Permission, Token, role_words, roles_with
from app.service.tokens import Tokens


class Authenticator:
    """Finds the token of a request and checks it. With `required` a token is needed even while none exists."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens, self._required = tokens, required

    def is_token_required(self) -> bool:
        """True if a request without a token is refused at the moment."""
        return self._required or self._tokens.any_exist()

    def token_of_headers(self, headers: Headers) -> Token:
        """Return the token of the header `Authorization`; raise 401 if it is not valid.

        Where no token is needed, a request of this machine without one has every permission.
        """
        authorization = headers.get("Authorization")
        if authorization is None:
            return self.token_of_secret(None, headers)
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _unauthorized("no_token", "Authorization must be Bearer and a token")
        return self.token_of_secret(secret.strip(), headers)

    def token_of_secret(self, secret: str | None, headers: Headers) -> Token:
        """Return the token with this secret; raise 401 if it is not valid. None is a request without a token."""
        if secret is None:
            if self.is_token_required():
                raise _unauthorized("no_token", "a token is needed: Authorization: Bearer <token>")
            _require_loopback(headers)
            return ANONYMOUS
        token = self._tokens.authenticate(secret)
        if token is None:
            raise _unauthorized("unknown_token", "this token is unknown, expired or revoked")
        return token

    def workspace(self, token: Token, header: str | None) -> str:
        """Return the workspace of the request; without the header the default one of the token. Raise if it is not allowed."""
        workspace = token.default_workspace if header is None else header.strip()
        if not is_name(workspace):
            raise MalformedInput([("Poolkeeper-Workspace", PATTERN_TEXTS[NAME_PATTERN])], "a header")
        if not token.can_access(workspace):
            raise HttpRefusal(403, "other_workspace", f"this token is not for workspace {workspace}")
        return workspace

    def require_permission(self, token: Token, permission: Permission) -> None:
        """Raise 403 unless the token has the permission, and 429 if it has called too often."""
        wait_s = self._tokens.throttle(token)
        if wait_s is not None:
            headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
            raise HttpRefusal(429, "too_many_requests", f"this token calls too often; again in {wait_s:.2f} s", headers)
        if not token.has_permission(permission):
            raise forbidden_permission(token, permission)


def forbidden_permission(token: Token, permission: Permission) -> HttpRefusal:
    """Return the refusal of a token without the permission; it names the roles that have it."""
    roles = role_words(roles_with(permission))
    detail = f"the role {token.role} may not {PERMISSION_ACTIONS[permission]} (permission {permission}); {roles} may"
    return HttpRefusal(403, "not_permitted", detail, hint=f"use a token of {roles}")


def _unauthorized(code: str, detail: str) -> HttpRefusal:
    return HttpRefusal(401, code, detail, {"WWW-Authenticate": 'Bearer realm="poolkeeper"'})


PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
"""The headers that a proxy adds. Its client may be on another machine."""


LOCAL_ONLY = "without tokens only requests from and to localhost are served"
_HOST = re.compile(r"(?:\[([^]]*)\]|([^:\[\]]*))(?::\d+)?")
"""The header `Host`: an address in brackets or a name, and a port."""


def _require_loopback(headers: Headers) -> None:
    """Raise unless the request came from and to localhost, through no proxy and from no page of another origin.

    Host is compared too: a page of another site in a local browser may resolve its own name to this machine. A page of another
    port of this machine is of the same site, but of another origin.
    """
    if any(name in headers for name in PROXY_HEADERS):
        raise HttpRefusal(403, "foreign_host", f"{LOCAL_ONLY}, through no proxy")
    host = headers.get("Host", "")
    address = _HOST.fullmatch(host)
    if address is None or not is_loopback(address[1] or address[2]):
        raise HttpRefusal(403, "foreign_host", f"{LOCAL_ONLY}, and Host has to name it")
    origin = headers.get("Origin")
    is_own_page = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    if not is_own_page or not _is_own_site(headers):
        raise HttpRefusal(403, "foreign_host", f"{LOCAL_ONLY}, and not from a page of another origin")


def _is_own_site(headers: Headers) -> bool:
    """True if the request comes from a page of Poolkeeper, from the user of a browser, or from a client that is no browser.

    A link on a page of another port of this machine may be followed.
    """
    site = headers.get("Sec-Fetch-Site")
    return site in (None, "same-origin", "none") or (site == "same-site" and headers.get("Sec-Fetch-Mode") == "navigate")


def is_loopback(host: str) -> bool:
    """True if the host is this machine, by an address that other machines cannot reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
