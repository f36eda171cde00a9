"""The harness of the documentation's pages: it reads their blocks, and notices an output that is not as shown."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.doc_pages import Command, Page
from tests.support.transcript_writer import merge, write_output
from tests.support.transcripts import compare, id_pairs, is_same, steps

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
    ("expected", "actual", "answer"),
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
        ("held 12s\n", "held 119s\n", True),
        ("gives 12s of notice\n", "gives 13s of notice\n", False),
        ("http://127.0.0.1:8000/\n", "http://127.0.0.1:43211/\n", True),
        ("gpu  8\n", "gpu     8\n", True),
        ("gpu 8\n", "gpu 9\n", False),
    ],
)
def test_outputs_are_compared_but_for_what_differs_between_runs(expected: str, actual: str, answer: bool) -> None:
    assert is_same(expected, actual) == answer


def test_a_new_output_is_written_into_the_page(page: Page) -> None:
    _, command, _, _ = steps(page)
    assert write_output(page.path, command.line, command.script, command.expected, "three\nfour\n", is_same)
    assert page.path.read_text("utf-8") == PAGE.replace("> END\ntwo\n", "> END\nthree\nfour\n")


def test_an_output_whose_place_is_not_found_is_not_written(page: Page) -> None:
    assert not write_output(page.path, 1, "cat", "two\n", "three\n", is_same)
    assert not write_output(page.path, 99, "true\n", "", "three\n", is_same)
    assert page.path.read_text("utf-8") == PAGE


def test_lines_that_are_the_same_stay_as_they_are() -> None:
    assert merge("held 12s\nold\nab…\n", "held 3s\nnew\nabc\n", is_same) == "held 12s\nnew\nab…\n"
    assert merge("held 12s\n", "held 3s\nnew\n", is_same) == "held 3s\nnew\n"


def test_the_ids_of_a_page_are_paired_with_those_of_the_output() -> None:
    first, second, other = "1" * 20, "2" * 20, "3" * 20
    assert id_pairs(f"a {first}\n…\nb {second}\n", f"a {other}\nmore {first}\nb {first}\n") == [(first, other), (second, first)]
    assert id_pairs(f"a {first}\n", f"b {first}\n") is None


@pytest.mark.parametrize(("second", "is_right"), [("1" * 20, True), ("2" * 20, False)])
def test_an_id_of_a_page_stands_for_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, is_right: bool
) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# A page\n```console\n$ one\n{'a' * 20}\n$ two\n{'a' * 20}\n```\n", "utf-8")
    monkeypatch.setattr(Page, "name", "page.md")
    answers = [f"{'1' * 20}\n", f"{second}\n"]
    with nullcontext() if is_right else pytest.raises(AssertionError, match="for two requests, or two ids for one"):
        compare(Page(path), answers)
