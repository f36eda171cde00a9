"""What is in Redis as a model: only the plain facts (what people set, asks, states), nothing the scripts computed."""

from __future__ import annotations

from tests.properties.oracle import Account, Model, Pool, Request
from tests.properties.snapshot import Snapshot, amounts


def model(seen: Snapshot) -> Model:
    """The model of a snapshot."""
    pools = {name: _pool(seen, name) for (name,), _ in seen.of("pool")}
    requests = {id_: request(id_, fields) for (id_,), fields in seen.of("request")}
    holds = {name: fields["patience"] for (name,), fields in seen.of("pool") if "patience" in fields}
    return Model(pools, requests, holds, seen.now_ms, seen.get("meta").get("unmanaged", "reject"))


def _pool(seen: Snapshot, name: str) -> Pool:
    fields, accounts = seen.get("pool", name), {}
    for kind, above in (("group", "parent"), ("policy", "group")):
        for (pool, account), numbers in seen.of(kind):
            if pool == name:
                accounts[f"{kind}:{account}"] = _account(f"{kind}:{account}", numbers, numbers.get(above))
    settings = {setting: value for setting, value in fields.items() if ":" not in setting}
    return Pool(name, _column(fields, "limit"), settings, accounts)


def _account(name: str, fields: dict[str, str], parent: str | None) -> Account:
    above = f"group:{parent}" if parent else None
    return Account(name, above, _column(fields, "reserved"), _column(fields, "limit"), int(fields.get("priority", 0)))


def _column(fields: dict[str, str], column: str) -> dict[str, int]:
    pairs = ((*field.partition(":"), value) for field, value in fields.items())
    return {key: int(value) for name, _, key, value in pairs if key and name == column}


def request(id_: str, fields: dict[str, str]) -> Request:
    """A request out of its hash."""
    return Request(
        id=id_,
        component=fields["component"],
        amounts=amounts(fields["resources"]),
        preemptible=fields["preemptible"] == "1",
        rank=int(fields["class"]),
        number=int(fields["seq"]),
        submitted_ms=int(fields["submitted_ms"]),
        walltime_s=int(fields["walltime_s"]) if "walltime_s" in fields else None,
        status=fields["status"],
        pool=fields.get("pool", ""),
        fence=int(fields.get("fence", 0)),
        granted_ms=int(fields.get("granted_ms", 0)),
    )
