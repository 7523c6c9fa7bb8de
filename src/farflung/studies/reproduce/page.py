"""The text of the page about a reproduction: pure functions from results to HTML."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version

import numpy as np

from farflung.data.q_learning import PAPER
from farflung.figures.pages import Picture, Section, definition_table, document, figure_section, resource
from farflung.runs.run import Run
from farflung.studies.reproduce.claims import Cell, Claim
from farflung.studies.reproduce.experiment import Reproduction

_VERDICTS = {"holds": "holds", "undecided": "undecided", "does not hold": "fails"}
_SCHEDULE_NAMES = {"code": "constant 0.15 (the paper's code)", "text": "0.1, decaying by 0.999 per update (the paper's text)"}


def page(
    reproduction: Reproduction,
    by_schedule: Mapping[str, Sequence[Claim]],
    pictures: Sequence[Picture],
    seconds: float,
) -> str:
    config = reproduction.config
    sections = [
        Section("summary", "Summary", _summary(reproduction, by_schedule, seconds)),
        Section("claims", "The paper's claims", _claims(by_schedule)),
        Section("ceilings", "How near the best possible", _ceilings(reproduction)),
        *map(figure_section, pictures),
        Section("settings", "Settings", _settings(reproduction)),
        Section("deviations", "Where this differs from the paper, and why", resource("deviations.html")),
        Section("timings", "Timings", _timings(reproduction, seconds)),
    ]
    return document(
        "farflung: the paper, reproduced",
        "Enhancing Diversity in Parallel Agents: A Maximum State Entropy Exploration Story, reproduced",
        "Every experiment of the ICML 2025 paper by De Paola, Zamboni, Mutti and Restelli,\n"
        f"rerun by farflung {escape(version('farflung'))}.",
        sections,
        f"{config.updates:,} updates and {config.seeds} seeds are too few for conclusions." if config.quick else "",
    )


def _summary(reproduction: Reproduction, by_schedule: Mapping[str, Sequence[Claim]], seconds: float) -> str:
    head = "".join(f'<th colspan="3" scope="colgroup">{escape(_SCHEDULE_NAMES[schedule])}</th>' for schedule in by_schedule)
    kinds = "".join(f'<th scope="col">{escape(verdict)}</th>' for verdict in _VERDICTS) * len(by_schedule)
    rows = []
    counts = {schedule: count_verdicts(found) for schedule, found in by_schedule.items()}
    for statement in next(iter(counts.values())):
        cells = "".join(
            f'<td class="{_VERDICTS[verdict] if number else "none"}">{number}</td>'
            for schedule in counts
            for verdict, number in counts[schedule][statement].items()
        )
        rows.append(f'<tr><th scope="row">{escape(statement)}</th>{cells}</tr>')
    runs = _all_runs(reproduction)
    steps = sum(run.summary["environment_steps"] for run in runs)
    untrained = next(iter(reproduction.findings.values())).untrained_success
    chance = ", ".join(f"{escape(world)} {rate:.3f}" for world, rate in untrained.items())
    return (
        f"<p>{len(runs)} trainings of {reproduction.config.seeds} seeds each, {steps:,} environment steps in all; "
        f"this page took {seconds:.0f} seconds. Below, in how many settings (worlds and team sizes) each claim holds."
        f"{_comparison(by_schedule)}</p>"
        f'<div class="scroll"><table><thead><tr><th rowspan="2" scope="col">claim</th>{head}</tr><tr>{kinds}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        "<p>A claim <em>holds</em> in a setting if the 95% bootstrap interval of the difference over seeds lies above zero, it "
        "<em>does not hold</em> if it lies below, and is <em>undecided</em> otherwise. With five seeds such intervals are "
        "somewhat too narrow; <code>--seeds 20</code> settles most of what is undecided.</p>"
        f"<p>Offline success by chance alone (Q-values that are all zero): {chance}.</p>"
    )


def _comparison(by_schedule: Mapping[str, Sequence[Claim]]) -> str:
    """How much hangs on which of the paper's two learning rates is used."""
    if len(by_schedule) < 2:
        return ""
    code, text = ([claim.difference.verdict for claim in found] for found in by_schedule.values())
    num_same = sum(first == second for first, second in zip(code, text, strict=True))
    num_reversed = sum({first, second} == {"holds", "does not hold"} for first, second in zip(code, text, strict=True))
    return (
        " The paper's code and its text give different learning rates, so everything was done with both: "
        f"the verdict is the same in {num_same} of {len(code)} settings, and the opposite in {num_reversed}."
    )


