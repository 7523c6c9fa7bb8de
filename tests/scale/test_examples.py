import re
import shlex
from pathlib import Path

import pytest
import yaml

from farflung.cli import _parse

FILES = sorted((Path(__file__).parents[2] / "examples" / "cluster").iterdir())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_for_a_cluster_is_complete(path):
    text = path.read_text()
    assert path.name in (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    if path.suffix == ".yaml":
        parts = list(yaml.safe_load_all(text))
        text = "\n".join(part.get("run") or part["spec"].get("entrypoint", "") for part in parts)
    commands = re.findall(r"^\s*farflung (.+)$", text.replace("\\\n", " "), flags=re.M)
    assert all("--launcher" in command for command in commands if command.startswith("sweep"))
    assert commands or path.name == "Dockerfile"
    for command in commands:
        assert callable(_parse(shlex.split(command)))
