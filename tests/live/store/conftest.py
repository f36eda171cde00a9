"""After every test of the store that has a workspace, an audit finds nothing wrong with it."""

from tests.unit.store.conftest import audited

__all__ = ["audited"]
