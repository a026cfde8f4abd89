"""Job files are untrusted: what is out of bounds is refused, what is within them can be computed with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from deploy.model.fields import LEAST_SECONDS, MAX_TEXT_BYTES, MOST_COUNT, MOST_SECONDS
from deploy.model.jobs import (
    JobSpec,
    Profile,
    Resources,
    SparkBatch,
    TaskKey,
)
from deploy.model.jobs import Places as PlacesOf
from deploy.scheduler.snapshot.needs import Need
from deploy.yamlfile import first_mistake
from tests.deploy.hostile import BATCH, EXTREME, STREAM, TRAINING, text_of


@pytest.mark.parametrize("job", EXTREME.values(), ids=EXTREME.keys())
def test_extreme_specs_are_refused_with_one_line(job: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate_json(text_of(job))
    line = first_mistake(refused.value)
    assert "\n" not in line
    assert len(line) < 1000


@pytest.mark.parametrize("work", [BATCH, STREAM, TRAINING], ids=["batch", "stream", "training"])
def test_the_same_jobs_without_the_extreme_are_taken(work: Mapping[str, Any]) -> None:
    assert JobSpec.model_validate_json(json.dumps({"name": "job", "work": work})).name == "job"


def test_the_bounds_themselves_are_within() -> None:
    work = {**STREAM, "batches": MOST_COUNT, "period_s": LEAST_SECONDS, "batch_deadline_s": MOST_SECONDS}
    env = {"A": "x" * (MAX_TEXT_BYTES - 1)}
    assert JobSpec.model_validate_json(json.dumps({"name": "job", "work": work, "env": env})).env == env
    with pytest.raises(ValidationError, match="65537 bytes of text"):
        JobSpec.model_validate_json(
            json.dumps({"name": "job", "work": work, "env": {"A": "x" * MAX_TEXT_BYTES}})
        )


@settings(max_examples=200, deadline=None)
@given(
    standard_s=st.floats(LEAST_SECONDS, MOST_SECONDS),
    profile=st.builds(
        Profile,
        reference_speed=st.floats(0.001, 1000),
        sensitivity=st.none() | st.floats(0.01, 100),
        checkpoint_s=st.floats(0, MOST_SECONDS),
        checkpoint_interval_s=st.just(0.0) | st.floats(1, MOST_SECONDS),
    ),
    speed=st.floats(0.01, 100),
    progress=st.floats(0, 1),
)
def test_what_is_within_bounds_stays_finite_in_32_bits(
    standard_s: float, profile: Profile, speed: float, progress: float
) -> None:
    """Observations are 32-bit floats: one that overflows poisons the whole snapshot."""
    spec = JobSpec(name="job", work=SparkBatch(script="x.py", standard_s=standard_s), profile=profile)
    need = Need(
        TaskKey("job", "main"),
        "general",
        Resources(),
        PlacesOf(),
        standard_s=standard_s,
        progress=progress,
        checkpoint_s=spec.profile.checkpoint_interval_s,
        save_s=spec.profile.checkpoint_s,
        reference_speed=spec.profile.reference_speed,
        sensitivity=spec.profile.sensitivity,
    )
    assert np.isfinite(np.float32(need.left_s(speed)))
