"""A broker of Celery that refuses every connection, without a socket; its URL is `nowhere://`."""

from __future__ import annotations

import errno
from typing import NoReturn

from kombu.transport import TRANSPORT_ALIASES, virtual

URL = "nowhere://"
TRANSPORT_ALIASES["nowhere"] = "tests.support.no_broker:Transport"


class Transport(virtual.Transport):
    """A transport that never connects."""

    recoverable_connection_errors = connection_errors = (OSError,)

    def establish_connection(self) -> NoReturn:
        """Raise ConnectionRefusedError."""
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
