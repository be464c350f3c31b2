"""Pieces of SVG pictures that are readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

# Each picture has a background of its own: a page may be dark where the system is light.
_STYLE: Final = """
  .page { fill: #ffffff; stroke: #d5dedb; }
  .box { fill: #eef5f3; stroke: #0b6b61; stroke-width: 1.3; }
  .group { fill: none; stroke: #9fb5b0; stroke-dasharray: 5 4; }
  .final { fill: #f3f4f6; stroke: #6b7280; stroke-width: 1.3; }
  .bad { fill: #fdecec; stroke: #b3261e; stroke-width: 1.3; }
  .line { fill: none; stroke: #4b635e; stroke-width: 1.3; }
  .life { stroke: #c3d0cc; stroke-width: 1.3; }
  .life.mine { stroke: #0b6b61; stroke-width: 6; }
  .head { fill: #4b635e; }
  text { fill: #1f2d2a; font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; }
  text.title { font-weight: 600; }
  text.note { fill: #52635f; font-size: 12px; }
  text.code { font: 12.5px ui-monospace, Menlo, Consolas, monospace; }
  text.red { fill: #b3261e; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16201e; stroke: #2c3b38; }
    .box { fill: #1d3330; stroke: #57b5a8; }
    .group { stroke: #55706a; }
    .final { fill: #262f2e; stroke: #93a19e; }
    .bad { fill: #40201f; stroke: #f2a29b; }
    .line { stroke: #a9bdb8; }
    .life { stroke: #3c4d49; }
    .life.mine { stroke: #57b5a8; }
    .head { fill: #a9bdb8; }
    text { fill: #e3ecea; }
    text.note { fill: #a9bdb8; }
    text.red { fill: #f2a29b; }
  }
"""
_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
    'markerHeight="8" orient="auto-start-reverse">'
    '<path class="head" d="M0 1 L10 5 L0 9 z"/></marker></defs>'
)


def document(width: int, height: int, title: str, body: Iterable[str], style: str = _STYLE) -> str:
    """A whole picture; its title is what a screen reader says."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{style}</style>",
        _HEAD,
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """One line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(
    bounds: tuple[float, float, float, float],
    title: str,
    notes: Sequence[str] = (),
    kind: str = "box",
    data: Mapping[str, str] | None = None,
) -> str:
    """A box at (x, y, width, height) with a title and smaller lines below it, all centred."""
    x, y, width, height = bounds
    middle, step = x + width / 2, 17
    first = y + height / 2 + 5 - step * len(notes) / 2
    rectangle = (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"'
        f"{_attributes(data)}/>"
    )
    below = [text(middle, first + step * (i + 1), note, "note") for i, note in enumerate(notes)]
    return "\n".join([rectangle, text(middle, first, title, "title"), *below])


def group(bounds: tuple[float, float, float, float], title: str) -> str:
    """A dashed frame with its title at the top left."""
    x, y, width, height = bounds
    frame = (
        f'<rect class="group" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9"/>'
    )
    return f"{frame}\n{text(x + 12, y + 21, title, 'title', 'start')}"


def arrow(
    points: Sequence[tuple[float, float]],
    label: str = "",
    at: tuple[float, float] | None = None,
    both: bool = False,
    data: Mapping[str, str] | None = None,
) -> str:
    """A line through these points with a head at its end, and a label at a position of its own."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    start = ' marker-start="url(#head)"' if both else ""
    line = f'<path class="line" d="{path}"{start} marker-end="url(#head)"{_attributes(data)}/>'
    if not label:
        return line
    (x1, y1), (x2, y2) = points[0], points[-1]
    x, y = at or ((x1 + x2) / 2, (y1 + y2) / 2 - 6)
    return f"{line}\n{text(x, y, label, 'note')}"


def _attributes(data: Mapping[str, str] | None) -> str:
    return "".join(f" data-{name}={quoteattr(value)}" for name, value in (data or {}).items())
