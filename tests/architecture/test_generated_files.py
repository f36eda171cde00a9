"""Generated files are as the tables in the code have them."""

from __future__ import annotations

import pytest

from tests.support.generated_files import GENERATED
from tests.support.paths import ROOT


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_as_its_table_has_it(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == GENERATED[path](), "`make generated` writes it again"
