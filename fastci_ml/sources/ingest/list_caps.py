"""How long the lists of changed files are that an API cuts off without a word.

A list of one of these lengths may be whole, or the first part of a longer one; nothing in it tells. A change
of which a part is missing teaches the wrong features, so it is taken for unknown.
"""

from __future__ import annotations

from types import MappingProxyType

# Length -> who cuts there. What a server lets its administrator set is here by its default.
CAPS = MappingProxyType(
    {
        20: "a page of GitLab's API without per_page",
        25: "a page of Bitbucket Server's API without limit",
        30: "a page of GitHub's API without per_page",
        100: "the largest page of GitHub's and GitLab's APIs",
        300: "the most files of a comparison, a commit or a diff at GitHub",
        1000: "the most files of a diff at GitLab, by default",
        3000: "the most files of a pull request at GitHub, and of a diff at GitLab",
    }
)


def find_cap(n_files: int) -> str:
    """Say which cap a list of `n_files` changed files has the length of; empty text if none.

    Examples
    --------
    >>> find_cap(3000)
    'the most files of a pull request at GitHub, and of a diff at GitLab'
    >>> find_cap(3001)
    ''
    """
    return CAPS.get(n_files, "")
