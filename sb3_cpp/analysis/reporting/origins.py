"""Where the numbers of a report come from: commands, commits, versions, machines and settings."""

from collections.abc import Iterable
from typing import Any

import yaml

from sb3_cpp.analysis.reporting.html import bullets, definitions, paragraph, preformatted, unfolding
from sb3_cpp.analysis.results import Results


def origins(results: Results) -> str:
    """As HTML; what a run did not record is said to be not recorded."""
    if not results.configs:
        return paragraph("No settings were found with these runs.")
    provenances = [entry.get("provenance") or {} for entry in results.configs]
    parts = ["<h3>Commands</h3>"]
    parts += [
        preformatted(command, "command")
        for command in _distinct(p.get("command", "not recorded") for p in provenances)
    ]
    parts += [
        "<h3>Commits</h3>",
        bullets(_distinct(str(p.get("commit", "not recorded")) for p in provenances)),
    ]
    parts += ["<h3>Versions</h3>"]
    parts += [
        definitions(_pairs(versions))
        for versions in _distinct(p.get("versions") or {} for p in provenances)
    ]
    parts += ["<h3>Hardware</h3>"]
    parts += [
        definitions(_pairs(machine))
        for machine in _distinct(p.get("machine") or {} for p in provenances)
    ]
    parts += ["<h3>Settings and seeds</h3>", *(_settings(entry) for entry in results.configs)]
    return "\n".join(parts)


def _settings(entry: dict[str, Any]) -> str:
    seeds = ", ".join(str(seed) for seed in entry["seeds"])
    record = {"config": entry["config"], "class_defaults": entry.get("class_defaults") or {}}
    text = yaml.safe_dump(record, sort_keys=False, width=100)
    return unfolding(
        f"{entry['suite']}: {entry['algo']} on {entry['task']}, seeds {seeds}", preformatted(text)
    )


def _pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in values.items()] or [("not recorded", "")]


def _distinct(values: Iterable[Any]) -> list[Any]:
    """In the order of their first appearance; works for mappings, which cannot be hashed."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
