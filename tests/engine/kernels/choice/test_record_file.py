import json
import pwd

import pytest
import torch

from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.record_file import Machine, read_records, write_records
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError

HERE = Machine("some CPU", "2.13.0", 2)
RECORDS = {
    "b: x 3": Measured("aten", "onednn", {"aten": 2e-3, "onednn": 1e-3}),
    "a: x 2": Measured("mm", "mm", {"mm": 1e-6}, frozenset({"onednn", "exchanged"})),
}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "folder" / "choices.json"
    write_records(path, HERE, RECORDS)
    assert read_records(path, HERE) == RECORDS
    assert list(json.loads(path.read_text())["operations"]) == ["a: x 2", "b: x 3"]
    write_records(path, HERE, {})
    assert read_records(path, HERE) == {}


def test_times_of_another_machine_are_refused(tmp_path):
    path = tmp_path / "choices.json"
    write_records(path, HERE, RECORDS)
    for other in (
        Machine("another CPU", "2.13.0", 2),
        Machine("some CPU", "2.14.0", 2),
        Machine("some CPU", "2.13.0", 1),
    ):
        with pytest.raises(DataError, match=r"holds for some CPU, PyTorch 2\.13\.0, 2 threads; this is ") as caught:
            read_records(path, other)
        assert caught.value.exit_code == 65
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text[:-20], "no JSON"),
        (lambda text: text.replace('"autotune": 9', '"autotune": 2'), "it has version 2"),
        (lambda text: text.replace('"threads": 2', '"threads": 0'), "machine.threads should be a whole number of 1"),
        (lambda text: text.replace('"chosen": "onednn"', '"chosen": "mm"'), "names 'mm', which ms has no time of"),
        (lambda text: text.replace('"mm": 0.001', '"mm": -1'), "should be a number of 0"),
        (lambda text: text.replace('"operations"', '"operation"'), "'operations' is missing"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(tmp_path, change, complaint):
    path = tmp_path / "choices.json"
    write_records(path, HERE, RECORDS)
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match="this is no record of measured candidates: ") as caught:
        read_records(path, HERE)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")
    assert caught.value.exit_code == 65


def test_what_cannot_be_read_or_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot read .*Is a directory"):
        read_records(tmp_path, HERE)
    with pytest.raises(DataError, match="cannot write ") as caught:
        write_records(tmp_path / "file" / "choices.json", HERE, RECORDS)
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


def test_each_machine_has_a_file_of_its_own_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = Machine.here(torch.device("cpu"))
    assert here == Machine.here(torch.device("cpu"))
    assert (here.pytorch, here.threads) == (torch.__version__, torch.get_num_threads())
    others = [here, Machine("another/../CPU", here.pytorch, here.threads), Machine(here.processor, here.pytorch, 99)]
    files = {machine.default_file() for machine in others}
    assert len(files) == 3
    assert all(file.parent == tmp_path / "mgcaffe" / "autotune" for file in files)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert here.default_file().parent == tmp_path / ".cache" / "mgcaffe" / "autotune"


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(DataError, match=r"no folder for what autotune measures.*\n.*XDG_CACHE_HOME"):
        HERE.default_file()
