#!/usr/bin/python3
"""The JSON Schemas of profiles/schema against every good file and shipped profile, and against those bad files whose
mistakes a schema can tell. The rest (references, sums, duplicate keys) is left to `nbx check`."""
import json
import re
import sys
from pathlib import Path

import jsonschema
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REJECTED = ["keys", "units", "rules", "neither", "nic-keys"]     # of bad/; the others pass or are no YAML


class CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema, which editors use: PyYAML's own reads 52:54:00:00:00:01 and `on` as YAML 1.1 does."""
    yaml_implicit_resolvers = {}


for tag, pattern, first in [
        ("bool", r"true|false", "tf"),
        ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("null", r"null|~|", ["n", "~", ""]),
        ("merge", "<<", "<")]:
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


def validator(kind):
    schema = json.loads((ROOT / f"profiles/schema/{kind}.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


VALIDATORS = {kind: validator(kind) for kind in ("cluster", "profile", "job", "nic", "scenario")}


def mistakes(path):
    content = yaml.load(path.read_text(), CoreLoader)
    kind = next((kind for kind in ("scenario", "cluster", "job", "nic") if kind in content), "profile")
    return [f"{path}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in VALIDATORS[kind].iter_errors(content)]


def main():
    good = sorted((HERE / "good").glob("*.yaml")) + sorted((ROOT / "profiles").glob("**/*.yaml"))
    failures = [mistake for path in good for mistake in mistakes(path)]
    failures += [f"bad/{name}.yaml: accepted" for name in REJECTED if not mistakes(HERE / f"bad/{name}.yaml")]
    print(f"{len(good)} good and {len(REJECTED)} bad files, {len(failures)} failures", *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
