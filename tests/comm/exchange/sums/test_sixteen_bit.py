import numpy
import pytest

from mgcaffe.comm.exchange.sums.sixteen_bit import BLOCK, CODECS, SixteenBitSum, block_starts
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.transport.threaded import run_ranks

pytestmark = pytest.mark.usefixtures("both_transports")

# Relative errors of rounding to 11 and to 8 significant bits.
PRECISION = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
ALL = numpy.array([0])


def there_and_back(kind, values):
    values = numpy.asarray(values, dtype=numpy.float32)
    starts = block_starts(ALL, 0, len(values))
    return CODECS[kind].decode(*CODECS[kind].encode(values, starts), starts)


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 1e9, 1e30])
def test_values_of_any_size_keep_their_significant_bits(kind, scale):
    values = numpy.random.default_rng(1).uniform(0.1, 1.0, 3 * BLOCK + 5).astype(numpy.float32) * numpy.float32(scale)
    values[::3] *= -1
    errors = numpy.abs(there_and_back(kind, values) - values) / numpy.abs(values)
    assert 0 < errors.max() <= PRECISION[kind]


def test_each_block_has_its_own_scale():
    values = numpy.ones(3 * BLOCK, dtype=numpy.float32)
    values[:BLOCK] = 1e-12 / 3
    values[BLOCK : 2 * BLOCK] = 1e12 / 3
    back = there_and_back("float16", values)
    assert numpy.abs(back / values - 1).max() <= 2.0**-11


@pytest.mark.parametrize("kind", CODECS)
def test_zeros_stay_and_what_is_not_finite_arrives_as_such(kind):
    values = numpy.array([0.0, numpy.inf, -numpy.inf, numpy.nan, 2.0**40, -0.0], dtype=numpy.float32)
    back = there_and_back(kind, values)
    assert numpy.array_equal(back, values, equal_nan=True)
    assert not there_and_back(kind, numpy.zeros(10)).any()


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    values = numpy.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], dtype=numpy.float32)
    assert there_and_back("bfloat16", values).tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]


def test_blocks_begin_where_layers_begin():
    layers = numpy.array([0, 10, 10 + BLOCK + 1, 20_000])
    assert block_starts(layers, 0, 20_000).tolist()[:4] == [0, 10, 10 + BLOCK, 11 + BLOCK]
    # The same layers as a group of their own have the same blocks.
    assert (block_starts(layers, 10, BLOCK + 1) + 10).tolist() == [10, 10 + BLOCK]


def sums(size, kind, groups, segments, count, spread=6):
    """The gradients of every rank before and after all groups were summed."""

    def work(ranks):
        flat = numpy.random.default_rng(ranks.rank).normal(size=count).astype(numpy.float32)
        flat *= numpy.exp(numpy.random.default_rng(9).normal(scale=spread, size=count)).astype(numpy.float32)
        summing = SixteenBitSum(ranks, CODECS[kind], segments)
        own = flat.copy()
        for offset, length in groups:
            summing(offset, flat[offset : offset + length])
        return own, flat

    return run_ranks(size, work)


SEGMENTS = [Segment("a", 0, 7000), Segment("none", 7000, 0), Segment("b", 7000, 30), Segment("c", 7030, 5000)]


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_get_the_same_bits_whatever_is_merged(kind, size):
    together = sums(size, kind, [(0, 12_030)], SEGMENTS, 12_030)
    two = sums(size, kind, [(7000, 5030), (0, 7000)], SEGMENTS, 12_030)
    apart = sums(size, kind, [(7030, 5000), (7000, 30), (0, 7000)], SEGMENTS, 12_030)
    assert len({flat.tobytes() for _, flat in together + two + apart}) == 1


@pytest.mark.parametrize("kind", CODECS)
def test_the_sum_is_taken_in_float32(kind):
    """In 16 bits, 64 times a third would lose digits with every rank."""

    def work(ranks):
        flat = numpy.full(100, 1 / 3, dtype=numpy.float32)
        SixteenBitSum(ranks, CODECS[kind])(0, flat)
        return flat

    third = there_and_back(kind, [1 / 3])[0]
    assert run_ranks(16, work)[3].tolist() == there_and_back(kind, [16 * third] * 100).tolist()


@pytest.mark.parametrize(("kind", "precision"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_a_sum_is_off_by_two_roundings(kind, precision):
    results = sums(2, kind, [(0, 12_030)], SEGMENTS, 12_030, spread=0)
    exact = results[0][0].astype(numpy.float64) + results[1][0]
    error = numpy.linalg.norm(results[0][1] - exact) / numpy.linalg.norm(exact)
    assert 0.1 * precision < error < 2 * precision


def test_large_groups_travel_in_several_exchanges(monkeypatch):
    monkeypatch.setattr("mgcaffe.comm.exchange.sums.sixteen_bit._MAX_VALUES", 2 * BLOCK)
    pieces = sums(3, "float16", [(0, 12_030)], [], 12_030)
    monkeypatch.undo()
    whole = sums(3, "float16", [(0, 12_030)], [], 12_030)
    assert pieces[0][1].tobytes() == whole[0][1].tobytes() == pieces[2][1].tobytes()


def test_float64_gradients_travel_too():
    def work(ranks):
        flat = numpy.full(10, 1.0 + ranks.rank)
        SixteenBitSum(ranks, CODECS["bfloat16"])(0, flat)
        return flat.dtype, flat.tolist()

    assert run_ranks(2, work) == [(numpy.dtype("float64"), [3.0] * 10)] * 2
