# SPDX-License-Identifier: Apache-2.0
"""The commands ``horovodrun doctor`` and ``python -m horovod.doctor``."""

from __future__ import annotations

import argparse
import json
import sys

from horovod.doctor.findings import Finding, Level, as_text, warning
from horovod.doctor.machine import examine, gather
from horovod.doctor.network import measure, parse_hosts, reach


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="horovodrun doctor", description="Look for what keeps a job from working.")
    parser.add_argument("-H", "--hosts", metavar="HOST[:SLOTS],...", help="examine these hosts, too")
    parser.add_argument("-np", "--num-proc", type=int, metavar="N", help="the ranks that the job will have")
    parser.add_argument("-p", "--ssh-port", type=int, metavar="PORT")
    parser.add_argument("-i", "--ssh-identity-file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    found = parser.parse_args(words)
    if found.num_proc is not None and found.num_proc < 1:
        parser.error(f"-np {found.num_proc}: at least 1")
    try:
        found.hosts = None if found.hosts is None else parse_hosts(found.hosts)
    except ValueError as error:
        parser.error(str(error))
    return found


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def main(words: list[str] | None = None) -> int:
    """Examine, print, and return 1 if anything failed."""
    wanted = _arguments(words)
    ssh = [] if wanted.ssh_port is None else ["-p", str(wanted.ssh_port)]
    ssh += [] if wanted.ssh_identity_file is None else ["-i", wanted.ssh_identity_file]
    several = wanted.hosts is not None and len(wanted.hosts) > 1
    here = wanted.num_proc
    if wanted.hosts is not None:
        here = wanted.hosts[0].slots if several or here is None else here
    findings: list[Finding] = []

    def add(more: list[Finding]) -> None:
        findings.extend(more)
        if not wanted.json and more:
            print(as_text(more), flush=True)

    add(examine(gather(), None if several else here, elsewhere=several))
    if wanted.hosts is not None:
        add(reach(wanted.hosts, ssh))
    measured: dict = {}
    if any(finding.level is Level.FAIL for finding in findings):
        add([warning("job", "none was tried, nor any host examined by one: see the failures above", "mend those")])
    else:
        more, measured = measure(wanted.hosts, wanted.num_proc, ssh)
        add(more)
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    if wanted.json:
        result = {"findings": [finding.as_dict() for finding in findings], "pairs": measured.get("pairs", [])}
        print(json.dumps(result))
    else:
        warnings, failures = _number(counts[Level.WARN], "warning"), _number(counts[Level.FAIL], "failure")
        print(f"\n{counts[Level.PASS]} passed, {warnings}, {failures}")
    return 1 if counts[Level.FAIL] else 0


if __name__ == "__main__":
    sys.exit(main())
