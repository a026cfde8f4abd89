"""What runners ask of node agents."""

from __future__ import annotations

from deploy.model.tasks import Node
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeRefused
from deploy.runners.base import RunnerError

UNKNOWN = 404
_STOP_WAIT_S = 3.0


def connect(node: Node) -> NodeClient:
    """Make a client of a node's agent; nothing is asked yet."""
    return NodeClient(node.address, node.port, node.token, node.certificate)


def known_process(agent: NodeClient, process_id: str) -> ProcessStatus | None:
    """Ask how a process is; None if its node does not know it. Raises NodeError."""
    try:
        return agent.process(process_id)
    except NodeRefused as error:
        if error.code != UNKNOWN:
            raise
        return None


def end_process(agent: NodeClient, process_id: str) -> ProcessStatus | None:
    """End a process; None if its node does not know it. Raises RunnerError while it ends, NodeUnreachable."""
    try:
        status = agent.stop_process(process_id, _STOP_WAIT_S)
    except NodeRefused as error:
        if error.code != UNKNOWN:
            raise RunnerError(f"{process_id} cannot be stopped: {error}") from error
        return None
    if status.state == "running":
        raise RunnerError(f"{process_id} has not ended yet")
    return status
