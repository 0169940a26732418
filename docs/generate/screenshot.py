"""The picture of the report in README and tutorial: `make figures`. It needs chromium."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).parents[1] / "figures/report.png"
_ROOT = Path(__file__).parents[2]
_WIDTH, _HEIGHT, _SCALE = 1100, 980, 1.5


def main() -> None:
    """Run the quickstart and photograph the upper part of its report, in few colours."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = _ROOT / "build/figures"  # kept, so that the next picture takes no run
        run = [sys.executable, "-m", "lipt", "run", "examples/01-quickstart.yaml", "--set", f"workspace={workspace}"]
        ended = subprocess.run(run, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
        report, picture = ended.stdout.split()[-1], Path(folder, "report.png")
        subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--window-size={_WIDTH},{_HEIGHT}", f"--force-device-scale-factor={_SCALE}"),
                *(f"--screenshot={picture}", Path(report).absolute().as_uri()),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        data = io.BytesIO()
        Image.open(picture).convert("RGB").quantize(64).save(data, "PNG", optimize=True)
        PICTURE.write_bytes(data.getvalue())


if __name__ == "__main__":
    main()
