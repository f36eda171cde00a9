"""What comes of a call that was not answered as it should be: whether it may have been done, may pass, and the words for it.

Nothing was done of what did not reach the server or was refused by it. An answer is lost when the call was sent and nothing
came back, or only the word of what stands before the server (502, 503, 504 without a code) that it heard nothing. A 503 with a
code is the server's own answer, and is not lost, although Redis may have done it at the moment it went away.
"""

from __future__ import annotations

from poolkeeper.errors import ApiError, TooManyRequests, Unavailable
from poolkeeper.transport import ConnectError

UNREACHABLE, NO_TLS, NOT_HTTP = "unreachable", "no_tls", "not_http"
"""Codes of what the server did not say itself."""

TLS_ALERT = "\x15\x03"
"""How a server that speaks TLS begins its answer to somebody who does not."""
SHOWN_LENGTH = 40


def is_definitely_not_applied(error: ApiError) -> bool:
    """Whether the server has refused the call, or was not reached with it."""
    return not isinstance(error, Unavailable) or isinstance(error.__cause__, ConnectError)


def is_answer_lost(error: ApiError) -> bool:
    """Whether the call may have been done, and the answer that said so went astray."""
    return isinstance(error, Unavailable) and error.code in ("", UNREACHABLE) and not is_definitely_not_applied(error)


def is_retryable(error: ApiError) -> bool:
    """Whether the same call may do better in a moment."""
    return isinstance(error, (Unavailable, TooManyRequests)) and error.code not in (NO_TLS, NOT_HTTP)


def unavailable_from(url: str, error: Exception) -> Unavailable:
    """What there is to say when no answer came, or nothing that is one."""
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
    return f"no answer from {url}: {getattr(cause, 'strerror', None) or str(cause) or type(cause).__name__}", UNREACHABLE


def _not_http_message(url: str, line: str) -> str:
    if line.startswith(TLS_ALERT):
        return f"what answers at {url} speaks TLS: is it https://{_after_scheme(url)}?"
    return f"what answers at {url} does not speak HTTP: it said {line.strip()[:SHOWN_LENGTH]!r}"


def _tls_message(url: str, cause: BaseException) -> str | None:
    from ssl import SSLCertVerificationError, SSLError

    if isinstance(cause, SSLCertVerificationError):
        return f"the certificate of {url} is not trusted: {cause.verify_message}"
    if isinstance(cause, (SSLError, ConnectionResetError)):
        return f"what answers at {url} does not speak TLS: is it http://{_after_scheme(url)}?"
    return None


def _after_scheme(url: str) -> str:
    return url.partition("://")[2]
