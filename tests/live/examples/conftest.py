"""The examples are tried on what the command line is tried on."""

from tests.live.cli.conftest import beneath, poolkeeper, service

__all__ = ["beneath", "poolkeeper", "service"]
