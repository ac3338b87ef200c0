#!/usr/bin/python3
"""The suites of tools/test: what each runs, and how its test cases are counted.

build/ is what users get (gcc, release with debug info); build-asan/ is the same sources under clang with
AddressSanitizer, UndefinedBehaviorSanitizer and, for the fuzz targets, libFuzzer. Every step has a time limit.
"""
import argparse
import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD, SANITIZED = ROOT / "build", ROOT / "build-asan"
REPORTS = BUILD / "reports"
BUILD_LIMIT_S = 1800
FUZZ_S = 30
TIDY_LIMIT_S = 150
CPP_SUFFIXES = {".cpp", ".hpp", ".c", ".h"}


@dataclass
class Outcome:
    """What became of a suite's test cases: how many passed, and (name, reason) of the others."""
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def judge(self, name, error):
        """Counts one case, which passed when `error` is empty."""
        if error:
            self.failed.append((name, error))
        else:
            self.passed += 1


def run(command, limit_s, **environment):
    """Status and output of a command; its whole process group ends when it runs past the limit."""
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env={**os.environ, **environment}, text=True,
                               errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)       # lets the VM suite stop its machines
        try:
            output, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return 124, f"{output}\nended after its limit of {limit_s} s"


def tail(text, lines=40):
    return "\n".join(text.strip().splitlines()[-lines:])


def junit(path):
    """The outcome in a JUnit report of meson or pytest."""
    outcome = Outcome()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        skip = case.find("skipped")
        if problem is not None:
            outcome.failed.append((name, tail(problem.text or problem.get("message") or "failed")))
        elif skip is not None:
            outcome.skipped.append((name, skip.get("message") or skip.text or "no reason given"))
        else:
            outcome.passed += 1
    return outcome


def reported(report, status, output):
    """The report's outcome, or a failure when there is none or it does not explain the exit status."""
    if not report.exists():
        return Outcome(failed=[(report.stem, tail(output) or f"no report, status {status}")])
    outcome = junit(report)
    if status and not outcome.failed:
        outcome.failed.append((report.stem, tail(output)))
    return outcome


def build_release():
    status, output = run([ROOT / "tools/build"], BUILD_LIMIT_S)
    return status, output


def build_sanitized():
    if not (SANITIZED / "build.ninja").exists():
        launcher = "ccache " if run(["sh", "-c", "command -v ccache"], 10)[0] == 0 else ""
        status, output = run(["meson", "setup", SANITIZED, "-Doptimization=1", "-Ddebug=true", "-Dfuzz=true",
                              "-Db_sanitize=address,undefined", "-Db_lundef=false"],
                             60, CC=launcher + "clang", CXX=launcher + "clang++")
        if status:
            return status, output
    return run(["ninja", "-C", SANITIZED], BUILD_LIMIT_S)


def meson_suite(build, suite):
    def body():
        report = build / f"meson-logs/{suite}.junit.xml"
        report.unlink(missing_ok=True)
        status, output = run(["meson", "test", "-C", build, "--no-rebuild", "--suite", suite, "--logbase", suite,
                              "--timeout-multiplier", "4", "--print-errorlogs"], 400,
                             UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
        return reported(report, status, output)
    return body


def pytest_suite(folder, limit_s, build=BUILD):
    def body():
        report = REPORTS / f"{Path(folder).name}.junit.xml"
        report.unlink(missing_ok=True)
        status, output = run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder,
                              f"--junitxml={report}"], limit_s, NBX_BIN=str(build / "bin"))
        return reported(report, status, output)
    return body


def tracked(*suffixes):
    status, output = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], 30)
    if status:      # not a clone: take what is there
        output = "\n".join(str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                           if path.is_file() and not path.relative_to(ROOT).parts[0].startswith("build"))
    return [name for name in output.splitlines() if Path(name).suffix in suffixes and (ROOT / name).exists()]


def formatting():
    checks = [("clang-format --dry-run -Werror", name) for name in tracked(*CPP_SUFFIXES)]
    checks += [("shellcheck", name) for name in tracked("") if (ROOT / name).read_bytes().startswith(b"#!/bin/sh")]
    outcome = Outcome()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda check: run([*check[0].split(), check[1]], 60), checks)
        for (tool, name), (status, output) in zip(checks, results):
            outcome.judge(f"{tool.split()[0]} {name}", status and tail(output, 8))
    return outcome


