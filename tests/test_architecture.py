"""The house rules that a reader relies on."""

import ast
import importlib
from pathlib import Path

import farflung

SOURCE = Path(farflung.__file__).parent
ROOMS = [
    "config",
    "numerics",
    "entropy",
    "worlds",
    "bounds",
    "policies",
    "algorithms",
    "training",
    "runs",
    "data",
    "loggers",
    "figures",
    "studies",
    "scale",
    "cli",
]
"""In the order in which imports may point: a room knows only those before it."""


def modules():
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__").replace("__init__", "")
        if name:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported_rooms(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "farflung":
            path = node.module.split(".")[1:]
            yield from path[:1] or (alias.name for alias in node.names)


def test_each_room_knows_only_those_before_it():
    for name, tree in modules():
        room = name.partition(".")[0]
        for other in imported_rooms(tree):
            assert ROOMS.index(other) <= ROOMS.index(room), f"{name} imports {other}"


def kinds_of_worlds():
    for name, tree in modules():
        if name.startswith("worlds."):
            module = importlib.import_module(f"farflung.{name}")
            classes = (getattr(module, node.name) for node in tree.body if isinstance(node, ast.ClassDef))
            yield from (each.__name__ for each in classes if issubclass(each, farflung.World) and each is not farflung.World)


def test_only_worlds_tests_for_kinds_of_worlds():
    kinds = set(kinds_of_worlds())
    assert {"TabularMDP", "VectorWorld", "HostedWorld", "JaxWorld", "PointMaze"} <= kinds
    for name, tree in modules():
        for node in ast.walk(tree) if not name.startswith("worlds.") else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass", "type", "cast"):
                named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                assert not named & kinds, f"{name}, line {node.lineno}: ask the world instead"


def test_every_module_is_in_a_room():
    assert {name.partition(".")[0] for name, _ in modules()} == set(ROOMS)


def test_what_must_be_the_same_after_a_break_is_compiled_so():
    rounds_nothing, is_compiled_with_its_callers = {"_draw", "_are_finite", "_num_duplicates"}, {"_play"}
    for name, tree in modules():
        if name in {"data.collecting", "studies.explore"} or name.startswith("training."):
            for node in tree.body:
                own = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node).partition(" = ")[0]
                how = ast.unparse(node).partition("def ")[0]
                if "jax.jit" in how and own not in rounds_nothing | is_compiled_with_its_callers:
                    assert "compiler_options=REPRODUCIBLE" in how or "compiler_options=ONCE" in how, (name, own)


def test_only_runs_reports_and_the_command_line_write_or_print():
    for name, tree in modules():
        calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        methods = {
            node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        writers = ("runs", "data", "cli", "loggers.local", "figures.film", "figures.notebook", "figures.pages")
        if not name.startswith(writers):
            assert not calls & {"print", "open"}, name
            assert not methods & {"write_text", "write_bytes", "mkdir", "unlink", "rename", "savefig", "save"}, name


def test_there_is_no_room_for_leftovers():
    for path in SOURCE.rglob("*.py"):
        assert path.stem not in {"utils", "common", "helpers", "types"}


def test_every_public_name_can_be_imported():
    for name in farflung.__all__:
        assert getattr(farflung, name) is not None
    assert {"PGPSE", "World", "explore", "load_run", "make_world"} <= set(farflung.__all__)
