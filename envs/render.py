"""Pictures of an episode: one band per cluster with its jobs, capacity, price, misses and interruptions."""

from __future__ import annotations

import bisect
import heapq
import io
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from spotweave.envs.simulation.series import Floats, StepSeries
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline

# The palette of Okabe and Ito (2008), which colour-blind readers can tell apart.
CATEGORY_COLOURS = {
    Category.STREAMING: "#56B4E9",
    Category.TIME_CRITICAL: "#E69F00",
    Category.GENERAL: "#BBBBBB",
    Category.FEDERATED: "#009E73",
}
MISS_COLOUR = "#D55E00"
PRICE_COLOUR = "#CC79A7"
BAND_HEIGHT = 0.82
"""Share of a cluster's row that its band fills; the rest separates it from the next."""

MAX_BANDS = 16
"""With more clusters than this, those that were never used are left out (and the title says how many)."""


def executor_rows(segments: Iterable[Segment]) -> list[tuple[Segment, int, int]]:
    """Give every segment of one cluster the lowest free executors, as (segment, low, high) pieces.

    A segment that finds its executors scattered gives several pieces. Pieces that overlap in time never
    overlap in executors, and the highest executor in use never exceeds the most that ran at once.
    """
    free: list[tuple[int, int]] = [(0, 1 << 60)]  # [low, high), ascending, never touching
    running: list[tuple[float, int, int]] = []
    pieces = []
    for segment in sorted(segments, key=lambda s: (s.start, s.job)):
        while running and running[0][0] <= segment.start:
            _, low, high = heapq.heappop(running)
            _release(free, low, high)
        wanted = segment.executors
        while wanted > 0:
            low, high = free[0]
            taken = min(wanted, high - low)
            if low + taken == high:
                free.pop(0)
            else:
                free[0] = (low + taken, high)
            heapq.heappush(running, (segment.end, low, low + taken))
            pieces.append((segment, low, low + taken))
            wanted -= taken
    return pieces


def _release(free: list[tuple[int, int]], low: int, high: int) -> None:
    """Put the executors [low, high) back, joined with free neighbours."""
    at = bisect.bisect_left(free, (low, high))
    if at < len(free) and free[at][0] == high:
        high = free.pop(at)[1]
    if at > 0 and free[at - 1][1] == low:
        low = free.pop(at - 1)[0]
        at -= 1
    free.insert(at, (low, high))


def draw_gantt(
    timeline: Timeline,
    *,
    window: tuple[float, float] | None = None,
    size_px: tuple[int, int] = (1200, 800),
) -> NDArray[np.uint8]:
    """Draw what happened on every cluster.

    A box is one execution of one job: its width is time, its height executors, its colour the category; an
    execution that missed its deadline has a red edge. Over the boxes lie the capacity in effect (black) and,
    where it costs something, the price (scaled to its own highest value, which stands at the right).

    Args:
        timeline: the events of one episode, finished or not.
        window: (from, to) in the timeline's unit; all of it if None.
        size_px: width and height in pixels.

    Returns:
        (height, width, 3) uint8 RGB.

    Raises:
        ValueError: if the window is empty.
    """
    start, end = _extent(timeline) if window is None else window
    if not end > start:
        raise ValueError(f"the window to draw is empty: from {start:g} to {end:g}")
    dpi = 100
    figure = Figure(figsize=(size_px[0] / dpi, size_px[1] / dpi), dpi=dpi)
    FigureCanvasAgg(figure)
    # Room for the names at the left: a letter of size 8 is about 6 pixels wide.
    left = min(0.3, (24 + 6.2 * max(map(len, timeline.cluster_names))) / size_px[0])
    # The time axis, its numbers and its name are 52 pixels high.
    bottom = max(0.09, 52 / size_px[1])
    axes = figure.add_axes((left, bottom, 0.93 - left, 0.89 - bottom))
    per_unit, unit = (3600.0, "hours") if timeline.time_unit == "s" else (1.0, f"{timeline.time_unit}s")

    shown = _bands_to_show(timeline)
    for band, cluster in enumerate(shown):
        _draw_band(axes, timeline, cluster, len(shown) - 1 - band, (start, end), per_unit)
    axes.set_xlim(start / per_unit, end / per_unit)
    axes.set_ylim(-0.08, max(1, len(shown)))
    axes.set_yticks(np.arange(len(shown)) + BAND_HEIGHT / 2)
    axes.set_yticklabels([timeline.cluster_names[c] for c in reversed(shown)], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"time ({unit})")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    hidden = len(timeline.cluster_names) - len(shown)
    if hidden:
        figure.suptitle(f"{hidden} unused clusters not shown", fontsize=11, y=0.985)
    priced = any(price.values.any() for price in timeline.price_usd_hour)
    figure.legend(
        handles=_legend(priced, {Category(segment.category) for segment in timeline.segments}),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.955),
        ncols=8,
        fontsize=8,
        columnspacing=1.2,
        handlelength=1.6,
    )
    pixels = io.BytesIO()
    figure.savefig(pixels, format="rgba", dpi=dpi)
    image = np.frombuffer(pixels.getvalue(), np.uint8).reshape(size_px[1], size_px[0], 4)
    return image[:, :, :3].copy()


