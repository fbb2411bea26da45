"""Reading a file into its blocks."""

from __future__ import annotations

import ast
import gc
import warnings
from hashlib import blake2b

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import FILE_BLOCK, Block
from fastci_ml.sources.blocks.bodies import BodyReader, bound_variables
from fastci_ml.sources.blocks.functions import Surroundings
from fastci_ml.sources.blocks.ledger import Ledger, doc_digest, split_doc
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.scope import DIGEST_BYTES


def read_blocks(source: bytes) -> ModuleBlocks:
    r"""Blocks of one Python file.

    Parameters
    ----------
    source : bytes
        Content of the file.

    Returns
    -------
    ModuleBlocks
        One block for the whole file where this interpreter cannot parse it: never an error.

    Examples
    --------
    >>> [block.name for block in read_blocks(b"import os\nA = 1\nprint(A)\ndef f(): pass").blocks]
    ['os', 'A', '<effect print(A)>', 'f']
    >>> read_blocks(b"def f(:").is_parsed
    False
    """
    # Trees are many objects and no cycles: looking for these would take a third of the time.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Odd escapes and the like are the file's own affair, also where warnings are errors.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return _read(tree)
    except (SyntaxError, ValueError, LookupError, OverflowError, RecursionError, MemoryError, SystemError):
        # What the parser says of broken syntax, null bytes, encodings and nesting beyond its limits.
        return _whole_file(source)
    finally:
        if is_collecting:
            gc.enable()


def _read(tree: ast.Module) -> ModuleBlocks:
    doc, body = split_doc(tree.body)
    ledger = Ledger(frozenset(bound_variables(body)))
    BodyReader(ledger).read(body, Surroundings("", ""))
    return ModuleBlocks(
        blocks=tuple(ledger.blocks),
        imports=tuple(sorted(ledger.imports, key=lambda seen: seen.line)),
        doc_fingerprint=doc_digest(doc),
        type_names=frozenset(ledger.type_names),
    )


def _whole_file(source: bytes) -> ModuleBlocks:
    block = Block(
        name=FILE_BLOCK,
        kind=BlockKind.FILE,
        first_line=1,
        last_line=source.count(b"\n") + 1,
        fingerprint=blake2b(source, digest_size=DIGEST_BYTES).hexdigest(),
        is_dynamic=True,
    )
    return ModuleBlocks(blocks=(block,), is_parsed=False)
