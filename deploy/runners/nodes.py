"""Requests of runners to node agents."""

from __future__ import annotations

from bisect import bisect_left

from deploy.model.tasks import Assignment, Node
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeRefused
from deploy.runners.base import Printed, RunnerError

UNKNOWN = 404
_LOG_WITHIN_S = 3.0
_PIECE_BYTES = 1 << 20
"""That an agent sends of a log at once."""
_PIECES_MOST = 256
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


def printed_on_node(assignment: Assignment, process_id: str, offset: int, most_bytes: int) -> Printed | None:
    """Part of what a process printed, see `Runner.log`; None if none of the nodes knows it.

    Raises RunnerError if one cannot be asked.
    """
    for node in assignment.nodes:
        agent = NodeClient(node.address, node.port, node.token, node.certificate, within_s=_LOG_WITHIN_S)
        try:
            begin = offset if offset >= 0 else max(0, _log_bytes(agent, process_id) + offset)
            content = agent.log(process_id, begin)[:most_bytes]
            return Printed(content, begin + len(content))
        except NodeRefused as error:
            if error.code != UNKNOWN:
                raise RunnerError(f"its log cannot be read: {error}") from error
        except NodeError as error:
            raise RunnerError(f"its log is on {node.instance_id}, which does not answer: {error}") from error
    return None


def _log_bytes(agent: NodeClient, process_id: str) -> int:
    """How long a log is, which agents do not tell: where the first piece begins that is not whole."""

    def left(piece: int) -> int:
        return len(agent.log(process_id, piece * _PIECE_BYTES))

    last = bisect_left(range(_PIECES_MOST), True, key=lambda piece: left(piece) < _PIECE_BYTES)
    return last * _PIECE_BYTES + left(last)
