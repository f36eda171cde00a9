"""The reference pages: one module for each, which writes it from the tables in the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.support.reference_pages.cli_page import CLI_TOPICS, cli_page, cli_topic_page
from tests.support.reference_pages.errors_page import errors_page
from tests.support.reference_pages.events_page import events_page
from tests.support.reference_pages.http_page import http_page
from tests.support.reference_pages.http_topic_page import topic_page
from tests.support.reference_pages.http_topics import TOPICS
from tests.support.reference_pages.metrics_page import metrics_page
from tests.support.reference_pages.pool_settings_page import pool_settings_page
from tests.support.reference_pages.reasons_page import reasons_page
from tests.support.reference_pages.settings_page import settings_page
from tests.support.reference_pages.states_page import states_page

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_page,
    **{f"docs/reference/cli/{topic.name}.md": partial(cli_topic_page, topic) for topic in CLI_TOPICS},
    "docs/reference/errors.md": errors_page,
    "docs/reference/events.md": events_page,
    "docs/reference/http.md": http_page,
    **{f"docs/reference/http/{topic.name}.md": partial(topic_page, topic) for topic in TOPICS},
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/pool-settings.md": pool_settings_page,
    "docs/reference/reasons.md": reasons_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/states.md": states_page,
}
"""Path → the writer of the page."""
