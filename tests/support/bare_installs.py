"""Environments where only pytest is installed beside this package, as `pip install --no-deps` leaves them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from pathlib import Path

from recorded_runs import pure_packages


def make_bare_install(folder: Path) -> Path:
    """Make a virtual environment without network; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(
        subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    )
    pure_packages(site)
    # What pip writes beside a package: names, versions and entry points, which pytest looks for.
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "fastci-ml"):
        files = importlib.metadata.distribution(name)
        target = site / f"{name.replace('-', '_')}-{files.version}.dist-info"
        target.mkdir()
        for part in ("METADATA", "entry_points.txt"):
            text = files.read_text(part)
            if text is not None:
                (target / part).write_text(text)
    for name, module in (("fastci-ml", "fastci_ml.cli.app"), ("pytest", "pytest")):
        call = "main" if name == "fastci-ml" else "console_main"
        script = folder / "bin" / name
        script.write_text(f"#!{python}\nimport sys\nfrom {module} import {call}\nsys.exit({call}())\n")
        script.chmod(0o755)
    return python


def run_bare(python: Path, *words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of such an environment, with nothing of ours in its surroundings."""
    base = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [python.parent / words[0], *words[1:]],
        cwd=folder,
        env={**base, "FASTCI_LANE": "bare", "FASTCI_SCOPE": "trunk", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # Another run of the same tests at the same time is told apart by its session.
        start_new_session=True,
    )


if __name__ == "__main__":
    sys.stdout.write(f"{make_bare_install(Path(sys.argv[1]))}\n")
