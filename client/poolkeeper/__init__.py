"""The Python client of Poolkeeper: it requests capacity over HTTP, keeps the allocation while the work runs, and releases it.

`Client` has a method for each call of the API. `Client.allocation` submits, waits, heartbeats and releases around a block.
A call is retried if it is safe to repeat, raises an exception of `errors`, and returns a frozen record of `models`. The client
needs only the standard library. Each name of this module is imported at its first use, and `http.client` at the first call: a
program that may not need them, such as the command line for its help, starts fast.
"""

from typing import TYPE_CHECKING

__all__ = ["Allocation", "Client", "errors", "models", "request_spec"]

if TYPE_CHECKING:
    from poolkeeper import errors, models
    from poolkeeper.allocation import Allocation
    from poolkeeper.client import Client
    from poolkeeper.request_body import request_spec
else:
    _MODULES = {"Allocation": "allocation", "Client": "client", "request_spec": "request_body", "errors": None, "models": None}

    def __getattr__(name):
        """Import a name of `__all__` at its first use, and keep it."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES[name] or name}")
        value = globals()[name] = getattr(module, name) if _MODULES[name] else module
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
