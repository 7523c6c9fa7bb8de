"""A reproduction as one self-contained HTML page, with its figures and numbers as files beside it."""

import base64
import csv
import io
import platform
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from farflung.config import SCHEDULES
from farflung.experiments.claims import Cell, Claim, claims
from farflung.experiments.reproduce import Reproduction
from farflung.figures import paper
from farflung.offline import goals_of
from farflung.runs import write_atomically

_VERDICTS = {"holds": "holds", "undecided": "undecided", "does not hold": "fails"}
_SCHEDULE_NAMES = {"code": "constant 0.15 (the paper's code)", "text": "0.1, decaying by 0.999 per update (the paper's text)"}


def write_report(reproduction: Reproduction, out: Path, seconds: float) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary."""
    by_schedule = {schedule: list(claims(findings)) for schedule, findings in reproduction.findings.items()}
    tables = _tables(reproduction, by_schedule)
    try:
        pictures = _save_figures(reproduction, out / "figures")
        (out / "data").mkdir(exist_ok=True)
        for name, rows in tables.items():
            write_atomically(out / "data" / f"{name}.csv", _csv(rows))
        write_atomically(out / "index.html", _page(reproduction, by_schedule, pictures, seconds))
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {error.strerror or error}") from None
    return {
        "farflung": version("farflung"),
        "page": str(out / "index.html"),
        "seconds": seconds,
        "preview": reproduction.config.quick,
        "seeds": list(reproduction.config.seed_values),
        "updates": reproduction.config.updates,
        "claims": {schedule: _counts(found) for schedule, found in by_schedule.items()},
    }


def _figures(reproduction: Reproduction) -> dict[str, tuple[str, str, Callable[[], Figure]]]:
    """Name, title, caption and maker of each figure, in the paper's order."""
    schedule = reproduction.config.schedules[0]
    runs = {cell: run for (name, cell), run in reproduction.runs.items() if name == schedule}
    findings = reproduction.findings[schedule]
    worlds = {cell.world: run.world for cell, run in runs.items()}
    goals = {name: np.asarray(goals_of(world)) for name, world in worlds.items()}
    agents = findings.agents
    ends = [agents[0], agents[-1]] if len(agents) > 1 else agents
    most = agents[-1]
    seeds = f"Mean and 95% confidence interval (Student's t) over {reproduction.config.seeds} seeds."
    typical = "The seed with the median final entropy is shown."
    figures = {
        "worlds": (
            "The worlds",
            "The paper's two maps. In the -stoc versions another action is taken than the chosen one with probability 0.2.",
            lambda: paper.worlds_drawn(worlds),
        ),
        "learning-curves": (
            f"Entropy and support while learning, {' and '.join(map(str, ends))} agents (Figure 1)",
            f"Solid: parallel agents. Dashed: one policy that plays as many trajectories. {seeds}",
            lambda: paper.learning_curves(runs, ends),
        ),
        "dataset-entropy": (
            "Entropy of the collected datasets (Figure 2)",
            f"One trajectory per agent from the trained policies. Points are seeds. {seeds}",
            lambda: paper.dataset_entropies(findings),
        ),
        "offline-success": (
            "Offline RL: success for each goal (Figure 3)",
            f"Tabular Q-learning on the datasets of {most} trajectories, relabelled for each goal in turn; mean over seeds.",
            lambda: paper.goal_success_sorted(findings, most),
        ),
        "entropy-variance": (
            "Entropy and variance of a Bernoulli variable (Figure 4)",
            "The ratio in the proof of Theorem 4.1: smallest at p = 1/2.",
            paper.entropy_and_variance,
        ),
        "learning-curves-all": (
            f"Entropy and support while learning, {', '.join(map(str, agents))} agents (Figure 7)",
            f"As Figure 1, with all team sizes. {seeds}",
            lambda: paper.learning_curves(runs, agents),
        ),
        "occupancy": (
            "Where the agents go (Figure 8)",
            f"The exact distribution of the visited states under the trained policies. {typical}",
            lambda: paper.occupancies(runs, most),
        ),
        "goal-reachability": (
            "Offline RL: which goals are reached (Figure 9)",
            f"The success rates of Figure 3 on the map. Datasets of {most} trajectories; mean over seeds.",
            lambda: paper.goal_success_maps(findings, worlds, goals, most),
        ),
    }
    for world in [name for name in worlds if name.endswith("-det")] or list(worlds)[:1]:
        figures[f"policies-{world}"] = (
            f"Policies of a single agent and of {most} parallel ones, {world} (Figure 10)",
            f"The likeliest action wherever the agent goes; the darker, the more deterministic. {typical}",
            lambda world=world: paper.policies(runs, world, most),
        )
    if len(agents) < 3:
        del figures["learning-curves-all"]
    return figures


