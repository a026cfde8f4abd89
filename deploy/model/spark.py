"""The description of a Spark application: a job of its own, or a step of a workflow."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from deploy.model.fields import MAX_ARGUMENTS, Arguments, Part, Path, Texts

FILE_CONF = ("spark.submit.pyFiles", "spark.files", "spark.jars", "spark.archives")
"""Settings that name files, separated by commas, which Spark gives to the driver and all executors."""


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if "," in name or "#" in name:
            raise ValueError(f"{name!r} has a comma or #, by which Spark separates files: rename it")
    return names


class SparkProgram(Part):
    """A script with its arguments, settings and modules."""

    script: Path
    """Python file or jar, relative to the file that describes the job."""
    args: Arguments = ()
    conf: Texts = Field(default_factory=dict)
    py_files: Annotated[tuple[Path, ...], Field(max_length=MAX_ARGUMENTS), AfterValidator(_plain)] = ()
    """Modules for the driver and the executors: .py, .zip or .egg files; `submit` packs folders."""

    @property
    def named_files(self) -> tuple[str, ...]:
        """Paths below the job file's folder that `py_files` and `conf` name; a URI is none."""
        configured = (name for key in FILE_CONF for name in split_names(self.conf.get(key, "")))
        return (*self.py_files, *(name.partition("#")[0] for name in configured if ":" not in name))


def split_names(names: str) -> list[str]:
    """Split a comma-separated list."""
    return [name.strip() for name in names.split(",") if name.strip()]
