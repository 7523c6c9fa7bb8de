import pytest

from farflung import make_tabular_world


def test_a_map_is_read_from_a_file(tmp_path):
    path = tmp_path / "corridor.txt"
    path.write_text("S...\n", encoding="utf-8")
    world = make_tabular_world(str(path), slip=0.1)
    assert (world.num_states, world.horizon, world.num_step_uniforms) == (4, 3, 1)


def test_horizon_and_slip_can_be_chosen():
    world = make_tabular_world("room-stoc", horizon=20, slip=0.0)
    assert world.horizon == 20
    assert world.is_deterministic


@pytest.mark.parametrize(
    ("name", "nearest"), [("maze-dett", "maze-det"), ("Room-Stoc", "room-stoc"), ("FrozenLake-v", "FrozenLake-v1")]
)
def test_an_unknown_world_gets_a_suggestion(name, nearest):
    with pytest.raises(ValueError, match=f"unknown world '{name}' \\(did you mean '{nearest}'"):
        make_tabular_world(name)


def test_a_directory_is_no_map(tmp_path):
    with pytest.raises(ValueError, match="is a directory"):
        make_tabular_world(str(tmp_path))


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "noise.txt"
    path.write_bytes(b"\xff\xfe\x00S")
    with pytest.raises(ValueError, match="cannot read the map"):
        make_tabular_world(str(path))
