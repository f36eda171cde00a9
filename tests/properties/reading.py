"""The data in Redis as a model: only the plain facts (settings, requests, states), and nothing that the scripts computed."""

from __future__ import annotations

from collections import Counter

from tests.properties.oracle import Account, Hold, Model, Place, Pool, Request
from tests.properties.snapshot import Snapshot, amounts


def model(snapshot: Snapshot) -> Model:
    """Return the model of a snapshot."""
    pools = {name: _pool(snapshot, name) for (name,), _ in snapshot.of("pool")}
    requests = {id_: request(id_, fields) for (id_,), fields in snapshot.of("request")}
    holds = {name: fields["patience"] for (name,), fields in snapshot.of("pool") if "patience" in fields}
    clearings = {name: _clearings(snapshot, name) for name in pools}
    leaving = {name: dict(snapshot.get("pool_victims", name)) for name in pools}
    return Model(pools, requests, holds, snapshot.now_ms, snapshot.get("meta").get("unmanaged", "reject"), clearings, leaving)


def _clearings(snapshot: Snapshot, pool: str) -> dict[str, Hold]:
    holds = []
    for owner, text in snapshot.get("pool_holds", pool).items():
        kind, _, number = (*text.split(" "), "")[:3]
        if kind == "victims":
            holds.append(Hold(owner, int(number), hold_column(snapshot.get("hold", pool, owner), "freed")))
    return {hold.owner: hold for hold in sorted(holds, key=lambda hold: hold.number)}


def hold_column(fields: dict[str, str], column: str) -> Counter[Place]:
    """Return one column of a hold's hash: `expected`, `freed`."""
    parts = ((*field.split("|"), value) for field, value in fields.items())
    return +Counter({(account, key): int(value) for name, account, key, value in parts if name == column})


def _pool(snapshot: Snapshot, name: str) -> Pool:
    fields, accounts = snapshot.get("pool", name), {}
    for kind, above in (("group", "parent"), ("policy", "group")):
        for (pool, account), numbers in snapshot.of(kind):
            if pool == name:
                accounts[f"{kind}:{account}"] = _account(f"{kind}:{account}", numbers, numbers.get(above))
    settings = {setting: value for setting, value in fields.items() if ":" not in setting}
    return Pool(name, _column(fields, "limit"), settings, accounts)


def _account(name: str, fields: dict[str, str], parent: str | None) -> Account:
    above = f"group:{parent}" if parent else None
    return Account(
        name=name,
        parent=above,
        reserved=_column(fields, "reserved"),
        limit=_column(fields, "limit"),
        priority=int(fields.get("priority", 0)),
        weight=int(fields.get("weight", 1)),
        fair=_column(fields, "fair_share"),
        sated=frozenset(_column(fields, "demand_met")),
        settings={setting: value for setting, value in fields.items() if ":" not in setting},
        template=fields.get("template", ""),
        times=int(fields.get("reserved_times", 1)),
    )


def _column(fields: dict[str, str], column: str) -> dict[str, int]:
    pairs = ((*field.partition(":"), value) for field, value in fields.items())
    return {key: int(value) for name, _, key, value in pairs if key and name == column}


def request(id_: str, fields: dict[str, str]) -> Request:
    """Return a request from its hash."""
    return Request(
        id=id_,
        component=fields["component"],
        amounts=amounts(fields["resources"]),
        preemptible=fields["preemptible"] == "1",
        rank=int(fields["class"]),
        number=int(fields["seq"]),
        submitted_ms=int(fields["submitted_ms"]),
        walltime_s=int(fields["walltime_s"]) if "walltime_s" in fields else None,
        named_pools=tuple(fields["shape"].removeprefix("pools=").split(",")) if "shape" in fields else (),
        status=fields["status"],
        pool=fields.get("pool", ""),
        fence=int(fields.get("fence") or 0),
        granted_ms=int(fields.get("granted_ms") or 0),
        retries=int(fields["retries"]),
        preemptions=int(fields.get("preemptions") or 0),
        failed=fields.get("failed") == "1",
    )
