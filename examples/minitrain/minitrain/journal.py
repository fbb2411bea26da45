"""What happened in a run, a JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Journal:
    """Records of one run, kept on every rank, and appended to `path` by the one rank that has a path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, event: str, **values: Any) -> None:
        """Append one record; the key ``event`` tells its kind."""
        record = {"event": event, **values}
        self.records.append(record)
        if self.path is not None:
            # Opened for each line: what is logged survives whatever happens next.
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
