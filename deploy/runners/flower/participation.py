"""What is told of a client of an asynchronous training: whether it counts for as much as it should."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.fl.brokers.messages import Standing
from deploy.fl.exchange import Status
from deploy.model.jobs import Flower


def asynchronous_details(
    work: Flower, status: Status | None, standing: Sequence[Standing], name: str
) -> dict[str, str]:
    """For people.

    Args:
        work: of the job.
        status: what its ServerApp says; None: nothing yet.
        standing: what its brokers say, by client; empty: nothing, or it has none.
        name: of the client.

    Returns:
        Where they are known: `version` of the model that it works on; `staleness` of the update that waits
        for its use, or is used again (`shadow`); `share` of all used updates that are its own; `weight`, its
        samples' share of all.
    """
    number = [client.name for client in work.clients].index(name)
    samples = [client.samples for client in work.clients]
    found = {"weight": f"{samples[number] / sum(samples):.3g}"}
    own = status.clients.get(name) if status else None
    if own is not None and own.version is not None:
        found["version"] = str(own.version)
    used = [one.used for one in standing] if standing else (status.used if status else [])
    if len(used) == len(samples) and sum(used) > 0:
        found["share"] = f"{used[number] / sum(used):.3g}"
    if standing and standing[number].staleness is not None:
        found["staleness"] = str(standing[number].staleness)
        found["shadow"] = "yes" if standing[number].slow else "no"
    return found
