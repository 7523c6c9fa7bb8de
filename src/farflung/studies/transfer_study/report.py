"""The page of a transfer study: claims with verdicts, curves, and what the agents are like."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from farflung.figures.pages import VERDICT_CLASSES, Chart, Plot, Table, Value, versions, write_page
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE
from farflung.runs.destinations import Destination
from farflung.runs.run import PAGE
from farflung.runs.statistics import Difference, contrast, corrected, mean_difference
from farflung.studies.compare.comparison import Estimate, has_rliable, interval_of_mean
from farflung.studies.transfer_study.experiment import BY_ACTOR_CRITIC, EXPLORERS, Study, run_of
from farflung.studies.transfer_study.results import EXPLORED, KINDS, SOLVED, WorldStudy

_COLORS = dict(
    zip(KINDS, (BLUE, GREEN, ORANGE, "#7b4fa3", "#b8860b", GREY, RED, "#0e7490"), strict=True),
)

_WITH_BANDS = ("team", "scratch")
_SHORT = {
    "team": "team",
    "independent": "independent agents",
    "single": "one exploring policy",
    "archive": "MAP-Elites",
    "random": "random policies",
    "scratch": "scratch",
    "entropy": "scratch with RE3",
    "curious": "scratch with RND",
}
_ALONE = ("scratch", "entropy", "curious")
"""The ways that neither explore nor choose."""


class Claim(NamedTuple):
    """A statement about the team, against one other way to begin, in one world."""

    statement: str
    world: str
    against: str
    difference: Difference
    unit: str
    p_holm: float = 1.0

    @property
    def verdict(self) -> str:
        return self.difference.verdict_at(self.p_holm)


def claims(study: Study) -> list[Claim]:
    """All claims, with p-values corrected within each statement by Holm's method."""
    return corrected(each for world in study.worlds for each in _measured(world))


def _measured(world: WorldStudy) -> Iterator[Claim]:
    team, most = world.learning["team"], world.most_steps
    others = {kind: own for kind, own in world.learning.items() if kind != "team"}
    for kind, own in others.items():
        statement = "the team's best agent ends with more goals solved, with the same steps in total"
        yield Claim(statement, world.name, kind, mean_difference(team.final, own.final), "share of goals")
    for kind, own in others.items():
        statement = "the team's best agent has more goals solved on average over all steps (the area under the curve)"
        yield Claim(statement, world.name, kind, mean_difference(team.area(most), own.area(most)), "share of goals")
    for kind in _ALONE:
        statement = "exploration has paid for itself after these goals: the steps saved exceed those of exploration"
        yield Claim(statement, world.name, kind, contrast((1,), world.saved(kind) / 1e6), "million steps")
    for kind in ("independent", "single", "random"):
        statement = "the team has more distinct routes to a goal"
        found = mean_difference(world.diversity["team"].routes, world.diversity[kind].routes)
        yield Claim(statement, world.name, kind, found, "routes")


