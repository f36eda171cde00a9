"""The pages to sign in and out."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Request, Response, redirect

from app.api.auth import Authenticator
from app.dashboard.page_context import Templates
from app.dashboard.session import Session, delete_secret_cookie, local_path, set_secret_cookie

LONGEST_SECRET = 200
"""The most characters of a secret."""


@dataclass(frozen=True, slots=True)
class SignInContext:
    """The context of the pages without a session."""

    session: Session
    authenticator: Authenticator
    http_request: Request
    templates: Templates

    def form_page(self, status: int = 200, fault: str | None = None) -> Response:
        """Return the form that asks for a token."""
        next_path = local_path(self.http_request.values.get("next"))
        text = self.templates.render(
            "sign_in.html", form=self.session.form_token(self.http_request), next_path=next_path, fault=fault
        )
        return Response(text, status, mimetype="text/html")


def show_form(context: SignInContext) -> Response:
    """Show the form, unless no sign-in is needed."""
    next_path = local_path(context.http_request.args.get("next"))
    if context.session.is_signed_in(context.http_request):
        return _redirect_to(next_path)
    if not context.authenticator.is_token_required():  # the cookie of a deleted token
        response = _redirect_to(next_path)
        delete_secret_cookie(response, context.http_request)
        return response
    return context.form_page()


def sign_in(context: SignInContext) -> Response:
    """Start a session if the secret is valid."""
    context.session.require_own_form(context.http_request)
    secret = context.http_request.form.get("token", "").strip()[:LONGEST_SECRET]
    if not secret or not context.session.is_valid_secret(secret, context.http_request):
        return context.form_page(403, "This token is unknown, expired or revoked.")
    response = _redirect_to(local_path(context.http_request.form.get("next")))
    set_secret_cookie(response, context.http_request, secret)
    return response


def sign_out(context: SignInContext) -> Response:
    """End the session."""
    context.session.require_own_form(context.http_request)
    response = _redirect_to("/sign-in")
    delete_secret_cookie(response, context.http_request)
    return response


def _redirect_to(path: str) -> Response:
    return redirect(path, 303)  # type: ignore[return-value]
