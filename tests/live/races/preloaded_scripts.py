"""The scripts, composed once, in the process that all others are forked from: else each of them would do it again."""

from __future__ import annotations

from typing import Final

from app.store.lua_linker import load_commands

COMMANDS: Final = load_commands()
