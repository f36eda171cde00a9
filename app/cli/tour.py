"""A tour of the core, on the Redis it was started on: two teams, one pool, and what Poolkeeper answers."""

from __future__ import annotations

from collections.abc import Callable

from app.bootstrap import Services
from app.domain.asks import PolicyAsk, PoolAsk, RequestAsk
from app.domain.errors import NotFound
from app.domain.models import Request

WORKSPACE = "tour"
POOL = "gpus"

Say = Callable[[str], None]


def tour(services: Services, say: Say) -> None:
    """Show a grant, a queue, the share of an owner, a hand-over and a rejection; leaves nothing behind but the story."""
    _clear(services)
    services.pools.create(WORKSPACE, PoolAsk(name=POOL, capacity={"gpu": 8}))
    services.pools.set_policy(WORKSPACE, POOL, "research", PolicyAsk(priority=1))
    services.pools.set_policy(WORKSPACE, POOL, "vision", PolicyAsk(priority=1, reserved={"gpu": 4}))
    say(f"pool {POOL}: 8 gpu; vision has 4 of them reserved, research borrows what is idle")
    first = _submit(services, say, "research", 4)
    second = _submit(services, say, "research", 4)
    waiting = _submit(services, say, "research", 2)
    owner = _submit(services, say, "vision", 2)
    queue, _ = services.pools.queue(WORKSPACE, POOL)
    say("the queue, owners first:  " + ", ".join(f"{request.component} {request.resources['gpu']} gpu" for request in queue))
    _submit(services, say, "vision", 9)
    services.requests.release(WORKSPACE, first.id, first.fence or 0)
    say("research releases its first 4 gpu, and in the same step:")
    for request in (owner, waiting):
        _tell(say, services.requests.look(WORKSPACE, request.id))
    view = services.pools.view(WORKSPACE, POOL)
    say(f"pool {POOL}: {view.used['gpu']} of {view.capacity['gpu']} gpu used, {view.borrowed.get('gpu', 0)} of them borrowed")
    found = services.audit.run(WORKSPACE)
    say(f"audit: {len(found)} differences")
    for request in (second, owner, waiting):
        services.requests.drop(WORKSPACE, request.id)
    _clear(services)


def _submit(services: Services, say: Say, component: str, gpu: int) -> Request:
    ask = RequestAsk(component=component, resources={"gpu": gpu})
    request = services.requests.submit(WORKSPACE, ask)
    _tell(say, services.requests.look(WORKSPACE, request.id))
    return request


def _tell(say: Say, request: Request) -> None:
    line = f"  {request.component:<9} {request.resources['gpu']} gpu  {request.status}"
    if request.fence:
        line += f" in {request.pool} under fence {request.fence}"
    if request.position:
        line += f" at position {request.position[POOL]}"
    if request.reason:
        line += f": {request.reason.message}"
    say(line)


def _clear(services: Services) -> None:
    """Take away what an earlier tour left, if it was stopped on its way."""
    try:
        view = services.pools.view(WORKSPACE, POOL)
    except NotFound:
        return
    before = None
    while view.queue_length + view.active_count:
        page, before = services.requests.newest(WORKSPACE, before)
        for request in page:
            services.requests.drop(WORKSPACE, request.id)
        view = services.pools.view(WORKSPACE, POOL)
    services.pools.delete(WORKSPACE, POOL)
