"""A plan that is edited while its run goes on: told, not passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.commands.connect import Options, _recording
from ddtop.config import load_settings
from ddtop.errors import RefusedError
from ddtop.events import Pause

from .rig import Rig


def test_an_edited_plan_is_not_taken_for_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Rig(tmp_path) as rig:
        monkeypatch.setenv("DDTOP_HOME", str(rig.home))
        text = rig.plan(tokens="[64]", requests=40, step_s=0.05)
        runner = rig.start(text)
        runner.running("a")
        runner.send(Pause)
        plan = tmp_path / "plan.toml"
        options = Options(hosts=("demo",), plan=plan, ssh_config=rig.world.ssh_config)
        plan.write_text("# a comment is no edit\n" + text)
        assert _recording("demo", options, load_settings()) == runner.recording
        plan.write_text(text.replace("output_tokens = [64]", "output_tokens = [64, 128]"))
        with pytest.raises(RefusedError, match="was edited since") as refused:
            _recording("demo", options, load_settings())
        assert "ddtop stop" in refused.value.do and "to watch it: ddtop connect demo" in refused.value.do
        plan.write_text(text.replace('name = "rig"', 'name = "other"'))
        with pytest.raises(RefusedError, match="a runner is already active: it runs plan rig"):
            _recording("demo", options, load_settings())
