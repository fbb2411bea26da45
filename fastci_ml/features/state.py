"""What the features remember at one moment: a model bundle carries it, `rank` brings it up to date."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from fastci_ml.errors import ModelError
from fastci_ml.features.affinity import affinity_features
from fastci_ml.features.change import ChangeRecords, FileRecord, change_features
from fastci_ml.features.coded import CodedRuns
from fastci_ml.features.fold import N_HISTORY, HistoryFold, derive
from fastci_ml.features.names import NameIndex
from fastci_ml.features.schema import CHANGE_FEATURES, N_FEATURES
from fastci_ml.records.ids import NodeId, node_path
from fastci_ml.records.unstable_ids import HistoryKeys, Instability

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fastci_ml.features.log import RunLog
    from fastci_ml.records.changes import FileChange

_SCHEMA = "fastci.state/1"
_CHANGE = slice(N_HISTORY, N_HISTORY + len(CHANGE_FEATURES))
_AFFINITY = slice(_CHANGE.stop, N_FEATURES)


class FeatureState:
    """The fold over tests and files, with the names that its codes stand for.

    Attributes
    ----------
    node_ids, lanes : list of str, length n_tests
        Name of each test code.
    watermark_us : int or None
        Newest end of a run that was folded in, microseconds since the epoch; None before any.
    unstable : dict of NodeId to Instability
        Functions whose ids change between runs: their tests are known under the function.
    n_attempts, n_certain : int
        Executions that were folded in, and those whose test was known for certain; without those of a bundle
        that did not count them.
    """

    def __init__(self) -> None:
        self.node_ids: list[str] = []
        self.lanes: list[str] = []
        self.watermark_us: int | None = None
        self.unstable: dict[NodeId, Instability] = {}
        self.n_attempts = self.n_certain = 0
        self._codes: dict[tuple[str, str], int] = {}
        self._lane_codes: dict[str, int] = {}
        self._modules: dict[tuple[str, str], int] = {}
        self._groups: list[int] = []
        self._fold = HistoryFold(np.empty(0, dtype=np.int64), 0)
        self._records = ChangeRecords()
        self._names = NameIndex()

    @classmethod
    def from_log(cls, log: RunLog) -> FeatureState:
        """State after every run of the log has ended."""
        state = cls()
        state.advance(log)
        return state

    def advance(self, log: RunLog) -> None:
        """Fold in the runs of a log, in the order of their ends.

        Parameters
        ----------
        log : RunLog
            Runs that are not in yet; the caller reads them by `watermark_us` and with `unstable`.
        """
        self.unstable.update(log.unstable)
        self.n_attempts += int(log.n_attempts.sum())
        self.n_certain += int(log.n_certain.sum())
        runs = self.coded(log)
        for run in np.lexsort((np.arange(log.n_runs), log.finished_us)).tolist():
            self.end_run(runs, run)

    def coded(self, log: RunLog) -> CodedRuns:
        """Log in the codes of this state."""
        lanes = self.lane_codes(log.run_lanes)  # before `codes`, which makes room for every lane
        return CodedRuns(log, self.codes(log.node_ids, log.lanes), lanes)

    def codes(self, node_ids: Sequence[str], lanes: Sequence[str]) -> NDArray[np.int64]:
        """Codes of tests, shape (n,); tests that are new get one, as never having run."""
        self.lane_codes(lanes)
        known = self._codes
        found = [known.get(key, -1) for key in zip(lanes, node_ids, strict=True)]
        codes = np.array(found, dtype=np.int64)
        new = np.flatnonzero(codes < 0).tolist()
        if new:
            added = dict.fromkeys((lanes[i], node_ids[i]) for i in new)
            known.update(zip(added, range(len(known), len(known) + len(added)), strict=True))
            self.lanes += [lane for lane, _ in added]
            self.node_ids += [node_id for _, node_id in added]
            modules = self._modules
            self._groups += [
                modules.setdefault((lane, _module(node_id)), len(modules)) for lane, node_id in added
            ]
            codes[new] = [known[lanes[i], node_ids[i]] for i in new]
        if new or len(self._lane_codes) > self._fold.n_lanes:
            self._fold.extend(np.array(self._groups, dtype=np.int64), len(self._lane_codes))
        return codes

    def lane_codes(self, lanes: Sequence[str]) -> NDArray[np.int64]:
        """Codes of lanes, shape (n,); new lanes get one."""
        known = self._lane_codes
        for lane in dict.fromkeys(lanes):
            known.setdefault(lane, len(known))
        return np.array([known[lane] for lane in lanes], dtype=np.int64)

    def start_run(
        self,
        tests: NDArray[np.int64],
        lane: int,
        changes: tuple[FileChange, ...] | None,
        out: NDArray[np.float32],
    ) -> None:
        """Write what a run can know when it starts; `derive` of the fold completes the history block.

        Parameters
        ----------
        tests : int64, shape (k,)
            Ascending codes of this state.
        lane : int
            Its lane code.
        changes : tuple of FileChange or None
            None where unknown.
        out : float32, shape (N_FEATURES, k)
            Filled; expected to be NaN before where the change is unknown.
        """
        self._fold.read(tests, lane, out[:N_HISTORY])
        if changes is not None:
            self._names.extend(self.node_ids)
            out[_CHANGE] = change_features(changes, lane, self._records)[:, None]
            affinity_features(changes, lane, tests, self._names, self._records, out[_AFFINITY])

    def end_run(self, runs: CodedRuns, run: int) -> None:
        """Fold in one run that has ended."""
        codes, failed, durations_s, unknown = runs.ended(run)
        lane, changes, finished_us = runs.lanes[run], runs.changes[run], runs.finished_us[run]
        self._fold.update(codes, lane, failed, durations_s, unknown)
        if changes is not None:
            self._records.update(lane, changes, codes[failed])
        if self.watermark_us is None or finished_us > self.watermark_us:
            self.watermark_us = finished_us

    def matrix(
        self, node_ids: Sequence[str], lane: str, changes: tuple[FileChange, ...] | None
    ) -> NDArray[np.float32]:
        """Features of a run that would start now.

        Parameters
        ----------
        node_ids : sequence of str, length n
            Tests of the run, each once; tests of one function whose ids are unstable share what it knows.
        lane : str
            Its lane.
        changes : tuple of FileChange or None
            None where unknown.

        Returns
        -------
        float32, shape (n, N_FEATURES)
            In the order of `node_ids`.
        """
        lane_code = int(self.lane_codes([lane])[0])
        keys = HistoryKeys(self.unstable)
        codes = self.codes([keys.key(node_id) for node_id in node_ids], [lane] * len(node_ids))
        # Each once and ascending, as the rows of a log are: a run counts its functions, not their tests.
        codes, place = np.unique(codes, return_inverse=True)
        out = np.full((N_FEATURES, len(codes)), np.nan, dtype=np.float32)
        self.start_run(codes, lane_code, changes, out)
        derive(out[:N_HISTORY])
        matrix: NDArray[np.float32] = out.T[place]
        return matrix

    def tests_of(self, lane: str, *, within_runs: int | None = None) -> list[str]:
        """Node ids of the tests known on a lane, sorted; only those that ran in its last `within_runs`."""
        pairs = zip(self.node_ids, self.lanes, strict=True)
        codes = np.array([i for i, (_, own) in enumerate(pairs) if own == lane], dtype=np.int64)
        if within_runs is not None and len(codes):
            codes = codes[self._fold.runs_since_run(codes, self._lane_codes[lane]) <= within_runs]
        return sorted(self.node_ids[code] for code in codes.tolist())

    def n_runs_of(self, lane: str) -> int:
        """Number of runs of a lane that were folded in."""
        code = self._lane_codes.get(lane)
        return 0 if code is None else int(self._fold.to_arrays()["clock"][code])

    def save(self, directory: Path) -> None:
        """Write names.json, records.json and fold.npz (plain arrays, never pickle) into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        names = {
            "schema": _SCHEMA,
            "watermark_us": self.watermark_us,
            "lanes": list(self._lane_codes),
            "unstable": dict(sorted(self.unstable.items())),
            "counts": [self.n_attempts, self.n_certain],
            "tests": [
                [self._lane_codes[lane], node] for lane, node in zip(self.lanes, self.node_ids, strict=True)
            ],
        }
        records = [
            [lane, path, record.n_changes, record.n_failed_runs, sorted(record.n_failures.items())]
            for (lane, path), record in sorted(self._records.records.items())
        ]
        _dump(directory / "names.json", names)
        _dump(directory / "records.json", {"schema": _SCHEMA, "records": records})
        np.savez(directory / "fold.npz", allow_pickle=False, **self._fold.to_arrays())

    @classmethod
    def load(cls, directory: Path) -> FeatureState:
        """Read a state.

        Raises
        ------
        ModelError
            If a file is missing, torn, or of another schema.
        """
        state = cls()
        try:
            names = _load(directory / "names.json")
            lanes = [str(lane) for lane in names["lanes"]]
            state.lane_codes(lanes)
            state.codes([str(node) for _, node in names["tests"]], [lanes[i] for i, _ in names["tests"]])
            state.watermark_us = None if names["watermark_us"] is None else int(names["watermark_us"])
            # Both were added later: a bundle without them knows every test under its own id.
            unstable = names.get("unstable", {}).items()
            state.unstable = {NodeId(str(function)): Instability(kind) for function, kind in unstable}
            state.n_attempts, state.n_certain = map(int, names.get("counts", (0, 0)))
            # numpy leaks a file that it opened itself and finds torn.
            with (
                (directory / "fold.npz").open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                groups = np.array(state._groups, dtype=np.int64)
                state._fold = HistoryFold.from_arrays(dict(arrays), groups, len(lanes))
            records = _load(directory / "records.json")["records"]
            for lane, path, n_changes, n_failed_runs, failures in records:
                record = FileRecord(int(n_changes), int(n_failed_runs))
                state._records.records[int(lane), str(path)] = record
                record.n_failures = {int(code): int(n) for code, n in failures}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, BadZipFile) as error:
            raise ModelError(
                f"{directory}: no usable feature state: {type(error).__name__}: {error}",
                hint="fastci-ml train",
            ) from error
        return state


def _module(node_id: str) -> str:
    """What a test's failing share is pooled over: its file, or its folder where the id is a file itself."""
    path = node_path(node_id)
    return path if path != node_id else path.rpartition("/")[0]


def _dump(path: Path, document: dict[str, Any]) -> None:
    # Surrogate escapes of odd paths survive as \\udcXX.
    path.write_text(json.dumps(document, separators=(",", ":")), encoding="ascii")


def _load(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="ascii"))
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ValueError(f"{path.name}: schema {found!r}, expected {_SCHEMA!r}")
    return document
