"""The pictures of reports in README and tutorial, light and dark: `make figures`. It needs chromium."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

FIGURES = Path(__file__).parents[1] / "figures"
_ROOT = Path(__file__).parents[2]
_WIDTH, _SCALE = 1100, 1.5
#: Ending of the name -> options of chromium. The second one makes `prefers-color-scheme` dark.
_LOOKS = {"": (), "-dark": ("--blink-settings=preferredColorScheme=0",)}
_RUN = ("run", "examples/01-quickstart.yaml")


def main() -> None:
    """Photograph the upper part of a report, and of two side by side, in few colours."""
    # They end before the times, which depend on the machine and on what else it does.
    for name, page in zip(("report", "side-by-side"), reports(), strict=True):
        for look, options in _LOOKS.items():
            _photograph(page, FIGURES / f"{name}{look}.png", 1120, options)


def reports() -> tuple[Path, Path]:
    """The pages of a run, and of two runs side by side."""
    workspace = _ROOT / "build/figures"  # kept, so that the next picture takes no run
    report = _lipt(*_RUN, "--set", f"workspace={workspace}")
    other = _lipt(*_RUN, "--set", f"workspace={workspace}", "--set", "select.fraction=0.02")
    both = _lipt("report", *(str(page.parent) for page in (report, other)))
    return report, both.replace(workspace / both.name)


def _lipt(*arguments: str) -> Path:
    """Run a command; returns the page that its last line names."""
    command = [sys.executable, "-m", "lipt", *arguments]
    ended = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return _ROOT / ended.stdout.split()[-1]


def _photograph(page: Path, to: Path, height: int, options: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, to.name)
        subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *options),
                *(f"--window-size={_WIDTH},{height}", f"--force-device-scale-factor={_SCALE}"),
                *(f"--screenshot={picture}", page.absolute().as_uri()),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        save(picture.read_bytes(), to)


def save(picture: bytes, to: Path) -> None:
    """Write a picture in few colours. They include rare ones, such as that of a small green mark."""
    full = Image.open(io.BytesIO(picture)).convert("RGB")
    data = io.BytesIO()
    full.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=3).save(data, "PNG", optimize=True)
    to.write_bytes(data.getvalue())


if __name__ == "__main__":
    main()
