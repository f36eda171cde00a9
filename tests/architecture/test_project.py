"""Rules for every file: imports, lengths and names; `make lint` checks the Lua."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

LUA = Path("app/store/lua")

LINES_OF_LUA = 120
LINES_OF_PYTHON = 350
LINES_OF_TESTS = 500
LINES_OF_A_FUNCTION = 60

NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@cache
def all_files() -> list[Path]:
    """Return every file, tracked or untracked, relative to the root."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode == 0:
        paths = [Path(name) for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        paths = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    return sorted(path for path in paths if (ROOT / path).is_file())


def project_files(suffix: str) -> list[Path]:
    """Return the files with the suffix."""
    return [path for path in all_files() if path.suffix == suffix]


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def lines_allowed(path: Path) -> int:
    if path.suffix == ".lua":
        return LINES_OF_LUA
    return LINES_OF_TESTS if path.parts[0] == "tests" else LINES_OF_PYTHON


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the functions of a Python file with their lengths in lines."""
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def opening_comment(text: str) -> str:
    """Return the first paragraph of the comment at the top of a Lua file, up to the first tag."""
    words = []
    for line in text.splitlines():
        comment = re.fullmatch(r"--\s?(?!\[\[)(.*)", line)
        if comment is None or not comment[1].strip() or comment[1].lstrip().startswith("@"):
            break
        words.append(comment[1].strip())
    return " ".join(words)


def test_imports_keep_to_the_contracts() -> None:
    linted = run(Path(sys.executable).with_name("lint-imports"), "--no-cache")
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_no_file_is_too_long() -> None:
    lengths = {path: len(read(path).splitlines()) for path in project_files(".py") + project_files(".lua")}
    too_long = {str(path): lines for path, lines in lengths.items() if lines > lines_allowed(path)}
    assert too_long == {}, (
        f"a Lua file has at most {LINES_OF_LUA} lines, a test {LINES_OF_TESTS}, other Python {LINES_OF_PYTHON}: divide it"
    )


def test_no_function_is_too_long() -> None:
    too_long = {
        f"{path}:{name}": lines
        for path in project_files(".py")
        for name, lines in functions(path)
        if lines > LINES_OF_A_FUNCTION
    }
    assert too_long == {}, f"a function has at most {LINES_OF_A_FUNCTION} lines: divide it"


def test_modules_are_nouns_of_the_problem() -> None:
    paths = project_files(".py") + project_files(".lua")
    nameless = [str(path) for path in paths if NAMES_THAT_SAY_NOTHING & {path.stem, *path.parent.parts}]
    assert nameless == [], "name the module after the thing that it holds"


def test_every_lua_file_begins_with_a_sentence() -> None:
    heads = {str(path): opening_comment(read(path)) for path in project_files(".lua") if path.is_relative_to(LUA)}
    headless = {path: head for path, head in heads.items() if not re.fullmatch(r"\S.* .*\.", head)}
    assert headless == {}, "the file begins with a sentence, before the first tag"
