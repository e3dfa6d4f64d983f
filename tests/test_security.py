"""Words of hosts, plans, models and recordings that try to be more than words: on screens, in reports, in files, in commands.

`WORDS` is the table. One recording holds all of them, in every text that an event has; everything that reads recordings is run on it.
docs/security.md says to people what is held here.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import types
import typing
import unicodedata
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from ddtop import cli
from ddtop import events as ev
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.write.writer import JournalWriter
from ddtop.report.bundle.write import RECORDING
from tests.commands.record_demo import write_recording
from tests.dashboard import story
from tests.dashboard.conftest import (  # noqa: F401 - the fixture of an app with its clock at rest
    Open,
    open_app,
    screen_text,
    settle,
)
from tests.runner.rig import Rig

MARK = "PWNED"
"""A file of this name would be there if anything of the table were run."""

WORDS: dict[str, str] = {
    # what a shell would run
    "command after": f"; touch {MARK}",
    "command instead": f"$(touch {MARK})",
    "backquotes": f"`touch {MARK}`",
    "pipe": f"| touch {MARK}",
    "and": f"&& touch {MARK} &",
    "new line": f"a\ntouch {MARK}\n",
    "end of a quote": f"'; touch {MARK}; '",
    "end of a double quote": f'"; touch {MARK}; "',
    "an option": "--help",
    "an option of ssh": f"-oProxyCommand=touch {MARK}",
    "a variable": "${IFS}$HOME",
    "a unit's line": f"x\nExecStart=/usr/bin/touch {MARK}",
    "a specifier of systemd": "%n%i%t",
    "a glob": "*?[!a]{a,b}~",
    # what leaves its folder
    "a folder above": "../../../../../../tmp/" + MARK,
    "an absolute path": "/etc/passwd",
    "a URL": f"file:///tmp/{MARK}",
    "a colon": "C:\\a:b",
    # what a terminal would obey
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "answer back": "\x1b[c\x1b[6n\x05",
    "alternate screen": "\x1b[?1049l\x1b[?25h",
    "device control": "\x1bP$q\x1b\\\x1bX\x1b^\x1b_",
    "C1 control": "\x9b31m\x90\x9d0;x\x9c",
    "carriage return": "all is well\rbad",
    "backspace": "bad\x08\x08\x08ok!",
    "bell and nul": "\x07\x00\x0e\x0f",
    "right to left": "\u202egpj.exe\u202c \u2066x\u2069 \u200f",
    "no width": "b\u200b1\u20606\ufeff",
    "other line ends": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "tags": "a\U000e0041\U000e0042b",
    "combining": "Z" + "\u0301" * 300,
    "wide": "宽" * 80 + "👩‍👩‍👧",
    "long": "x" * 20_000,
    # what a renderer would obey
    "markup of Rich": "[bold red]x[/] [@click=app.bell()]y[/] [link=http://evil.example]z[/link] [/nope]",
    "script": f"<script>alert('{MARK}')</script>",
    "handler": f'"><img src=x onerror="alert(\'{MARK}\')">',
    "handler in SVG": f"</text></svg><svg onload=alert('{MARK}')>",
    "comment": "--><!--]]><![CDATA[",
    "end of style": "</style></title></textarea></details><base href=//evil.example>",
    "entity": "&lt;script&gt;&#x3c;&#0;&nosuch;",
    "javascript": "javascript:alert(1)",
    "template": "{{7*7}}{%raw%}{{config}}${7*7}#{7*7}",
    "a link in Markdown": "[x](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "a table in Markdown": "a | b |\n|---|---|\n| c | d",
    "a fence": "```\n# head\n~~~",
    # what a spreadsheet, a format, a database or a parser would obey
    "a formula": f"=cmd|' /C touch {MARK}'!A0",
    "another formula": '@SUM(1+1)*HYPERLINK("http://evil.example")',
    "a third": "+1-2",
    "a fourth": "-2+3",
    "format": "%s%n%x{0}{self.__class__}{0!r:>999999999}",
    "SQL": "'; DROP TABLE events; --",
    "JSON": '"},"state":"done",{"',
    "a number": "1e999",
    "nothing": "   ",
}
assert len(WORDS) >= 50

INVISIBLE = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


def forbidden(text: str) -> set[str]:
    """What of `text` would act on a terminal: control characters but line ends and tabs, and what turns or hides text."""
    return {repr(c) for c in text if (unicodedata.category(c) == "Cc" and c not in "\n\t")} | set(
        map(repr, INVISIBLE.findall(text))
    )


# ------------------------------------------------------------------------------------- a recording full of them


class Poison:
    """Puts words of the table into every free text of an event. The same text becomes the same words everywhere, so that ids fit."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def text(self, text: str) -> str:
        if text not in self.made:
            words = list(WORDS.values())
            self.made[text] = f"{text[:24]}{words[len(self.made) % len(words)]}" if text else text
        return self.made[text]

    def value(self, value: Any, kind: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            hints = typing.get_type_hints(type(value))
            fields = {n: self.value(getattr(value, n), hints[n]) for n in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        if isinstance(value, str):
            return value if chosen(kind) else self.text(value)
        inner = [one for one in typing.get_args(kind) if one is not Ellipsis]
        if isinstance(value, tuple):
            kinds = inner if len(inner) == len(value) else [inner[0] if inner else str] * len(value)
            return tuple(self.value(one, k) for one, k in zip(value, kinds, strict=True))
        return value


def chosen(kind: Any) -> bool:
    """Whether a field's text is one of a few words: a recording with another is refused when it is read."""
    if typing.get_origin(kind) is Literal:
        return True
    if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return chosen(kind.__value__)
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(chosen(one) for one in typing.get_args(kind))
    return False


def poisoned(events: Sequence[ev.Event]) -> Iterator[ev.Event]:
    poison = Poison()
    for event in events:
        yield poison.value(event, type(event))


@pytest.fixture(scope="module")
def scripts() -> dict[str, story.Script]:
    return {"failed": story.failed(), "finished": story.finished()}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory, scripts: dict[str, story.Script]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hostile")
    made: dict[str, Path] = {}
    for name, script in scripts.items():
        made[name] = folder / f"$(touch {MARK})<b>\u202e{name}.ddtop"
        with JournalWriter.open(made[name]) as writer:
            writer.extend(list(poisoned(script.out)))
            writer.extend(
                [
                    ev.LogRead(
                        at_s=script.now,
                        mono_s=0.0,
                        unit=story.UNIT,
                        lines=tuple(ev.LogLine(text=word, at_s=script.now) for word in WORDS.values()),
                    ),
                    *(
                        ev.Note(at_s=script.now, mono_s=0.0, level="warn", text=word)
                        for word in WORDS.values()
                    ),
                ]
            )
    return made


def ran(*words: object) -> tuple[int, str]:
    """One command, within this process: its exit code and all that it printed."""
    said = io.StringIO(newline="")
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main([str(word) for word in words])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    assert "a bug in ddtop" not in said.getvalue(), said.getvalue()
    return code, said.getvalue()


def run(*words: object) -> str:
    """What a command prints that does what it is asked for."""
    code, said = ran(*words)
    assert code in (0, 10), said
    return said


@pytest.fixture(autouse=True)
def nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test stands in a folder of its own, where nothing may come to be that the table would make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    yield
    assert not list(tmp_path.rglob(MARK)) and not Path("/tmp", MARK).exists()


# ------------------------------------------------------------------------------------- on the screen

SCREENS = [
    [],
    ["v"],
    ["v", "v"],
    ["H"],
    ["P"],
    ["h"],
    ["l"],
    ["enter"],
    ["question_mark"],
    ["r"],
    ["x"],
    ["W"],
]


@pytest.mark.parametrize("moment", ["failed", "finished"])
async def test_no_screen_shows_more_than_words(
    open_app: Open,  # noqa: F811
    recordings: dict[str, Path],
    scripts: dict[str, story.Script],
    moment: str,
) -> None:
    session = ReplaySession(recordings[moment])
    session.pause()
    session.seek(scripts[moment].now)
    async with open_app(session, now=scripts[moment].now, size=(120, 40)) as (app, pilot):
        for keys in SCREENS:
            for key in keys:
                await pilot.press(key)
            await settle(pilot)
            shown = screen_text(app)
            assert not forbidden(shown), (keys, forbidden(shown))
            assert shown.strip(), keys
            picture = app.export_screenshot()
            ET.fromstring(picture)
            assert "<script" not in picture and "<img" not in picture, keys
            while len(app.screen_stack) > 2:
                await pilot.press("escape")
                await settle(pilot)


# ------------------------------------------------------------------------------------- in reports and commands


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


@pytest.mark.parametrize("moment", ["failed", "finished"])
def test_a_page_runs_nothing_and_loads_nothing(
    recordings: dict[str, Path], moment: str, tmp_path: Path
) -> None:
    run("report", recordings[moment], "--html", tmp_path / "o.html")
    text = (tmp_path / "o.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.tags & {
        "script",
        "img",
        "base",
        "iframe",
        "object",
        "embed",
        "link",
        "form",
        "meta-refresh",
    }
    for name, value in page.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("href", "src", "xlink:href", "action"):
            assert (value or "").startswith("#"), (name, value)
    assert not forbidden(text), forbidden(text)


@pytest.mark.parametrize("moment", ["failed", "finished"])
@pytest.mark.parametrize(
    "command",
    [
        ["report"],
        ["report", "--md"],
        ["status"],
        ["cells"],
        ["log"],
        ["log", "--errors"],
        ["advise"],
        ["plot"],
        ["runs"],
    ],
    ids=" ".join,
)
def test_no_command_prints_more_than_words(
    recordings: dict[str, Path], moment: str, command: list[str]
) -> None:
    shown = run(*command, *([] if command == ["runs"] else [recordings[moment]]))
    if command == ["report", "--md"]:
        shown = shown.replace("@\u200b", "@")  # ours: a name behind @ would call a person on GitHub
    assert not forbidden(shown), forbidden(shown)
    if command == ["report", "--md"]:
        assert "<script" not in shown and "](javascript" not in shown and "![x](" not in shown
        assert "onerror" not in re.sub(r"\\<.*?\\>", "", shown)


@pytest.mark.parametrize("moment", ["failed", "finished"])
def test_files_for_programs_hold_words_as_data(recordings: dict[str, Path], moment: str) -> None:
    table = list(csv.reader(io.StringIO(run("report", recordings[moment], "--csv"), newline="")))
    width = len(table[0])
    assert width > 10 and all(len(row) == width for row in table)
    for row in table:
        for field in row:
            if field[:1] in ("=", "+", "-", "@"):
                float(field)  # else a spreadsheet would take it for a formula
    for command in (["report", "--json"], ["status", "--json"], ["cells", "--json"]):
        json.loads(run(*command, recordings[moment]))


@pytest.mark.parametrize("moment", ["failed", "finished"])
def test_a_chart_is_well_formed_and_inert(recordings: dict[str, Path], moment: str, tmp_path: Path) -> None:
    run("plot", recordings[moment], "--out", tmp_path / "o.svg")
    text = (tmp_path / "o.svg").read_text(encoding="utf-8")
    tree = ET.fromstring(text)
    assert not {e.tag.rpartition("}")[2] for e in tree.iter()} & {
        "script",
        "image",
        "foreignObject",
        "a",
        "use",
    }
    assert not [n for e in tree.iter() for n in e.attrib if n.lower().startswith("on") or n.endswith("href")]
    assert not forbidden(text)


def test_a_bundle_writes_only_into_itself(recordings: dict[str, Path], tmp_path: Path) -> None:
    run("report", recordings["finished"], "--bundle", tmp_path / "o.zip")
    with zipfile.ZipFile(tmp_path / "o.zip") as archive:
        names = archive.namelist()
        assert names and archive.testzip() is None
        for name in names:
            assert not name.startswith("/") and ".." not in Path(name).parts and not forbidden(name), name
            if name.endswith((".md", ".txt", ".csv")):
                assert not forbidden(archive.read(name).decode().replace("@\u200b", "@")), name


@pytest.mark.parametrize("member", ["../../outside", "/tmp/outside", "a/../../outside"])
def test_a_bundle_from_elsewhere_never_leaves_its_folder(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDTOP_DEMO_DIR", "/srv/demo")  # the plan's model lies there
    (tmp_path / "in").mkdir()
    write_recording(tmp_path / "run.ddtop")
    run("report", tmp_path / "run.ddtop", "--bundle", tmp_path / "o.zip")
    with zipfile.ZipFile(tmp_path / "o.zip", "a") as archive:
        archive.writestr(member, "x")
    before = set(tmp_path.rglob("*"))
    run("plan", "from", tmp_path / "o.zip", "--output", tmp_path / "in" / "p.toml")
    made = {p for p in set(tmp_path.rglob("*")) - before if (tmp_path / "home") not in p.parents}
    assert made and all(tmp_path / "in" in p.parents for p in made), made
    assert not Path("/tmp/outside").exists() and not (tmp_path.parent / "outside").exists()


def test_a_bundle_that_would_fill_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.commands.plans.again.MOST_B", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(RECORDING, b"\0" * (2 << 20))
    code, said = ran("plan", "from", tmp_path / "bomb.zip")
    assert code == 2 and "larger" in said, said


# ------------------------------------------------------------------------------------- on the command line


@pytest.mark.parametrize("name", [name for name, word in WORDS.items() if "\0" not in word])
def test_no_host_name_runs_anything(name: str) -> None:
    code, said = ran("connect", "--once", "--", WORDS[name])
    assert code in (2, 11) and not forbidden(said), (code, said)
    assert "Traceback" not in said


# ------------------------------------------------------------------------------------- on the host


def test_a_sweep_in_folders_with_hostile_names_runs_what_its_plan_says_alone(tmp_path: Path) -> None:
    """A real SSH server, agent, start, staging and load: model, program, recording and jobs below such a folder."""
    with Rig(tmp_path / f"a $(touch {MARK}) `touch {MARK}`; touch {MARK} & 'b | *") as rig:
        runner = rig.start(rig.plan("a = {}", tokens="[8]", requests=1, step_s=0.01))
        assert runner.wait() == 0, runner.said()
        assert runner.states() == ["done"]
        assert rig.engines() == [] and not list(rig.home.parent.rglob(MARK))
