"""Libraries that read files without the interpreter's knowledge."""

from __future__ import annotations

import sys

# Modules whose compiled code opens files by itself: no audit event tells of it. `mmap` is not among them:
# what it maps was opened before, and that was seen.
_READERS = (
    "av",
    "cv2",
    "decord",
    "faiss",
    "h5py",
    "kenlm",
    "leveldb",
    "lmdb",
    "netCDF4",
    "onnx",
    "onnxruntime",
    "polars",
    "pyarrow",
    "rasterio",
    "safetensors",
    "sentencepiece",
    "soundfile",
    "tables",
    "tensorflow",
    "tensorstore",
    "tokenizers",
    "torchaudio",
    "torchcodec",
    "torchvision.io",
)


def native_readers() -> tuple[str, ...]:
    """Those of the known libraries that are loaded, in order of their names."""
    modules = sys.modules
    return tuple(name for name in _READERS if name in modules)
