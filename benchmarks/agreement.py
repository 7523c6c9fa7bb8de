"""Whether two disjoint sets of seeds give the same verdicts on the paper."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import tyro

from farflung.config import Reproduce


@dataclass(frozen=True)
class Agreement:
    """Reproduce the paper with two disjoint sets of seeds and count the verdicts that agree."""

    seeds: int = 10
    """Seeds in each set."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the verdicts of both sets to this file."""


def main(config: Agreement) -> None:
    sets = [range(first, first + config.seeds) for first in (1000, 2000)]
    first, second = (_verdicts(seeds) for seeds in sets)
    pairs = Counter(" and ".join(sorted((first[setting], second[setting]))) for setting in first)
    agree = sum(first[setting] == second[setting] for setting in first)
    opposite = pairs["does not hold and holds"]
    print(f"verdicts of {config.seeds} and {config.seeds} other seeds: {agree} of {len(first)} agree, {opposite} are opposite")
    for pair, number in pairs.most_common():
        print(f"{number:6}  {pair}")
    for setting in first:
        if first[setting] != second[setting]:
            print(f"        {setting}: {first[setting]}; {second[setting]}")
    if config.json is not None:
        config.json.write_text(json.dumps([first, second], indent=1) + "\n", encoding="utf-8")


def _verdicts(seeds: Sequence[int]) -> dict[str, str]:
    """The verdict on each claim in each setting and training; those of theorems, which need no seeds, are left out."""
    from farflung.studies.reproduce.claims import claims
    from farflung.studies.reproduce.experiment import reproduce

    patched: Any = property(lambda _: tuple(seeds))
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(Reproduce, "seed_values", patched):
        found = reproduce(Reproduce(seeds=len(seeds)), Path(folder) / "reproduction")
        return {
            f"{training}: {claim.statement} ({claim.world}, m = {claim.agents})": claim.verdict
            for training, findings in found.findings.items()
            for claim in claims(findings, found.theorems)
            if claim.difference.low < claim.difference.high
        }


if __name__ == "__main__":
    main(tyro.cli(Agreement))
