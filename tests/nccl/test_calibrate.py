"""nbx calibrate: two results compared, and both runs measured on one emulated link of 1 Gb/s and 1 ms."""
import json
import os

import pytest

from lab import BIN, run
from transit import IN_A_ROW, TransitLab

CHANCES = 2  # one run on a machine that does other things besides may be off
TOLERANCE = 40  # transit.py is for the fidelity itself, on a machine that does nothing else


def result(file, **times):
    file.write_text(json.dumps({"times": times}))
    return file


def test_results_are_compared_and_the_exit_status_says_how(tmp_path):
    real = result(tmp_path / "real", step=[100, 90, 110])
    ghosts = result(tmp_path / "ghosts", step=[102, 80, 1000])
    done = run(BIN / "nbx", "calibrate", real, ghosts, "--tolerance", 2.5, "--json")
    row = json.loads(done.stdout)["rows"][0]
    assert row["error_percent"] == pytest.approx(2) and row["real"]["repeats"] == 3
    done = run(BIN / "nbx", "calibrate", real, ghosts, "--tolerance", 1, check=False)
    assert done.returncode == 1 and "+2.00 %  beyond" in done.stdout


@pytest.mark.parametrize("words, status, text", [
    ([], 2, "two result files"),
    (["--real", "true"], 2, "belong together"),
    (["/nowhere/a", "/nowhere/b"], 1, "/nowhere/a: cannot be read"),
    (["--real", "echo out of luck >&2; exit 7", "--ghosts", "true"], 1, "out of luck"),
])
def test_what_is_wrong_is_said(words, status, text):
    done = run(BIN / "nbx", "calibrate", *words, check=False)
    assert done.returncode == status and text in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
def test_a_ghost_takes_as_long_as_a_real_rank(tmp_path):
    sizes, repeats = ["-b", "64K", "-e", "1M", "-f", "16"], 20
    with TransitLab(tmp_path, 2) as lab:
        for _ in range(CHANCES):
            lab.nbx("set", "p0", "to_node.rate=unlimited", "to_node.delay=0s")
            done = lab.calibrate("--tolerance", TOLERANCE, "--json",
                                 program=["all_reduce", *sizes, "-n", IN_A_ROW * repeats, "-w", 3], limit_s=80)
            document = json.loads(done.stdout)
            assert {(row["size"], row["real"]["repeats"], row["ghosts"]["repeats"]) for row in document["rows"]} == {
                (65536, repeats, repeats), (1 << 20, repeats, repeats)}
            # 2 (n - 1) messages one after the other, each a link's 1 ms and its share of the bytes late.
            assert all(row[who]["median_us"] > 2 * (1000 + row["size"] / 2 / 125)
                       for row in document["rows"] for who in ("real", "ghosts"))
            if done.returncode == 0:
                return
        assert document["within"], document
