"""`nbx sweep`, `nbx worst`, and the tools that draw what `nbx` printed."""
import csv
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NBX = Path(os.environ.get("NBX_BIN", ROOT / "build/bin")) / "nbx"
SCENARIOS = ROOT / "profiles/scenarios"


def call(*args):
    return subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture
def ring(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(f"""
scenario: ring
cluster: {SCENARIOS}/clusters/rack.yaml
job: {{job: ring, steps: 2, each_step: [{{all_reduce: 8MiB}}]}}
assert: [step_time < 1.5ms, no drops]
""")
    return file


def test_a_sweep_tries_every_combination(ring, tmp_path):
    table = tmp_path / "sweep.csv"
    done = call(NBX, "sweep", ring, "cluster.ghosts.g.count=1,3", "cluster.network.host_rate=100Gb/s,50Gb/s", "--json",
                "--csv", table)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["sweep"]
    assert [(row["cluster.ghosts.g.count"], row["cluster.network.host_rate"]) for row in rows] == [
        ("1", "100Gb/s"), ("1", "50Gb/s"), ("3", "100Gb/s"), ("3", "50Gb/s")]
    times = [row["assertions"][0]["measured"] for row in rows]
    assert times[1] / times[0] == pytest.approx(2, rel=0.05)
    assert [row["holds"] for row in rows] == [time < 1.5e-3 for time in times] and not all(row["holds"] for row in rows)
    with table.open(newline="", encoding="utf-8") as file:
        assert [float(row["step_time < 1.5ms"]) for row in csv.DictReader(file)] == times
    pytest.importorskip("matplotlib")
    (tmp_path / "sweep.json").write_text(done.stdout)
    drawn = call(ROOT / "tools/plot-sweep", tmp_path / "sweep.json", tmp_path / "sweep.svg")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "sweep.svg").read_text().count("<svg") == 1


def test_the_worst_case_is_found_to_its_precision(ring):
    """Half the rate doubles the time of a ring, whose latencies are small; a tenth more needs 91 % of the rate."""
    done = call(NBX, "worst", ring, "cluster.network.host_rate=100Gb/s..10Gb/s", "--raises", "10%", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["value"] in ("89Gb/s", "90Gb/s", "91Gb/s")
    assert len(found["tried"]) <= 2 + 7     # log2(90)
    assert {row["value"]: row["raised"] for row in found["tried"]}[found["value"]]
    none = call(NBX, "worst", ring, "cluster.network.host_rate=100Gb/s..99Gb/s")
    assert none.returncode == 1 and "does not raise" in none.stdout


@pytest.mark.parametrize("arguments, complaint", [
    (["worst", "cluster.seed=1"], "is not PATH=GOOD..BAD"),
    (["worst", "profile.both.loss=0%..1ms"], "the ends have different units: '%' and 'ms'"),
    (["worst", "cluster.network.host_rat=100Gb/s..10Gb/s"], "did you mean 'host_rate'?"),
    (["sweep", "cluster.seed"], "is not PATH=VALUE,VALUE..."),
    (["sweep", "clutser.seed=1,2"], "did you mean 'cluster'?"),
    (["sweep", "cluster.network.host_rate=1Gb/s,2"], "'2' has no unit"),
])
def test_mistakes_are_usage(ring, arguments, complaint):
    done = call(NBX, arguments[0], ring, *arguments[1:])
    assert done.returncode == 2 and complaint in done.stderr, done.stderr


class Page(HTMLParser):
    """What a page has, and whether its tags close."""
    VOID = {"meta", "path", "use", "rect", "br", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture
def page(ring, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    ring.write_text(ring.read_text().replace("scenario: ring", "scenario: <ring> & more"))
    (tmp_path / "verdicts.json").write_text(
        call(NBX, "scenario", ring, SCENARIOS / "pfc-storm.yaml", "--json").stdout)
    for name in ("page.html", "again.html"):
        made = call(ROOT / "tools/html-report", tmp_path / "verdicts.json", tmp_path / name)
        assert made.returncode == 0, made.stderr
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "again.html").read_bytes()
    return tmp_path / "page.html"


def test_the_page_stands_alone(page):
    text = page.read_text()
    parsed = Page(text)
    assert parsed.open == []
    assert all(link.startswith("#") for link in parsed.links), "nothing is fetched from elsewhere"
    assert parsed.seen.count("section") == 2 and parsed.seen.count("figure") == 8
    assert "&lt;ring&gt; &amp; more" in text and "<ring>" not in text
    assert "jct_ratio &lt;= 1.3" in text and "name=\"viewport\"" in text and "@media print" in text
    ids = re.findall(r' id="([^"]+)"', text)
    twice = {name for name in ids if ids.count(name) > 1 and not re.fullmatch(r"[\w.]+_\d+", name)}
    assert not twice, "clip paths of one figure would cut another"


def browse(tmp_path, *options):
    return call("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={tmp_path}/profile", *options)


# What a page says of itself once it is laid out: how wide it is and whether each figure has been drawn.
MEASURE = """<script>addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure svg")];
  document.title = JSON.stringify({
    window: innerWidth, page: document.documentElement.scrollWidth,
    drawn: figures.filter(svg => svg.getBoundingClientRect().height > 50 && svg.querySelectorAll("path").length > 4).length,
    outside: figures.filter(svg => svg.getBoundingClientRect().right > innerWidth).length});
});</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_the_page(page, tmp_path):
    page.write_text(page.read_text().replace("</body>", MEASURE + "</body>"))
    for size in ("500,844", "1200,800"):    # no narrower window without a display
        dumped = browse(tmp_path, f"--window-size={size}", "--dump-dom", page.as_uri())
        seen = json.loads(re.search(r"<title>(.*?)</title>", dumped.stdout).group(1))
        assert seen["page"] <= seen["window"] and seen["outside"] == 0, "only tables and figures scroll sideways"
        assert seen["drawn"] == 8


def test_every_job_of_the_library_runs():
    done = call(ROOT / "tools/sim-table", "jobs", "8", "--packets", "300000")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if " | 8 | " in line]
    assert [row[0] for row in rows] == [path.stem for path in sorted((ROOT / "profiles/jobs").glob("*.yaml"))]
    assert all(float(row[6]) >= 1 for row in rows), "nothing is faster than its roofline"


def test_what_is_no_report_is_refused(tmp_path):
    pytest.importorskip("jinja2")
    (tmp_path / "x.json").write_text("{}")
    done = call(ROOT / "tools/html-report", tmp_path / "x.json", tmp_path / "x.html")
    assert done.returncode == 1 and "neither a report" in done.stderr
