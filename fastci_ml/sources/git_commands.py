"""How every git command of ours starts, whoever runs it: independent of the target's own configuration.

Standard library only. ``GIT_DIR`` and its kin are honoured, as git itself does: a hook sets them for its own
repository.
"""

from __future__ import annotations

from types import MappingProxyType

# A repository can name programs to run in its configuration; none of them is needed to read it.
SAFE_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")

ENVIRONMENT = MappingProxyType(
    {
        "GIT_OPTIONAL_LOCKS": "0",  # reading must not make a concurrent `git commit` fail on index.lock
        "GIT_NO_REPLACE_OBJECTS": "1",  # a plan is bound to the tree that the commit names, not to a stand-in
        "GIT_LITERAL_PATHSPECS": "1",  # a file may be called `*.py`
        "GIT_TERMINAL_PROMPT": "0",  # CI has nobody to type a password
        "GIT_DIFF_OPTS": "",  # would overrule -U0
        "LC_ALL": "C",
        "LANGUAGE": "C",
    }
)
