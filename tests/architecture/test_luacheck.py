"""Lua as luacheck reads it: composed texts, written to files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from app.store.lua_linker import composed_texts
from tests.support.paths import ROOT
from tests.support.programs import require_program
from tests.unit.store.test_lua_linker import TREE, planted


def test_luacheck_finds_nothing_in_what_is_composed(tmp_path: Path) -> None:
    luacheck = require_program("luacheck", "lua-check")
    for name, text in composed_texts(planted(tmp_path, TREE)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        options = ["--no-config", "--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV", "--no-max-line-length"]
        ran = subprocess.run([luacheck, str(tmp_path / name), *options], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout


def test_composed_texts_are_written_for_luacheck(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.store.lua_linker", str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr.splitlines()[-1]
    assert {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("out/*.lua")} == dict(composed_texts())
