"""The CI job that runs: by what each system documents, and never anything that spoils a bundle."""

from __future__ import annotations

import pytest

from fastci_ml.sources.job import detect_job


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, ""),
        ({"GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "CI", "GITHUB_JOB": "tests-gpu"}, "CI/tests-gpu"),
        ({"GITLAB_CI": "true", "CI_JOB_NAME": "tests 1/4"}, "tests 1/4"),
        ({"BUILDKITE": "true", "BUILDKITE_PIPELINE_SLUG": "p", "BUILDKITE_LABEL": ":py: x"}, "p/:py: x"),
        ({"BUILDKITE": "true", "BUILDKITE_STEP_KEY": "x", "BUILDKITE_LABEL": ":py: x"}, "x"),
        ({"JENKINS_URL": "https://ci", "JOB_NAME": "tests/main", "STAGE_NAME": "gpu"}, "tests/main/gpu"),
        ({"JENKINS_URL": "https://ci", "JOB_NAME": "tests"}, "tests"),
        ({"CIRCLECI": "true", "CIRCLE_JOB": "build"}, "build"),
        ({"TF_BUILD": "True", "BUILD_DEFINITIONNAME": "n", "AGENT_JOBNAME": "Linux"}, "n/Linux"),
        ({"TRAVIS": "true", "TRAVIS_JOB_NUMBER": "4.1"}, "4.1"),
        ({"GITLAB_CI": "true", "CI_JOB_NAME": "a", "FASTCI_JOB": " mine "}, "mine"),
        ({"FASTCI_JOB": " ", "CIRCLECI": "true", "CIRCLE_JOB": "b"}, "b"),
        ({"GITHUB_JOB": "alone", "JOB_NAME": "alone", "CI": "true"}, ""),
    ],
)  # fmt: skip
def test_job_is_named_as_its_system_documents(environ, job):
    assert detect_job(environ) == job


def test_name_of_any_bytes_can_be_written():
    job = detect_job({"FASTCI_JOB": "caf\udce9" + "x" * 1_000})
    assert job.startswith("caf\\xe9x")
    assert len(job) == 200
    job.encode("utf-8")
