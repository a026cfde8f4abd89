"""The tables of Teylo 2021, measured again."""

from pathlib import Path
from typing import Any

from spotweave.documents import read_document

PRINTED: dict[str, Any] = read_document(Path(__file__).with_name("printed.yaml"))
