"""The job's files that go to a task's node."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from deploy.jobfile import MAX_BYTES, named_files
from deploy.runners.jobfolder import JobFolder, PoisonError
from deploy.yamlfile import ConfigError


def packed(workdir: Path, words: tuple[str, ...]) -> bytes:
    """An archive of the job's files that a command names.

    Args:
        workdir: the job's folder; on instances of this machine the job's own code writes there too.
        words: of the command.

    Raises:
        PoisonError: if the job has put something else in their place.
    """
    root, packed = workdir.resolve(), io.BytesIO()
    folder, left = JobFolder(root), MAX_BYTES
    try:
        paths = list(named_files(words, root))
    except ConfigError as error:
        raise PoisonError(str(error)) from error
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            name = path.relative_to(root).as_posix()
            content = folder.read(name, left)
            if content is not None:
                left -= len(content)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o700
                tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