def _claims(by_schedule: Mapping[str, Sequence[Claim]]) -> str:
    parts = []
    for statement in dict.fromkeys(claim.statement for found in by_schedule.values() for claim in found):
        blocks = []
        for schedule, found in by_schedule.items():
            own = [claim for claim in found if claim.statement == statement]
            columns = list(dict.fromkeys(claim.agents for claim in own))
            rows = "".join(
                f'<tr><th scope="row">{escape(world)}</th>' + "".join(_cell(c) for c in own if c.world == world) + "</tr>"
                for world in dict.fromkeys(claim.world for claim in own)
            )
            head = "".join(f'<th scope="col">m = {escape(column)}</th>' for column in columns)
            blocks.append(
                f'<div class="scroll"><table><caption>learning rate {escape(_SCHEDULE_NAMES[schedule])}</caption>'
                f'<thead><tr><th scope="col">world</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
            )
        first = next(claim for found in by_schedule.values() for claim in found if claim.statement == statement)
        parts.append(
            f"<h3>{escape(statement[0].upper() + statement[1:])}</h3>"
            f"<p>{escape(first.where)}. Difference {escape(first.unit)}, "
            f'with its 95% interval.</p><div class="pair">{"".join(blocks)}</div>'
        )
    return "".join(parts)


def _ceilings(reproduction: Reproduction) -> str:
    columns = [(schedule, kind) for schedule in reproduction.findings for kind in ("team", "single")]
    groups = "".join(
        f'<th colspan="2" scope="colgroup">{escape(_SCHEDULE_NAMES[schedule])}</th>' for schedule in reproduction.findings
    )
    kinds = "".join('<th scope="col">parallel</th><th scope="col">single</th>' for _ in reproduction.findings)
    rows = []
    for (world, agents), ceiling in next(iter(reproduction.findings.values())).ceilings.items():
        cells = "".join(
            f"<td>{reproduction.findings[schedule].percent_of_ceiling(Cell(world, agents, kind)).mean():.1f}%</td>"
            for schedule, kind in columns
        )
        kind = "exact" if ceiling.exact else "upper bound"
        name = f'<th scope="row">{escape(world)}, m&nbsp;=&nbsp;{agents}</th>'
        rows.append(f"<tr>{name}<td>{ceiling.normalized_bound:.4f}</td><td>{escape(kind)}</td>{cells}</tr>")
    return (
        "<p>No policies, not even such that remember their past, have a higher expected entropy than the ceiling. In "
        "deterministic worlds it is exact, found by an integer program; elsewhere an upper bound, by a linear one. Beside it, "
        "which percentage of it the trained policies reach; mean over seeds.</p>"
        '<div class="scroll"><table><thead><tr><th rowspan="2" scope="col">setting</th><th rowspan="2" scope="col">ceiling, in '
        f'units of log 43</th><th rowspan="2" scope="col"></th>{groups}</tr><tr>{kinds}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(claim: Claim) -> str:
    value, low, high = claim.difference
    verdict = claim.difference.verdict
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(low) else "one seed"
    text = f"<b>{value:+.3f}</b><br><small>{interval}</small><br><small>{escape(verdict)}</small>"
    return f'<td class="{_VERDICTS[verdict]}">{text}</td>'


def _settings(reproduction: Reproduction) -> str:
    config = reproduction.config
    first = _all_runs(reproduction)[0]
    rates = "; ".join(_SCHEDULE_NAMES[schedule] for schedule in config.schedules)
    rows = {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "trajectories per agent (K)": "1; of the single agent K' = m",
        "batch size (B)": str(first.config.batch_size),
        "updates (N)": f"{config.updates:,}",
        "learning rate": rates,
        "seeds": ", ".join(map(str, config.seed_values)),
        "figures show the learning rate": _SCHEDULE_NAMES[config.schedules[0]],
        "final values": "mean over the last 1% of updates",
        "datasets": f"{config.datasets} for each seed, with one trajectory per agent",
        "offline Q-learning": f"{PAPER.num_batches} minibatches of {PAPER.batch_size}, learning rate {PAPER.learning_rate}, "
        f"discount {PAPER.discount}; {PAPER.num_episodes} greedy episodes of at most {PAPER.max_steps} steps per goal",
        "device": first.summary["device"],
        "versions": ", ".join(f"{name} {version(name)}" for name in ("farflung", "jax", "numpy", "scipy"))
        + f", Python {platform.python_version()}",
    }
    return (
        definition_table(rows)
        + "<p>The numbers behind this page are in <code>data/</code>, the figures in <code>figures/</code>, "
        "the trained runs in <code>runs/</code>.</p>"
    )


def _timings(reproduction: Reproduction, seconds: float) -> str:
    runs = _all_runs(reproduction)
    # Parts that trained side by side have these in common, to the last digit.
    timings = {(run.summary["seconds"], run.summary["compile_seconds"]) for run in runs}
    training, compiling = (sum(column) for column in zip(*timings, strict=True))
    rows = {
        "environment steps": f"{sum(run.summary['environment_steps'] for run in runs):,}",
        "this page, from start to end": f"{seconds:.1f} s",
        "training, several parts side by side": f"{training:.1f} s",
        "compilation, while other parts trained": f"{compiling:.1f} s",
    }
    return definition_table(rows) + "<p>Parts that were kept from an earlier start count with the time that they took then.</p>"


def _all_runs(reproduction: Reproduction) -> list[Run]:
    return [run for own in reproduction.runs.values() for run in own.values()]


def count_verdicts(found: Sequence[Claim]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for claim in found:
        counts.setdefault(claim.statement, Counter(dict.fromkeys(_VERDICTS, 0)))[claim.difference.verdict] += 1
    return {statement: dict(verdicts) for statement, verdicts in counts.items()}
