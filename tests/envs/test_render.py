"""Gantt charts: the executor rows, the occupation line, and what the pixels show."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from spotweave.envs.render import CATEGORY_COLOURS, MISS_COLOUR, PRICE_COLOUR, draw_gantt, executor_rows
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline
from tests.envs.market_cases import series


def segment(start: int, end: int, executors: int, job: int = 0) -> Segment:
    return Segment(job, 0, start, end, executors, Category.GENERAL, False)


def small_timeline() -> Timeline:
    return Timeline(
        cluster_names=("alpha", "beta"),
        time_unit="s",
        end=7200.0,
        segments=(
            Segment(0, 0, 0, 1800, 4, Category.STREAMING, False),
            Segment(1, 0, 600, 3600, 3, Category.TIME_CRITICAL, False),
            Segment(2, 1, 0, 7200, 2, Category.GENERAL, False),
        ),
        capacity=(series((0, 10.0)), series((0, 5.0), (3600, 8.0))),
        used=(series((0, 4.0), (600, 7.0), (1800, 3.0), (3600, 0.0)), series((0, 2.0))),
        price_usd_hour=(series((0, 0.0)), series((0, 0.0))),
    )


def pixels_of(image: NDArray[np.uint8], colour: str) -> int:
    """Number of pixels of exactly that colour."""
    wanted = np.array([round(255 * part) for part in to_rgb(colour)])
    return int((np.abs(image.astype(int) - wanted) <= 1).all(axis=2).sum())


def test_executors_are_given_from_below_and_reused() -> None:
    # a holds 0-3; b 3-5; a ends at 10 and c (4 executors) takes 0-3 and, scattered, 5-6.
    a, b, c = segment(0, 10, 3, job=0), segment(0, 20, 2, job=1), segment(10, 15, 4, job=2)
    assert executor_rows([c, b, a]) == [(a, 0, 3), (b, 3, 5), (c, 0, 3), (c, 5, 6)]


@given(
    st.lists(
        st.builds(
            lambda start, length, executors, job: segment(start, start + length, executors, job),
            st.integers(0, 60),
            st.integers(1, 30),
            st.integers(1, 9),
            st.integers(0, 1000),
        ),
        max_size=25,
    )
)
def test_every_executor_runs_one_job_at_a_time_and_no_more_rows_are_used_than_needed(
    segments: list[Segment],
) -> None:
    pieces = executor_rows(segments)
    grid = np.zeros((90, 25 * 9 + 1), int)
    for piece, low, high in pieces:
        grid[int(piece.start) : int(piece.end), low:high] += 1
    assert grid.max() <= 1
    brute = np.zeros(90)
    for s in segments:
        brute[int(s.start) : int(s.end)] += s.executors
    assert grid.sum() == brute.sum()
    assert max((high for _, _, high in pieces), default=0) == brute.max()


def test_the_picture_has_the_asked_size_and_every_category_at_its_share() -> None:
    image = draw_gantt(small_timeline(), size_px=(900, 500))
    assert image.shape == (500, 900, 3)
    assert image.dtype == np.uint8
    # Band alpha is scaled to 10 executors, beta to 8: areas 4 x 1800 / 10, 3 x 3000 / 10 and 2 x 7200 / 8.
    areas = [pixels_of(image, CATEGORY_COLOURS[category]) for category in Category]
    # Nothing is federated, which the legend then does not name either.
    expected = np.array([4 * 1800 / 10, 3 * 3000 / 10, 2 * 7200 / 8, 0.0])
    np.testing.assert_allclose(np.array(areas) / sum(areas), expected / expected.sum(), atol=0.05)


def test_misses_interruptions_and_prices_are_drawn_only_where_they_happened() -> None:
    plain = small_timeline()
    without = draw_gantt(plain)
    missed = replace(plain, misses=((600.0, 0), (5000.0, 1)))
    assert pixels_of(draw_gantt(missed), MISS_COLOUR) > 1.5 * pixels_of(without, MISS_COLOUR)
    interrupted = replace(plain, interruptions=((6500.0, 0),))
    assert (draw_gantt(interrupted) != without).any()
    assert pixels_of(without, PRICE_COLOUR) == 0
    priced = replace(plain, price_usd_hour=(series((0, 0.0)), series((0, 0.5), (3600, 1.0))))
    assert pixels_of(draw_gantt(priced), PRICE_COLOUR) > 50


def test_a_window_cuts_everything_outside() -> None:
    image = draw_gantt(small_timeline(), window=(4000, 7000))
    legend = pixels_of(
        draw_gantt(replace(small_timeline(), segments=())), CATEGORY_COLOURS[Category.STREAMING]
    )
    assert pixels_of(image, CATEGORY_COLOURS[Category.STREAMING]) == legend
    with pytest.raises(ValueError, match="the window to draw is empty: from 5 to 5"):
        draw_gantt(small_timeline(), window=(5, 5))


@pytest.mark.real
def test_drawing_leaves_matplotlibs_global_state_alone() -> None:
    code = "import sys, spotweave.envs.render; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
