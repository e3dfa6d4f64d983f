"""Reports of recordings: for programs (JSON, CSV), for text (Markdown, terminal) and for people (one HTML file).

recordings = [load(path) for path in paths]
report_json(recordings); report_csv(recordings); report_markdown(recordings); report_html(recordings)
report_text(recordings)
"""

from ddtop.report.html import report_html
from ddtop.report.json_form import SCHEMA, report_json
from ddtop.report.markdown import report_markdown
from ddtop.report.recording import Recording, load
from ddtop.report.rows import report_csv
from ddtop.report.tables.groups import group_csv
from ddtop.report.terminal import report_text
from ddtop.report.text import render_table

__all__ = [
    "SCHEMA",
    "Recording",
    "group_csv",
    "load",
    "render_table",
    "report_csv",
    "report_html",
    "report_json",
    "report_markdown",
    "report_text",
]
