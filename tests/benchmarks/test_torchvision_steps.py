"""How benchmarks/torchvision_steps.py takes turns, and what its rows say."""

import torchvision_steps


def test_sides_take_turns_and_the_first_round_does_not_count(monkeypatch):
    clock, order = [0.0], []

    def side(name, seconds):
        def step():
            order.append(name)
            clock[0] += seconds if order.count(name) > 1 else 100.0

        return step

    monkeypatch.setattr(torchvision_steps.time, "process_time", lambda: clock[0])
    seconds = torchvision_steps.measure({"ours": side("ours", 0.25), "other": side("other", 0.5)}, 3)
    assert order == ["ours", "other"] * 4
    assert seconds == {"ours": [0.25] * 3, "other": [0.5] * 3}


def test_a_row_has_medians_and_ratios_within_rounds():
    seconds = {
        "layers": [0.2, 0.4, 0.8],
        "ours": [0.1, 0.3, 0.6],
        "ordinary": [0.4, 0.2, 1.2],
        "channels last": [0.2, 0.6, 2.4],
    }
    assert torchvision_steps.row("net", seconds) == "| net | 300.0 | 400.0 | 600.0 | 0.500 | 0.750 |"