def _save_figures(reproduction: Reproduction, folder: Path) -> list[tuple[str, str, str, bytes]]:
    """Saves each figure as PNG and SVG and returns name, title, caption and SVG; the folder is replaced as a whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    pictures = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".figures-", ignore_cleanup_errors=True) as staging:
        fresh = Path(staging) / "figures"
        fresh.mkdir()
        for name, (title, caption, make) in _figures(reproduction).items():
            figure = make()
            figure.savefig(fresh / f"{name}.png", dpi=150)
            figure.savefig(fresh / f"{name}.svg", metadata={"Date": None})
            pictures.append((name, title, caption, (fresh / f"{name}.svg").read_bytes()))
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    return pictures


def _tables(reproduction: Reproduction, by_schedule: Mapping[str, Sequence[Claim]]) -> dict[str, list[Sequence[object]]]:
    seeds = reproduction.config.seed_values
    final: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "metric", "value")]
    data: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "normalized_entropy")]
    success: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "goal", "success_rate")]
    timings: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "environment_steps", "seconds", "compile_seconds")]
    decided: list[Sequence[object]] = [("schedule", "claim", "where", "world", "agents", "difference", "low", "high", "unit", "verdict")]
    for schedule, findings in reproduction.findings.items():
        for cell, metrics in findings.final.items():
            final += [(schedule, *cell, seed, name, value) for name, values in metrics.items() for seed, value in zip(seeds, values.tolist(), strict=True)]
        for cell, entropies in findings.dataset_entropy.items():
            data += [(schedule, *cell, seed, value) for seed, value in zip(seeds, entropies.tolist(), strict=True)]
        for cell, rates in findings.success.items():
            world = reproduction.runs[schedule, Cell(cell.world, cell.agents, "team")].world
            labels = np.asarray(world.labels)[np.asarray(goals_of(world))].tolist()
            success += [
                (schedule, *cell, seed, goal, rate)
                for seed, row in zip(seeds, rates.tolist(), strict=True)
                for goal, rate in zip(labels, row, strict=True)
            ]
    for (schedule, cell), run in reproduction.runs.items():
        timings.append((schedule, *cell, *(run.summary[key] for key in ("environment_steps", "seconds", "compile_seconds"))))
    for schedule, found in by_schedule.items():
        decided += [(schedule, c.statement, c.where, c.world, c.agents, *c.difference, c.unit, c.difference.verdict) for c in found]
    return {"claims": decided, "final": final, "datasets": data, "offline": success, "timings": timings}


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _counts(found: Sequence[Claim]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for claim in found:
        counts.setdefault(claim.statement, Counter(dict.fromkeys(_VERDICTS, 0)))[claim.difference.verdict] += 1
    return {statement: dict(verdicts) for statement, verdicts in counts.items()}


def _page(
    reproduction: Reproduction,
    by_schedule: Mapping[str, Sequence[Claim]],
    pictures: Sequence[tuple[str, str, str, bytes]],
    seconds: float,
) -> str:
    config = reproduction.config
    sections = [
        ("summary", "Summary", _summary(reproduction, by_schedule, seconds)),
        ("claims", "The paper's claims", _claims(by_schedule)),
        *((f"figure-{name}", title, _figure(title, caption, svg)) for name, title, caption, svg in pictures),
        ("settings", "Settings", _settings(reproduction)),
        ("deviations", "Where this differs from the paper, and why", _resource("deviations.html")),
        ("timings", "Timings", _timings(reproduction, seconds)),
    ]
    contents = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in sections)
    body = "".join(f'<section id="{name}"><h2>{escape(title)}</h2>{content}</section>' for name, title, content in sections)
    banner = (
        f'<p class="preview">Preview: {config.updates:,} updates and {config.seeds} seeds are too few for conclusions.</p>'
        if config.quick
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>farflung: the paper, reproduced</title>
<link rel="icon" href="data:,">
<style>{_resource("report.css")}</style>
</head>
<body>
<header><h1>Enhancing Diversity in Parallel Agents: A Maximum State Entropy Exploration Story, reproduced</h1>
<p>Every experiment of the ICML 2025 paper by De Paola, Zamboni, Mutti and Restelli, rerun by farflung {escape(version("farflung"))}.</p>{banner}</header>
<nav aria-label="Contents"><ol>{contents}</ol></nav>
<main>{body}</main>
</body>
</html>
"""


