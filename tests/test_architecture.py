"""The house rules that a reader relies on."""

import ast
import importlib
from pathlib import Path

import farflung

SOURCE = Path(farflung.__file__).parent
ORDER = [
    "registration",
    "interrupts",
    "checks",
    "untrusted",
    "config.options",
    "config.hosting",
    "config.worlds",
    "config.training",
    "config.theory",
    "config.data",
    "config.suites",
    "config.comparison",
    "config.film",
    "config",
    "compilation",
    "tables",
    "noise",
    "entropy",
    "particles",
    "projection",
    "hosting.copies",
    "hosting.indexing",
    "hosting.players",
    "hosting.pool",
    "hosting.stepped",
    "hosting.vectors",
    "hosting.world",
    "environments.environment",
    "environments.walls",
    "environments.continuous",
    "environments.robots",
    "environments.tabular",
    "environments.gridworld",
    "environments.point_maze",
    "environments.classic",
    "environments.named_continuous",
    "environments.gymnasium",
    "environments.named",
    "environments.rendering",
    "environments.playable",
    "environments.playable_vector",
    "environments.playable_point",
    "environments",
    "theory",
    "policies.tabular",
    "policies.neural",
    "policies",
    "rollout",
    "credit",
    "ceilings.flows",
    "ceilings.climb",
    "ceilings.programs",
    "ceilings",
    "metrics",
    "progress",
    "algorithms.optimizers",
    "algorithms.pgpse",
    "algorithms.frank_wolfe",
    "algorithms",
    "training",
    "hosting.lessons",
    "hosting.networks",
    "hosting.training",
    "hosting",
    "files",
    "teams",
    "world_files",
    "records",
    "run_files",
    "runs",
    "checkpoints",
    "datasets.episodes",
    "datasets.goals",
    "datasets.sources",
    "datasets.hosted",
    "datasets.collecting",
    "datasets.minari_reading",
    "datasets.minari_storage",
    "datasets.mdp_dataset",
    "datasets.archives",
    "datasets.unfinished",
    "datasets",
    "statistics",
    "grouping",
    "comparison",
    "figures.style",
    "figures.maps",
    "figures.curves",
    "figures.paths",
    "figures.explored",
    "figures.ceilings",
    "figures",
    "figures.live",
    "figures.film",
    "films",
    "offline",
    "implicit_q_learning",
    "loggers.logger",
    "loggers.local",
    "loggers.trackers",
    "loggers",
    "layout",
    "notebook",
    "experiments.trouble",
    "experiments.trials",
    "experiments.suite",
    "experiments.explore",
    "experiments.concentration",
    "experiments.frank_wolfe",
    "experiments.claims",
    "experiments.collecting",
    "experiments.offline",
    "experiments.reproduce",
    "experiments.gradients",
    "experiments.ablation",
    "figures.paper",
    "figures.concentration",
    "figures.reached",
    "figures.frank_wolfe",
    "figures.ablation",
    "figures.comparison",
    "page",
    "ablation_page",
    "report",
    "ablation_report",
    "experiments",
    "commands",
    "commands.terminal",
    "commands.suites",
    "commands.drawing",
    "commands.explore",
    "commands.compare",
    "commands.film",
    "commands.collect",
    "commands.offline",
    "commands.ceiling",
    "commands.concentration",
    "commands.frank_wolfe",
    "commands.reproduce",
    "commands.ablate",
    "cli",
]


def modules():
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__").replace("__init__", "")
        if name:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_imports_point_one_way():
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "farflung":
                parent = node.module.removeprefix("farflung").removeprefix(".")
                imported = [parent] if parent else [alias.name for alias in node.names]
                for module in imported:
                    assert ORDER.index(module) < ORDER.index(name), f"{name} imports {module}"


def test_what_must_be_the_same_after_a_break_is_compiled_so():
    rounds_nothing, is_compiled_with_its_callers = {"draw", "_are_finite"}, {"_sample"}
    for name, tree in modules():
        if name in {"training", "datasets.collecting", "experiments.explore"} or name.startswith("hosting."):
            for node in tree.body:
                own = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node).partition(" = ")[0]
                how = ast.unparse(node).partition("def ")[0]
                if "jax.jit" in how and own not in rounds_nothing | is_compiled_with_its_callers:
                    assert "compiler_options=REPEATABLE" in how or "compiler_options=ONCE" in how, (name, own)


def test_only_runs_reports_and_the_command_line_write_or_print():
    for name, tree in modules():
        calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        methods = {
            node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        writers = ("files", "runs", "checkpoints", "films", "loggers.local", "notebook", "report", "cli")
        if name not in writers and not name.startswith(("commands", "datasets")):
            assert not calls & {"print", "open"}, name
            assert not methods & {"write_text", "write_bytes", "mkdir", "unlink", "rename", "savefig", "save"}, name


def test_no_file_holds_two_ideas():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 320, path.name
        assert path.stem not in {"utils", "common", "helpers", "types"}


def test_every_public_name_can_be_imported():
    for name in farflung.__all__:
        assert getattr(farflung, name) is not None
    assert sorted(farflung.__all__) == sorted(farflung._HOME)
    for module in farflung._MODULES:
        importlib.import_module(f"farflung.{module}")
