"""What docs/results/teylo2021.md shows: for each marker how it is measured and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training.studies.bags import quality, table_7_4, table_7_5, table_9_5, table_9_6, table_ours


@dataclass(frozen=True)
class Section:
    """A block between two markers.

    Attributes:
        make: measures; gives a document that JSON can hold.
        body: the block's Markdown, from such a document alone.
    """

    make: Callable[[], dict[str, Any]]
    body: Callable[[Mapping[str, Any]], str]


SECTIONS = {
    "table_9_3": Section(quality.make_table_9_3, quality.table_9_3_body),
    "table_9_4": Section(quality.make_table_9_4, quality.table_9_4_body),
    "table_7_4": Section(table_7_4.make, table_7_4.body),
    "table_7_5": Section(table_7_5.make, table_7_5.body),
    "table_9_5": Section(table_9_5.make, table_9_5.body),
    "table_9_6": Section(table_9_6.make, table_9_6.body),
    "table_ours": Section(table_ours.make, table_ours.body),
}
