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

SECRET, CHANCE = "poolkeeper", "poolkeeper-visit"
_OF_CHANCE = re.compile(r"[A-Za-z0-9_-]{43}")
_OURS = re.compile(r"/(?![/\\])[!-\[\]-~]*")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who looks at a workspace."""

    token: Token
    workspace: str
    form: str
    """What a form has to carry."""
    signed_in: bool

    @property
    def home(self) -> str:
        """The workspace that is meant if nothing is said."""
        return home(self.token)

    def may(self, permission: str) -> bool:
        """Whether the token allows it at all."""
        return self.token.has_permission(Permission(permission))

    def may_end(self, component: str) -> bool:
        """Whether it may have a waiter of this component (`type/name`) leave the queue."""
        return self.token.can_act_for(*component.split("/", 1))

    def sees(self, component: str) -> bool:
        """Whether it may look at requests of this component (`type/name`)."""
        return self.token.can_see(*component.split("/", 1))


def home(token: Token) -> str:
    """The usual workspace, or the first that a token is for."""
    return token.default_workspace if token.can_access(token.default_workspace) else token.workspaces[0]


class Door:
    """Lets visitors in."""

    def __init__(self, access: Authenticator) -> None:
        self._access = access

    def token(self, asked: Request) -> Token:
        """Whose the cookie is; a HttpRefusal if it is nobody's."""
        return self._access.token_of_secret(_cookie(asked, SECRET), asked.headers, asked.host)

    def visitor(self, asked: Request, token: Token, permission: Permission) -> Visitor:
        """The visitor of a page, who has the permission."""
        workspace = self._access.workspace(token, asked.args.get("workspace") or home(token))
        self._access.require_permission(token, permission)
        return Visitor(token, workspace, self.form(asked), _cookie(asked, SECRET) is not None)

    def is_welcome(self, asked: Request) -> bool:
        """Whether there is any need to sign in."""
        try:
            self.token(asked)
        except HttpRefusal as refused:
            if refused.status != 401:
                raise
            return False
        return True

    def recognises(self, secret: str, asked: Request) -> bool:
        """Whether this is the secret of a token."""
        try:
            self._access.token_of_secret(secret, asked.headers, asked.host)
        except HttpRefusal:
            return False
        return True

    def form(self, asked: Request) -> str:
        """What proves that a form was made for this visit."""
        keyed = f"{_chance(asked)} {_cookie(asked, SECRET) or ''}".encode()
        return hmac.new(keyed, b"a form of the dashboard", hashlib.sha256).hexdigest()

    def check_form(self, asked: Request) -> None:
        """Raises unless the form comes from a page of ours, in this browser and this visit."""
        site, origin = asked.headers.get("Sec-Fetch-Site"), asked.headers.get("Origin")
        foreign = (site is not None and site != "same-origin") or (origin is not None and urlsplit(origin).netloc != asked.host)
        given = asked.form.get("form", "")
        if foreign or not hmac.compare_digest(given.encode(), self.form(asked).encode()):
            said = "this form was not made by this page, or before you signed in: load the page again"
            raise HttpRefusal(403, "foreign_form", said)


def remember(response: Response, asked: Request, secret: str) -> None:
    """Sign in."""
    _set(response, asked, SECRET, secret)


def forget(response: Response, asked: Request) -> None:
    """Sign out."""
    response.delete_cookie(_called(asked, SECRET), path="/", secure=asked.is_secure, httponly=True, samesite="Lax")


def greet(response: Response, asked: Request) -> None:
    """Who comes for the first time is given something to be known by."""
    if _cookie(asked, CHANCE) != _chance(asked):
        _set(response, asked, CHANCE, _chance(asked))


def way_back(asked: str | None) -> str:
    """Where to go after signing in: a path of ours, or the first page."""
    return asked if asked and _OURS.fullmatch(asked) else "/"


def check_may(visitor: Visitor, permission: Permission) -> None:
    """Raises unless the visitor may."""
    if not visitor.token.has_permission(permission):
        raise forbidden_permission(permission)


def _chance(asked: Request) -> str:
    """Of this browser; made up if it has none."""
    known: str | None = asked.environ.get("poolkeeper.chance") or _cookie(asked, CHANCE)
    if known is None or not _OF_CHANCE.fullmatch(known):
        known = secrets.token_urlsafe(32)
    asked.environ["poolkeeper.chance"] = known
    return known


def _cookie(asked: Request, name: str) -> str | None:
    return asked.cookies.get(_called(asked, name)) or None


def _called(asked: Request, name: str) -> str:
    """Over TLS by a name that only this host itself can set, over TLS."""
    return f"__Host-{name}" if asked.is_secure else name


def _set(response: Response, asked: Request, name: str, value: str) -> None:
    response.set_cookie(_called(asked, name), value, path="/", secure=asked.is_secure, httponly=True, samesite="Lax")
