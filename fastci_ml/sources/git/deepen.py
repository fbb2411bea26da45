"""Make a clone know what a head is compared with: fetch the base, then a longer history, in bounded steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastci_ml.errors import GitError
from fastci_ml.sources.git.comparison import FULL_SHA, Comparison, UnknownChangeError, compare
from fastci_ml.sources.git.fetch import Fetcher, FetchError
from fastci_ml.sources.git.reader import GitReader

# Most changes are young: a small step answers most questions, and three steps reach far.
_STEPS = (50, 200, 800)
# Characters of an expression (`HEAD~3`): a remote knows names only.
_NO_NAME = frozenset("^~:?*[\\ @")
_ENDS_ONLY = "unadvertised object"


def compare_deepening(reader: GitReader, base: str, head: str, fetcher: Fetcher | None) -> Comparison:
    """Compare as `compare` does, and where the history here does not tell, fetch what may be missing.

    Parameters
    ----------
    reader : GitReader
        The repository.
    base, head : str
        Revisions; a base that is only a branch or a tag of the remote will do.
    fetcher : Fetcher or None
        None, or one with no commits to fetch, leaves the repository as it is.

    Raises
    ------
    UnknownChangeError
        If it still cannot be told: with the reason, and what stood in the way of fetching.
    GitError
        If there is no such head.
    """
    try:
        return compare(reader, base, head)
    except UnknownChangeError as error:
        unknown = error
    if unknown.code not in ("unknown_base", "shallow"):
        raise unknown
    if fetcher is None or fetcher.limits.n_commits <= 0:
        raise unknown
    try:
        with fetcher.lock():
            return _Search(reader, fetcher, base, head).run()
    except UnknownChangeError:
        raise
    except GitError as error:
        raise UnknownChangeError(
            f"{unknown}; fetching did not help: {error}", hint=unknown.hint, code=unknown.code
        ) from error


class _Search:
    """One attempt to make two revisions comparable, under the lock."""

    def __init__(self, reader: GitReader, fetcher: Fetcher, base: str, head: str) -> None:
        self._reader = reader
        self._fetcher = fetcher
        self._base = base
        self._head = head
        self._remote = ""
        self._n_deepened = 0
        self._notes: list[str] = []

    def run(self) -> Comparison:
        """Look, fetch, and look again until it is known or nothing is left to try."""
        steps = self._steps()
        while True:
            try:
                # Whoever held the lock before may have fetched it all.
                found = compare(self._reader, self._base, self._head)
            except UnknownChangeError as error:
                if error.code not in ("unknown_base", "shallow"):
                    raise
                if not next(steps, False):
                    raise self._given_up(error) from error
            else:
                return replace(found, notes=(*found.notes, *self._told()))

    def _steps(self) -> Iterator[bool]:
        """Fetch a bit more with each turn."""
        self._remote = self._fetcher.remote(self._base)
        if not self._is_here(self._base):
            yield from self._fetch_base()
        left = self._fetcher.limits.n_commits
        for step in _STEPS:
            edge = self._reader.shallow_commits()
            n_commits = min(step, left)
            if not edge or not n_commits:
                return
            self._deepen(n_commits)
            left -= n_commits
            self._n_deepened += n_commits
            yield True
            if self._reader.shallow_commits() == edge:
                return  # the remote has no more to give: it is shallow itself

    def _fetch_base(self) -> Iterator[bool]:
        sha, name = self._base, self._base
        if not FULL_SHA.fullmatch(self._base):
            if _NO_NAME & set(self._base):
                return
            sha = self._fetcher.find(self._remote, self._base) or ""
            if not sha:
                return
            name = f"{self._base} ({sha[:12]})"
        is_shallow = bool(self._reader.shallow_commits())
        try:
            # In a whole clone a depth would cut the history that is there.
            self._fetcher.fetch(self._remote, [sha], *(("--depth=1",) if is_shallow else ()))
        except FetchError as error:
            # Older servers give the ends of branches only; a longer history may still lead to the base.
            if is_shallow and _ENDS_ONLY in str(error):
                return
            raise
        self._notes.append(f"the base {name} was fetched from {self._remote}")
        self._base = sha
        yield True

    def _deepen(self, n_commits: int) -> None:
        """Ask for the ends of the history, or, where they are not at the remote, for its edge."""
        ends = [name for name in (self._head, self._base) if self._is_here(name)]
        shas = list(dict.fromkeys(self._reader.objects([(name, "commit") for name in ends])))
        option = f"--deepen={n_commits}"
        try:
            self._fetcher.fetch(self._remote, shas, option)
        except FetchError:
            # A commit that was not pushed; what the edge consists of came from the remote.
            reachable = self._reader.run("rev-list", "--stdin", stdin="".join(f"{sha}\n" for sha in shas))
            edge = sorted(self._reader.shallow_commits().intersection(reachable.decode("ascii").split()))
            if not edge or set(edge) == set(shas):
                raise
            self._fetcher.fetch(self._remote, edge, option)

    def _is_here(self, revision: str) -> bool:
        try:
            self._reader.objects([(revision, "commit")])
        except GitError:
            return False
        return True

    def _told(self) -> list[str]:
        if self._n_deepened:
            how_far = f"{self._n_deepened} commits from {self._remote}"
            return [*self._notes, f"the shallow clone was deepened by {how_far}"]
        return self._notes

    def _given_up(self, error: UnknownChangeError) -> UnknownChangeError:
        told = "; ".join(self._told())
        return UnknownChangeError(f"{error}{told and f'; {told}'}", hint=error.hint, code=error.code)
