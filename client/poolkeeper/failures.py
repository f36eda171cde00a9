"""What comes of a call that was not answered as it should be: whether it may have been done, may pass, and the words for it.

Nothing was done of what did not reach the server or was refused by it. An answer is lost when the call was sent and nothing
came back, or only the word of what stands before the server (502, 503, 504 without a code) that it heard nothing. A 503 with a
code is the server's own answer, and is not lost, although Redis may have done it at the moment it went away.
"""

from __future__ import annotations

from poolkeeper.errors import Refused, TooManyRequests, Unavailable
from poolkeeper.transport import NotReached

UNREACHABLE, NO_TLS, NOT_HTTP = "unreachable", "no_tls", "not_http"
"""Codes of what the server did not say itself."""

TLS_ALERT = "\x15\x03"
"""How a server that speaks TLS begins its answer to somebody who does not."""
SHOWN = 40


def surely_not_done(trouble: Refused) -> bool:
    """Whether the server has refused the call, or was not reached with it."""
    return not isinstance(trouble, Unavailable) or isinstance(trouble.__cause__, NotReached)


def is_lost(trouble: Refused) -> bool:
    """Whether the call may have been done, and the answer that said so went astray."""
    return isinstance(trouble, Unavailable) and trouble.code in ("", UNREACHABLE) and not surely_not_done(trouble)


def may_pass(trouble: Refused) -> bool:
    """Whether the same call may do better in a moment."""
    return isinstance(trouble, (Unavailable, TooManyRequests)) and trouble.code not in (NO_TLS, NOT_HTTP)


def unanswered(url: str, error: Exception) -> Unavailable:
    """What there is to say when no answer came, or nothing that is one."""
    said, code = _told(url, error)
    trouble = Unavailable(said, code=code)
    trouble.__cause__ = error
    return trouble


def _told(url: str, error: Exception) -> tuple[str, str]:
    from http.client import BadStatusLine, RemoteDisconnected

    if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
        return _no_http(url, str(error.args[0])), NOT_HTTP
    why = error.__cause__ if isinstance(error, NotReached) and error.__cause__ else error
    if url.startswith("https:") and isinstance(error, NotReached) and (without := _no_tls(url, why)):
        return without, NO_TLS
    return f"no answer from {url}: {getattr(why, 'strerror', None) or str(why) or type(why).__name__}", UNREACHABLE


def _no_http(url: str, line: str) -> str:
    if line.startswith(TLS_ALERT):
        return f"what answers at {url} speaks TLS: is it https://{_after_scheme(url)}?"
    return f"what answers at {url} does not speak HTTP: it said {line.strip()[:SHOWN]!r}"


def _no_tls(url: str, why: BaseException) -> str | None:
    from ssl import SSLCertVerificationError, SSLError

    if isinstance(why, SSLCertVerificationError):
        return f"the certificate of {url} is not trusted: {why.verify_message}"
    if isinstance(why, (SSLError, ConnectionResetError)):
        return f"what answers at {url} does not speak TLS: is it http://{_after_scheme(url)}?"
    return None


def _after_scheme(url: str) -> str:
    return url.partition("://")[2]
