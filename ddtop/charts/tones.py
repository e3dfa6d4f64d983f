"""Colours of series, by number: on light and on dark grounds, distinguishable with colour blindness (after Okabe and Ito)."""

LIGHT = ("#006ba8", "#a84800", "#00734f", "#9c4a80", "#7a5e00", "#6b3fc0", "#5f5f5f", "#a82a2a")
DARK = ("#56b4e9", "#ff9a4d", "#3cc79b", "#e3a0cb", "#e6c229", "#b79cf2", "#b0b0b0", "#ff8f8f")
"""Each number has a marker of its own too, so that nothing rests on a colour."""
