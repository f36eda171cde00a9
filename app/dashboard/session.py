"""Who is looking: signing in with a token, the cookie, and what proves that a form was ours.

The cookie holds the secret itself, out of reach of scripts: it is what the API takes at every request, so whatever ends a
token (its time, a revocation) ends the visit in every process, after a restart as well, and there is no second kind of secret
to keep, to expire and to revoke. `SameSite=Lax`, so that a link in a message leads to the page and not to the sign-in; nothing
is changed by a GET. The API never looks at cookies.

A second cookie is chance, given to everybody: what a form carries is made of it and of the secret, so it fits this browser and
this visit alone, and where no token is needed there is something to check as well.
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
    """Somebody who looks at a workspace."""

    token: Token
    workspace: str
    form_token: str
    """What a form has to carry."""
    signed_in: bool

    @property
    def home_workspace(self) -> str:
        """The workspace that is meant if nothing is said."""
        return home_workspace_of(self.token)

    def has_permission(self, permission: str) -> bool:
        """Whether the token allows it at all."""
        return self.token.has_permission(Permission(permission))

    def can_cancel(self, component: str) -> bool:
        """Whether it may have a waiter of this component (`type/name`) leave the queue."""
        return self.token.can_act_for(*component.split("/", 1))

    def can_see(self, component: str) -> bool:
        """Whether it may look at requests of this component (`type/name`)."""
        return self.token.can_see(*component.split("/", 1))


def home_workspace_of(token: Token) -> str:
    """The usual workspace, or the first that a token is for."""
    return token.default_workspace if token.can_access(token.default_workspace) else token.workspaces[0]


class Session:
    """Lets visitors in."""

    def __init__(self, access: Authenticator) -> None:
        self._authenticator = access

    def token(self, asked: Request) -> Token:
        """Whose the cookie is; a HttpRefusal if it is nobody's."""
        return self._authenticator.token_of_secret(_cookie(asked, SECRET_COOKIE), asked.headers, asked.host)

    def user(self, asked: Request, token: Token, permission: Permission) -> User:
        """The visitor of a page, who has the permission."""
        workspace = self._authenticator.workspace(token, asked.args.get("workspace") or home_workspace_of(token))
        self._authenticator.require_permission(token, permission)
        return User(token, workspace, self.form_token(asked), _cookie(asked, SECRET_COOKIE) is not None)

    def is_signed_in(self, asked: Request) -> bool:
        """Whether there is any need to sign in."""
        try:
            self.token(asked)
        except HttpRefusal as refused:
            if refused.status != 401:
                raise
            return False
        return True

    def is_valid_secret(self, secret: str, asked: Request) -> bool:
        """Whether this is the secret of a token."""
        try:
            self._authenticator.token_of_secret(secret, asked.headers, asked.host)
        except HttpRefusal:
            return False
        return True

    def form_token(self, asked: Request) -> str:
        """What proves that a form was made for this visit."""
        keyed = f"{_visit_id(asked)} {_cookie(asked, SECRET_COOKIE) or ''}".encode()
        return hmac.new(keyed, b"a form of the dashboard", hashlib.sha256).hexdigest()

    def require_own_form(self, asked: Request) -> None:
        """Raises unless the form comes from a page of ours, in this browser and this visit."""
        site, origin = asked.headers.get("Sec-Fetch-Site"), asked.headers.get("Origin")
        foreign = (site is not None and site != "same-origin") or (origin is not None and urlsplit(origin).netloc != asked.host)
        given = asked.form.get("form", "")
        if foreign or not hmac.compare_digest(given.encode(), self.form_token(asked).encode()):
            said = "this form was not made by this page, or before you signed in: load the page again"
            raise HttpRefusal(403, "foreign_form", said)


def set_secret_cookie(response: Response, asked: Request, secret: str) -> None:
    """Sign in."""
    _set_cookie(response, asked, SECRET_COOKIE, secret)


def delete_secret_cookie(response: Response, asked: Request) -> None:
    """Sign out."""
    response.delete_cookie(_cookie_name(asked, SECRET_COOKIE), path="/", secure=asked.is_secure, httponly=True, samesite="Lax")


def set_visit_cookie(response: Response, asked: Request) -> None:
    """Who comes for the first time is given something to be known by."""
    if _cookie(asked, VISIT_COOKIE) != _visit_id(asked):
        _set_cookie(response, asked, VISIT_COOKIE, _visit_id(asked))


def local_path(asked: str | None) -> str:
    """Where to go after signing in: a path of ours, or the first page."""
    return asked if asked and _LOCAL_PATH.fullmatch(asked) else "/"


def require_user_permission(visitor: User, permission: Permission) -> None:
    """Raises unless the visitor may."""
    if not visitor.token.has_permission(permission):
        raise forbidden_permission(permission)


def _visit_id(asked: Request) -> str:
    """Of this browser; made up if it has none."""
    known: str | None = asked.environ.get("poolkeeper.chance") or _cookie(asked, VISIT_COOKIE)
    if known is None or not _VISIT_ID.fullmatch(known):
        known = secrets.token_urlsafe(32)
    asked.environ["poolkeeper.chance"] = known
    return known


def _cookie(asked: Request, name: str) -> str | None:
    return asked.cookies.get(_cookie_name(asked, name)) or None


def _cookie_name(asked: Request, name: str) -> str:
    """Over TLS by a name that only this host itself can set, over TLS."""
    return f"__Host-{name}" if asked.is_secure else name


def _set_cookie(response: Response, asked: Request, name: str, value: str) -> None:
    response.set_cookie(_cookie_name(asked, name), value, path="/", secure=asked.is_secure, httponly=True, samesite="Lax")
