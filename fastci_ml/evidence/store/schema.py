"""Tables of the evidence store, their version, and the way there from older versions.

Paths and node ids are TEXT where they can be written as UTF-8, and else a BLOB of their UTF-8 with lone
surrogates left in: SQLite keeps the two apart, so each text has one form. Fingerprints and git's ids are
BLOBs of the bytes that their digits stand for, half the size.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

# "fCIe": what tells our file from any other SQLite file.
APPLICATION_ID = 0x66434965
VERSION = 1

# What a posting list says of its records. What it is about has its id in the table that is named first.
UNIT = 1  # unit_version: executed it
READ = 2  # file_version: opened it for reading
LISTING = 3  # file_version: listed the directory
ROOT = 4  # file: import closure starts there
ROLES = (UNIT, READ, LISTING, ROOT)

# Lower part of a record's id: its number in its segment.
NUMBER_BITS = 32
THING_BITS = 32
_ROLE_BITS = 4


def posting_key(segment: int, role: int, thing: int) -> int:
    """Id of a row of table posting. One number takes a tenth less room than a key of three columns."""
    return (segment << _ROLE_BITS | role) << THING_BITS | thing


def posting_keys(segment: int, role: int | None = None) -> tuple[int, int]:
    """First key, and the one after the last, of a role in a segment, or of the segment."""
    if role is None:
        return posting_key(segment, 0, 0), posting_key(segment + 1, 0, 0)
    return posting_key(segment, role, 0), posting_key(segment, role + 1, 0)


def thing_of(key: int) -> int:
    """What a row of table posting is about."""
    return key & ((1 << THING_BITS) - 1)


def role_of(key: int) -> int:
    """What a row of table posting says of it."""
    return key >> THING_BITS & ((1 << _ROLE_BITS) - 1)


TABLES = """
-- A bundle that was merged, so that merging it again is nothing. Its digest is of the file: a bundle that has
-- grown since is another.
CREATE TABLE bundle (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    merged_us INTEGER NOT NULL,
    started_us INTEGER NOT NULL,
    provenance TEXT NOT NULL,   -- JSON of Provenance
    gaps TEXT,                  -- JSON; null for a complete one
    n_bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE lane (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Node id in two: its file, and the rest of it with the first "::".
CREATE TABLE test (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL REFERENCES file,
    rest TEXT NOT NULL,
    UNIQUE (file, rest)
);

CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);

-- A content that a file, or a directory as the list of its names, had.
CREATE TABLE file_version (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL REFERENCES file,
    blob BLOB NOT NULL,         -- empty: not known
    blocks BLOB,                -- deflated JSON of its blocks; null where it was only read
    UNIQUE (file, blob)
);

-- A unit as it was executed. The id is not indexed: whoever has one knows its file.
CREATE TABLE unit_version (
    file INTEGER NOT NULL REFERENCES file,
    name TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    kind INTEGER NOT NULL,      -- 1 function, 2 class, 3 binding, 4 effect, 5 file
    id INTEGER NOT NULL,
    PRIMARY KEY (file, name, fingerprint, kind)
) WITHOUT ROWID;

-- What many records of one merge have in common.
CREATE TABLE origin (
    id INTEGER PRIMARY KEY,
    commit_sha TEXT NOT NULL,
    backend TEXT NOT NULL,
    sources BLOB NOT NULL       -- posting list of file_versions: what the merge brought blocks of; or empty
);

-- What many tests have in common.
CREATE TABLE traits (
    id INTEGER PRIMARY KEY,
    environ TEXT NOT NULL,          -- JSON, sorted
    native_readers TEXT NOT NULL,   -- JSON, in order
    UNIQUE (environ, native_readers)
);

-- Records that were written together, of one lane and scope: so a query never looks at another scope's.
-- They are numbered from 1 to n_records. A superseded record is in `dead`, and has no row. No id is given
-- twice, so that of a record never comes to mean another one.
CREATE TABLE segment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    lane INTEGER NOT NULL REFERENCES lane,
    scope TEXT NOT NULL,
    n_records INTEGER NOT NULL,
    n_dead INTEGER NOT NULL,
    dead BLOB                   -- posting list; null for none
);
CREATE INDEX segment_of_scope ON segment (lane, scope);

-- A record that is in force. A test has at most three in a lane and scope: its newest complete one, of trunk
-- one more of the same commit, and a newer incomplete one.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,     -- segment * 2^32 + number in the segment
    test INTEGER NOT NULL REFERENCES test,
    origin INTEGER NOT NULL REFERENCES origin,
    traits INTEGER NOT NULL REFERENCES traits,
    recorded_us INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    gaps TEXT,                  -- JSON; null for a complete record
    facts TEXT NOT NULL         -- JSON of RunFacts without outcome
);
CREATE INDEX record_of_test ON record (test);

CREATE VIEW placed_record AS
SELECT r.*, s.id AS segment, s.lane AS lane, s.scope AS scope
FROM record r JOIN segment s ON s.id = r.id >> 32;

-- The inverted index. `ids` are numbers within the segment, dead ones included.
CREATE TABLE posting (
    -- segment * 2^36 + role * 2^32 + thing; roles: 1 unit, 2 read, 3 listing, 4 root
    id INTEGER PRIMARY KEY,
    ids BLOB NOT NULL
);

-- Who imported whom; seen_us is not before any record of the merges that saw it.
CREATE TABLE edge (
    lane INTEGER NOT NULL REFERENCES lane,
    importer INTEGER NOT NULL REFERENCES file,
    imported INTEGER NOT NULL REFERENCES file,
    seen_us INTEGER NOT NULL,
    PRIMARY KEY (lane, importer, imported)
) WITHOUT ROWID;

-- Units executed while a module was imported.
CREATE TABLE import_unit (
    lane INTEGER NOT NULL REFERENCES lane,
    file INTEGER NOT NULL REFERENCES file,
    unit_file INTEGER NOT NULL REFERENCES file,
    unit_version INTEGER NOT NULL,
    seen_us INTEGER NOT NULL,
    PRIMARY KEY (lane, file, unit_file, unit_version)
) WITHOUT ROWID;
"""

# From the version that is the key to the next one. Each runs inside of the upgrade's transaction.
UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {}


def statements(script: str) -> list[str]:
    """Statements of a script: `executescript` would commit the transaction that it stands in."""
    found, lines = [], []
    for line in script.splitlines():
        lines.append(line)
        if sqlite3.complete_statement("\n".join(lines)) and line.partition("--")[0].rstrip().endswith(";"):
            found.append("\n".join(lines))
            lines = []
    return found
