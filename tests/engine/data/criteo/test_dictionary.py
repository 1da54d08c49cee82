"""Dictionaries of categorical values: ids, the file, and what is no such file."""

import numpy as np
import pytest

from mgcaffe.engine.data.criteo.dictionary import Dictionary, read_dictionary, write_dictionary
from mgcaffe.errors import DataError

VALUES = [
    np.array([7, 3, 2**64 - 1], np.uint64),
    *[np.array([number, 9], np.uint64) for number in range(10, 34)],
    np.zeros(0, np.uint64),
]


def test_ids_count_from_1_in_the_order_of_the_values_and_0_is_for_the_rest(tmp_path):
    write_dictionary(tmp_path / "d", VALUES)
    for dictionary in (Dictionary(VALUES), read_dictionary(str(tmp_path / "d"))):
        assert dictionary.sizes == [4, *[3] * 24, 1]
        asked = np.full((6, 26), 9, np.uint64)
        asked[:, 0] = [3, 7, 2**64 - 1, 0, 8, 2**63]
        found = dictionary.ids(asked)
        assert found[:, 0].tolist() == [2, 1, 3, 0, 0, 0]
        assert (found[:, 1:25] == 2).all() and (found[:, 25] == 0).all()


def test_what_is_no_dictionary_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"dictionary '.*/none' cannot be read: No such file") as caught:
        read_dictionary(str(tmp_path / "none"))
    assert "convert_criteo --dictionary" in str(caught.value)
    write_dictionary(tmp_path / "d", VALUES)
    good = (tmp_path / "d").read_bytes()
    fewer = good.replace(b'"values": [3, 2', b'"values": [5', 1)
    for content in (b"", b"{}\n", good[:-1], good[:-1] + b"\1", good.replace(b"[3,", b"[2,"), fewer, b"[" * 9999):
        (tmp_path / "d").write_bytes(content)
        with pytest.raises(DataError, match=r"dictionary '.*/d' is damaged, or none"):
            read_dictionary(str(tmp_path / "d"))
