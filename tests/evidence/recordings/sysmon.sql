BEGIN TRANSACTION;
CREATE TABLE arc (
    -- If recording branches, a row per context per from/to line transition executed.
    file_id integer,            -- foreign key to `file`.
    context_id integer,         -- foreign key to `context`.
    fromno integer,             -- line number jumped from.
    tono integer,               -- line number jumped to.
    foreign key (file_id) references file (id),
    foreign key (context_id) references context (id),
    unique (file_id, context_id, fromno, tono)
);
CREATE TABLE context (
    -- A row per context measured.
    id integer primary key,
    context text,
    unique (context)
);
INSERT INTO "context" VALUES(1,'');
INSERT INTO "context" VALUES(2,'tests/test_lib.py::test_f|run');
INSERT INTO "context" VALUES(3,'tests/test_lib.py::test_f_large|run');
INSERT INTO "context" VALUES(4,'tests/test_lib.py::test_g|run');
INSERT INTO "context" VALUES(5,'tests/test_lib.py::test_shared|setup');
INSERT INTO "context" VALUES(6,'tests/test_lib.py::test_shared|run');
INSERT INTO "context" VALUES(7,'tests/test_lib.py::test_shared_again|run');
INSERT INTO "context" VALUES(8,'tests/test_lib.py::test_step|setup');
INSERT INTO "context" VALUES(9,'tests/test_lib.py::test_step|run');
INSERT INTO "context" VALUES(10,'tests/test_lib.py::test_step|teardown');
INSERT INTO "context" VALUES(11,'tests/test_lib.py::test_p[1]|run');
INSERT INTO "context" VALUES(12,'tests/test_lib.py::TestGroup::test_inside|run');
INSERT INTO "context" VALUES(13,'tests/test_lib.py::Case::test_case|run');
INSERT INTO "context" VALUES(14,'tests/test_lib.py::test_child|run');
CREATE TABLE coverage_schema (
    -- One row, to record the version of the schema in this db.
    version integer
);
INSERT INTO "coverage_schema" VALUES(7);
CREATE TABLE file (
    -- A row per file measured.
    id integer primary key,
    path text,
    unique (path)
);
INSERT INTO "file" VALUES(1,'tests/conftest.py');
INSERT INTO "file" VALUES(2,'pkg/__init__.py');
INSERT INTO "file" VALUES(3,'pkg/lib.py');
INSERT INTO "file" VALUES(4,'pkg/registry.py');
INSERT INTO "file" VALUES(5,'tests/test_lib.py');
CREATE TABLE line_bits (
    -- If recording lines, a row per context per file executed.
    -- All of the line numbers for that file/context are in one numbits.
    file_id integer,            -- foreign key to `file`.
    context_id integer,         -- foreign key to `context`.
    numbits blob,               -- see the numbits functions in coverage.numbits
    foreign key (file_id) references file (id),
    foreign key (context_id) references context (id),
    unique (file_id, context_id)
);
INSERT INTO "line_bits" VALUES(2,1,X'01');
INSERT INTO "line_bits" VALUES(3,1,X'4A804820ACC10801');
INSERT INTO "line_bits" VALUES(3,3,X'000C');
INSERT INTO "line_bits" VALUES(3,2,X'0013');
INSERT INTO "line_bits" VALUES(3,4,X'000001');
INSERT INTO "line_bits" VALUES(3,11,X'000080C5');
INSERT INTO "line_bits" VALUES(3,9,X'000000000008');
INSERT INTO "line_bits" VALUES(3,10,X'000008');
INSERT INTO "line_bits" VALUES(4,1,X'F202');
INSERT INTO "line_bits" VALUES(1,1,X'CA18');
INSERT INTO "line_bits" VALUES(1,5,X'0001');
INSERT INTO "line_bits" VALUES(1,8,X'0020');
INSERT INTO "line_bits" VALUES(1,10,X'0040');
INSERT INTO "line_bits" VALUES(5,1,X'AE4444440CC644');
INSERT INTO "line_bits" VALUES(5,13,X'00000000000009');
INSERT INTO "line_bits" VALUES(5,12,X'000000000008');
INSERT INTO "line_bits" VALUES(5,14,X'00000000000080');
INSERT INTO "line_bits" VALUES(5,3,X'0080');
INSERT INTO "line_bits" VALUES(5,2,X'0008');
INSERT INTO "line_bits" VALUES(5,4,X'000008');
INSERT INTO "line_bits" VALUES(5,11,X'0000000070');
INSERT INTO "line_bits" VALUES(5,7,X'00000008');
INSERT INTO "line_bits" VALUES(5,6,X'000080');
INSERT INTO "line_bits" VALUES(5,9,X'00000080');
CREATE TABLE meta (
    -- Key-value pairs, to record metadata about the data
    key text,
    value text,
    unique (key)
    -- Possible keys:
    --  'has_arcs' boolean      -- Is this data recording branches?
    --  'sys_argv' text         -- The coverage command line that recorded the data.
    --  'version' text          -- The version of coverage.py that made the file.
    --  'when' text             -- Datetime when the file was created.
    --  'hash' text             -- Hash of the data.
);
INSERT INTO "meta" VALUES('version','7.17.5');
INSERT INTO "meta" VALUES('has_arcs','0');
CREATE TABLE tracer (
    -- A row per file indicating the tracer used for that file.
    file_id integer primary key,
    tracer text,
    foreign key (file_id) references file (id)
);
COMMIT;
