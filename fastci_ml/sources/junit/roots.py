"""Roots of XML files: those of JUnit, and what others stand for."""

from __future__ import annotations

ROOTS = ("testsuites", "testsuite", "testcase")
# As their writers name them; the words say what a person will recognise.
_OTHERS = {
    "coverage": "a coverage report (Cobertura)",
    "report": "a coverage report (JaCoCo)",
    "CoverageSession": "a coverage report (OpenCover)",
    "checkstyle": "findings of a linter (Checkstyle)",
    "pmd": "findings of a linter (PMD)",
    "FindBugsReport": "findings of a linter",
    "BugCollection": "findings of a linter (SpotBugs)",
    "results": "findings of a linter (cppcheck)",
    "html": "a web page",
    "rss": "a feed",
    "feed": "a feed",
    "project": "a project file (Maven or Ant)",
    "test-run": "results of NUnit 3",
    "test-results": "results of NUnit 2",
    "assemblies": "results of xUnit.net",
    "assembly": "results of xUnit.net",
    "TestRun": "results of Visual Studio (TRX)",
    "testng-results": "results of TestNG",
    "robot": "results of Robot Framework",
    "Site": "results of CTest",
    "testExecutions": "results for SonarQube",
    "Error": "the error message of a storage server",
    "plist": "a property list",
}


def describe_root(tag: str) -> str:
    """What a file with another root is.

    Examples
    --------
    >>> describe_root("coverage")
    'root element <coverage>, expected <testsuites> or <testsuite>: a coverage report (Cobertura)'
    """
    words = _OTHERS.get(tag, "")
    return f"root element <{tag[:80]}>, expected <testsuites> or <testsuite>" + (
        f": {words}" if words else ""
    )
