"""`docs/guides/share-a-gpu-server.md`, carried out on a service of its own: the page makes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.backends import require
from tests.support.doc_pages import Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import up
from tests.support.transcripts import PAGE_TIMEOUT_S, carry_out

PAGE = ROOT / "docs" / "guides" / "share-a-gpu-server.md"
MARKER = f"<!-- tested by: {Path(__file__).relative_to(ROOT).as_posix()} -->\n"
END = "\n```console\n$ kill %1 %2 %3 %4; wait\n…\n```\n"


@dataclass(frozen=True)
class OwnServicePage(Page):
    """The page without the markers that keep its blocks from the common test, and with an end of its commands."""

    @property
    def text(self) -> str:
        """Return the text to carry out."""
        return self.path.read_text("utf-8").replace(MARKER, "") + END


@pytest.mark.timeout(PAGE_TIMEOUT_S + 60)
def test_the_commands_answer_as_shown(tmp_path: Path) -> None:
    require("embedded")
    assert MARKER in PAGE.read_text("utf-8")
    with up(tmp_path, "--no-pools") as service:
        carry_out(OwnServicePage(PAGE), tmp_path, {"POOLKEEPER_URL": f"http://127.0.0.1:{service.port}"})
