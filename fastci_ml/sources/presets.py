"""Column mappings of published CI histories, for ``fastci-ml ingest --preset NAME``.

Each history is one project's: ingest it into a folder of its own (``--history DIR``).
"""

from __future__ import annotations

from types import MappingProxyType

from fastci_ml.sources.tables import TableMapping

PRESETS = MappingProxyType(
    {
        # ABB's industrial robots (RETECS). A cycle repeats some tests: attempts. LastRun is when the cycle
        # began; 51 of 320 cycles share it with the one before. LastResults holds this cycle's results.
        "iofrol": TableMapping(
            run="Cycle",
            test="Name",
            outcome="Verdict",
            failed="1",
            duration="Duration",
            duration_unit="ms",
            time="LastRun",
            delimiter=";",
        ),
        # Alibaba Druid on Travis (Coleman): features-engineered.parquet.
        "druid": TableMapping(
            run="BuildId", test="Name", outcome="Verdict", failed="1", duration="Duration", time="LastRun"
        ),
        # DUNE common (Coleman). BuildId mixes runs of different times, so the time itself names the run.
        "dune": TableMapping(
            run="LastRun", test="Name", outcome="Verdict", failed="1", duration="Duration", time="LastRun"
        ),
        # Six Apache Commons projects (tp_rl), one file each. No clock: rows are in time order. A cycle is a
        # commit, a test is a class.
        "commons": TableMapping(
            run="cycle_id",
            test="test_class_name",
            n_failures="current_failures",
            duration="time",
            head="cycle_id",
        ),
    }
)