def write_study(study: Study, out: str | Path | Destination, began: float) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary."""
    decided, pages = claims(study), _pages(study, out.folder if isinstance(out, Destination) else Path(out))
    counts = {
        statement: dict(Counter(claim.verdict for claim in decided if claim.statement == statement))
        for statement in dict.fromkeys(claim.statement for claim in decided)
    }
    values = {
        "config": study.config,
        "notes": study.notes,
        "counts": counts,
        "kinds": KINDS,
        "solved": SOLVED,
        "has_rliable": has_rliable(),
        "together": _together_table(study),
        "claims": _claim_tables(study, decided, pages),
        "results": [_result_table(world, pages) for world in study.worlds],
        "paying": _paying_table(study, pages),
        "has_runs": bool(pages),
        "agents": _diversity_table(study, pages),
        "settings": {
            "versions": versions(),
            "seeds": str(study.config.seeds),
            "goals in each world": str(study.config.goals),
            "agents": str(study.config.agents),
            "updates of exploration": _exploration(study),
            "updates for a goal after exploration": str(study.config.learning_updates),
        },
    }
    plots = {}
    for world in study.worlds:
        bands = _bands(world)
        plots[world.name] = Plot(
            f"Goals solved against steps: {world.name}",
            "Mean over seeds, for two of them with 95% intervals; steps are those of one seed for all goals, with "
            "exploration and the choice of agents. Whoever explores first starts later.",
            partial(_curves, world, bands),
            charts=[_chart(world, bands)],
        )
    summary = write_page("transfer.html.j2", values, plots, _tables(study, decided), out, began)
    return summary | {"claims": counts}


def _exploration(study: Study) -> str:
    """The number of updates, and in which worlds it is another."""
    others = [(world.name, BY_ACTOR_CRITIC[world.name]) for world in study.worlds if world.name in BY_ACTOR_CRITIC]
    told = [f"in {name} {times * study.config.updates}, by the actor-critic instead of PGPSE" for name, times in others]
    return "; ".join([str(study.config.updates), *told])


_Pages = Mapping[tuple[str, str], str]
"""The pages of runs, by the world and the way to begin."""


def _pages(study: Study, folder: Path) -> _Pages:
    links = {(world.name, kind): f"{run_of(world.name, kind)}/{PAGE}" for world in study.worlds for kind in EXPLORERS}
    return {key: link for key, link in links.items() if (folder / link).is_file()}


def _linked(text: str, world: str, kind: str, pages: _Pages) -> str | Value:
    """A cell that leads to the page of its run, if there is one."""
    link = pages.get((world, kind))
    return text if link is None else Value(text, "", link=link)


def _bands(world: WorldStudy) -> dict[str, Estimate]:
    """The share of solved goals at each record with its interval over seeds, for the two curves that matter most.

    A seed is one number: its goals are learned from the same team, so they are no independent tasks.
    """
    return {kind: interval_of_mean(world.learning[kind].solved[:, None]) for kind in _WITH_BANDS}


def _chart(world: WorldStudy, bands: Mapping[str, Estimate]) -> Chart:
    lines = []
    for kind, own in world.learning.items():
        line = {"title": _SHORT[kind], "xs": own.steps, "ys": own.solved.mean(axis=0), "color": _COLORS[kind]}
        line |= {} if kind in EXPLORED else {"dash": "5 4"}
        if kind in bands and np.isfinite(bands[kind].low).all():
            line |= {"low": bands[kind].low, "high": bands[kind].high}
        lines.append(line)
    return Chart(f"{world.name}: goals solved", lines, across="environment steps for all goals", unit="steps")


@mpl.rc_context(STYLE)
def _curves(world: WorldStudy, bands: Mapping[str, Estimate]) -> Figure:
    """The share of solved goals against all environment steps."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axis = figure.subplots()
    for kind, own in world.learning.items():
        steps = own.steps / 1e6
        look: dict[str, Any] = {
            "color": _COLORS[kind],
            "ls": "-" if kind in EXPLORED else "--",
            "lw": 2 if kind == "team" else 1.3,
        }
        axis.plot(steps, own.solved.mean(axis=0), label=KINDS[kind], **look)
        if kind in bands:
            axis.fill_between(steps, bands[kind].low, bands[kind].high, color=_COLORS[kind], alpha=0.1, lw=0)
    axis.axvspan(0, world.explored_steps / 1e6, color=GREY, alpha=0.1, lw=0)
    axis.text(world.explored_steps / 2e6, 1.02, "exploration", ha="center", fontsize=8, color=GREY)
    axis.set(xlabel="environment steps for all goals (millions)", ylim=(0, 1.08))
    axis.set_ylabel(f"goals solved ({100 * SOLVED:.0f}% success)")
    axis.set_xlim(left=0)
    axis.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _claim_tables(study: Study, decided: Sequence[Claim], pages: _Pages) -> list[Table]:
    tables = []
    for statement in dict.fromkeys(claim.statement for claim in decided):
        own = [claim for claim in decided if claim.statement == statement]
        kinds = list(dict.fromkeys(claim.against for claim in own))
        rows = []
        for kind in kinds:
            found = {claim.world: claim for claim in own if claim.against == kind}
            cells = [_cell(found[world.name], pages) if world.name in found else "" for world in study.worlds]
            rows.append((KINDS[kind], cells))
        head = ("against", *(world.name for world in study.worlds))
        tables.append(Table(head, rows, f"{statement[0].upper()}{statement[1:]} (differences: {own[0].unit})"))
    return tables


def _cell(claim: Claim, pages: _Pages) -> Value:
    difference = claim.difference
    interval = f"{difference.value:+.3g} ({difference.low:+.2g} to {difference.high:+.2g})"
    notes = (interval, f"p = {claim.p_holm:.2g} after Holm")
    return Value(claim.verdict, VERDICT_CLASSES[claim.verdict], notes, pages.get((claim.world, "team"), ""))


