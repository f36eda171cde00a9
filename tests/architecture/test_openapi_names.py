"""Public names of the HTTP API: operations are verbs with nouns, and a schema says by its last word what it is."""

from __future__ import annotations

from app.api import openapi
from app.api.routes import AT_ROOT, PREFIX, ROUTES

DOCUMENT = openapi.document()
ROWS = [*((PREFIX, route) for route in ROUTES), *(("", route) for route in AT_ROOT)]

VERBS = frozenset(
    {
        *(
            "acknowledge",
            "apply",
            "cancel",
            "create",
            "delete",
            "drop",
            "explain",
            "export",
            "get",
            "list",
            "park",
            "plan",
            "put",
        ),
        *("release", "report", "send", "start", "submit", "update"),
    }
)
COMMANDS = {"dry_run", "whoami"}
"""Operations with the name that the feature has everywhere, from the path to the command line."""

SUFFIXES = ("Response", "Body", "Spec", "Update", "Declaration", "Settings", "State", "Status", "Reason", "Problem", "Error")


def test_an_operation_id_is_the_name_of_its_handler() -> None:
    ids = {route.name: DOCUMENT["paths"][prefix + route.path][route.method.lower()]["operationId"] for prefix, route in ROWS}
    assert ids == {route.name: route.handler.__name__ for _, route in ROWS}


def test_operation_ids_are_unique() -> None:
    ids = [route.operation_id for _, route in ROWS]
    assert sorted(ids) == sorted(set(ids))


def test_an_operation_id_begins_with_a_verb_and_names_an_object() -> None:
    ids = {route.operation_id for _, route in ROWS} - COMMANDS
    assert {name for name in ids if name.partition("_")[0] not in VERBS or not name.partition("_")[2]} == set(), (
        "name the handler VERB_OBJECT; add a real verb to VERBS"
    )


def test_a_tag_is_the_module_of_the_handler() -> None:
    tags = {route.name: DOCUMENT["paths"][prefix + route.path][route.method.lower()]["tags"] for prefix, route in ROWS}
    assert tags == {route.name: [route.handler.__module__.split(".")[-1].replace("_", "-")] for _, route in ROWS}


def test_a_schema_name_ends_in_the_word_for_what_it_is() -> None:
    assert [name for name in DOCUMENT["components"]["schemas"] if not name.endswith(SUFFIXES)] == [], (
        f"the name of a model ends in one of {SUFFIXES}"
    )


def test_bodies_and_responses_are_told_apart_by_their_names() -> None:
    bodies = {route.body_model.__name__ for _, route in ROWS if route.body_model}
    responses = {route.response_model.__name__ for _, route in ROWS if route.response_model} - {"Declaration"}
    assert {name for name in bodies if name.endswith("Response")} == set()
    assert {name for name in responses if not name.endswith("Response")} == set()


def test_every_suffix_is_used() -> None:
    names = tuple(DOCUMENT["components"]["schemas"])
    assert [suffix for suffix in SUFFIXES if not any(name.endswith(suffix) for name in names)] == []
