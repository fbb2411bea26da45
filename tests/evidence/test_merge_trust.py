"""Trust: with a key, only what was sealed with it stands in for trunk; all else only adds tests."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import PROVENANCE, STARTED_US, Recording, store_content
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import EvidenceError, UsageError
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.merge import trust as trust_module
from fastci_ml.evidence.merge.merge import MergeSummary, merge_bundles
from fastci_ml.evidence.merge.trust import read_trust
from fastci_ml.evidence.seal_key import VARIABLE, SealKey, take_key
from fastci_ml.evidence.seals import SEAL_SUFFIX, find_seals, read_seal, seal_bundles
from fastci_ml.evidence.store.store import EvidenceStore

KEY = SealKey(b"the key of trunk's jobs")
OTHER_KEY = SealKey(b"the key of somebody else")
TEST = "tests/test_a.py"
TEXT = "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n"
NODE = f"{TEST}::test_a"


def bundle(folder: Path, number: int = 1, *, is_closed: bool = True, more: str = "", **changes: Any) -> Path:
    recording = Recording(folder, f"{number:04x}", started_us=STARTED_US + number, **changes)
    recording.source(TEST, TEXT)
    recording.test(NODE, recording.code(TEST, "test_a"))
    if more:
        recording.test(f"{TEST}::{more}", recording.code(TEST, more))
    if is_closed:
        recording.writer.close()
    else:
        recording.writer.flush()
    return recording.path


def seal(*bundles: Path, key: SealKey = KEY) -> Path:
    found = seal_bundles(bundles, bundles[0].parent, key)
    assert found is not None
    return found


def merge(store: Path, *paths: Path, key: SealKey | None = KEY, lists: tuple[Path, ...] = ()) -> MergeSummary:
    trust, problems = read_trust(paths, key=key, lists=lists)
    summary = merge_bundles(
        list(paths), store, root=store.parent / "no tree", now_us=STARTED_US + 10**9, trust=trust
    )
    summary.problems += problems
    return summary


def scopes(store: Path, node_id: str = NODE) -> list[str]:
    with EvidenceStore.open(store, read_only=True) as opened:
        assert opened.check() == []
        return sorted(record.scope for record in opened.records_of(node_id))


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "evidence.sqlite"


@pytest.mark.parametrize("given", ["folder", "file"])
def test_sealed_bundle_is_of_trunk(tmp_path, store, given):
    path = bundle(tmp_path / "b")
    seal(path)
    summary = merge(store, path if given == "file" else path.parent)
    assert (summary.n_merged, summary.n_untrusted, summary.problems) == (1, 0, [])
    assert scopes(store) == ["trunk"]


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        ("trunk", "untrusted"),
        ("release-2", "untrusted"),
        ("PR:7", "untrusted"),
        ("", "untrusted"),
        ("pr:7", "pr:7"),
        ("dirty", "dirty"),
        ("coverage", "coverage"),
        ("untrusted", "untrusted"),
    ],
)
def test_bundle_without_a_seal_can_claim_no_scope_that_narrows(tmp_path, store, declared, stored):
    summary = merge(store, bundle(tmp_path / "b", scope=declared))
    assert summary.n_untrusted == (declared != stored)
    assert scopes(store) == [stored]


def test_without_key_and_list_scopes_are_believed(tmp_path, store):
    summary = merge(store, bundle(tmp_path / "b"), key=None)
    assert (summary.n_untrusted, scopes(store)) == (0, ["trunk"])


def test_key_that_was_kept_from_us_believes_nothing(tmp_path, store):
    path = bundle(tmp_path / "b")
    seal(path)
    assert merge(store, path, key=SealKey(b"")).n_untrusted == 1
    assert scopes(store) == ["untrusted"]


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "how", ["added", "in its place", "other key", "truncated", "empty", "signature", "replayed", "grown"]
)
def test_forged_or_foreign_seal_makes_nothing_trusted(tmp_path, store, how):
    path, forged = bundle(tmp_path / "b"), bundle(tmp_path / "b", 2)
    sealed = seal(path, key=OTHER_KEY if how == "other key" else KEY)
    if how == "added":
        rewrite(sealed, digests=sorted([digest_of(path), digest_of(forged)]))
    elif how == "in its place":
        rewrite(sealed, digests=[digest_of(forged)])
    elif how == "truncated":
        sealed.write_bytes(sealed.read_bytes()[:-20])
    elif how == "empty":
        sealed.write_bytes(b"")
    elif how == "signature":
        rewrite(sealed, hmac="0" * 64)
    elif how == "replayed":
        # The seal of one bundle, under the name of another.
        sealed.rename(forged.with_suffix(SEAL_SUFFIX))
        path.unlink()
    elif how == "grown":
        path.write_bytes(path.read_bytes() + b"more\n")
    summary = merge(store, tmp_path / "b")
    assert "trunk" not in scopes(store)
    assert summary.n_untrusted == summary.n_merged
    assert len(summary.problems) == (how not in ("replayed", "grown"))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff", b"[]", b"{}", b"null", b"[" * 100_000, b"9" * 10_000,
        b'{"schema":"fastci.seal/2","digests":["a"],"hmac":"b"}',
        b'{"schema":"fastci.seal/1","digests":[],"hmac":"%b"}' % (b"0" * 64),
        b'{"schema":"fastci.seal/1","digests":{"a":1},"hmac":"%b"}' % (b"0" * 64),
        b'{"schema":"fastci.seal/1","digests":["%b\\n"],"hmac":"%b"}' % (b"a" * 64, b"0" * 64),
        b'{"schema":"fastci.seal/1","digests":["%b",7],"hmac":"%b"}' % (b"a" * 64, b"0" * 64),
        b'{"schema":"fastci.seal/1","digests":["%b"],"hmac":7}' % (b"a" * 64),
        b'{"schema":"fastci.seal/1","digests":["%b"],"hmac":"\xc3\xa9"}' % (b"a" * 64),
        b'{"schema":"fastci.seal/1","digests":["%b"]}' % (b"a" * 64),
    ],
)  # fmt: skip
def test_seal_that_is_none_is_named_and_the_rest_is_merged(tmp_path, store, content):
    path = bundle(tmp_path / "b")
    seal(path)
    bad = path.with_name(f"bad{SEAL_SUFFIX}")
    bad.write_bytes(content)
    summary = merge(store, path.parent)
    assert scopes(store) == ["trunk"]
    (problem,) = summary.problems
    assert str(bad) in problem


def test_sizes_and_numbers_of_seals_are_bounded(tmp_path, store, monkeypatch):
    path = bundle(tmp_path / "b")
    sealed = seal(path)
    with sealed.open("ab") as stream:
        stream.write(b" " * (8 << 20))
    assert "more than" in merge(store, path.parent).problems[0]
    monkeypatch.setattr(trust_module, "_MAX_SEALS", 0)
    assert "at most 0" in merge(store, path.parent).problems[0]


def test_seal_says_nothing_of_the_key(tmp_path):
    text = seal(bundle(tmp_path / "b")).read_text()
    assert "the key" not in text
    assert "the key" not in repr(KEY) + str(KEY) + f"{vars(type(KEY)).keys()}"
    assert set(json.loads(text)) == {"schema", "digests", "hmac"}


def test_bundle_that_was_untrusted_becomes_trusted_when_its_seal_comes_and_stays_so(tmp_path, store):
    path = bundle(tmp_path / "b")
    assert merge(store, path).n_untrusted == 1
    assert merge(store, path).n_known == 1
    # A merge that looks at no seals is no reason to believe it.
    summary = merge(store, path, key=None)
    assert (summary.n_known, summary.n_untrusted, scopes(store)) == (1, 1, ["untrusted"])
    sealed = seal(path)
    summary = merge(store, path)
    assert (summary.n_merged, summary.n_untrusted, scopes(store)) == (1, 0, ["trunk"])
    with EvidenceStore.open(store, read_only=True) as opened:
        assert opened.has_bundle("0001", digest_of(path), scope="trunk")
    sealed.unlink()
    for key in (None, KEY, OTHER_KEY):
        before = store.read_bytes()
        summary = merge(store, path, key=key)
        assert (summary.n_known, summary.n_untrusted) == (1, 0)
        assert store.read_bytes() == before


@pytest.mark.parametrize("scope", ["trunk", "pr:7"])
@pytest.mark.parametrize("is_forged_first", [False, True])
def test_forged_larger_state_of_a_bundle_of_trunk_takes_nothing_from_it(
    tmp_path, store, scope, is_forged_first
):
    path = bundle(tmp_path / "b")
    seal(path)
    forged = bundle(tmp_path / "forged", more="test_b", scope=scope)
    assert forged.stat().st_size > path.stat().st_size
    for one in (forged, path) if is_forged_first else (path, forged):
        merge(store, one)
    assert "trunk" in scopes(store)
    assert "trunk" not in scopes(store, f"{TEST}::test_b")
    with EvidenceStore.open(store, read_only=True) as opened:
        assert opened.has_bundle("0001", digest_of(path), scope="trunk")


@settings(max_examples=15)
@given(data=st.data())
def test_neither_order_nor_number_of_merges_decides_what_is_trusted(tmp_path_factory, data):
    tmp_path = tmp_path_factory.mktemp("any order")
    sealed = [bundle(tmp_path / "sealed", number, commit=f"{number}" * 40) for number in range(3)]
    seal(*sealed)
    copies = tmp_path / "copies"
    shutil.copytree(tmp_path / "sealed", copies, ignore=shutil.ignore_patterns(f"*{SEAL_SUFFIX}"))
    bundle(tmp_path / "other", 7)
    bundle(tmp_path / "other", 8, scope="pr:7")
    folders = [tmp_path / "sealed", copies, tmp_path / "other"]
    merge(tmp_path / "expected.sqlite", *folders)
    order = data.draw(st.permutations([*folders, *sealed, *data.draw(st.lists(st.sampled_from(folders)))]))
    store = tmp_path / "evidence.sqlite"
    for path in order:
        merge(store, path)
    assert store_content(store) == store_content(tmp_path / "expected.sqlite")
    assert scopes(store) == ["pr:7", "trunk", "untrusted"]


def test_copies_of_one_bundle_of_which_one_is_sealed_in_one_merge(tmp_path, store):
    path = bundle(tmp_path / "b")
    grown = bundle(tmp_path / "c", more="test_b")
    seal(path)
    summary = merge(store, grown, path)
    assert (summary.n_merged, summary.n_known, summary.n_untrusted) == (1, 1, 1)
    assert scopes(store) == ["trunk"]


def test_bundle_that_changed_between_the_looks_at_it_is_judged_anew(tmp_path, store, monkeypatch):
    path = bundle(tmp_path / "b")
    seal(path)
    forged = bundle(tmp_path / "forged", more="test_b").read_bytes()
    whole = merge_bundles.__globals__["read_bundle"]

    def read_late(given: Path) -> object:
        given.write_bytes(forged)
        return whole(given)

    monkeypatch.setitem(merge_bundles.__globals__, "read_bundle", read_late)
    merge(store, path)
    assert scopes(store, f"{TEST}::test_b") == ["untrusted"]
    assert scopes(store) == ["untrusted"]


def test_listed_digests_are_trusted_as_sha256sum_prints_them(tmp_path, store):
    paths = [bundle(tmp_path / "b", number) for number in range(5)]
    listed = tmp_path / "digests"
    listed.write_text(
        f"# of the night\r\n\n{digest_of(paths[0])}  {paths[0]}\r\n{digest_of(paths[1]).upper()} *b # c\n"
        f"\\{digest_of(paths[2])}  odd\\nname\n"
    )
    more = tmp_path / "more"
    more.write_text(digest_of(paths[3]))
    summary = merge(store, tmp_path / "b", key=None, lists=(listed, more))
    assert (summary.n_merged, summary.n_untrusted) == (5, 1)


@pytest.mark.parametrize("content", ["abc\n", f"{'a' * 63}\n", f"{'g' * 64}\n", "\0"])
def test_list_of_something_else_is_an_error_that_names_the_line(tmp_path, content):
    (tmp_path / "digests").write_text(f"{'a' * 64}\n{content}")
    with pytest.raises(EvidenceError, match="line 2") as caught:
        read_trust([], key=None, lists=[tmp_path / "digests"])
    assert "sha256sum" in (caught.value.hint or "")
    with pytest.raises(EvidenceError, match="absent"):
        read_trust([], key=None, lists=[tmp_path / "absent"])


@given(st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=4), st.data())
def test_a_signature_fits_its_digests_and_no_others(digests, data):
    signature = KEY.sign(digests)
    assert KEY.fits(reversed(digests), signature)
    other = data.draw(st.text("0123456789abcdef", min_size=64, max_size=64))
    assert KEY.fits([*digests, other], signature) is (other in digests)
    assert KEY.fits(digests[1:], signature) is (digests[0] in digests[1:])
    assert not OTHER_KEY.fits(digests, signature)
    assert not SealKey(b"").fits(digests, signature)


def test_key_is_taken_out_of_the_environment():
    environ = {VARIABLE: " 0123456789abcdef\n", "OTHER": "x"}
    key = take_key(environ)
    assert environ == {"OTHER": "x"}
    assert key is not None
    assert key.sign(["a"]) == SealKey(b"0123456789abcdef").sign(["a"])
    assert take_key(environ) is None
    empty = take_key({VARIABLE: ""})
    assert empty is not None
    assert empty.is_empty
    with pytest.raises(ValueError, match="signs nothing"):
        empty.sign(["a"])


def test_short_key_is_refused_and_not_shown():
    environ = {VARIABLE: "guess me"}
    with pytest.raises(UsageError, match="a key of 8 bytes") as caught:
        take_key(environ)
    assert "guess" not in str(caught.value)
    assert caught.value.hint == "openssl rand -hex 32"
    assert environ == {}


def test_what_cannot_be_read_is_not_sealed(tmp_path):
    path = bundle(tmp_path / "b")
    bad = path.with_name("bad.fastci-bundle")
    bad.write_bytes(b"rubbish")
    assert read_seal(seal(path, bad, tmp_path / "absent")).digests == (digest_of(path),)
    assert seal_bundles([bad], tmp_path, KEY) is None
    assert find_seals([tmp_path, path]) == find_seals([tmp_path / "b"])
    with pytest.raises(EvidenceError, match="no seal can be written"):
        seal_bundles([path], tmp_path / "absent", KEY)


def test_sources_need_no_seal_since_a_bundle_names_their_content(tmp_path, store):
    path = bundle(tmp_path / "b")
    seal(path)
    sources = pack_of(path).read_bytes()
    pack_of(path).write_bytes(sources[:60] + b"forged" + sources[66:])
    assert merge(store, path).n_complete == 0
    assert PROVENANCE.scope == "trunk"
