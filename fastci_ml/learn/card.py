"""What a model card says of a training: the history, the slices, and what to be careful about."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.features.log import RunLog
from fastci_ml.learn.calibration import MIN_POSITIVES, Calibration
from fastci_ml.learn.splits import Slices
from fastci_ml.sources.history.tables import moment

# Mean APFD of a slice wobbles by about this with the seed that breaks ties.
_MARGIN = 0.005


def history_digest(log: RunLog) -> str:
    """Fingerprint of everything in a log that a model learns from, hexadecimal."""
    digest = hashlib.sha256()
    for names in (log.node_ids, log.lanes, log.run_ids, log.run_lanes):
        digest.update("\0".join(names).encode("utf-8", "surrogatepass"))
    for array in (log.started_us, log.finished_us, log.offsets, log.tests, log.verdicts, log.durations_s):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(log.changes).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def describe_history(log: RunLog, y: NDArray[np.float64], is_clear: NDArray[np.bool_]) -> dict[str, Any]:
    """What a model learned from: fingerprint, times and counts."""
    return {
        "digest": history_digest(log),
        "first_run_at": moment(int(log.started_us.min())).isoformat(),
        "last_run_at": moment(int(log.finished_us.max())).isoformat(),
        "n_runs": log.n_runs,
        "n_failing_runs": len(np.unique(log.run_of_row[is_clear & (y == 1)])),
        "n_tests": log.n_tests,
        "n_rows": log.n_rows,
        "n_training_rows": int(is_clear.sum()),
        "n_failures": int(y[is_clear].sum()),
    }


def describe_slices(log: RunLog, slices: Slices) -> dict[str, Any]:
    """Runs and times of each slice."""
    return {
        name: {
            "n_runs": len(runs),
            "first_run_at": moment(int(log.started_us[runs].min())).isoformat() if len(runs) else None,
            "last_run_at": moment(int(log.finished_us[runs].max())).isoformat() if len(runs) else None,
        }
        for name, runs in (("fit", slices.fit), ("calibrate", slices.calibrate), ("test", slices.test))
    }


def training_warnings(test: dict[str, Any], calibration: Calibration, *, was_judged: bool) -> list[str]:
    """What a reader of the figures must know.

    Parameters
    ----------
    test : dict
        Figures of the test slice.
    calibration : Calibration
        That ships.
    was_judged : bool
        Whether the runs before the test slice gave a model to judge.
    """
    warnings = []
    if not was_judged:
        warnings.append(
            "nothing was judged and risks are uncalibrated: the runs before the test slice hold no "
            "failure, or no pass"
        )
    elif not calibration.is_calibrated:
        n_passes = calibration.n_rows - calibration.n_positives
        why = (
            "failures do not score higher than passes there"
            if min(calibration.n_positives, n_passes) >= MIN_POSITIVES
            else f"needed {MIN_POSITIVES} of each"
        )
        warnings.append(
            f"risks are uncalibrated: {calibration.n_positives} failures and {n_passes} passes in the last "
            f"runs, {why}"
        )
    if was_judged and not test["n_failing_runs"]:
        warnings.append("no failing run of two tests or more in the test slice: nothing was judged")
    warnings += [
        f"{metric} {test[metric]:.3f} on the test slice is below that of the simple policy "
        f"{test[f'best_simple_{metric}_policy']} ({test[f'best_simple_{metric}']:.3f})"
        for metric in ("apfd", "apfdc")
        if metric in test and test[metric] < test[f"best_simple_{metric}"] - _MARGIN
    ]
    return warnings
