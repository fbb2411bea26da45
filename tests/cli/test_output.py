from __future__ import annotations

import json
import math
from types import MappingProxyType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.cli import output


def test_answers_go_to_stdout_and_the_rest_to_stderr(capsys):
    output.answer("answer")
    output.tell("note")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("answer\n", "note\n")


def test_json_answer_is_one_line_with_null_for_what_is_unknown(capsys):
    output.answer_json(
        {
            "schema": "fastci.x/1",
            "nan": math.nan,
            "inf": -math.inf,
            "deep": [{"x": (1.5, math.nan)}],
            "é": "日本",
        }
    )
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert json.loads(shown) == {
        "schema": "fastci.x/1", "nan": None, "inf": None, "deep": [{"x": [1.5, None]}], "é": "日本",
    }  # fmt: skip


def test_json_answer_takes_numpy_scalars_and_read_only_mappings(capsys):
    output.answer_json(MappingProxyType({"n": np.int64(3), "x": np.float32("nan"), "y": np.float64(0.1)}))
    assert json.loads(capsys.readouterr().out) == {"n": 3, "x": None, "y": 0.1}


@given(st.dictionaries(st.text(), st.floats() | st.integers() | st.text() | st.none() | st.booleans()))
def test_json_answer_rounds_no_float(document):
    plain = output._plain(document)
    expected = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in document.items()
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == expected


def test_table_aligns_the_first_column_left_and_the_others_right():
    assert output.table(("policy", "apfd"), [("model", "0.9"), ("a longer name", "0.75")]) == (
        "policy         apfd\n-------------  ----\nmodel           0.9\na longer name  0.75"
    )


def test_table_without_rows_is_its_header():
    assert output.table(("a", "b"), []) == "a  b\n-  -"


def test_progress_off_a_terminal_tells_first_last_and_now_and_then(capsys):
    progress = output.Progress(interval_s=3600)
    for done in range(1, 1001):
        progress("reading", done, 1000)
    assert capsys.readouterr().err == "reading: 1/1,000\nreading: 1,000/1,000\n"


def test_progress_tells_of_new_work_at_once_and_of_unknown_totals(capsys):
    progress = output.Progress(interval_s=3600)
    progress("reading", 1, 10)
    progress("folding", 5, 0)
    assert capsys.readouterr().err == "reading: 1/10\nfolding: 5\n"


def test_progress_on_a_terminal_draws_over_its_line(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = output.Progress()
    progress("reading", 1, 2)
    progress("reading", 2, 2)
    assert capsys.readouterr().err == "\r\033[Kreading: 1/2\r\033[Kreading: 2/2\n"
