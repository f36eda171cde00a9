"""Poolkeeper's client: ask for capacity over HTTP, hold it while the work runs, give it back.

`Client` has a method for each thing there is to do, and `Client.allocation` does the whole of it around a block. It retries
what is safe to repeat, raises what is in `errors`, and answers with the frozen records of `models`. Only the standard library
is used. What is named here is imported when it is first used, and `http.client` with the first call, so that a program that
may not need them, such as the command line for its help, starts fast.
"""

from typing import TYPE_CHECKING

__all__ = ["Allocation", "Client", "ask", "errors", "models"]

if TYPE_CHECKING:
    from poolkeeper import errors, models
    from poolkeeper.allocation import Allocation
    from poolkeeper.client import Client
    from poolkeeper.request_body import ask
else:
    _WHERE = {"Allocation": "allocation", "Client": "client", "ask": "request_body", "errors": None, "models": None}

    def __getattr__(name):
        """One of `__all__`, imported now; it stays."""
        from importlib import import_module

        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_WHERE[name] or name}")
        found = globals()[name] = getattr(module, name) if _WHERE[name] else module
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