def _extent(timeline: Timeline) -> tuple[float, float]:
    """Time from the first execution to the end, at least one unit."""
    start = min((segment.start for segment in timeline.segments), default=timeline.end - 1.0)
    return start, max(timeline.end, start + 1.0)


def _bands_to_show(timeline: Timeline) -> list[int]:
    n_clusters = len(timeline.cluster_names)
    if n_clusters <= MAX_BANDS:
        return list(range(n_clusters))
    used = {s.cluster for s in timeline.segments}
    used |= {cluster for _, cluster in (*timeline.misses, *timeline.interruptions)}
    return sorted(used)


def _draw_band(
    axes: Axes, timeline: Timeline, cluster: int, bottom: float, window: tuple[float, float], per_unit: float
) -> None:
    """Draw one cluster between `bottom` and `bottom` + BAND_HEIGHT."""
    start, end = window
    segments = [
        s
        for s in timeline.segments
        if s.cluster == cluster and s.end > start and s.start < end and s.executors > 0
    ]
    lines = [_line(timeline.capacity[cluster], start, end), _line(timeline.used[cluster], start, end)]
    highest = max(1.0, *(float(line[:, 1].max()) for line in lines))
    scale = BAND_HEIGHT / highest
    axes.axhline(bottom, color="#DDDDDD", linewidth=0.6, zorder=0)

    boxes: dict[tuple[Category, bool], list[Floats]] = {}
    for segment, low, high in executor_rows(segments):
        left, right = max(segment.start, start) / per_unit, min(segment.end, end) / per_unit
        y0, y1 = bottom + low * scale, bottom + high * scale
        corners = np.array([[left, y0], [right, y0], [right, y1], [left, y1]])
        boxes.setdefault((Category(segment.category), segment.missed), []).append(corners)
    # Edges separate the boxes while there are few; with many they would hide the colours.
    edge = 0.25 if len(segments) < 400 else 0.0
    for (category, missed), corner_list in sorted(boxes.items()):
        axes.add_collection(
            PolyCollection(
                corner_list,
                facecolors=CATEGORY_COLOURS[category],
                edgecolors=MISS_COLOUR if missed else "white",
                linewidths=max(edge, 0.8) if missed else edge,
                zorder=2 if missed else 1,
            ),
            autolim=False,
        )
    stretch = np.array([1.0 / per_unit, scale])
    offset = np.array([0.0, bottom])
    lines = [line * stretch + offset for line in lines]
    colours, widths = ["black", "#555555"], [1.1, 0.5]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, zorder=3), autolim=False)
    _draw_price(axes, timeline.price_usd_hour[cluster], bottom, window, per_unit)
    for events, marker, colour in (
        (timeline.misses, "v", MISS_COLOUR),
        (timeline.interruptions, "x", "black"),
    ):
        times = np.array([t for t, c in events if c == cluster and start <= t <= end]) / per_unit
        heights = np.full(len(times), bottom + BAND_HEIGHT * (1.06 if marker == "v" else 0.5))
        axes.plot(times, heights, marker, color=colour, markersize=4 if marker == "v" else 6, zorder=5)


def _draw_price(
    axes: Axes, price: StepSeries, bottom: float, window: tuple[float, float], per_unit: float
) -> None:
    line = _line(price, *window)
    top = float(line[:, 1].max())
    if top <= 0.0:
        return
    # Its highest value stays below the band's top, where the capacity often lies.
    line = line * [1.0 / per_unit, 0.9 * BAND_HEIGHT / top] + [0.0, bottom]
    axes.add_collection(LineCollection([line], colors=PRICE_COLOUR, linewidths=0.9, zorder=4), autolim=False)
    axes.annotate(
        f"{top:.3g} $/h",
        (window[1] / per_unit, bottom + 0.9 * BAND_HEIGHT),
        xytext=(4, -2),
        textcoords="offset points",
        fontsize=7,
        color=PRICE_COLOUR,
    )


def _line(series: StepSeries, start: float, end: float) -> Floats:
    """(n, 2) corners of the staircase between `start` and `end`."""
    inside = (series.times_s > start) & (series.times_s < end)
    values = np.concatenate([[series.at(start)], series.values[inside]])
    edges = np.concatenate([[start], series.times_s[inside], [end]])
    return np.column_stack([np.repeat(edges, 2)[1:-1], np.repeat(values, 2)])


def _legend(priced: bool, present: set[Category]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, label=category.name.lower().replace("_", "-"))
        for category, colour in CATEGORY_COLOURS.items()
        if category is not Category.FEDERATED or category in present
    ]
    handles.append(Line2D([], [], color="black", linewidth=1.1, label="capacity"))
    handles.append(Line2D([], [], color="#555555", linewidth=0.5, label="occupation"))
    if priced:
        handles.append(Line2D([], [], color=PRICE_COLOUR, linewidth=0.9, label="price"))
    handles.append(Line2D([], [], color=MISS_COLOUR, marker="v", linestyle="", label="missed deadline"))
    handles.append(Line2D([], [], color="black", marker="x", linestyle="", label="interruption"))
    return handles
