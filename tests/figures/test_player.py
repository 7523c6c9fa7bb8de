import base64
import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from tests.made_runs import made_continuous_run
from tests.studies.pages import browser, needs_browser, objections

import farflung
from farflung.figures.player import described, run_page
from farflung.runs.run import Playback, files_of
from farflung.studies.view import page_of
from farflung.worlds.kinds import read_world

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def run():
    world = farflung.gridworld("S...#\n....#\n.....", horizon=4)
    return farflung.explore(world, agents=2, batch_size=4, preset="paper", updates=10, seeds=(0, 1))


def data_of(page):
    return json.loads(re.search(r'id="runs">(.*?)</script>', page, re.DOTALL)[1])


def places(run, scene):
    """The points that a page's scene stands for, in the plane."""
    numbers = np.frombuffer(base64.b64decode(scene["points"]), "<u2").reshape(*scene["shape"], 2)
    left, bottom, right, top = run["plane"]["view"]
    return np.where(numbers == 65_535, np.nan, [left, bottom] + numbers / 65_534 * np.subtract([right, top], [left, bottom]))


def test_the_page_plays_the_states_that_the_team_visited(run):
    (found,) = data_of(run_page([described(run, "team")], "team"))
    rows, columns = np.asarray(run.world.positions)[run.playback.moments[-1]].T
    shown = places(found, found["playback"]["moments"][-1])
    np.testing.assert_allclose(shown[..., 0], columns.T.reshape(shown.shape[:3]) + 0.5, atol=1e-3)
    np.testing.assert_allclose(shown[..., 1], 2 - rows.T.reshape(shown.shape[:3]) + 0.5, atol=1e-3)
    assert [scene["update"] for scene in found["playback"]["moments"]] == run.playback.updates.tolist()
    assert found["playback"]["others"].keys() == {"random actions", "the best walks"}


def test_the_arrows_show_where_the_likeliest_action_leads(run):
    arrows = described(run, "team")["arrows"]
    agent, (state, action) = 1, (0, 2)  # in the upper left corner, to the right
    likely = np.zeros((2, 2, *run.policies.logits.shape[2:]), np.float32)
    likely[..., state, action] = 20.0
    sure = dataclasses.replace(run, policies=farflung.TabularSoftmax(jnp.asarray(likely), run.policies.is_time_dependent))
    assert described(sure, "team")["arrows"]["agents"][agent][0][state] == [1.0, 0.0, 1.0]
    assert len(arrows["agents"]) == 2
    assert arrows["places"][state] == [0.5, 2.5]


def test_episodes_that_end_early_stop_on_the_page(run):
    ended = np.array(run.playback.moments)
    ended[..., 3:] = run.world.num_states
    found = described(dataclasses.replace(run, playback=Playback(0, run.playback.updates, ended)), "team")
    shown = places(found, found["playback"]["moments"][0])
    assert np.isnan(shown[:, :, 3:]).all()
    assert np.isfinite(shown[:, :, :3]).all()


