"""The components of a token, judged by the scripts and by the API: on the same random names and patterns."""

from __future__ import annotations

from random import Random

import pytest

from app.bootstrap import make_services
from app.domain.clock import ManualClock
from app.domain.request_filter import RequestFilter
from app.domain.specs import RequestSpec
from app.domain.tokens import Role, Token
from app.settings import Settings
from app.store.connection import RedisClient

CHARACTERS = "aA0_.-"


def random_name(random: Random) -> str:
    return random.choice("aA0") + "".join(random.choices(CHARACTERS, k=random.randrange(3)))


def random_entry(random: Random) -> str:
    """Return an entry of a token: a component, or a pattern."""
    kind = random.choice(["orchestrator", "intern", "intern-2", "a.b"])
    return f"{kind}/{random.choice([random_name(random), random_name(random) + '*', '*'])}"


@pytest.mark.parametrize("seed", range(4))
def test_a_list_has_the_requests_of_the_components_that_a_token_reaches(client: RedisClient, seed: int) -> None:
    random, here = Random(seed), make_services(client, Settings(), ManualClock())
    components = {random_entry(random).replace("*", "0") for _ in range(60)}
    requests = {}
    for component in sorted(components):
        kind, name = component.split("/")
        spec = RequestSpec(component=name, component_type=kind, resources={"gpu": 1})  # rejected, as there is no pool
        requests[here.requests.submit("w", spec).id] = (kind, name)
    for _ in range(30):
        entries = tuple(random_entry(random) for _ in range(random.randrange(1, 4)))
        token = Token("1", "one", Role.REQUESTER, ("w",), entries)
        rows, following = here.queries.list_requests("w", RequestFilter(visible=token.visible_components), None, 1000)
        assert following is None
        assert {row.id for row in rows} == {known for known, component in requests.items() if token.can_see(*component)}, (
            entries
        )
