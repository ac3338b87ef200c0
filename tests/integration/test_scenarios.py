"""`nbx scenario`: the shipped scenarios hold, and do not when what goes wrong is worse; verdicts as text, JSON and JUnit's XML."""
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NBX = Path(os.environ.get("NBX_BIN", ROOT / "build/bin")) / "nbx"
SCENARIOS = ROOT / "profiles/scenarios"

# For each: other faults, under which some of its assertions must not hold.
DROP_TAIL = {"cluster.network.priorities.0.lossless": False, "cluster.network.buffer": "256KiB"}
WORSE = {
    **{f"incast-{n}": DROP_TAIL for n in (2, 4, 8, 16, 32, 64)},
    "pfc-storm": {"cluster.network.storm": {"priorities": 3, "start": "5ms", "duration": "50ms"}},
    "ecn-thresholds": {"cluster.network.priorities.0.ecn": {"kmin": "50MB", "kmax": "50MB"}},
    "selective-repeat": {"cluster.ghosts.g.nic": "ib-spec"},
    "synthetic-jct": {"profile.both.loss": "1%"},
    "link-failure": {"profile.failures": [
        {"at": f"{at}ms", "for": "9ms", "cable_down": [f"leaf0-spine{s}" for s in range(4)]} for at in (10, 90, 170)]},
    "multi-tenant": {"cluster.traffic": [{"name": "tenant", "pattern": "all_to_all", "load": "80%",
                                          "sizes": {"constant": "64KiB"}, "dscp": 26}]},
}


def nbx(*args):
    return subprocess.run([NBX, "scenario", *map(str, args)], capture_output=True, text=True, timeout=240, check=False)


def test_every_shipped_scenario_has_its_worse_one():
    assert sorted(WORSE) == sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


@pytest.mark.parametrize("name", sorted(WORSE))
def test_shipped_scenarios_hold_and_fail_when_it_is_worse(name, tmp_path):
    file = SCENARIOS / f"{name}.yaml"
    good = nbx(file)
    assert good.returncode == 0, good.stdout + good.stderr
    scenario = yaml.safe_load(file.read_text())
    scenario["cluster"] = str(SCENARIOS / scenario["cluster"])
    scenario.setdefault("faults", {}).update(WORSE[name])
    worse = tmp_path / "worse.yaml"
    worse.write_text(yaml.safe_dump(scenario))
    bad = nbx(worse, "--json")
    assert bad.returncode == 1, bad.stdout[:2000] + bad.stderr
    assert not json.loads(bad.stdout)[0]["holds"]


def test_verdicts_in_every_form(tmp_path):
    (tmp_path / "two.yaml").write_text(f"""
scenario: two <verdicts>
cluster: {SCENARIOS}/clusters/rack.yaml
job: {{job: incast, each_step: [{{incast: 1MiB}}]}}
assert: [no drops, fct_max < 1us]
""")
    xml = tmp_path / "verdicts.xml"
    done = nbx(tmp_path / "two.yaml", "--json", "--junit", xml)
    assert done.returncode == 1, done.stderr
    verdict, = json.loads(done.stdout)
    assert [row["holds"] for row in verdict["assertions"]] == [True, False]
    suite = ElementTree.parse(xml).getroot().find("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("two <verdicts>", "2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]
    text = nbx(tmp_path / "two.yaml").stdout
    assert "DOES NOT HOLD" in text and verdict["assertions"][1]["measured_text"] in text


def test_reports_of_live_runs_are_judged_by_the_same_file(tmp_path):
    scenario = tmp_path / "live.yaml"
    scenario.write_text(f"""
scenario: live
cluster: {SCENARIOS}/clusters/rack.yaml
job: {{job: incast, each_step: [{{incast: 1MiB}}]}}
assert: [no qp errors, cnp_rate > 0]
""")
    report = tmp_path / "report.json"
    for errors, status in ((0, 0), (1, 1)):
        report.write_text(json.dumps({
            "cluster": "c", "duration_s": 2.0, "ports": [{"name": "p0"}], "drops": {"p0": {}},
            "counters": {"p0": {"rp_cnp_handled": 4, **({"qp_errors": errors} if errors else {})}}}))
        done = nbx(scenario, "--report", report)
        assert done.returncode == status, done.stdout + done.stderr
    report.write_text("[")
    assert nbx(scenario, "--report", report).returncode == 2


def test_mistakes_have_places(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("scenario: s\ncluster: none.yaml\njob: {job: j, each_step: [{compute: 1ms}]}\nassert: no marcs\n")
    done = nbx(file)
    assert done.returncode == 2 and not done.stdout
    assert f"{file}:4:12: error: there is no metric 'marcs'; did you mean 'marks'?" in done.stderr
