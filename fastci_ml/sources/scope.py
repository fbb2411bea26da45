"""Whose code runs here: trunk's, that of a pull request, or files that nobody committed."""

from __future__ import annotations

from collections.abc import Mapping

from fastci_ml.records.evidence_kinds import DIRTY_SCOPE, TRUNK_SCOPE, pull_request_scope

VARIABLE = "FASTCI_SCOPE"

# Variables that CI systems document, each with the number of the pull or merge request and nothing else.
_NUMBERS = (
    "CI_MERGE_REQUEST_IID",  # GitLab
    "BUILDKITE_PULL_REQUEST",  # "false" on a branch
    "TRAVIS_PULL_REQUEST",  # "false" on a branch
    "CHANGE_ID",  # Jenkins, multibranch
    "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER",  # Azure Pipelines, GitHub repositories
    "SYSTEM_PULLREQUEST_PULLREQUESTID",  # Azure Pipelines
    "BITBUCKET_PR_ID",
    "CIRCLE_PR_NUMBER",
    "APPVEYOR_PULL_REQUEST_NUMBER",
)


def detect_scope(environ: Mapping[str, str], *, is_dirty: bool) -> str:
    """Scope of what is recorded here.

    Parameters
    ----------
    environ : mapping
        Environment variables; ``FASTCI_SCOPE``, where set, is taken as it is.
    is_dirty : bool
        Whether the checkout differs from its commit, or its commit is not known.

    Returns
    -------
    str
        ``pr:<number>``, ``dirty`` or ``trunk``. A pull request of an unknown number is ``pr:unknown``.

    Examples
    --------
    >>> detect_scope({"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/merge"}, is_dirty=False)
    'pr:7'
    >>> detect_scope({"BUILDKITE_PULL_REQUEST": "false"}, is_dirty=False)
    'trunk'
    """
    given = environ.get(VARIABLE, "").strip()
    if given:
        return given
    return detect_pull_request(environ) or (DIRTY_SCOPE if is_dirty else TRUNK_SCOPE)


def detect_pull_request(environ: Mapping[str, str]) -> str | None:
    """Scope of the pull request that a CI system says is being built; None where it says of none.

    Examples
    --------
    >>> detect_pull_request({"CHANGE_ID": "7", "FASTCI_SCOPE": "trunk"})
    'pr:7'
    """
    if environ.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):
        words = environ.get("GITHUB_REF", "").split("/")
        return pull_request_scope(words[2] if words[:2] == ["refs", "pull"] and len(words) > 2 else "unknown")
    for name in _NUMBERS:
        number = environ.get(name, "")
        if number.isdigit():
            return pull_request_scope(number)
    if environ.get("CIRCLE_PULL_REQUEST"):
        return pull_request_scope(environ["CIRCLE_PULL_REQUEST"].rstrip("/").rpartition("/")[2])
    return None
