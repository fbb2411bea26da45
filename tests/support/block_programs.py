"""Random programs that know which blocks each of their literals belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn


@dataclass(slots=True)
class Program:
    """A program under construction.

    Attributes
    ----------
    lines : list of str
        With ``{0}``, ``{1}`` and so on in place of literals.
    owners : list of frozenset of str
        For each literal the names of the blocks that change with it.
    n_names : int
        Names given so far; no name is given twice.
    """

    lines: list[str] = field(default_factory=list)
    owners: list[frozenset[str]] = field(default_factory=list)
    n_names: int = 0

    def literal(self, *owners: str) -> str:
        """Place of a new literal."""
        self.owners.append(frozenset(owners))
        return f"{{{len(self.owners) - 1}}}"

    def name(self) -> str:
        """A name that is new."""
        self.n_names += 1
        return f"n{self.n_names}"

    def add(self, depth: int, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * depth + line)

    def text(self, values: list[str]) -> str:
        """The program with these literals."""
        return "".join(line.format(*values) + "\n" for line in self.lines)


@st.composite
def programs(draw: DrawFn) -> Program:
    """Modules of constants, functions, classes and conditions, in each other to some depth."""
    program = Program()
    _body(draw, program, 0, "", ())
    return program


def _body(draw: DrawFn, program: Program, depth: int, prefix: str, heads: tuple[int, ...]) -> None:
    """Module or class body; `heads` are literals of conditions around, which every block in it follows."""
    kinds = ["constant", "function"] + (["class", "if", "try"] if depth < 4 else [])
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4 - depth // 2)):
        if kind == "constant":
            name = program.name()
            _follow(program, heads, prefix + name)
            program.add(depth, f"{name} = {program.literal(prefix + name)}")
        elif kind == "function":
            _function(draw, program, depth, prefix, (), heads)
        elif kind == "class":
            name = program.name()
            _follow(program, heads, prefix + name)
            program.add(depth, f"class {name}(object, k={program.literal(prefix + name)}):")
            _body(draw, program, depth + 1, f"{prefix}{name}.", heads)
        elif kind == "if":
            head = len(program.owners)
            program.add(depth, f"if a == {program.literal()}:")
            _body(draw, program, depth + 1, prefix, (*heads, head))
            if draw(st.booleans()):
                program.add(depth, "else:")
                _body(draw, program, depth + 1, prefix, (*heads, head))
        else:
            program.add(depth, "try:")
            # Nothing in it can raise but what is in the condition: a body of constants only.
            for _ in range(draw(st.integers(1, 2))):
                name = program.name()
                _follow(program, heads, prefix + name)
                program.add(depth + 1, f"{name} = {program.literal(prefix + name)}")
            program.add(depth, "except ValueError:")
            _body(draw, program, depth + 1, prefix, heads)


def _follow(program: Program, heads: tuple[int, ...], name: str) -> None:
    for head in heads:
        program.owners[head] |= {name}


def _function(
    draw: DrawFn, program: Program, depth: int, prefix: str, around: tuple[str, ...], heads: tuple[int, ...]
) -> None:
    name = program.name()
    full = prefix + name
    owners = (*around, full)
    _follow(program, heads, full)
    if draw(st.booleans()):
        program.add(depth, f"@wraps({program.literal(*owners)})")
    default, annotation = program.literal(*owners), program.literal(*owners)
    program.add(depth, f"def {name}(a, b={default}) -> {annotation}:")
    if draw(st.booleans()):
        program.add(depth + 1, '"""Doc."""')
    kinds = ["assign", "lambda", "if", "text"] + (["function", "class"] if depth < 5 else [])
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3)):
        if kind == "assign":
            program.add(depth + 1, f"a.{program.name()}[0] = f({program.literal(*owners)})")
        elif kind == "lambda":
            program.add(depth + 1, f"yield [lambda c={program.literal(*owners)}: c for c in b]")
        elif kind == "if":
            program.add(depth + 1, f"if a < {program.literal(*owners)}: return {program.literal(*owners)}")
        elif kind == "text":
            program.add(depth + 1, f"a(); {program.literal(*owners)}")
        elif kind == "function":
            _function(draw, program, depth + 1, f"{full}.<locals>.", owners, ())
        else:
            local = program.name()
            inside = f"{full}.<locals>.{local}"
            program.add(depth + 1, f"class {local}(k={program.literal(*owners, inside)}):")
            program.add(depth + 2, f"x = {program.literal(*owners)}")
            _function(draw, program, depth + 2, f"{inside}.", owners, ())
    program.add(depth + 1, f"return {program.literal(*owners)}")
