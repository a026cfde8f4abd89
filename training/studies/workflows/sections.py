"""What docs/results/liu2022-workflows.md shows: for each marker how it is measured and written."""

from __future__ import annotations

from training.studies.page import Section
from training.studies.workflows import gis, planners, spot, wordcount

SECTIONS = {
    "figure_3_5": Section(wordcount.make_figure_3_5, wordcount.figure_3_5_body),
    "table_3_1": Section(wordcount.make_table_3_1, wordcount.table_3_1_body),
    "table_3_2": Section(gis.make, gis.body),
    "table_optimum": Section(planners.make_optimum, planners.optimum_body),
    "table_families": Section(planners.make_families, planners.families_body),
    "table_spot": Section(spot.make, spot.body),
}
