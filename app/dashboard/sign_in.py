"""Signing in and out."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Request, Response, redirect

from app.api.auth import Authenticator
from app.dashboard.page_context import Paper
from app.dashboard.session import Door, forget, remember, way_back

LONGEST = 200
"""Characters of what is taken for a secret."""


@dataclass(frozen=True, slots=True)
class Hall:
    """Where those are who have not been let in."""

    door: Door
    access: Authenticator
    asked: Request
    paper: Paper

    def form(self, status: int = 200, fault: str | None = None) -> Response:
        """The form that asks for a token."""
        back = way_back(self.asked.values.get("next"))
        text = self.paper.made("sign_in.html", form=self.door.form(self.asked), back=back, fault=fault)
        return Response(text, status, mimetype="text/html")


def ask(hall: Hall) -> Response:
    """The form, unless there is no need for it."""
    back = way_back(hall.asked.args.get("next"))
    if hall.door.is_welcome(hall.asked):
        return _to(back)
    if not hall.access.is_token_required():  # the cookie of a token that is no more
        response = _to(back)
        forget(response, hall.asked)
        return response
    return hall.form()


def sign_in(hall: Hall) -> Response:
    """Take the secret, if it is one."""
    hall.door.check_form(hall.asked)
    secret = hall.asked.form.get("token", "").strip()[:LONGEST]
    if not secret or not hall.door.recognises(secret, hall.asked):
        return hall.form(403, "This token is unknown, expired or revoked.")
    response = _to(way_back(hall.asked.form.get("next")))
    remember(response, hall.asked, secret)
    return response


def sign_out(hall: Hall) -> Response:
    """Forget the secret."""
    hall.door.check_form(hall.asked)
    response = _to("/sign-in")
    forget(response, hall.asked)
    return response


def _to(path: str) -> Response:
    return redirect(path, 303)  # type: ignore[return-value]
