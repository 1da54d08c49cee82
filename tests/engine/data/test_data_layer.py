"""Sharing out among ranks, positions, prefetching, and what happens to the thread."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from mgcaffe.engine.data.prefetcher import Prefetcher
from mgcaffe.engine.layer import TEST
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.errors import DataError
from tests.support.datakit import data_layer, datum, encoded, images, labels, make, numbered, write_lmdb
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

RECORDS = 23


@pytest.fixture
def source(tmp_path):
    return numbered(tmp_path / "db", RECORDS)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_share_out_what_one_rank_with_the_whole_batch_reads(source, ranks):
    batch, iterations = 3, 9
    whole = data_layer(source, ranks * batch)
    expected = labels(whole, iterations)
    layers = [data_layer(source, batch, shard=Shard(rank, ranks)) for rank in range(ranks)]
    parts = [labels(layer, iterations) for layer in layers]
    for iteration in range(iterations):
        shared = [parts[n % ranks][iteration][n // ranks] for n in range(ranks * batch)]
        assert shared == expected[iteration]
    assert {layer.position() for layer in layers} == {whole.position()} == {iterations * ranks * batch}
    for layer in [whole, *layers]:
        layer.close()


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_no_two_ranks_read_the_same_record_in_an_epoch(tmp_path, ranks):
    source = numbered(tmp_path / "whole", 24)
    layers = [data_layer(source, 24 // ranks // 2, shard=Shard(rank, ranks)) for rank in range(ranks)]
    read = [label for layer in layers for batch in labels(layer, 2) for label in batch]
    assert sorted(read) == list(range(24))
    for layer in layers:
        layer.close()


@pytest.mark.parametrize(("ranks", "test_iter"), [(1, 3), (2, 4), (2, 5), (3, 5), (4, 3)])
def test_ranks_share_the_batches_of_a_test(source, ranks, test_iter):
    tests = 3
    single = data_layer(source, 2, phase=TEST, shard=TestShard(0, 1, test_iter))
    expected = labels(single, tests * test_iter)
    layers = [data_layer(source, 2, phase=TEST, shard=TestShard(rank, ranks, test_iter)) for rank in range(ranks)]
    for test in range(tests):
        batches = [batch for layer in layers for batch in labels(layer, layer.context.shard.batches)]
        assert sorted(batches) == sorted(expected[test * test_iter : (test + 1) * test_iter])
    positions = {layer.position() for layer in layers if layer.context.shard.batches}
    assert positions == {single.position()} == {tests * test_iter * 2}
    for layer in [single, *layers]:
        layer.close()


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_seek_goes_on_exactly_there_whatever_was_prefetched(source, prefetch):
    text = (
        'name: "d" type: "Data" top: "data" top: "label"'
        f' data_param {{ source: "{source}" batch_size: 4 prefetch: {prefetch} }}'
    )
    layer = make(text, shard=Shard(1, 2))
    before = labels(layer, 5)
    position = layer.position()
    after = labels(layer, 3)
    layer.seek(0)
    assert layer.position() == 0
    assert labels(layer, 5) == before
    assert layer.position() == position == 40
    for _ in range(2):
        layer.seek(position)
        assert labels(layer, 3) == after
    layer.seek(RECORDS * 1000 + 1)
    assert labels(layer, 1) == [[2, 4, 6, 8]]
    layer.close()


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_peeking_ahead_changes_neither_what_forward_gives_nor_positions(source, prefetch):
    text = (
        'name: "d" type: "Data" top: "data" top: "label"'
        f' data_param {{ source: "{source}" batch_size: 4 prefetch: {prefetch} }}'
    )
    layer = make(text, shard=Shard(0, 2))
    expected = labels(layer, 6)
    position = layer.position()
    layer.seek(0)
    found = []
    for _ in range(2):
        assert layer.peek(1)[1].tolist() == expected[len(found) + 1]
        assert layer.peek(0)[1].tolist() == expected[len(found)]
        assert layer.position() == len(found) * 8
        found += labels(layer, 1)
    layer.peek(2)
    assert found + labels(layer, 4) == expected
    assert layer.position() == position
    layer.peek(1)
    layer.seek(0)
    assert labels(layer, 6) == expected
    layer.close()


def test_augmentation_follows_the_record_not_the_ranks_or_the_restart(tmp_path):
    source = write_lmdb(tmp_path / "db", [datum(image) for image in images(5, (1, 12, 12))])
    transform = "transform_param { crop_size: 5 mirror: true }"
    one = data_layer(source, 4, transform, seed=9)
    two = [data_layer(source, 2, transform, seed=9, shard=Shard(rank, 2)) for rank in range(2)]
    for _ in range(4):
        expected = one.forward([])[0]
        for rank, layer in enumerate(two):
            assert torch.equal(layer.forward([])[0], expected[rank::2])
    third = one.forward([])[0]
    one.seek(16)
    assert torch.equal(one.forward([])[0], third)
    one.seek(0)
    one.context.seed = 10
    assert not torch.equal(one.forward([])[0], third)
    for layer in [one, *two]:
        layer.close()


def test_the_same_record_is_augmented_differently_in_the_next_epoch(tmp_path):
    source = write_lmdb(tmp_path / "db", [datum(images(1, (1, 30, 30))[0])])
    layer = data_layer(source, 1, "transform_param { crop_size: 5 }")
    crops = [layer.forward([])[0] for _ in range(4)]
    assert not all(torch.equal(crops[0], crop) for crop in crops[1:])
    layer.close()


def test_the_thread_ends_on_close_and_close_may_be_repeated(source):
    layer = data_layer(source, 2)
    assert not threads()  # a net that is built but not run reads nothing ahead
    layer.forward([])
    assert len(threads()) == 1
    layer.close()
    layer.close()
    assert not threads()


def test_the_thread_ends_with_a_forgotten_layer(source):
    layer = data_layer(source, 2)
    layer.forward([])
    del layer
    gc.collect()
    assert not threads()


def test_an_interpreter_that_exits_does_not_hang(source):
    code = f"from tests.support.datakit import data_layer\nlayer = data_layer({str(source)!r}, 2)\nlayer.forward([])\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_for_data_is_counted(source):
    layer = data_layer(source, 2)
    assert layer.wait_s == 0
    layer.forward([])
    assert 0 < layer.wait_s < 60
    layer.close()


def test_torch_random_numbers_are_left_alone(source):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    layer = data_layer(source, 2, "transform_param { mirror: true }")
    layer.forward([])
    layer.close()
    assert torch.equal(torch.rand(1), expected)


# -- the prefetcher --------------------------------------------------------------------------------------


def test_items_come_in_order_and_no_more_than_the_depth_are_made_ahead():
    made = []
    prefetcher = Prefetcher(lambda number: made.append(number) or number, 3)
    wait_until(lambda: len(made) == 3)
    time.sleep(0.02)
    assert made == [0, 1, 2]
    assert [prefetcher.get() for _ in range(10)] == list(range(10))
    prefetcher.close()


def test_a_failure_comes_after_the_items_before_it_and_stays():
    def produce(number):
        if number == 2:
            raise OSError("broken")
        return number

    prefetcher = Prefetcher(produce, 5)
    assert [prefetcher.get(), prefetcher.get()] == [0, 1]
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            prefetcher.get()
    prefetcher.close()


def test_a_failure_wakes_who_waits_for_the_item():
    is_made, raised = threading.Event(), []

    def produce(_):
        is_made.wait()
        wait_until(lambda: prefetcher._changed._waiters)
        raise OSError("broken")

    def get():
        with pytest.raises(OSError, match="broken") as caught:
            prefetcher.get()
        raised.append(caught.value)

    prefetcher = Prefetcher(produce, 1)
    is_made.set()
    waiting = threading.Thread(target=get, daemon=True)
    waiting.start()
    waiting.join(10)
    assert len(raised) == 1
    prefetcher.close()


def test_a_prefetcher_may_be_closed_in_its_own_thread():
    """As where that is the thread in which its forgotten owner is collected."""
    is_made, closed = threading.Event(), []

    def produce(_):
        is_made.wait()
        prefetcher.close()
        closed.append(True)

    prefetcher = Prefetcher(produce, 1)
    is_made.set()
    with pytest.raises(RuntimeError, match="the prefetcher is closed"):
        prefetcher.get()
    prefetcher.close()
    assert closed


def test_a_closed_prefetcher_gives_nothing():
    prefetcher = Prefetcher(lambda number: number, 1)
    prefetcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        prefetcher.get()


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def in_forked_process(function):
    """Run a function in a forked process, which may take 20 s; return what it returns, a text."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os.write(writing, function().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_process_is_told_that_it_lacks_the_thread_which_it_may_start_anew(source):
    layer = data_layer(source, 2)
    labels(layer, 1)

    def read():
        with pytest.raises(DataError, match="forked from it, does not have") as caught:
            labels(layer, 1)
        layer.seek(layer.position())
        return f"{caught.value.hint} {labels(layer, 1)}"

    assert in_forked_process(read) == (
        "make the net in the process that uses it, or set prefetch: 0 in data_param [[2, 3]]"
    )
    assert labels(layer, 1) == [[2, 3]]
    layer.close()


def test_a_forked_process_decodes_with_threads_of_its_own(tmp_path):
    records = [encoded(image, "PNG", number) for number, image in enumerate(images(8, (6, 8, 3)))]
    param = f'source: "{write_lmdb(tmp_path / "encoded", records)}" batch_size: 4 prefetch: 0 parser_threads: 2'
    layer = make(f'name: "data" type: "Data" top: "data" top: "label" data_param {{ {param} }}')
    assert labels(layer, 1) == [[0, 1, 2, 3]]
    assert in_forked_process(lambda: f"{labels(layer, 1)}") == "[[4, 5, 6, 7]]"
    assert labels(layer, 1) == [[4, 5, 6, 7]]
    layer.close()
