"""Poolkeeper's client: ask for capacity over HTTP, hold it while the work runs, give it back."""
