"""The pictures of the report in README and tutorial, light and dark: `make figures`. It needs chromium."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

FIGURES = Path(__file__).parents[1] / "figures"
_ROOT = Path(__file__).parents[2]
#: They end before the times, which depend on the machine and on what else it does.
_WIDTH, _HEIGHT, _SCALE = 1100, 826, 1.5
#: Name of the picture -> options of chromium. The second one makes `prefers-color-scheme` dark.
_PICTURES = {"report.png": (), "report-dark.png": ("--blink-settings=preferredColorScheme=0",)}


def main() -> None:
    """Run the quickstart and photograph the upper part of its report, in few colours."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = _ROOT / "build/figures"  # kept, so that the next picture takes no run
        run = [sys.executable, "-m", "lipt", "run", "examples/01-quickstart.yaml", "--set", f"workspace={workspace}"]
        ended = subprocess.run(run, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
        report = Path(ended.stdout.split()[-1]).absolute().as_uri()
        for name, options in _PICTURES.items():
            picture = Path(folder, name)
            subprocess.run(
                [
                    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *options),
                    *(f"--window-size={_WIDTH},{_HEIGHT}", f"--force-device-scale-factor={_SCALE}"),
                    *(f"--screenshot={picture}", report),
                ],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            data = io.BytesIO()
            Image.open(picture).convert("RGB").quantize(64).save(data, "PNG", optimize=True)
            (FIGURES / name).write_bytes(data.getvalue())


if __name__ == "__main__":
    main()
