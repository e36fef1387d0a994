"""axe in a browser: the serious barriers of a page."""

from pathlib import Path

AXE = Path(__file__).parent / "vendor"
SERIOUS = """
axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
  .filter(({ impact }) => impact === 'serious' || impact === 'critical')
  .flatMap(({ id, nodes }) => nodes.map((each) => `${id}: ${each.html.slice(0, 160)}`)))
"""


def is_accessible(tab, screen):
    """No serious barrier in a tab, in light and in dark colors."""
    if not tab.evaluate("typeof axe === 'object'"):
        tab.evaluate((AXE / "axe.min.js").read_text("utf-8") + "; 0")
    barriers = []
    for scheme in ("light", "dark"):
        tab.prefer(scheme)
        barriers += [f"{screen}, {scheme}: {each}" for each in tab.evaluate(SERIOUS)]
    tab.prefer("light")
    assert barriers == [], "\n".join(barriers)
