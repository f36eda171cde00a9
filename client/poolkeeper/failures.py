"""Failures of a call: whether the call may have been applied, whether it may be retried, and the message.

A call that did not reach the server, or that the server refused, was not applied. The answer to a call is lost if the call was
sent and no answer came, or only a 502, 503 or 504 without a code, from a proxy before the server. A 503 with a code is the
server's own answer and is not lost, although Redis may have applied the call in the moment it went away.
"""

from __future__ import annotations

from poolkeeper import config
from poolkeeper.errors import ApiError, TooManyRequests, Unavailable
from poolkeeper.transport import ConnectError

UNREACHABLE, NO_TLS, NOT_HTTP = "unreachable", "no_tls", "not_http"
"""Codes of errors that the client finds, not the server."""

TLS_ALERT = "\x15\x03"
"""The first characters of the answer of a TLS server to a call without TLS."""
UNKNOWN_ISSUER = (18, 19, 20)
"""The codes of OpenSSL for a certificate without a trusted issuer: self-signed, also in its chain, or of another authority."""
SHOWN_LENGTH = 40


def is_definitely_not_applied(error: ApiError) -> bool:
    """True if the server refused the call, or was not reached."""
    return not isinstance(error, Unavailable) or isinstance(error.__cause__, ConnectError)


def is_answer_lost(error: ApiError) -> bool:
    """True if the call may have been applied, and its answer was lost."""
    return isinstance(error, Unavailable) and error.code in ("", UNREACHABLE) and not is_definitely_not_applied(error)


def is_retryable(error: ApiError) -> bool:
    """True if the same call may succeed in a moment."""
    return isinstance(error, (Unavailable, TooManyRequests)) and error.code not in (NO_TLS, NOT_HTTP)


def unavailable_from(url: str, error: Exception) -> Unavailable:
    """Return the Unavailable for a call without a valid answer."""
    message, code = _describe(url, error)
    unavailable = Unavailable(message, code=code)
    unavailable.__cause__ = error
    return unavailable


def _describe(url: str, error: Exception) -> tuple[str, str]:
    from http.client import BadStatusLine, RemoteDisconnected

    if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
        return _not_http_message(url, str(error.args[0])), NOT_HTTP
    cause = error.__cause__ if isinstance(error, ConnectError) and error.__cause__ else error
    if url.startswith("https:") and isinstance(error, ConnectError) and (tls_message := _tls_message(url, cause)):
        return tls_message, NO_TLS
    place = f"{url}, the default of POOLKEEPER_URL" if url == config.URL else url
    return f"no answer from {place}: {getattr(cause, 'strerror', None) or str(cause) or type(cause).__name__}", UNREACHABLE


def _not_http_message(url: str, line: str) -> str:
    if line.startswith(TLS_ALERT):
        return f"the server at {url} speaks TLS: try https://{_after_scheme(url)}"
    return f"the server at {url} does not speak HTTP: it answered {line.strip()[:SHOWN_LENGTH]!r}"


def _tls_message(url: str, cause: BaseException) -> str | None:
    from ssl import SSLCertVerificationError, SSLError

    if isinstance(cause, SSLCertVerificationError):
        hint = "; the variable SSL_CERT_FILE names the certificates to trust" if cause.verify_code in UNKNOWN_ISSUER else ""
        return f"the certificate of {url} is not trusted: {cause.verify_message}{hint}"
    if isinstance(cause, (SSLError, ConnectionResetError)):
        return f"the server at {url} does not speak TLS: try http://{_after_scheme(url)}"
    return None


def _after_scheme(url: str) -> str:
    return url.partition("://")[2]
