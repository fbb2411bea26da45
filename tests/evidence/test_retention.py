"""Removing old bundles: what the store does not have as it is stays."""

from __future__ import annotations

from bundle_makers import STARTED_US, provenance, write_small_bundle

from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.evidence.retention import remove_merged
from fastci_ml.evidence.store.store import EvidenceStore

LATER_US = STARTED_US + 1


def test_old_bundle_goes_when_the_store_has_it_and_not_before(tmp_path):
    path = write_small_bundle(tmp_path / "bundles")
    with EvidenceStore.open(tmp_path / "evidence.sqlite", create=True) as store:
        assert remove_merged([path.parent], store, older_than_us=LATER_US).n_bundles == 0
        assert path.exists()
    merge_bundles([path], tmp_path / "evidence.sqlite", root=tmp_path)
    with EvidenceStore.open(tmp_path / "evidence.sqlite") as store:
        size = path.stat().st_size
        removed = remove_merged([path.parent], store, older_than_us=LATER_US)
    assert (removed.n_bundles, removed.n_bytes) == (1, size)
    assert not path.exists()


def test_bundle_that_has_grown_since_it_was_merged_stays(tmp_path):
    writer = BundleWriter(tmp_path / "bundles", provenance("0a"))
    writer.flush()
    merge_bundles([writer.path], tmp_path / "evidence.sqlite", root=tmp_path)
    writer.close()
    with EvidenceStore.open(tmp_path / "evidence.sqlite") as store:
        assert remove_merged([tmp_path / "bundles"], store, older_than_us=LATER_US).n_bundles == 0
    assert writer.path.exists()


def test_single_files_are_removed_and_nothing_beside_them(tmp_path):
    path = write_small_bundle(tmp_path / "bundles")
    other = tmp_path / "bundles" / "notes.txt"
    other.write_text("mine")
    merge_bundles([path], tmp_path / "evidence.sqlite", root=tmp_path)
    with EvidenceStore.open(tmp_path / "evidence.sqlite") as store:
        assert remove_merged([path], store, older_than_us=LATER_US).n_bundles == 1
    assert other.exists()
