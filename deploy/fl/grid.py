"""Views of Flower's grid: one that tells a lost SuperLink from other errors, one with chosen nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from deploy.fl.exchange import LINK_LOST, one_line


class SuperLinkLost(Exception):  # noqa: N818
    """The SuperLink does not answer, or has given up this run. Not the app's fault."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"{LINK_LOST}: {one_line(cause)}")


class SafeGrid(Grid):
    """A grid whose failures are all SuperLinkLost."""

    def __init__(self, grid: Grid) -> None:
        self._inner = grid

    def set_run(self, run: Run) -> None:
        """Not for apps."""
        raise NotImplementedError("the run is set already")

    @property
    def run(self) -> Run:
        """The run."""
        return self._inner.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message; deprecated in Flower."""
        return self._inner.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are online."""
        try:
            return list(self._inner.get_node_ids())
        except Exception as error:
            raise SuperLinkLost(error) from error

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send."""
        try:
            return list(self._inner.push_messages(messages))
        except Exception as error:
            raise SuperLinkLost(error) from error

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive."""
        try:
            return list(self._inner.pull_messages(message_ids))
        except Exception as error:
            raise SuperLinkLost(error) from error

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send and wait."""
        try:
            return list(self._inner.send_and_receive(messages, timeout=timeout))
        except Exception as error:
            raise SuperLinkLost(error) from error


class RoundGrid(SafeGrid):
    """A grid that names certain nodes, whether they are online or not."""

    def __init__(self, grid: Grid, node_ids: Sequence[int]) -> None:
        super().__init__(grid)
        self._node_ids = node_ids

    def get_node_ids(self) -> Iterable[int]:
        """The nodes it was given."""
        return list(self._node_ids)
