"""matplotlib figures as inline SVG in the fonts and colours of the page, light or dark, the same bytes every time."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# matplotlib only writes literal colours. Each stands for a CSS variable of the page and is replaced in the SVG, so
# that one drawing serves light and dark. Nobody would choose these colours, so it is safe to search for them.
INK, MUTED, LINE, PAPER = "#010101", "#010102", "#010103", "#010104"
ACCENT, PLAIN, BAD = "#010105", "#010106", "#010107"
SERIES = tuple(f"#0102{number:02d}" for number in range(1, 7))
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    PAPER: "paper",
    ACCENT: "accent",
    PLAIN: "plain",
    BAD: "bad",
} | {color: f"s{n}" for n, color in enumerate(SERIES, start=1)}

_MAX_LEGEND_IN = 8.0
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: selectable, small, in the font of the page
    "svg.hashsalt": "lipt",  # ids would be random otherwise
    "text.parse_math": False,  # a class may be called "$x"
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
}


def draw(name: str, label: str, plot: Callable[[Axes], None], *, height_in: float = 2.9, width_in: float = 5.4) -> str:
    """An `<svg>` element of what `plot` puts on the axes.

    Args:
        name: unique in the page; ids of the SVG start with it.
        label: description for screen readers; must need no escaping.
        height_in: without the legend, which is added to it.
        width_in: small, because text shrinks with the figure on a narrow screen.
    """
    buffer = io.StringIO()
    # "default" first: a matplotlibrc on the machine must not change the report.
    with style.context(("default", _STYLE)), warnings.catch_warnings():
        # The layout font lacks glyphs of some scripts, but the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        plot(figure.add_subplot())
        if figure.axes[0].get_legend_handles_labels()[0]:
            _add_legend(figure)
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _inline(buffer.getvalue(), name, label)


def _add_legend(figure: Figure) -> None:
    """A legend below the axes, in two columns if they fit. The figure grows by its height."""
    height_in = figure.get_figheight()
    figure.set_figheight(2 * _MAX_LEGEND_IN)  # room to measure it in
    for columns in (2, 1):
        legend = figure.legend(loc="outside lower center", ncols=columns, labelcolor=INK)
        figure.draw_without_rendering()
        extent = legend.get_window_extent()
        if extent.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_figheight(height_in + min(_MAX_LEGEND_IN, extent.height / figure.dpi))


def _inline(svg: str, name: str, label: str) -> str:
    """The element without prologue, namespaces and fixed size, with unique ids and variables for colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None  # matplotlib always writes one
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"#0102\d\d|#01010\d", _variable, body)
    return f'<svg {view_box[0]} role="img" aria-label="{label}">{body}'


def _variable(match: re.Match[str]) -> str:
    name = _VARIABLES.get(match[0])
    return f"var(--{name})" if name else match[0]
