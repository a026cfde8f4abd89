"""Table I where times vary more: what is varied, and what the page shows of it."""

from __future__ import annotations

import dataclasses

from training.studies.federated.markdown import sensitivity_body
from training.studies.federated.sensitivity import VARIED, varied_application
from training.studies.federated.table_one import data_sets


def test_one_coefficient_is_raised_at_a_time() -> None:
    for application, _ in data_sets().values():
        assert (application.epoch_cv, application.spin_up_cv) == (0.01, 0.1)
        for varied in VARIED:
            changed = varied_application(application, varied, 0.5)
            assert getattr(changed, varied) == 0.5
            assert dataclasses.replace(changed, **{varied: getattr(application, varied)}) == application


def test_the_page_has_a_table_for_epochs_and_one_for_spin_ups() -> None:
    gain = {"mean": 4.0, "interval": [3.0, 5.0]}
    slower = {"mean": 0.5, "interval": [-1.0, 2.0]}
    document = {
        "cases": [
            {
                "data_set": "MNIST",
                "varied": varied,
                "level": level,
                "saving": {"mean": 60.0 + level, "interval": [59.0, 61.5]},
                "ours": {"learned": {"title": "Ours", "saving_percent": gain, "time_min": slower}},
            }
            for varied, level in (("epoch_cv", 0.05), ("spin_up_cv", 0.5))
        ],
        "checkpoint": "0" * 64,
        "command": "make it",
        "commit": "c" * 40,
    }
    lines = sensitivity_body(document).splitlines()
    assert lines[0] == (
        "| variation of epochs |  | FedCostAware saves (%) | **Ours**: points more, 95 % | time (%), 95 % |"
    )
    assert lines[2] == "| MNIST | 0.05 | 60.05 [59.00, 61.50] | +4.00 [3.00, 5.00] * | +0.50 [-1.00, 2.00] |"
    assert lines[4].startswith("| variation of spin-ups |")
    assert lines[6].startswith("| MNIST | 0.5 | 60.50 ")