def _summary(reproduction: Reproduction, by_schedule: Mapping[str, Sequence[Claim]], seconds: float) -> str:
    head = "".join(f'<th colspan="3" scope="colgroup">{escape(_SCHEDULE_NAMES[schedule])}</th>' for schedule in by_schedule)
    kinds = "".join(f'<th scope="col">{escape(verdict)}</th>' for verdict in _VERDICTS) * len(by_schedule)
    rows = []
    counts = {schedule: _counts(found) for schedule, found in by_schedule.items()}
    for statement in next(iter(counts.values())):
        cells = "".join(
            f'<td class="{_VERDICTS[verdict] if number else "none"}">{number}</td>'
            for schedule in counts
            for verdict, number in counts[schedule][statement].items()
        )
        rows.append(f'<tr><th scope="row">{escape(statement)}</th>{cells}</tr>')
    steps = sum(run.summary["environment_steps"] for run in reproduction.runs.values())
    untrained = next(iter(reproduction.findings.values())).untrained_success
    return (
        f"<p>{len(reproduction.runs)} trainings of {reproduction.config.seeds} seeds each, {steps:,} environment steps in all; this page took "
        f"{seconds:.0f} seconds. Below, in how many settings (worlds and team sizes) each claim holds. The learning rate is "
        "what the paper's code has, and what its text has: they lead to different conclusions.</p>"
        f'<div class="scroll"><table><thead><tr><th rowspan="2" scope="col">claim</th>{head}</tr><tr>{kinds}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        "<p>A claim <em>holds</em> in a setting if the 95% bootstrap interval of the difference over seeds lies above zero, it "
        "<em>does not hold</em> if it lies below, and is <em>undecided</em> otherwise. With five seeds such intervals are "
        "somewhat too narrow; <code>--seeds 20</code> settles most of what is undecided.</p>"
        f"<p>Offline success by chance alone (Q-values that are all zero): {', '.join(f'{escape(w)} {rate:.3f}' for w, rate in untrained.items())}.</p>"
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
            f"<h3>{escape(statement[0].upper() + statement[1:])}</h3><p>{escape(first.where)}. Difference, {escape(first.unit)}, "
            f'with its 95% interval.</p><div class="pair">{"".join(blocks)}</div>'
        )
    return "".join(parts)


def _cell(claim: Claim) -> str:
    value, low, high = claim.difference
    verdict = claim.difference.verdict
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(low) else "one seed"
    return f'<td class="{_VERDICTS[verdict]}"><b>{value:+.3f}</b><br><small>{interval}</small><br><small>{escape(verdict)}</small></td>'


def _figure(title: str, caption: str, svg: bytes) -> str:
    source = base64.b64encode(svg).decode("ascii")
    return f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{source}"><figcaption>{escape(caption)}</figcaption></figure>'


def _settings(reproduction: Reproduction) -> str:
    config = reproduction.config
    rates = "; ".join(f"{_SCHEDULE_NAMES[schedule]}" for schedule in config.schedules)
    rows = {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "trajectories per agent (K)": "1; of the single agent K' = m",
        "batch size (B)": "40",
        "updates (N)": f"{config.updates:,}",
        "learning rate": rates,
        "seeds": ", ".join(map(str, config.seed_values)),
        "figures show the learning rate": _SCHEDULE_NAMES[config.schedules[0]],
        "final values": "mean over the last 1% of updates",
        "datasets": "one trajectory per agent and seed",
        "offline Q-learning": "100 minibatches of 20, learning rate 0.1, discount 0.99; 10 greedy episodes of at most 200 steps per goal",
        "device": next(iter(reproduction.runs.values())).summary["device"],
        "versions": ", ".join(f"{name} {version(name)}" for name in ("farflung", "jax", "numpy", "scipy")) + f", Python {platform.python_version()}",
    }
    assert set(config.schedules) <= set(SCHEDULES)
    return _definition_table(rows) + "<p>The numbers behind this page are in <code>data/</code>, the figures in <code>figures/</code>, the trained runs in <code>runs/</code>.</p>"


def _timings(reproduction: Reproduction, seconds: float) -> str:
    runs = reproduction.runs.values()
    steps, training = sum(run.summary["environment_steps"] for run in runs), {id(run.summary): run.summary["seconds"] for run in runs}
    compiling = {(cell, run.summary["compile_seconds"]) for (_, cell), run in reproduction.runs.items()}
    rows = {
        "environment steps": f"{steps:,}",
        "this page, from start to end": f"{seconds:.1f} s",
        "training, schedules side by side": f"{sum(training.values()) / len(reproduction.config.schedules):.1f} s",
        "compilation, while other parts trained": f"{sum(each for _, each in compiling):.1f} s",
    }
    return _definition_table(rows) + "<p>Parts that were kept from an earlier start count with the time that they took then.</p>"


def _definition_table(rows: Mapping[str, str]) -> str:
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows.items())
    return f'<div class="scroll"><table class="settings"><tbody>{body}</tbody></table></div>'


def _resource(name: str) -> str:
    return files("farflung").joinpath("resources", name).read_text(encoding="utf-8")
