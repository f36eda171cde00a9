"""The harness of the documentation's pages: it reads their blocks, and notices an output that is not as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.doc_pages import Command, Page
from tests.support.transcripts import normalised, pattern, steps

PAGE = """# A page
<!-- runs with: nothing -->

<!-- file: a/b.txt -->
```text
one
```

```console
$ cat <<END
> two
> END
two
$ true
```

<!-- tested by: tests/elsewhere.py -->
```console
$ false
```

```python
print(1 + 1)  # 2
```

## Units: `gpu`, and "mcpu"
## [Units](page.md)
"""


@pytest.fixture
def page(tmp_path: Path) -> Page:
    path = tmp_path / "page.md"
    path.write_text(PAGE, "utf-8")
    return Page(path)


def test_blocks_are_read_in_order_with_their_markers(page: Page) -> None:
    text, console, elsewhere, program = page.blocks()
    assert (text.line, text.language, text.text, text.markers) == (5, "text", "one\n", {"file": "a/b.txt"})
    assert console.commands() == [Command("cat <<END\ntwo\nEND\n", "two\n"), Command("true\n", "")]
    assert elsewhere.markers == {"tested by": "tests/elsewhere.py"}
    assert program.prints() == "2\n"
    assert page.stage == "nothing"


def test_the_steps_leave_out_the_blocks_of_other_tests(page: Page) -> None:
    scripts = [(step.script.split("\n")[0], step.expected) for step in steps(page)]
    assert scripts == [
        ('mkdir -p "$(dirname a/b.txt)"', ""),
        ("cat <<END", "two\n"),
        ("true", ""),
        ("python - <<'@@END@@'", "2\n"),
    ]


def test_anchors_are_those_of_code_hosts(page: Page) -> None:
    assert page.anchors() == {"a-page", "units-gpu-and-mcpu", "units"}


@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a\n", "a\nb\n", False),
        ("a…\n", "abc\n", True),
        ("a…\n", "ba\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a\n…\nz\n", "a\nb\n", False),
        ("request 0123456789abcdefghjk\n", "request zzzzzzzzzz9999999999\n", True),
        ("held 12s\n", "held 3s\n", True),
        ("gives 12s of notice\n", "gives 13s of notice\n", False),
        ("http://127.0.0.1:8000/\n", "http://127.0.0.1:43211/\n", True),
        ("gpu  8\n", "gpu     8\n", True),
        ("gpu 8\n", "gpu 9\n", False),
    ],
)
def test_outputs_are_compared_but_for_what_differs_between_runs(expected: str, actual: str, is_same: bool) -> None:
    assert bool(re.fullmatch(pattern(normalised(expected)), normalised(actual))) == is_same
