"""The CI job that runs here, for a person who asks where evidence comes from. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "FASTCI_JOB"
_LONGEST = 200

# By a variable that a CI system documents as always set: documented names of the pipeline and of the job in
# it. Of names in brackets the first that is set counts.
_SYSTEMS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("GITHUB_ACTIONS", (("GITHUB_WORKFLOW",), ("GITHUB_JOB",))),
    ("GITLAB_CI", (("CI_JOB_NAME",),)),
    ("BUILDKITE", (("BUILDKITE_PIPELINE_SLUG",), ("BUILDKITE_STEP_KEY", "BUILDKITE_LABEL"))),
    ("CIRCLECI", (("CIRCLE_JOB",),)),
    ("TF_BUILD", (("BUILD_DEFINITIONNAME",), ("SYSTEM_JOBDISPLAYNAME", "AGENT_JOBNAME"))),  # Azure Pipelines
    ("TRAVIS", (("TRAVIS_JOB_NAME", "TRAVIS_JOB_NUMBER"),)),
    ("APPVEYOR", (("APPVEYOR_PROJECT_SLUG",), ("APPVEYOR_JOB_NAME",))),
    ("BITBUCKET_BUILD_NUMBER", (("BITBUCKET_REPO_SLUG",), ("BITBUCKET_STEP_UUID",))),
    ("TEAMCITY_VERSION", (("TEAMCITY_PROJECT_NAME",), ("TEAMCITY_BUILDCONF_NAME",))),
    ("CIRRUS_CI", (("CIRRUS_TASK_NAME",),)),
    ("SEMAPHORE", (("SEMAPHORE_JOB_NAME",),)),
    ("DRONE", (("DRONE_STAGE_NAME",), ("DRONE_STEP_NAME",))),
    ("JENKINS_URL", (("JOB_NAME",), ("STAGE_NAME",))),
)


def detect_job(environ: Mapping[str, str]) -> str:
    """Name of the CI job, the same for each run of it.

    Parameters
    ----------
    environ : mapping
        Environment variables; ``FASTCI_JOB``, where set, is taken as it is.

    Returns
    -------
    str
        Names of pipeline and job, where the CI system tells both, with ``/`` between; empty outside of CI.
        At most 200 characters, all of which can be written as UTF-8.

    Examples
    --------
    >>> detect_job({"GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "nightly", "GITHUB_JOB": "gpu"})
    'nightly/gpu'
    >>> detect_job({"JOB_NAME": "not of Jenkins"})
    ''
    """
    given = environ.get(VARIABLE, "").strip()
    if given:
        return _plain(given)
    for mark, parts in _SYSTEMS:
        if environ.get(mark, "").strip():
            found = (
                next(filter(None, (environ.get(name, "").strip() for name in names)), "") for names in parts
            )
            return _plain("/".join(filter(None, found)))
    return ""


def _plain(text: str) -> str:
    """Text without what a bundle refuses: the environment may hold any bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")[:_LONGEST]