def tidy():
    """clang-tidy on every source, the latest changed first. It advises: files with findings, and those that the time limit
    leaves out, are skips with their reason."""
    sources = [name for name in tracked(".cpp") if not name.startswith("tests/")]
    sources.sort(key=lambda name: -(ROOT / name).stat().st_mtime)
    outcome, end = Outcome(), time.monotonic() + TIDY_LIMIT_S

    def check(name):
        left = end - time.monotonic()
        return run(["clang-tidy", "--quiet", "-p", SANITIZED, name], left) if left > 5 else (124, "")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, (status, output) in zip(sources, pool.map(check, sources)):
            findings = output.count(": error: ") + output.count(": warning: ")
            if status == 124:
                outcome.skipped.append((f"clang-tidy {name}", f"not reached within {TIDY_LIMIT_S} s"))
            elif status:
                outcome.skipped.append((f"clang-tidy {name}", f"advice, {findings} findings"))
            else:
                outcome.passed += 1
    return outcome


def fuzz():
    """Each target for a bounded time from its committed corpus; new inputs stay in the build folder."""
    targets = [path for path in sorted((SANITIZED / "tests/fuzz").glob("fuzz_*")) if path.is_file()]
    if not targets:
        return Outcome(failed=[("fuzz", f"no targets in {SANITIZED}/tests/fuzz")])

    def attack(target):
        found = SANITIZED / "fuzz" / target.name
        found.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "tests/fuzz/corpus" / target.name.removeprefix("fuzz_")
        return run([target, found, *([seeds] if seeds.is_dir() else []), f"-max_total_time={FUZZ_S}", "-timeout=10",
                    f"-artifact_prefix={found}/", "-print_final_stats=1"], FUZZ_S + 60,
                   UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
                   RES_OPTIONS="timeout:1 attempts:1")     # a capture filter may name hosts

    outcome = Outcome()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, (status, output) in zip(targets, pool.map(attack, targets)):
            outcome.judge(target.name, status and tail(output))
    return outcome


@dataclass
class Suite:
    name: str
    about: str
    body: object
    needs: tuple = (build_release,)


SUITES = [
    Suite("format", "clang-format on every source, shellcheck on every script", formatting, ()),
    Suite("unit", "each rule of a room", meson_suite(BUILD, "unit")),
    Suite("property", "laws that hold for any input", meson_suite(BUILD, "property")),
    Suite("theory", "the emulated network against theory and published behaviour", meson_suite(BUILD, "theory")),
    Suite("bench", "every stage of nbx bench once", meson_suite(BUILD, "bench")),
    Suite("conformance", "captures of the Linux kernel as the oracle", pytest_suite("tests/conformance", 180)),
    Suite("sanitized-unit", "unit under ASan and UBSan", meson_suite(SANITIZED, "unit"), (build_sanitized,)),
    Suite("sanitized-property", "property under ASan and UBSan", meson_suite(SANITIZED, "property"),
          (build_sanitized,)),
    Suite("sanitized-conformance", "conformance under ASan and UBSan", pytest_suite("tests/conformance", 300, SANITIZED),
          (build_sanitized,)),
    Suite("fuzz", f"each libFuzzer target for {FUZZ_S} s", fuzz, (build_sanitized,)),
    Suite("tidy", f"clang-tidy, at most {TIDY_LIMIT_S} s", tidy, (build_sanitized,)),
    Suite("integration", "nbxd between network namespaces, an ordinary kernel as the peer",
          pytest_suite("tests/integration", 600)),
    Suite("vm", "a Linux kernel with soft-RoCE against ghosts", pytest_suite("tests/vm", 1500)),
    Suite("nccl", "unmodified NCCL without a GPU; builds it when it is not in the cache", pytest_suite("tests/nccl", 2700)),
]


def main():
    parser = argparse.ArgumentParser(prog="tools/test")
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    parser.add_argument("--suite", action="append", choices=[suite.name for suite in SUITES], metavar="NAME",
                        help="only this suite; may be given again")
    options = parser.parse_args()
    if options.list:
        for suite in SUITES:
            print(f"{suite.name:<22} {suite.about}")
        return 0

    total, builds = Outcome(), {}
    for suite in SUITES:
        if options.suite and suite.name not in options.suite:
            continue
        began = time.monotonic()
        for build in suite.needs:
            if build not in builds:
                builds[build] = build()
        broken = next((build for build in suite.needs if builds[build][0]), None)
        outcome = suite.body() if broken is None else Outcome(failed=[(suite.name, tail(builds[broken][1]))])
        total.add(outcome)
        print(f"{suite.name:<22} {outcome.passed:5} passed {len(outcome.failed):3} failed {len(outcome.skipped):3} "
              f"skipped  {time.monotonic() - began:6.1f} s", flush=True)
        for name, error in outcome.failed:
            print(f"  FAILED {name}\n    " + error.replace("\n", "\n    "), flush=True)
        for name, reason in outcome.skipped:
            print(f"  skipped {name}: {reason}", flush=True)
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
