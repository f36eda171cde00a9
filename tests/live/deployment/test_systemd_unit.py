"""The systemd unit of the repository: complete and hardened by systemd's own judgement, and its settings are accepted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import Settings
from tests.support.backends import require
from tests.support.doc_pages import Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import run, up
from tests.support.programs import require_program

UNIT = ROOT / "config" / "systemd" / "poolkeeper@.service"
SETTINGS = ROOT / "config" / "systemd" / "poolkeeper.toml"
PAGES = [Page(ROOT / "docs" / "operations" / name) for name in ("deploy-one-machine.md", "deploy-several-machines.md")]
MOST_EXPOSURE = 20
"""In tenths, as systemd counts it: 100 is a unit without any restriction."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return a copy of the unit with a program that exists, as systemd looks for it."""
    text = UNIT.read_text("utf-8")
    program = Path(sys.executable).parent / "poolkeeperd"
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("/opt/poolkeeper/bin/poolkeeperd", str(program)), "utf-8")
    assert copy.read_text("utf-8") != text
    return copy


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which starts no unit."""
    command = [require_program("systemd-analyze", "systemd"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_systemd_understands_every_line_of_the_unit(unit: Path) -> None:
    verified = analyze("verify", unit)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_systemd_reports_a_line_that_it_does_not_understand(unit: Path) -> None:
    unit.write_text(unit.read_text("utf-8").replace("PrivateTmp=", "PrivateTemp="), "utf-8")
    assert "PrivateTemp" in analyze("verify", unit).stderr


def test_the_unit_exposes_little(unit: Path) -> None:
    judged = analyze("security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSURE}", unit)
    assert judged.returncode == 0, judged.stdout


def test_the_settings_of_the_unit_are_accepted_and_no_call_is_served_without_a_token() -> None:
    settings = Settings.read(SETTINGS, {})
    assert (str(settings.data_dir), settings.require_token, settings.host) == ("/var/lib/poolkeeper", True, "127.0.0.1")


@pytest.mark.parametrize("instance", ["up", "api", "worker", "beat"])
def test_each_instance_is_a_command_with_these_options(tmp_path: Path, instance: str) -> None:
    command = re.search(r"^ExecStart=\S+ (.*)$", UNIT.read_text("utf-8"), re.M)
    assert command
    words = command[1].replace("%i", instance).split()
    wrong = tmp_path / "poolkeeper.toml"
    wrong.write_text("data_folder = 1\n", "utf-8")
    done = run(tmp_path, *[str(wrong) if word == "/etc/poolkeeper/poolkeeper.toml" else word for word in words])
    assert done.returncode == 2, "systemd does not start it again"
    assert "data_folder: there is no such setting" in done.stderr


def test_a_token_that_is_made_before_the_first_start_is_the_only_one_and_in_no_log(tmp_path: Path) -> None:
    require("embedded")
    config = ("--config", str(SETTINGS))
    made = run(tmp_path, "token", "create", "me", "--role", "admin", "--workspace", "*", *config)
    with up(tmp_path, *config) as service:
        assert service.ask("GET", "/pools").status == 401
        assert service.ask("GET", "/pools", token=made.stdout.strip()).status == 200
        assert service.stop() == 0
        assert not any("pk_" in line for line in service.said)


def test_the_pages_name_the_instances_and_the_files() -> None:
    one, several = (page.text for page in PAGES)
    for text in ("poolkeeper@.service", "poolkeeper.toml", "systemctl enable --now poolkeeper@up"):
        assert text in one
    for instance in ("api", "worker", "beat"):
        assert f"poolkeeper@{instance}" in several
