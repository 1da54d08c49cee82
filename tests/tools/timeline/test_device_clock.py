"""Marks are made and waited for on the GPU that computes, which need not be the thread's current one."""

import torch

from mgcaffe.tools.timeline.device_clock import DeviceClock
from tests.support.late_streams import LateEvent, LateStream


def test_a_clock_looks_at_its_own_gpu(monkeypatch):
    gpu, streams, waited = torch.device("cuda", 1), {}, []

    def current_stream(device=None):
        return streams.setdefault(device, LateStream())

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: waited.append(device))
    clock = DeviceClock(gpu)
    clock.start()
    computed = []
    current_stream(gpu).launch(lambda: computed.append(1))
    mark = clock.mark()
    clock.synchronize()
    mark.synchronize()
    assert computed == [1] and waited == [gpu, gpu] and streams.keys() == {gpu}
    assert clock.seconds(mark) >= clock.seconds(clock._zero)
