"""What docs/results/teylo2021.md shows: for each marker how it is measured and how it is written."""

from __future__ import annotations

from training.studies.bags import quality, table_7_4, table_7_5, table_9_5, table_9_6, table_ours
from training.studies.page import Section

SECTIONS = {
    "table_9_3": Section(quality.make_table_9_3, quality.table_9_3_body),
    "table_9_4": Section(quality.make_table_9_4, quality.table_9_4_body),
    "table_7_4": Section(table_7_4.make, table_7_4.body),
    "table_7_5": Section(table_7_5.make, table_7_5.body),
    "table_9_5": Section(table_9_5.make, table_9_5.body),
    "table_9_6": Section(table_9_6.make, table_9_6.body),
    "table_ours": Section(table_ours.make, table_ours.body),
}
