# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks make of the output of programs: figures, ratios, verdicts. Nothing is measured here."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import bars  # noqa: E402
import compare  # noqa: E402
import contenders  # noqa: E402
import goals  # noqa: E402
import measure  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402
import scenarios  # noqa: E402
import startup  # noqa: E402
import tensorflow_bench  # noqa: E402
import training  # noqa: E402
import upstream  # noqa: E402

# The tests have a module of that name, too.
_spec = importlib.util.spec_from_file_location("benchmark_hosts", BENCHMARKS / "hosts.py")
hosts = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hosts)


def comparison(times: dict[str, list[float]], sizes=(4,), name=scenarios.PAIR, windows=()) -> measure.Comparison:
    """One launch per entry, the same time at every size."""
    result = measure.Comparison(scenarios.Scenario(name, list(sizes)))
    for who, values in times.items():
        result.launches[who] = [measure.Launch(i, dict.fromkeys(sizes, us), 0.0) for i, us in enumerate(values)]
    result.windows = [measure.Window(name, i, before, after) for i, (before, after) in enumerate(windows)]
    return result


def test_lines_of_a_peer_are_read():
    text = "noise\nallreduce,2,4,10,0.5,0.75,1\nalltoall,2,4,10,5,6,7\nallreduce,2,1024,10,1,1.5,2\nallreduce,cut\n"
    assert contenders.Contender("x", []).medians(text) == {4: 0.75, 1024: 1.5}
    assert contenders.Contender("x", [], row="alltoall").medians(text) == {4: 6}
    assert contenders.Contender("x", [], row="alltoall", minus="allreduce").medians(text) == {4: 5.25}


def test_json_of_hvd_perf_is_read():
    text = json.dumps({"rows": [{"bytes": 4, "median_us": 0.5}]})
    assert contenders.Contender("x", [], scale=161).medians(text) == {4: 80.5}


def test_ratios_are_taken_within_a_repetition():
    both = comparison({"a": [1, 4, 9], "b": [1, 2, 3], "c": [2, 1, 3]})
    assert both.ratios("a", "b", 4) == [1, 2, 3]
    assert both.ratios("a", ("b", "c"), 4) == [1, 4, 3]
    assert both.ratios("a", "nobody", 4) == []
    del both.launches["b"][1]
    assert both.ratios("a", "b", 4) == [1, 3]


def test_repetitions_in_which_the_cores_moved_are_left_out_if_enough_remain():
    calm, moved = (150.0, 140.0), (150.0, 40.0)
    times = {"a": [1, 8, 1, 1], "b": [1, 1, 1, 1]}
    assert comparison(times, windows=[calm, moved, calm, calm]).ratios("a", "b", 4) == [1, 1, 1]
    assert comparison(times, windows=[calm, moved, moved, calm]).ratios("a", "b", 4) == [1, 8, 1, 1]


def test_a_goal_is_judged_at_each_of_its_sizes():
    at_most = bars.Goal("G1", scenarios.PAIR, "a", "b", (4, 1024), 1.5, at_most=True)
    at_least = bars.Goal("G3", scenarios.PAIR, "a", "b", (4,), 3)
    absolute = bars.Goal("G13", scenarios.PAIR, "a", None, (4,), 100, at_most=True)
    both = comparison({"a": [2, 2, 2], "b": [4, 1, 2]}, (4, 1024, 2048))
    first, second = bars.judge(at_most, both)
    assert (first.values, first.passed, second.passed) == ([0.5, 2, 1], True, True)
    (speed,) = bars.judge(at_least, both)
    assert (speed.values, speed.passed, speed.unit) == ([2, 0.5, 1], False, "x")
    (time,) = bars.judge(absolute, both)
    assert (time.values, time.passed, time.unit) == ([2, 2, 2], True, "µs")


def test_what_was_not_measured_does_not_pass():
    goal = bars.Goal("G1", scenarios.PAIR, "a", "b", (4,), 1.5, at_most=True)
    (bar,) = bars.judge(goal, comparison({"a": [1, 1, 1]}))
    assert bar.passed is None
    assert report.verdict(bar) == "not measured"


