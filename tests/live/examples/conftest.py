"""The examples are tried on what the command line is tried on."""

from tests.live.cli.conftest import poolkeeper

__all__ = ["poolkeeper"]
