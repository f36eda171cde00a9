"""Poolkeeper's client: ask for capacity over HTTP, hold it while the work runs, give it back.

`Client` has a method for each thing there is to do, and `Client.allocation` does the whole of it around a block. It retries
what is safe to repeat, raises what is in `errors`, and answers with the frozen records of `models`. Only the standard library
is used, and `http.client` is imported with the first call, so that a program that may not need it starts fast.
"""

from poolkeeper import errors, models
from poolkeeper.asks import ask
from poolkeeper.client import Client
from poolkeeper.holding import Allocation

__all__ = ["Allocation", "Client", "ask", "errors", "models"]
