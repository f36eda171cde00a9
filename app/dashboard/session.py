"""The session of a browser: the cookie with the secret of a token, and the token that protects forms.

The cookie holds the secret itself, and scripts cannot read it. The API checks the same secret at every request, so an expiry or
a revocation of the token ends the session in every process, and there is no second kind of secret. `SameSite=Lax`: a link in a
message leads to the page and not to the sign-in page; no GET changes anything. The API does not read cookies.

A second cookie holds a random visit id for every browser. The token of a form is made from the visit id and the secret. So it
is valid in this browser and this session only, and protects forms also where no token is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import Request, Response

from app.api.auth import Authenticator, forbidden_permission
from app.api.errors import HttpRefusal
from app.domain.tokens import Permission, Token

SECRET_COOKIE, VISIT_COOKIE = "poolkeeper", "poolkeeper-visit"
_VISIT_ID = re.compile(r"[A-Za-z0-9_-]{43}")
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


@dataclass(frozen=True, slots=True)
class User:
    """The user of a page: a token in a workspace."""

    token: Token
    workspace: str
    form_token: str
    """The hidden field of every form."""
    signed_in: bool

    @property
    def home_workspace(self) -> str:
        """Return the workspace of a URL that names none."""
        return home_workspace_of(self.token)

    def has_permission(self, permission: str) -> bool:
        """True if the token has the permission."""
        return self.token.has_permission(Permission(permission))

    def can_cancel(self, component: str) -> bool:
        """True if the token may cancel requests of this component (`type/name`)."""
        return self.token.can_act_for(*component.split("/", 1))

    def can_see(self, component: str) -> bool:
        """True if the token may see requests of this component (`type/name`)."""
        return self.token.can_see(*component.split("/", 1))


def home_workspace_of(token: Token) -> str:
    """Return the default workspace, or the first of the token if it cannot access the default one."""
    return token.default_workspace if token.can_access(token.default_workspace) else token.workspaces[0]


class Session:
    """The sessions of browsers, and the check of their forms."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def token(self, http_request: Request) -> Token:
        """Return the token of the cookie; raise 401 if it is not valid."""
        return self._authenticator.token_of_secret(_cookie(http_request, SECRET_COOKIE), http_request.headers)

    def user(self, http_request: Request, token: Token, permission: Permission) -> User:
        """Return the user of a page; raise if the permission is missing."""
        workspace = self._authenticator.workspace(token, http_request.args.get("workspace") or home_workspace_of(token))
        self._authenticator.require_permission(token, permission)
        return User(token, workspace, self.form_token(http_request), _cookie(http_request, SECRET_COOKIE) is not None)

    def is_signed_in(self, http_request: Request) -> bool:
        """True if no sign-in is needed."""
        try:
            self.token(http_request)
        except HttpRefusal as refusal:
            if refusal.status != 401:
                raise
            return False
        return True

    def is_valid_secret(self, secret: str, http_request: Request) -> bool:
        """True if this is the secret of a valid token."""
        try:
            self._authenticator.token_of_secret(secret, http_request.headers)
        except HttpRefusal:
            return False
        return True

    def form_token(self, http_request: Request) -> str:
        """Return the token of a form, which proves that the form was made in this session."""
        key = f"{_visit_id(http_request)} {_cookie(http_request, SECRET_COOKIE) or ''}".encode()
        return hmac.new(key, b"a form of the dashboard", hashlib.sha256).hexdigest()

    def require_own_form(self, http_request: Request) -> None:
        """Raise 403 unless the form comes from a page of the dashboard, in this browser and this session."""
        site, origin = http_request.headers.get("Sec-Fetch-Site"), http_request.headers.get("Origin")
        foreign = (site is not None and site != "same-origin") or (
            origin is not None and urlsplit(origin).netloc != http_request.host
        )
        form_token = http_request.form.get("form", "")
        if foreign or not hmac.compare_digest(form_token.encode(), self.form_token(http_request).encode()):
            detail = "this form is from another page, or from before you signed in: load the page again"
            raise HttpRefusal(403, "foreign_form", detail)


def set_secret_cookie(response: Response, http_request: Request, secret: str) -> None:
    """Store the secret in the browser: the user is signed in."""
    _set_cookie(response, http_request, SECRET_COOKIE, secret)


def delete_secret_cookie(response: Response, http_request: Request) -> None:
    """Remove the secret from the browser: the user is signed out."""
    response.delete_cookie(
        _cookie_name(http_request, SECRET_COOKIE), path="/", secure=http_request.is_secure, httponly=True, samesite="Lax"
    )


def set_visit_cookie(response: Response, http_request: Request) -> None:
    """Give a browser without a visit id a new one."""
    if _cookie(http_request, VISIT_COOKIE) != _visit_id(http_request):
        _set_cookie(response, http_request, VISIT_COOKIE, _visit_id(http_request))


def local_path(path: str | None) -> str:
    """Return the path if it is a path of this server, else the path of the first page."""
    return path if path and _LOCAL_PATH.fullmatch(path) else "/"


def require_user_permission(user: User, permission: Permission) -> None:
    """Raise 403 unless the user has the permission."""
    if not user.token.has_permission(permission):
        raise forbidden_permission(user.token, permission)


def _visit_id(http_request: Request) -> str:
    """Return the visit id of the browser, a new random one if it has none."""
    visit_id: str | None = http_request.environ.get("poolkeeper.visit_id") or _cookie(http_request, VISIT_COOKIE)
    if visit_id is None or not _VISIT_ID.fullmatch(visit_id):
        visit_id = secrets.token_urlsafe(32)
    http_request.environ["poolkeeper.visit_id"] = visit_id
    return visit_id


def _cookie(http_request: Request, name: str) -> str | None:
    return http_request.cookies.get(_cookie_name(http_request, name)) or None


def _cookie_name(http_request: Request, name: str) -> str:
    """Return the name of a cookie. Over TLS it has the prefix that no other host can set."""
    return f"__Host-{name}" if http_request.is_secure else name


def _set_cookie(response: Response, http_request: Request, name: str, value: str) -> None:
    response.set_cookie(
        _cookie_name(http_request, name), value, path="/", secure=http_request.is_secure, httponly=True, samesite="Lax"
    )
