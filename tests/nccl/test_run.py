"""nbx run: what it sets, what it leaves alone, and that it becomes the program."""
import json
import os
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")).resolve()
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "NBX_", "LD_"))}


def run(*words, environment=None):
    return subprocess.run([str(word) for word in (BIN / "nbx", "run", *words)], env={**PLAIN, **(environment or {})},
                          capture_output=True, text=True, check=False)


def dry_run(*options, environment=None):
    done = run("--dry-run", "--json", *options, "--", "program", "--option", environment=environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["command"] == ["program", "--option"]
    return {row["name"]: row for row in document["environment"]}


def value_of(rows):
    return {name: row["value"] for name, row in rows.items()}


def test_full_mode():
    rows = value_of(dry_run("--net", "plugin"))
    libraries = ("LD_PRELOAD", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_NET_PLUGIN")
    assert all(Path(rows[name]).parent == BIN and Path(rows[name]).exists() for name in libraries)
    assert len({Path(rows[name]).resolve() for name in libraries[:3]}) == 1  # one library, which NCCL loads once
    assert rows["NBX_MODE"] == "full" and "NBX_RANKS" not in rows
    assert rows["NBX_ANNOUNCE"] == "127.0.0.1:4790"
    assert rows["NCCL_NET"] == "NeuronaBox"
    assert {rows[name] for name in ("NCCL_PAT_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_RAS_ENABLE",
                                    "NCCL_ALLGATHERV_ENABLE")} == {"0"}


def test_options():
    rows = value_of(dry_run("--inflate", "--ranks", "8", "--rank-map", "0,4", "--algo", "tree", "--proto", "ll128",
                            "--channels", "4", "--net", "ib", "--announce", "10.0.0.9:4790"))
    assert (rows["NBX_MODE"], rows["NBX_RANKS"], rows["NBX_RANK_MAP"]) == ("inflate", "8", "0,4")
    assert (rows["NBX_ALGO"], rows["NBX_PROTO"], rows["NCCL_PROTO"]) == ("tree", "ll128", "ll128")
    assert rows["NBX_CHANNELS"] == rows["NCCL_MIN_NCHANNELS"] == rows["NCCL_MAX_NCHANNELS"] == "4"
    assert (rows["NCCL_NET"], rows["NCCL_NET_PLUGIN"], rows["NBX_ANNOUNCE"]) == ("IB", "none", "10.0.0.9:4790")


def test_what_the_user_has_set_stays_unless_an_option_says_otherwise():
    rows = dry_run("--net", "ib", environment={"NCCL_RAS_ENABLE": "1", "NCCL_NET": "Socket", "NCCL_IB_TIMEOUT": "14"})
    assert (rows["NCCL_RAS_ENABLE"]["value"], rows["NCCL_RAS_ENABLE"]["action"]) == ("1", "kept")
    assert (rows["NCCL_NET"]["value"], rows["NCCL_NET"]["action"], rows["NCCL_NET"]["before"]) == (
        "IB", "replaced", "Socket")
    assert "NCCL_IB_TIMEOUT" not in rows


def test_it_becomes_the_program():
    program = "import os, sys; print(os.environ['NCCL_RAS_ENABLE'], os.environ['NBX_MODE']); sys.exit(7)"
    done = run("--", "/usr/bin/python3", "-c", program, environment={"NCCL_RAS_ENABLE": "1"})
    assert (done.returncode, done.stdout) == (7, "1 full\n")
    assert "nbx run: set NBX_MODE=full" in done.stderr
    assert "nbx run: kept NCCL_RAS_ENABLE=1" in done.stderr


@pytest.mark.parametrize("words, text", [
    (["--inflate", "--", "true"], "--inflate needs --ranks"),
    (["--ranks", "8", "--", "true"], "are for --inflate"),
    (["--mirror", "--", "true"], "needs --real-ranks"),
    (["--", "/no/such/program"], "/no/such/program: No such file or directory"),
    ([], "COMMAND is required"),
])
def test_what_cannot_work_is_said(words, text):
    done = run(*words)
    assert done.returncode == 2 and text in done.stderr, done
