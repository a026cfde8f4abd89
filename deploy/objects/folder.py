"""Objects in a folder, such as one that a file server keeps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.objects.base import ConflictError, ObjectsError
from spotweave.files import write_bytes


class FolderObjects:
    """Implements `deploy.objects.base.Objects`; each object is a file.

    Args:
        folder: where; made with the first object.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        """See Objects."""
        return str(self._folder)

    def put(self, name: str, content: bytes) -> None:
        """See Objects. Whole or not at all, and on the disk."""
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                write_bytes(path, content, mode=0o600, overwrite=False)
        except OSError as error:
            raise ObjectsError(f"{path} cannot be written: {error.strerror}") from error
        if self.get(name) != content:
            raise ConflictError(f"{path} is there already, with other content")

    def get(self, name: str) -> bytes | None:
        """See Objects."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ObjectsError(f"{self._folder / name} cannot be read: {error.strerror}") from error

    def names(self, start: str) -> Sequence[str]:
        """See Objects."""
        # Only the folder that a name's start leads to is searched: others may hold very many.
        below = self._folder / start.rpartition("/")[0]
        found = (path.relative_to(self._folder).as_posix() for path in below.rglob("*") if path.is_file())
        return [name for name in found if name.startswith(start) and not Path(name).name.startswith(".")]

    def delete(self, name: str) -> None:
        """See Objects."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ObjectsError(f"{self._folder / name} cannot be deleted: {error.strerror}") from error