@needs_browser
def test_agents_and_bodies_stay_where_their_episode_ended(run, tmp_path):
    states = np.array(run.playback.moments)
    states[..., 3:] = run.world.num_states
    page = described(dataclasses.replace(run, playback=Playback(0, run.playback.updates, states)), "team")
    limbs = np.zeros((2, 5, 1, 2, 3), "<u2")  # [path, time, limb, end, axis]
    limbs[..., 1, :] = 60_000
    limbs[1, 3:] = 65_535
    body = {"low": [0, 0, 0], "high": [1, 1, 1], "radii": [0.1], "shape": [2, 5, 1], "stride": 1}
    page["body"] = body | {"points": base64.b64encode(limbs.tobytes()).decode()}
    path = tmp_path / "index.html"
    path.write_text(run_page([page], "team"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.goto(path.as_uri())
        map_text, bodies = tab.inner_text("#panels figcaption"), "#bodies figcaption"
        assert "step 4 of 4" in map_text
        assert "2 of 2 episodes have ended" in map_text
        assert "1 of 2 episodes have ended" in tab.inner_text(bodies)
        picture = "document.querySelector('#panels canvas').toDataURL()"
        at_end = tab.evaluate(picture)
        for _ in range(2):  # back to the last step of both episodes
            tab.focus("#time")
            tab.keyboard.press("ArrowLeft")
        assert "ended" not in tab.inner_text("#panels figcaption")
        assert "2 of 2 bodies" in tab.inner_text(bodies)
        assert tab.evaluate(picture) != at_end  # rings have become dots
        alone = tmp_path / "alone.html"
        found = page | {"playback": page["playback"] | {"others": {}}}
        alone.write_text(run_page([found], "team"), encoding="utf-8")
        tab.goto(alone.as_uri())
        assert tab.get_attribute("#time", "max") == "4"  # one of the bodies goes on after all agents on the map
        picture = "document.querySelector('#bodies canvas').toDataURL()"
        tab.focus("#yaw")
        before = tab.evaluate(picture)
        tab.keyboard.press("ArrowRight")
        assert tab.inner_text("#yaw-text") == "45°"
        assert tab.evaluate(picture) != before
        assert objections(tab) == []


@needs_browser
def test_playback_stops_when_all_episodes_have_ended(run, tmp_path):
    states = np.array(run.playback.moments)
    states[..., 3:] = run.world.num_states
    states[0, ..., 1:] = run.world.num_states  # in the beginning, all end at once
    path = tmp_path / "index.html"
    page = described(dataclasses.replace(run, playback=Playback(0, run.playback.updates, states)), "team")
    path.write_text(run_page([page], "team"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.clock.install(time=0)
        tab.clock.pause_at(1000)
        tab.goto(path.as_uri())
        assert (tab.get_attribute("#time", "max"), tab.input_value("#time")) == ("3", "3")
        tab.focus("#moment")
        tab.keyboard.press("Home")
        for _ in range(2):  # it can be played again
            tab.click("#play")
            assert (tab.inner_text("#play"), tab.input_value("#time")) == ("Pause", "0")
            tab.clock.run_for(7000)
            assert (tab.inner_text("#play"), tab.input_value("#time")) == ("Play", "1")
        assert "step 1 of 4" in tab.inner_text("#panels figcaption")
        assert "2 of 2 episodes have ended" in tab.inner_text("#panels figcaption")
        assert "so far" not in tab.inner_text("#panels figcaption")
        tab.focus("#time")
        tab.keyboard.press("Home")
        assert "so far" in tab.inner_text("#panels figcaption")


@needs_browser
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_episodes_play_by_themselves_unless_readers_want_less_motion(run, tmp_path, motion):
    path = tmp_path / "index.html"
    path.write_text(run_page([described(run, "team")], "team"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(reduced_motion=motion)
        tab.clock.install(time=0)
        tab.clock.pause_at(1000)
        tab.goto(path.as_uri())
        picture = "document.querySelector('#panels canvas').toDataURL()"
        before = tab.inner_text("#play"), tab.evaluate(picture)
        tab.clock.run_for(2500)
        moves = motion == "no-preference"
        assert before[0] == ("Pause" if moves else "Play")
        assert (tab.evaluate(picture) != before[1]) == moves
        assert tab.input_value("#time") == ("2" if moves else "4")
        tab.clock.run_for(7000)
        assert (tab.inner_text("#play"), tab.input_value("#time")) == ("Play", "4")


@needs_browser
def test_all_of_a_page_is_reached_and_used_by_keys_alone(run, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(run_page([described(run, "team", files=["metrics.csv"])], "team"), encoding="utf-8")
    focused = "(each => each.id || each.value || each.textContent.trim())(document.activeElement)"
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.goto(path.as_uri())
        reached = []

        def press(*keys):
            for key in keys:
                tab.keyboard.press(key)

        def go_to(name):
            while tab.evaluate(focused) != name:
                press("Tab")
                reached.append(tab.evaluate(focused))
                assert len(reached) < 40, reached

        go_to("moment")
        press("Home")
        go_to("time")
        press("Home", "ArrowRight")
        assert "update 1, seed" in tab.inner_text("#panels figcaption")
        assert "step 1 of 4" in tab.inner_text("#panels figcaption")
        go_to("play")
        press("Enter")
        assert tab.inner_text("#play") == "Pause"
        press("Space")
        assert tab.inner_text("#play") == "Play"
        go_to("layer")
        press("v")  # the option that begins with this letter
        assert tab.input_value("#layer") == "visits"
        assert tab.inner_text("#status").startswith("team; update 1, seed")  # what a screen reader says
        go_to("0 random actions")
        press("Space")
        assert tab.locator("#panels canvas").count() == 2
        go_to("agent 2")
        press("Enter")
        assert tab.input_value("#agent") == "1"
        go_to("metric")
        press("d")
        assert tab.input_value("#metric") == "support"  # distinct states visited
        go_to("axis")
        press("e")
        while not tab.evaluate("document.activeElement.matches('#chart svg')"):
            press("Tab")
        press("ArrowLeft")
        assert re.search(r"after \d+ steps: ", tab.inner_text("#reading"))
        go_to("All settings")
        press("Enter")
        assert tab.is_visible("text=learning rate")
        go_to("metrics.csv")
        assert not {"BODY", ""} & {*reached}


@needs_browser
def test_curves_are_read_by_touch_and_a_seed_is_found_in_each_run(run, tmp_path):
    one_seed = described(run, "one") | {"seeds": [1]}
    one_seed["metrics"] = {
        name: metric | {"values": metric["values"][1:]} for name, metric in one_seed["metrics"].items() if name != "diversity"
    }
    team = described(run, "team")
    team["metrics"]["support"]["values"][0][1] = None
    path, problems = tmp_path / "index.html", []
    path.write_text(run_page([one_seed, team], "runs"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(has_touch=True, viewport={"width": 360, "height": 800}, reduced_motion="reduce")
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.goto(path.as_uri())
        tab.tap("#chart svg[role]")
        assert re.search(r"after \d+ updates: one .*; team ", tab.inner_text("#reading"))
        assert tab.inner_text("#chart .keys li >> nth=1") == "team"
        tab.select_option("#seeds", "0")
        tab.tap("#chart svg[role]")
        assert "one" not in tab.inner_text("#reading")  # it has no seed 0
        for metric, text in (("diversity", "team"), ("trajectory_entropy", "one"), ("support", "no value")):
            tab.select_option("#metric", metric)
            tab.focus("#chart svg[role]")
            for _ in run.updates:
                tab.keyboard.press("ArrowLeft")
            tab.keyboard.press("ArrowRight")
            if metric == "trajectory_entropy":
                tab.select_option("#seeds", "1")
                tab.focus("#chart svg[role]")
                tab.keyboard.press("ArrowLeft")
            assert text in tab.inner_text("#reading"), metric
            tab.select_option("#seeds", "0")
    assert problems == []


@needs_browser
def test_choosing_what_to_compare_keeps_the_focus_and_what_is_open(run, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(run_page([described(run, "team")], "team"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.goto(path.as_uri())
        tab.click("summary")
        boxes = tab.locator("#compare input")
        panels = tab.locator("#panels canvas")
        assert (boxes.count(), panels.count()) == (2, 3)
        boxes.first.focus()
        tab.keyboard.press("Space")
        assert panels.count() == 2
        assert tab.evaluate("document.activeElement.parentElement.textContent") == "random actions"
        assert tab.evaluate("document.querySelector('details').open")
        tab.focus("#chart svg[role]")
        tab.keyboard.press("ArrowLeft")
        read = tab.inner_text("#reading")
        tab.set_viewport_size({"width": 700, "height": 800})
        tab.wait_for_timeout(200)
        assert tab.evaluate("document.activeElement.closest('#chart') !== null")
        assert tab.inner_text("#reading") == read
        tab.select_option("#layer", "arrows")
        assert "arrows: the likeliest actions of agent 1" in tab.inner_text("#panels figcaption >> nth=0")
        assert tab.locator("#agents li").all_inner_texts() == ["agent 1", "agent 2"]
        agent = tab.locator("#agents button >> nth=1")
        agent.click()
        assert "likeliest actions of agent 2" in tab.inner_text("#panels figcaption >> nth=0")
        assert (tab.input_value("#agent"), agent.get_attribute("aria-pressed")) == ("1", "true")
        agent.press("Enter")  # the same button shows all of them again
        assert (tab.input_value("#agent"), agent.get_attribute("aria-pressed")) == ("all", "false")


def test_a_page_of_the_papers_worlds_is_below_two_megabytes():
    run = farflung.explore("maze-stoc", agents=6, batch_size=8, updates=400, log_every=2)
    assert len(run.playback.updates) == 20
    assert len(run_page([described(run, "team")], "team").encode()) < 2_000_000


def test_a_run_keeps_its_playback_when_it_is_saved_and_loaded(run, tmp_path):
    farflung.save_run(run, tmp_path / "run")
    again = farflung.load_run(tmp_path / "run").playback
    assert again.seed == run.playback.seed
    for name in ("updates", "moments", "random", "best"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run.playback, name))


def test_a_page_compares_with_a_baseline_beside_it(run, tmp_path):
    farflung.save_run(dataclasses.replace(run, config=dataclasses.replace(run.config, independent=True)), tmp_path / "alone")
    farflung.save_run(run, tmp_path / "the same")
    (found,) = data_of(page_of(run, tmp_path / "team"))
    assert [other["title"] for other in found["beside"]] == ["alone"]


def test_a_page_names_every_file_of_its_run(run, tmp_path):
    farflung.explore("room-det", agents=2, batch_size=2, updates=4, seeds=(0,), out=tmp_path / "team")
    farflung.save_run(run, tmp_path / "bare", page=page_of(run, tmp_path / "bare", has_picture=False))
    for folder in tmp_path.iterdir():
        page = (folder / "index.html").read_text(encoding="utf-8")
        assert sorted(["index.html", *data_of(page)[0]["files"]]) == sorted(path.name for path in folder.iterdir())
        assert (">figure.png</a>" in page) == (folder / "figure.png").is_file()
    walker = dataclasses.replace(made_continuous_run(), poses=np.zeros((1, 2, 3), np.float32))
    farflung.save_run(walker, tmp_path / "walker")
    assert sorted(files_of(walker)) == sorted(path.name for path in (tmp_path / "walker").iterdir())


def test_a_baseline_that_is_trained_later_is_added_to_the_page_of_its_team(tmp_path):
    settings = {"agents": 2, "batch_size": 2, "updates": 4, "seeds": (0,)}

    def beside(name):
        (found,) = data_of((tmp_path / name / "index.html").read_text(encoding="utf-8"))
        return [other["title"] for other in found["beside"]]

    team = farflung.explore("room-det", **settings, out=tmp_path / "team")
    before = {path.name: path.read_bytes() for path in (tmp_path / "team").iterdir()}
    assert beside("team") == []
    farflung.explore("room-det", **settings, single=True, out=tmp_path / "single")
    assert (beside("team"), beside("single")) == (["single"], ["team"])
    after = {path.name: path.read_bytes() for path in (tmp_path / "team").iterdir()}
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {"index.html"}
    assert farflung.load_run(tmp_path / "team").config == team.config


def test_what_no_command_can_name_is_repeated_by_a_call(run):
    assert run.config.command_in(run.world.arguments) == (
        "farflung.explore(world, agents=2, batch_size=4, preset='paper', updates=10, policy='stationary', seeds=(0, 1))"
        "  # world: custom"
    )
    config = farflung.Explore("maze-det", objective="custom:Own", agents=3)
    assert config.command_in(()) == "farflung.explore('maze-det', agents=3, objective=objective)  # objective: custom:Own"


def test_the_command_of_a_run_repeats_its_settings():
    config = farflung.Explore("my map.txt", agents=3, seeds=(4, 5), updates=7, optimizer="sgd", single=True)
    assert config.command == "farflung explore 'my map.txt' --agents 3 --updates 7 --optimizer sgd --single --seeds 4 5"
    assert farflung.Explore("maze-stoc").command == "farflung explore maze-stoc"
    assert farflung.Explore("point-gap", preset="paper").command == "farflung explore point-gap --preset paper"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("FrozenLake-v1", {"hosted": True}, "--hosted"),
        (
            "minigrid:MiniGrid-Empty-5x5-v0",
            {"observe": ("agent_pos", "agent_dir"), "horizon": 3, "env_options": {"agent_view_size": 5}},
            "--observe agent_pos agent_dir --env-options agent_view_size=5 --horizon 3",
        ),
        ("CartPole-v1", {"features": ("0", "2"), "bins": (4, 5)}, "--features 0 2 --bins 4 5"),
        ("point-gap", {"bins": (10, 10), "neighbours": 0}, "--bins 10 10 --neighbours 0"),
        ("point-gap", {}, ""),
        ("maze-det", {}, ""),
        ("gymnax:MountainCar-v0", {"features": ("position",), "horizon": 5}, "--features position --horizon 5"),
    ],
)
def test_the_command_of_a_run_makes_the_same_world(name, options, words):
    world = farflung.make_world(name, **options)
    saved = read_world(world.to_arrays())
    assert farflung.Explore(name).command_in(saved.arguments) == f"farflung explore {name} {words}".strip()
    if "horizon" in options:
        command = farflung.Explore(name, horizon=options["horizon"]).command_in(saved.arguments)
        assert command.count(f"--horizon {options['horizon']}") == command.count("--horizon") == 1


@needs_browser
def test_the_page_plays_in_a_browser(run, tmp_path):
    path, problems = tmp_path / "index.html", []
    path.write_text(run_page([described(run, HOSTILE), described(run, "second")], HOSTILE), encoding="utf-8")
    with browser() as opened:
        for width, scheme in ((1280, "light"), (390, "dark")):
            tab = opened.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
            tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.goto(path.as_uri())
            assert tab.title() == HOSTILE
            assert tab.inner_text("h1") == HOSTILE
            assert not tab.is_visible("#news")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            picture = "document.querySelector('canvas').toDataURL()"
            last, label = tab.evaluate(picture), "document.querySelector('canvas').getAttribute('aria-label')"
            assert "update 10, seed 0, step 4 of 4" in tab.evaluate(label)

            tab.focus("#moment")
            tab.keyboard.press("Home")
            assert "update 1, seed 0, step 4 of 4" in tab.evaluate(label)
            assert tab.evaluate(picture) != last
            tab.focus("#time")
            tab.keyboard.press("Home")
            assert "step 0 of 4: 1 of" in tab.evaluate(label)
            tab.select_option("#agent", "1")
            tab.select_option("#layer", "visits")
            assert "update 1, seed 0, 4 episodes: " in tab.evaluate(label)
            assert "batch" not in tab.evaluate(label)  # which has the whole team
            tab.select_option("#layer", "arrows")
            tab.focus("#play")
            tab.keyboard.press("Enter")
            assert tab.inner_text("#play") == "Pause"
            while tab.evaluate("+document.getElementById('time').value") == 0:  # the page's policy forbids waiting by a script
                tab.wait_for_timeout(20)
            tab.keyboard.press("Enter")
            assert tab.inner_text("#play") == "Play"

            tab.select_option("#metric", "support")
            tab.focus("#chart svg")
            tab.keyboard.press("ArrowLeft")
            assert re.search(r"after \d+ updates: .*second", tab.inner_text("#reading"), re.DOTALL)
            tab.hover("#chart svg")
            assert "after" in tab.inner_text("#reading")
            assert objections(tab) == []
            assert problems == []
