"""The layout and the names: the tree, unique class names, and names that were replaced for good."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_project import project_files
from tests.support.paths import ROOT

FOLDERS = """
.ci
app app/api app/api/handlers app/api/metrics app/api/schemas app/api/server app/cli
app/dashboard app/dashboard/assets app/dashboard/templates
app/domain app/planner app/planner/estimates app/planner/fair_share app/planner/preemption app/service
app/store app/store/lua/audit app/store/lua/copy app/store/lua/jobs app/store/lua/lib app/store/lua/planner app/store/lua/pools
app/store/lua/read app/store/lua/requests app/store/lua/tasks app/store/lua/tokens app/store/lua/workspaces
workers bench config config/nginx config/systemd examples examples/airflow examples/celery_app
client client/poolkeeper client/poolkeeper/celery client/poolkeeper/cli client/poolkeeper/runner
docs docs/concepts docs/decisions docs/guides docs/images docs/internals docs/operations
docs/reference docs/reference/cli docs/reference/http
tests tests/acceptance tests/architecture tests/mutants tests/mutants/lists tests/support tests/support/reference_pages
tests/properties tests/properties/fair_share tests/properties/planner
tests/live tests/live/api tests/live/celery tests/live/celery_faults tests/live/cli tests/live/client tests/live/dashboard
tests/live/deployment tests/live/docs
tests/live/examples tests/live/failover tests/live/faults tests/live/races tests/live/service tests/live/store
tests/live/workers
tests/unit tests/unit/api tests/unit/celery tests/unit/cli tests/unit/client tests/unit/dashboard tests/unit/domain
tests/unit/planner tests/unit/planner/estimates tests/unit/planner/fair_share tests/unit/planner/preemption
tests/unit/service tests/unit/store tests/unit/workers
"""
"""Every folder that holds files; below `integrations` and `tests/unit/store/malformed` there may be any."""
ANY_BELOW = ("integrations/", "tests/unit/store/malformed/")

TOP_LEVEL_MODULES = {
    "app": "__init__ bootstrap celery_brokers logging_config settings temporary_folders tracing wsgi",
    "workers": "__init__ __main__ broker_publisher celery_app consumer nudge_listener outbox_dispatcher schedule tasks",
    "tests": "__init__ conftest",
}
"""Folders that take no further module: it belongs to one of their packages."""

DISTRIBUTIONS = {"server": ("app", "workers"), "client": ("client/poolkeeper",)}

REPLACED_MODULES = {
    "app": "meters",
    "app/api": "accounts answers happenings measured neighbours questions reading trials worker",
    "app/cli": "surroundings",
    "app/dashboard": "door entrance look past words",
    "app/domain": "asks difference ordering promises trials",
    "app/planner": "books case court exposure fair_case starving parts publishing foresight play scene kinds limits shares",
    "app/planner/fair_share": "given measures",
    "app/service": "foreseeing glances looking measuring patience rounds scenery sharing trying",
    "app/store": "compose resolve planning scratch standings",
    "client/poolkeeper": "calls holding trouble",
    "client/poolkeeper/celery": "asking outcomes",
    "client/poolkeeper/cli": "asking grammar kinds near papers pictures sights refusals stories trials",
    "client/poolkeeper/runner": "attempt turn bell checkpoints words showing surroundings",
}
"""Names that said nothing, or something else; none of them comes back where it was."""

REPLACED_CLASSES = """
Bench Books Case Court Docket Door Ears FairCase Foresight Glances Ground Grounds Hall Heard Holdings House HouseFull
Look Looking NoTrial OnDemand Outgoing Outlook Paper Papers Piece Play Rounds Scene Showing Sight Stage Story Surroundings
Swept Told Traits Trying Turns Unforeseen Visitor Words ToldAnswer WhoAnswer WhyAnswer
"""
"""Metaphors and participles that were the names of classes."""


def modules(folder: str) -> Iterator[Path]:
    """Yield the Python files of the project below a folder, relative to its root."""
    yield from (path for path in project_files(".py") if path.is_relative_to(folder))


def classes(folder: str) -> Iterator[tuple[str, Path]]:
    """Yield the name of each class below a folder, and its file."""
    for path in modules(folder):
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, path


def test_every_file_is_in_a_folder_of_the_layout() -> None:
    paths = project_files(".py") + project_files(".lua") + project_files(".md")
    places = {path.parent.as_posix() for path in paths if not path.as_posix().startswith(ANY_BELOW)}
    assert places - set(FOLDERS.split()) - {"."} == set(), "add a new folder to FOLDERS, and to docs/internals/repository.md"


@pytest.mark.parametrize("folder", sorted(TOP_LEVEL_MODULES))
def test_the_top_of_a_tree_has_its_modules_and_no_others(folder: str) -> None:
    stems = {path.stem for path in modules(folder) if path.parent == Path(folder)}
    assert stems == set(TOP_LEVEL_MODULES[folder].split()), "a new module belongs to a folder below, or into TOP_LEVEL_MODULES"


@pytest.mark.parametrize("distribution", sorted(DISTRIBUTIONS))
def test_a_class_name_is_used_once(distribution: str) -> None:
    places = defaultdict(list)
    for folder in DISTRIBUTIONS[distribution]:
        for name, path in classes(folder):
            places[name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}, "rename one of the classes"


def test_replaced_names_of_modules_do_not_come_back() -> None:
    replaced = {f"{folder}/{name}.py" for folder, names in REPLACED_MODULES.items() for name in names.split()}
    assert sorted(str(path) for path in project_files(".py") if path.as_posix() in replaced) == []


def test_replaced_names_of_classes_do_not_come_back() -> None:
    class_names = [
        (name, str(path)) for folders in DISTRIBUTIONS.values() for folder in folders for name, path in classes(folder)
    ]
    assert [(name, path) for name, path in class_names if name.lstrip("_") in REPLACED_CLASSES.split()] == []


def test_a_test_folder_mirrors_what_it_tests() -> None:
    tested = {path.parts[2] for path in modules("tests/unit") if len(path.parts) > 3}
    layers = {path.parts[1] for path in modules("app") if len(path.parts) > 2}
    assert tested <= layers | {"celery", "client", "workers"}
