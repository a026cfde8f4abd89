"""The service's own settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deploy.server.admission import MIB, Quotas
from deploy.server.connections import ConnectionLimits
from envs.simulation.guards.rules import GuardsConfig


@dataclass(frozen=True)
class ServerSettings:
    """How the service behaves.

    Attributes:
        jobs: folder of the jobs' own folders; needed where jobs are taken.
        tokens: whether requests need an access token. Without, everyone who reaches the port may do
            everything, and only requests that come to a loopback name are answered.
        window: tasks that a market policy sees at once (J).
        guards: what bounds the policies.
        decision_bytes: largest body of a request for decisions.
        job_bytes: largest body of a submission, its files (base64) included.
        job_files: at most this many files of a job.
        body_within_s: a body must have arrived after so long.
        pass_within_s: the service is ready only if the scheduler's latest pass is no older.
        streams: at most this many followers of events at once,
        streams_each: and this many of one caller.
        poll_s: between two looks at the store for new events.
        heartbeat_s: a follower hears something at least so often; its token is checked again then.
        connections: what clients may take of the listener.
        quotas: what submitters may take.
        bodies_bytes: of bodies of submissions that are read and handled at once; of one submitter half of it,
            or one body.
    """

    jobs: Path | None = None
    tokens: bool = True
    window: int = 8
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    decision_bytes: int = 2 * MIB
    job_bytes: int = 32 * MIB
    job_files: int = 500
    body_within_s: float = 60.0
    pass_within_s: float = 60.0
    streams: int = 32
    streams_each: int = 8
    poll_s: float = 0.5
    heartbeat_s: float = 15.0
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    quotas: Quotas = field(default_factory=Quotas)
    bodies_bytes: int = 64 * MIB