def test_a_cliff_is_found():
    name = scenarios.MANY[4]
    result = measure.Comparison(scenarios.Scenario(name, [4, 1024, 65536], ranks=4))
    times = {4: 5.0, 1024: 8000.0, 65536: 40.0}
    result.launches[contenders.HVD_ARENA] = [measure.Launch(0, times, 0.0)]
    arena, private = bars.cliff_bars(result)
    assert (arena.passed, arena.values, arena.note) == (False, [200], "worst at 1 KiB")
    assert private.passed is None


def test_goals_follow_the_number_of_cores():
    numbers = {cores: {goal.number for goal in bars.goals_for(cores)} for cores in (2, 16)}
    assert "G6" in numbers[2]
    assert "cores" not in numbers[2]
    assert "cores" in numbers[16]
    assert "G6" not in numbers[16]


def test_every_goal_is_about_something_that_is_measured(monkeypatch):
    for make in ("floor", "gloo", "memory_limit", "mpich", "numpy_calls"):
        monkeypatch.setattr(scenarios, make, lambda *arguments, name=make: contenders.Contender(name, []))
    monkeypatch.setattr(
        scenarios, "open_mpi", lambda *a, segmented_ring=False: contenders.Contender("mpi", [str(segmented_ring)])
    )
    measured = scenarios.all_scenarios(pathlib.Path("hvd_perf"), quick=False, full=True)
    sizes = {scenario.name: scenario.sizes for scenario in measured}
    for cores in (2, 16):
        for goal in bars.goals_for(cores):
            assert set(goal.sizes) <= set(sizes[goal.scenario]), goal


def test_the_regime_of_each_window_is_told():
    result = comparison({"hvd": [1, 1]}, windows=[(150.0, 140.0), (40.0, 42.0), (40.0, 140.0)])
    assert [report.regime(window) for window in result.windows] == ["two cores", "one core", "moved"]
    line = report.regime_line([result])
    assert "40 .. 150 ns" in line
    assert "in 2 of 3 windows" in line
    assert "within 1." in line


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ([1, 1.1, 1.2], [1.1, 1.2, 1.3], "same"),
        ([1, 1.1, 1.2], [2, 2.1, 2.2], "worse"),
        ([2, 2.1, 2.2], [1, 1.1, 1.2], "better"),
        ([1, 1, 1], [1.04, 1.04, 1.04], "same"),
        ([1, 1], [2, 2], "unknown"),
        ([1, 1, 1, 1, 9], [2, 2, 2, 2, 0.5], "worse"),
        ([], [1], "unknown"),
    ],
)
def test_a_change_counts_beyond_the_noise(old, new, outcome):
    assert compare.verdict(compare.Figure(old, "µs"), compare.Figure(new, "µs"), 0.05) == outcome


def document(hvd: list[float], peer: list[float]) -> dict:
    result = comparison({"hvd, arena buffers": hvd, "Open MPI": peer})
    scenarios_ = json.loads(json.dumps(report.scenarios_as_json([result])))
    bar = report.bar_as_json(bars.Bar("idle", 1, True, "%", [0.5]))
    return {"context": {"commit": "abc"}, "bars": [bar], "scenarios": scenarios_}


def test_a_slower_machine_is_no_change():
    old, new = document([1, 1.1, 1], [2, 2, 2]), document([2, 2.2, 2], [4, 4, 4])
    before, after = compare.figures(old), compare.figures(new)
    assert {compare.verdict(before[key], after[key], 0.05) for key in before} == {"same"}
    assert compare.drift(old, new) == 2


