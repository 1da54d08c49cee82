"""Where making batches takes its time: stages of each layer that reads images, and what is said of the slowest."""

import pytest

from mgcaffe.engine.data.stages import BATCH, DECODE, READ, STAGES, StageTimes, bottleneck, share_of, sum_stages
from tests.support.datakit import encoded, file_bytes, images, make, numbered, write_lmdb

LAYER = 'name: "d" type: "Data" top: "x" data_param {{ source: "{}" batch_size: {} {} }}'


@pytest.mark.parametrize("threads", [1, 3])
def test_the_stages_of_complete_batches_are_added_up(tmp_path, threads):
    pictures = images(12, (40, 40, 3))
    source = write_lmdb(tmp_path / "db", [encoded(each, "JPEG") for each in pictures])
    param = f"parser_threads: {threads} prefetch: 0 }} transform_param {{ crop_size: 30 mirror: true"
    layer = make(LAYER.format(source, 6, param))
    assert layer.stages.totals.records == 0 and layer.stages.threads == threads
    layer.forward([])
    first = layer.stages.totals
    layer.forward([])
    both = layer.stages.totals
    layer.close()
    assert (first.records, both.records, both.since(first).records) == (6, 12, 6)
    assert all(both.stages[stage] > first.stages[stage] > 0 for stage in STAGES)
    assert both.made_s > first.made_s > 0 and both.since(first).made_s == both.made_s - first.made_s
    if threads == 1:
        assert sum(both.since(first).stages.values()) <= both.since(first).made_s


def test_image_files_have_the_same_stages(tmp_path):
    (tmp_path / "a.png").write_bytes(file_bytes(images(1, (9, 9, 3))[0], "PNG"))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.png 1\n")
    layer = make(
        'name: "d" type: "ImageData" top: "x" top: "y" data_param { prefetch: 0 } '
        f'image_data_param {{ source: "{tmp_path}/list.txt" batch_size: 2 }}'
    )
    layer.forward([])
    layer.close()
    assert layer.stages.totals.records == 2 and all(layer.stages.totals.stages[stage] > 0 for stage in STAGES)


def test_records_with_pixels_are_taken_apart_by_one_thread(tmp_path):
    layer = make(LAYER.format(numbered(tmp_path / "db", 5), 2, "parser_threads: 7"))
    assert layer.stages.threads == 1
    layer.close()


def test_the_slowest_stage_is_named_where_stages_are_told_apart():
    times = StageTimes()
    times.batch_made(3, 0.5)
    assert times.totals.stages[BATCH] == 0.5 and bottleneck(times.totals.stages) is None
    times.add(read=0.25, decode=1.0)
    times.add(decode=0.25, transform=0.5)
    times.batch_made(3, 0.0)
    assert bottleneck(times.totals.stages) == DECODE and share_of(times.totals.stages, DECODE) == 50
    assert sum_stages({READ: 1.0}, {}, times.totals.stages)[READ] == 1.25
    assert bottleneck({}) is None