def _result_table(world: WorldStudy, pages: _Pages) -> Table:
    rows = []
    for kind, own in world.learning.items():
        steps, never = interval_of_mean(own.steps_to_solve.mean(axis=1)[:, None]), 1 - own.ever_solved.mean()
        at_least = "" if never == 0 else f"; {100 * never:.0f}% never"
        cells = (
            f"{own.before.mean():.2f}",
            _interval(own.success[:, :, -1].mean(axis=1)),
            _interval(own.final),
            _interval(own.area(world.most_steps), 3),
            f"{steps.value:,.0f} ({steps.low:,.0f} to {steps.high:,.0f}){at_least}",
        )
        rows.append((KINDS[kind], [_linked(cell, world.name, kind, pages) for cell in cells]))
    head = ("", "success before learning", "final success", "goals solved", "area", f"steps to {100 * SOLVED:.0f}% success")
    return Table(head, rows, f"{world.name}: {len(world.goals)} goals, {world.explored_steps:,} steps of exploration")


def _interval(by_seed: Float[np.ndarray, "seed *world"], decimals: int = 2) -> str:
    found = interval_of_mean(by_seed.reshape(len(by_seed), -1))
    return f"{found.value:.{decimals}f} ({found.low:.{decimals}f} to {found.high:.{decimals}f})"


def _together_table(study: Study) -> Table:
    """All worlds together: rliable's tasks are the worlds, and its runs the seeds. A number leads to those of each world."""
    rows = []
    for kind in (each for each in KINDS if all(each in world.learning for world in study.worlds)):
        own = [(world, world.learning[kind]) for world in study.worlds]
        columns = (
            np.stack([each.final for _, each in own], axis=1),
            np.stack([each.area(world.most_steps) for world, each in own], axis=1),
            np.stack([each.steps_to_solve.mean(axis=1) / world.most_steps * len(world.goals) for world, each in own], axis=1),
        )
        rows.append((KINDS[kind], [Value(_interval(column, 3), "", link="#numbers") for column in columns]))
    steps = f"steps to {100 * SOLVED:.0f}% success for a goal (exploration left out), of all steps"
    head = ("", "goals solved", "area under the curve", steps)
    return Table(head, rows)


def _paying_table(study: Study, pages: _Pages) -> Table:
    rows = []
    for kind in _ALONE:
        numbers = [world.goals_to_pay(kind) for world in study.worlds]
        texts = [f"{math.ceil(number):,} goals" if math.isfinite(number) else "never" for number in numbers]
        own = zip(texts, study.worlds, strict=True)
        rows.append((KINDS[kind], [_linked(text, world.name, "team", pages) for text, world in own]))
    return Table(("against", *(world.name for world in study.worlds)), rows)


def _diversity_table(study: Study, pages: _Pages) -> Table:
    rows = []
    for kind in ("team", "independent", "single", "random", "archive"):
        cells = []
        for world in study.worlds:
            own = world.diversity.get(kind)
            texts = ["", "", ""] if own is None else [f"{np.mean(column):.2f}" for column in own]
            cells += [_linked(text, world.name, kind, pages) for text in texts]
        rows.append((KINDS[kind], cells))
    return Table(("",), rows, "", [world.name for world in study.worlds], ("routes", "coverage", "QD score"))


def _tables(study: Study, decided: Sequence[Claim]) -> dict[str, list[Sequence[object]]]:
    tables: dict[str, list[Sequence[object]]] = {
        "claims": [("claim", "world", "against", "difference", "low", "high", "p_value", "p_holm", "unit", "verdict")],
        "success": [("world", "kind", "seed", "goal", "steps", "success")],
        "diversity": [("world", "kind", "seed", "routes", "coverage", "qd_score")],
    }
    tables["claims"] += [(c.statement, c.world, c.against, *c.difference, c.p_holm, c.unit, c.verdict) for c in decided]
    for world in study.worlds:
        for kind, own in world.learning.items():
            tables["success"] += [
                (world.name, kind, *index[:2], own.steps[index[2]], value) for index, value in np.ndenumerate(own.success)
            ]
        for kind, found in world.diversity.items():
            tables["diversity"] += [(world.name, kind, seed, *row) for seed, row in enumerate(zip(*found, strict=True))]
    return tables