def test_the_program_says_what_got_worse(tmp_path):
    for name, hvd in (("old", [1, 1.1, 1]), ("new", [3, 3.1, 3])):
        (tmp_path / name).write_text(json.dumps(document(hvd, [2, 2, 2])))
    command = [sys.executable, str(BENCHMARKS / "compare.py"), str(tmp_path / "old"), str(tmp_path / "new")]
    done = subprocess.run([*command, "--strict"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "worse" in done.stdout
    assert "+200%" in done.stdout
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    (tmp_path / "new").write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "must be results.json" in done.stderr


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [("ResNet-50", 161, 25_557_032), ("VGG-16", 32, 138_357_544), ("BERT-base", 199, 109_482_240)],
)
def test_networks_have_their_published_sizes(name, tensors, elements):
    made = models.MODELS[name]()
    assert (len(made), sum(tensor.elements for tensor in made)) == (tensors, elements)
    shares = models.ready_at(made)
    assert shares == sorted(shares)
    assert 1 / 3 <= shares[0] < shares[-1] == pytest.approx(1)


def test_hidden_share_and_efficiency():
    times = {"compute": 0.4, "communication": 0.1, "step": 0.5}
    assert training.efficiency(times) == pytest.approx(0.8)
    assert training.hidden(times) == pytest.approx(0)
    assert training.hidden(dict(times, step=0.425)) == pytest.approx(0.75)


def test_training_through_c_is_read():
    row = {"compute": "wait", "compute_s": 0.4, "communication_s": 0.1, "step_s": 0.42, "steps": 2}
    times = training.from_hvd_perf(json.dumps({"rows": [row]}))
    assert times == {"accelerator": {"compute": 0.4, "communication": 0.1, "step": 0.42}}
    case = ("ResNet-50", "C", "accelerator")
    assert "≥ 90 %: holds |" in training.line(case, [times["accelerator"]])
    assert "≥ 90 %: **miss** |" in training.line(case, [dict(times["accelerator"], step=0.5)])
    assert training.bar(("ResNet-50", "C", "core"), []) is None
    assert "failed" in training.line(case, [])


def test_upstream_is_compared_by_the_faster_backend():
    assert upstream.OPERATIONS[4, "eager"].compared(4) == 1.08
    assert upstream.OPERATIONS[16 << 20, "tf.function"].compared(16 << 20) == 7.68
    ours = {upstream.key(size, mode): [[0.1, 0.04], [0.05, 0.04], [0.2, 0.1]] for size, mode in upstream.OPERATIONS}
    text = upstream.table(ours, [upstream.idle_bar([0.01])])
    row = "| 4 B | eager | 1.09, 1.08 | 1.08, 1.07 | 0.67 | 0.10 (0.05 .. 0.20) | 0.04 | 0.06 | 10.8 | "
    assert row + "≥ 20 x | **miss** |" in text
    assert "| 64 MiB | eager |" in text
    assert text.count("holds") == 1 + sum(size >= 1 << 20 for size, _ in upstream.OPERATIONS)
    note = "a call takes 0.10 ms, 0.06 of them hvd, the rest TensorFlow"
    bar = upstream.operation_bar(4, "tf.function", ours[upstream.key(4, "tf.function")])
    assert goals.outcome([bar]) == f"**miss** ({note})"


def test_a_start_is_split_within_one_launch():
    text = "[0]<stdout>:AT 10.25 13.25 13.3 13.55 13.6\n[1]<stdout>:AT 10.2 13.5 13.5 13.5 13.75\nelse\n"
    found = upstream.start_parts(10.0, upstream.moments(text))
    assert found["beyond"] == pytest.approx(13.75 - 10 - 3.3)
    assert [found[name] for name in upstream.PARTS] == pytest.approx([0.2, 3.3, 0, 0, 0.25])
    bar = upstream.start_bar([found])
    assert bar.passed is False
    assert bar.note.startswith("horovodrun and the interpreter 0.200, import horovod.tensorflow 0.000, init 0.000, ")


def test_hosts_are_judged_by_the_bound_or_the_peer():
    wire, free = hosts.all_cases()[2], hosts.all_cases()[0]
    bound = wire.bound(4 << 20)
    wire.times["hvd"] = {4 << 20: [bound, bound / 0.9, bound / 0.99]}
    assert hosts.bar(wire, 4 << 20).passed is True
    free.times = {"hvd": {4: [2.0, 2.0], 1 << 20: [1.0, 1.0]}, "Open MPI": {4: [1.0, 1.0], 1 << 20: [1.2, 1.2]}}
    assert (hosts.bar(free, 4).values, hosts.bar(free, 4).passed) == ([2, 2], False)
    assert hosts.bar(free, 1 << 20).passed is False
    assert hosts.bar(free, 64 << 10) is None
    assert "share of the bound ≥ 98 % | holds |" in hosts.table([wire])


def written(folder: pathlib.Path, name: str, *bars_: bars.Bar) -> None:
    described = dict.fromkeys(("date", "machine", "system", "commit", "command"), "x")
    report.write_json(folder / name, described, list(bars_))


def test_goals_are_one_table(tmp_path):
    group = {"goal": "G3", "group": "arena"}
    written(
        tmp_path,
        "results.json",
        bars.Bar("a", 3, False, "x", [4, 5, 6], at="64 KiB", **group),
        bars.Bar("b", 3, False, "x", [2, 2.5, 3.5], at="1 MiB", **group),
        bars.Bar("idle", 0.2, True, "%", [0.01], goal="start"),
    )
    written(tmp_path, "startup.json", *startup.bars_of({2: {"horovodrun": [1.1, 1.2], "shell": [1.0, 1.1]}}))
    (tmp_path / "hosts.json").write_text(json.dumps([1, 2]))  # of a program before this one
    text = goals.table(goals.read(tmp_path))
    lines = text.splitlines()
    assert "| G3 | arena | ≥ 3 x | 2.50 x at 1 MiB | 2.00 .. 3.50 | **miss** at 1 of 2: 1 MiB |" in lines
    assert "| start | idle | ≤ 0.2 % | 0.010 % |  | holds |" in lines
    assert any(line.startswith("| start | what horovodrun adds") and line.endswith("| holds |") for line in lines)
    assert any(line.startswith("| G9 |") and "not measured: `benchmarks/hosts.py`" in line for line in lines)
    assert {line.split(" | ")[0].lstrip("| ") for line in lines[2:]} == set(goals.GOALS)


def test_how_long_it_took_is_told_when_all_parts_are_there(tmp_path):
    bar = bars.Bar("idle", 0.2, True, "%", [0.01], goal="start")
    for name in goals.BENCH[:-1]:
        written(tmp_path, name, bar)
    assert goals.took(goals.read(tmp_path)) == ""
    written(tmp_path, goals.BENCH[-1], bar)
    documents = goals.read(tmp_path)
    for document_ in documents.values():
        document_["took_s"] = 90.0
    assert "took 7.5 minutes in all: run.py 90 s, training.py 90 s" in goals.took(documents)


def test_no_launch_is_begun_that_would_not_end_in_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "monotonic", lambda: now[0])

    def done(most, seconds):
        numbers = []
        for number in measure.rounds(most, seconds):
            numbers.append(number)
            now[0] += 10
        return numbers

    assert done(3, 30) == [0, 1, 2]
    assert done(3, 29) == [0, 1]
    assert done(3, 1) == [0]


def test_every_goal_is_on_the_page():
    numbers = {goal.number for cores in (2, 16) for goal in bars.goals_for(cores)}
    numbers |= {case.goal for case in hosts.all_cases()} | {"upstream", "start"}
    numbers |= {bar.goal for bar in tensorflow_bench.bars_of({name: [1.0] for name, *_ in tensorflow_bench.FIGURES})}
    assert numbers == set(goals.GOALS)
    page = (BENCHMARKS.parent / "docs" / "operate" / "benchmarks.md").read_text()
    for place in ("goals", "training", "start-up", "hosts", "tensorflow", "upstream"):
        assert page.count(f"<!-- {place} begin -->") == page.count(f"<!-- {place} end -->") == 1


@pytest.mark.parametrize("name", list(models.MODELS))
def test_hvd_perf_trains_with_the_same_gradients(name):
    text = models.as_cpp().split(f'{{"{models.WORDS[name]}", ')[1].split("}},")[0]
    made = [line.strip(" {},").split("u, ") for line in text.splitlines()[1:] if line.strip()]
    assert [int(elements) for elements, _ in made] == [t.elements for t in reversed(models.MODELS[name]())]
    assert float(made[-1][1]) == pytest.approx(1)
