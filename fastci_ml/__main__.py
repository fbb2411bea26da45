"""``python -m fastci_ml`` is ``fastci-ml``."""

from fastci_ml.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
