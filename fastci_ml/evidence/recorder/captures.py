"""Captures while they go on, and as they are written."""

from __future__ import annotations

from fastci_ml.evidence.recorder.backend import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

    from fastci_ml.records.evidence_kinds import CaptureKind, Gap

_NOTHING: frozenset[int] = frozenset()


class OpenCapture:
    """A capture that is going on. Paths are as the program used them; they are sorted out when it ends.

    Attributes
    ----------
    kind, label
        See `Capture`.
    number : int
        In the bundle.
    codes : dict of int to CodeType
        By identity, for equal code objects of two files compare equal. Filled when it ends; what is put in
        before counts as entered.
    reads, listings : set of str
        Files and folders, absolute or from the working directory.
    imports : set of str
        Files of modules, the same way.
    environ : set of str
        Names of variables.
    uses : set of int
        Numbers of other captures.
    gaps : dict of (Gap, str)
        A dict for its order.
    children : dict of str to str
        Processes by name, each with a detail for a person.
    """

    __slots__ = (
        "children",
        "codes",
        "environ",
        "gaps",
        "imports",
        "kind",
        "label",
        "listings",
        "number",
        "reads",
        "uses",
    )

    def __init__(self, kind: CaptureKind, label: str, number: int) -> None:
        self.kind = kind
        self.label = label
        self.number = number
        self.codes: dict[int, CodeType] = {}
        self.reads: set[str] = set()
        self.listings: set[str] = set()
        self.imports: set[str] = set()
        self.environ: set[str] = set()
        self.uses: set[int] = set()
        self.gaps: dict[tuple[Gap, str], None] = {}
        self.children: dict[str, str] = {}

    def add_code(self, code: CodeType) -> None:
        """Count a code object as entered."""
        self.codes[identity(code)] = code


class ClosedCapture:
    """What `Capture` is, for the side that writes: a recorded process has no time to load dataclasses."""

    __slots__ = (
        "children",
        "codes",
        "environ",
        "gaps",
        "imports",
        "kind",
        "label",
        "listings",
        "reads",
        "uses",
    )

    def __init__(
        self,
        kind: CaptureKind,
        label: str,
        *,
        codes: frozenset[int] = _NOTHING,
        reads: frozenset[int] = _NOTHING,
        listings: frozenset[int] = _NOTHING,
        imports: frozenset[int] = _NOTHING,
        environ: frozenset[str] = frozenset(),
        uses: frozenset[int] = _NOTHING,
        gaps: tuple[tuple[Gap, str], ...] = (),
        children: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.kind = kind
        self.label = label
        self.codes = codes
        self.reads = reads
        self.listings = listings
        self.imports = imports
        self.environ = environ
        self.uses = uses
        self.gaps = gaps
        self.children = children
