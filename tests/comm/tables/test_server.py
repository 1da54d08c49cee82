"""Embedding servers and their trainers, as threads: what is looked up, updated, split, refused, and when it ends."""

from __future__ import annotations

import threading
import time

import numpy
import pytest

from mgcaffe.comm.tables.assignment import RowRange
from mgcaffe.comm.tables.client import TableClient
from mgcaffe.comm.tables.messages import (
    LOOK_UP,
    READ,
    UPDATE,
    WRITE,
    Bags,
    Block,
    LookUp,
    Request,
    encode_block,
    encode_look_up,
    encode_update,
)
from mgcaffe.comm.tables.server import TableServer
from mgcaffe.comm.transport.threaded import ThreadedCommunicator, run_ranks
from mgcaffe.errors import CommError
from tests.support.gloo import die

pytestmark = pytest.mark.usefixtures("both_transports")

FLOAT64 = numpy.dtype(numpy.float64)
ROWS, WIDTH = (7, 5), (3, 2)


def start(table: int) -> numpy.ndarray:
    """Return a table's first values."""
    return numpy.arange(ROWS[table] * WIDTH[table], dtype=numpy.float64).reshape(ROWS[table], -1) * 0.5 + 10 * table


class Held:
    """Parts of the two tables, updated by plain SGD; a history counts the updates of each row."""

    dtype = FLOAT64

    def __init__(self, assignment: list[list[RowRange]], owner: int) -> None:
        held = [next((each for each in ranges if each.owner == owner), None) for ranges in assignment]
        self.values = [start(t)[each.first : each.last] if each else start(t)[:0] for t, each in enumerate(held)]
        self.counts = [numpy.zeros((len(values), 1)) for values in self.values]
        self.rows = [len(values) for values in self.values]
        self.widths = WIDTH

    def look_up(self, requests, rows) -> numpy.ndarray:
        numpy.testing.assert_array_equal(rows, numpy.concatenate([each.bags.rows for each in requests]))
        found = []
        for table, bags, _ in requests:
            sums = numpy.zeros((bags.count, WIDTH[table]))
            lengths = numpy.ones(len(bags.rows), int) if bags.lengths is None else bags.lengths
            numpy.add.at(sums, numpy.repeat(numpy.arange(bags.count), lengths), self.values[table][bags.rows])
            found.append(sums.reshape(-1))
        return numpy.concatenate(found)

    def update(self, gradients, rate, scale) -> None:
        for table, bags, values in gradients:
            lengths = numpy.ones(len(bags.rows), int) if bags.lengths is None else bags.lengths
            numpy.subtract.at(self.values[table], bags.rows, rate * scale * numpy.repeat(values, lengths, axis=0))
            numpy.add.at(self.counts[table], bags.rows, 1)

    def numbers(self, table: int, what: int) -> numpy.ndarray:
        if what > 1:
            raise CommError(f"there is no history {what}")
        return self.counts[table] if what else self.values[table]

    def save(self, order: bytes) -> Writing:
        return Writing(order, self.values[0].copy())

    def load(self, order: bytes) -> bytes:
        self.values[0][:] = float(order)
        return b"loaded"


class Writing:
    """Rows that are written once a test says so."""

    may_end = threading.Event()

    def __init__(self, order: bytes, values: numpy.ndarray) -> None:
        self._order, self._values = order, values

    def result(self, patience_s: float | None = 0) -> bytes | None:
        return self._order + self._values.tobytes() if self.may_end.wait(patience_s) else None


WHOLE = [[RowRange(0, 0, 7)], [RowRange(0, 0, 5)]]


def serve(assignment, trainer, *, trainers=(0,), servers=(1,)):
    """Run `trainer(client, communicator)` on the trainers' ranks with servers on the others; return all results."""

    def rank(communicator: ThreadedCommunicator):
        if communicator.rank in servers:
            held = Held(assignment, servers.index(communicator.rank))
            return held, TableServer(communicator, trainers, held).run()
        shapes = list(zip(ROWS, WIDTH, strict=True))
        client = TableClient(communicator, shapes, assignment, servers, FLOAT64)
        try:
            return trainer(client, communicator)
        finally:
            client.close()

    return run_ranks(len(trainers) + len(servers), rank, timeout_s=20)


def ids(*numbers: int) -> numpy.ndarray:
    return numpy.array(numbers, numpy.int64)


BAGS = Bags(ids(6, 0, 0, 2), ids(2, 0, 1, 1)), Bags(ids(4, 1))
BATCH = [Request(table, bags, True) for table, bags in enumerate(BAGS)]
TEST_BATCH = [Request(table, bags, False) for table, bags in enumerate(BAGS)]


NOTHING = Request(0, Bags(ids()), False)


def sums(values: list[numpy.ndarray]) -> list[numpy.ndarray]:
    """What the batch's bags are of tables with these values."""
    first, second = values
    return [numpy.stack([first[6] + first[0], numpy.zeros(3), first[0], first[2]]), second[[4, 1]]]


@pytest.mark.parametrize(
    ("assignment", "servers"),
    [
        (WHOLE, (1,)),
        ([[RowRange(0, 0, 7)], [RowRange(1, 0, 5)]], (2, 1)),
        ([[RowRange(0, 0, 2), RowRange(1, 2, 7)], [RowRange(1, 0, 4), RowRange(0, 4, 5)]], (1, 2)),
        ([[RowRange(0, 0, 1), RowRange(1, 1, 7)], [RowRange(0, 0, 5)]], (1, 2)),
    ],
)
def test_bags_are_summed_and_rows_updated_wherever_they_lie(assignment, servers):
    gradients = [numpy.arange(12.0).reshape(4, 3), numpy.array([[1.0, 2], [3, 4]])]

    def trainer(client, _):
        first = client.look_up(BATCH)
        before = [each.copy() for each in first.wait()]
        client.update([(first, gradients)], 0.5, scale=2.0)
        after = client.look_up(TEST_BATCH).wait()
        values, counts = [start(0) * 0, start(1) * 0], numpy.zeros((7, 1))
        for table in range(2):
            client.read(table, 0, values[table])
        client.read(0, 1, counts)
        return before, after, values, counts

    (before, after, values, counts), *_ = serve(assignment, trainer, servers=servers)
    expected = [start(0), start(1)]
    for found, wanted in zip(before, sums(expected), strict=True):
        numpy.testing.assert_array_equal(found, wanted)
    expected[0][6] -= gradients[0][0]
    expected[0][0] -= gradients[0][0] + gradients[0][2]
    expected[0][2] -= gradients[0][3]
    expected[1][[4, 1]] -= gradients[1]
    for found, wanted in zip([*values, *after], [*expected, *sums(expected)], strict=True):
        numpy.testing.assert_allclose(found, wanted, rtol=1e-15)
    assert counts[:, 0].tolist() == [2, 0, 1, 0, 0, 0, 1]


def test_an_update_holds_the_gradients_of_several_look_ups_of_what_trains_alone():
    def trainer(client, _):
        look_ups = [
            client.look_up([Request(0, Bags(ids(n)), True), Request(1, Bags(ids(n)), False)]) for n in (1, 1, 3)
        ]
        for each in look_ups:
            each.wait()
        client.update([(each, [numpy.ones((1, 3)) * n, None]) for n, each in enumerate(look_ups, 1)], 1.0)
        values = [start(0), start(1)]
        for table in range(2):
            client.read(table, 0, values[table])
        return values

    values, (_, figures) = serve(WHOLE, trainer)
    expected = start(0)
    expected[1] -= 3
    expected[3] -= 3
    numpy.testing.assert_array_equal(values[0], expected)
    numpy.testing.assert_array_equal(values[1], start(1))
    assert (figures.look_ups, figures.ids, figures.updates) == (3, 6, 1)


@pytest.mark.parametrize("bytes_at_once", [1000, 24])
def test_what_is_written_is_looked_up_also_twice_in_a_table(monkeypatch, bytes_at_once):
    monkeypatch.setattr("mgcaffe.comm.tables.table_requests._BYTES_AT_ONCE", bytes_at_once)
    whole = numpy.empty((5, 2))

    def trainer(client, _):
        client.write(1, 0, 2, 1, start(1).reshape(-1)[1:] + 100)
        client.read(1, 0, whole)
        return client.look_up([Request(1, Bags(ids(3, 0)), False), Request(1, Bags(ids(1)), False)]).wait()

    (first, second), *_ = serve([[], [RowRange(0, 0, 2), RowRange(1, 2, 5)]], trainer, servers=(1, 2))
    numpy.testing.assert_array_equal(first, start(1)[[3, 0]] + [[100, 100], [0, 100]])
    numpy.testing.assert_array_equal(second, start(1)[[1]] + 100)
    numpy.testing.assert_array_equal(whole.reshape(-1) - start(1).reshape(-1), [0, *[100] * 9])


def test_a_look_up_that_no_update_follows_is_forgotten():
    def trainer(client, _):
        first = client.look_up(BATCH)
        first.wait()
        client.forget(first)
        second = client.look_up(BATCH)
        second.wait()
        client.update([(first, [numpy.zeros((4, 3)), numpy.zeros((2, 2))])], 1.0)
        client.look_up(TEST_BATCH).wait()

    with pytest.raises(CommError, match=r"rank 1: a message of rank 0 .* gradients of look-up 0, which is not waited"):
        serve(WHOLE, trainer)


def test_trainers_at_their_own_pace_update_one_copy_and_a_slow_one_holds_nobody_up():
    """Rank 0 asks and doesn't take its answer until rank 1 has finished."""
    finished = threading.Event()

    def trainer(client, communicator):
        rounds = 1 if communicator.rank == 0 else 30
        for _ in range(rounds):
            look_up = client.look_up([Request(0, Bags(ids(2)), True)])
            if communicator.rank == 0:
                assert finished.wait(15)
            look_up.wait()
            client.update([(look_up, [numpy.ones((1, 3))])], 1.0)
        if communicator.rank == 1:
            finished.set()

    *_, (held, figures) = serve(WHOLE, trainer, trainers=(0, 1), servers=(2,))
    numpy.testing.assert_array_equal(held.values[0][2], start(0)[2] - 31)
    assert figures.updates == 31


def test_threads_of_a_trainer_share_a_client_and_each_look_up_has_its_own_update():
    """A third of the look-ups is dropped without an update, so that the servers forget what is open meanwhile."""
    threads, rounds = 4, 60

    def trainer(client, _):
        def work(number):
            for each in range(rounds):
                look_up = client.look_up([Request(0, Bags(ids(number, 6)), True), Request(1, Bags(ids(number)), False)])
                assert look_up.wait()[1].shape == (1, 2)
                if each % 3:
                    client.update([(look_up, [numpy.ones((2, 3)), None])], 1.0)
                else:
                    client.forget(look_up)

        together = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        client.settle()
        return client.figures

    figures, (held, served), _ = serve([[RowRange(0, 0, 7)], [RowRange(1, 0, 5)]], trainer, servers=(1, 2))
    updates = threads * rounds * 2 // 3
    assert held.counts[0][:, 0].tolist() == [updates // threads] * threads + [0, 0, updates]
    assert (figures.look_ups, served.updates) == (threads * rounds, updates)


def test_look_ups_are_answered_while_the_trainer_computes():
    def trainer(client, _):
        look_up = client.look_up(TEST_BATCH)
        assert look_up.answered.wait(10)
        look_up.wait()
        return client.figures

    figures, _ = serve(WHOLE, trainer)
    assert figures.look_ups == 1
    assert figures.waited_s < 0.1
    assert figures.received == 8 * (12 + 4)


@pytest.mark.parametrize(
    ("tag", "content", "problem"),
    [
        (LOOK_UP, numpy.zeros(3, numpy.uint8), "3 bytes is cut short"),
        (LOOK_UP, ids(0, 0, 9), r"45 word\(s\) follow"),
        (LOOK_UP, encode_look_up(LookUp(0, 0, [Request(2, Bags(ids(0)), True)])), "table 2, and there are 2"),
        (
            LOOK_UP,
            encode_look_up(LookUp(0, 0, [Request(0, Bags(ids(3, 7)), True)])),
            "rows 3 to 7 of table 0, of which 7",
        ),
        (LOOK_UP, encode_look_up(LookUp(0, 0, [Request(0, Bags(ids(0, -1)), False)])), "rows -1 to 0 of table 0"),
        (LOOK_UP, encode_look_up(LookUp(0, 0, [Request(0, Bags(ids(1), ids(2)), True)])), "do not have its 1 ids"),
        (LOOK_UP, encode_look_up(LookUp(0, 0, [Request(0, Bags(ids(1), ids(-1, 2)), True)])), "negative count, -1"),
        (READ, encode_block(Block(2, 0, 0, 0)), "asks for table 2, and there are 2"),
        (READ, encode_block(Block(0, 0, 20, 2)), r"2 number\(s\) from 20 on of table 0, of which 21 are here"),
        (READ, encode_block(Block(0, 0, -1, 2)), r"2 number\(s\) from -1 on of table 0"),
        (WRITE, encode_block(Block(0, 0, 0, 2), numpy.ones(1)), r"writes 8 bytes into 2 number\(s\) of 16"),
        (UPDATE, encode_update([0], 1.0, 1.0, [], FLOAT64), "gradients of look-up 0, which is not waited for"),
        (UPDATE, encode_update([], 1.0, 1.0, [numpy.ones(1)], FLOAT64), r"1 number\(s\), and its look-ups take 0"),
        (77, ids(), "no message with tag 77"),
    ],
)
def test_a_message_that_makes_no_sense_ends_the_server_and_names_who_sent_it(tag, content, problem):
    def trainer(client, communicator):
        communicator.send(content, 1, tag)

    with pytest.raises(CommError, match=f"embedding server, rank 1: a message of rank 0 makes no sense: .*{problem}"):
        serve(WHOLE, trainer)


def test_a_trainer_that_dies_is_forgotten_between_its_look_up_and_its_update():
    """It leaves an answer that it doesn't take, ids that wait for gradients, and gradients that nobody applies."""
    dead = threading.Event()

    def rank(communicator: ThreadedCommunicator):
        communicator.tolerate({1})
        if communicator.rank == 2:
            held = Held(WHOLE, 0)
            server = TableServer(communicator, (0, 1), held)
            return held, server.run(), server
        if communicator.rank == 1:
            for number in (0, 1):
                look_up = LookUp(number, 0, [Request(0, Bags(ids(5)), True)])
                communicator.send(encode_look_up(look_up), 2, LOOK_UP)
            communicator.start_send(encode_update([0], 1.0, 1.0, [numpy.ones((1, 3))], FLOAT64), 2, UPDATE)
            die(communicator)
            dead.set()
            return None
        assert dead.wait(15)
        client = TableClient(communicator, list(zip(ROWS, WIDTH, strict=True)), WHOLE, (2,), FLOAT64)
        look_up = client.look_up([Request(0, Bags(ids(2)), True)])
        look_up.wait()
        client.update([(look_up, [numpy.ones((1, 3))])], 1.0)
        client.close()
        return client.figures

    figures, _, (held, served, server) = run_ranks(3, rank, timeout_s=20)
    assert figures.look_ups == 1 and held.counts[0][2] == 1 and not server._clients[1].kept
    assert held.counts[0][5] == served.updates - 1 in (0, 1)  # noticed before the message or after it


def test_a_trainer_that_fails_ends_the_others():
    def trainer(client, communicator):
        if communicator.rank == 0:
            raise ValueError("this one")
        time.sleep(0.1)
        client.look_up(TEST_BATCH).wait()

    began = time.monotonic()
    with pytest.raises(ValueError, match="this one"):
        serve(WHOLE, trainer, trainers=(0, 1), servers=(2,))
    assert time.monotonic() - began < 15


def test_look_ups_go_on_while_rows_are_written_as_they_were_when_it_was_asked_for():
    Writing.may_end.clear()
    assignment = [[RowRange(0, 0, 7)], [RowRange(1, 0, 5)]]

    def trainer(client, communicator):
        client.update([(client.look_up(BATCH), [numpy.ones((4, 3)), numpy.ones((2, 2))])], 1.0)
        saving = client.save({1: b"one", 2: b"two"})
        ahead = client.look_up(BATCH)
        before = ahead.wait()[0]
        client.update([(ahead, [numpy.ones((4, 3)), numpy.ones((2, 2))])], 1.0)
        after = client.look_up(TEST_BATCH).wait()[0]
        is_done = saving.done.is_set()
        Writing.may_end.set()
        return before, after, is_done, saving.wait()

    (before, after, is_done, answers), *_ = serve(assignment, trainer, servers=(1, 2))
    assert not is_done and answers[2] == b"two"
    written = numpy.frombuffer(answers[1].removeprefix(b"one")).reshape(7, 3)
    numpy.testing.assert_array_equal(before[0], written[6] + written[0])
    assert not numpy.array_equal(before, after)


def test_a_file_that_no_trainer_waits_for_any_more_is_written_to_its_end():
    Writing.may_end.clear()

    def trainer(client, _):
        client.save({1: b"one"})
        threading.Timer(0.2, Writing.may_end.set).start()

    serve(WHOLE, trainer)
    assert Writing.may_end.is_set()


def test_rows_are_read_from_files_before_what_follows_is_answered():
    def trainer(client, communicator):
        return client.load({1: b"2.5"}), client.look_up(TEST_BATCH).wait()[0]

    ((answers, found), _) = serve(WHOLE, trainer)
    assert answers == {1: b"loaded"}
    numpy.testing.assert_array_equal(found, numpy.array([5.0, 0, 2.5, 2.5])[:, numpy.newaxis].repeat(3, axis=1))


class SlowHeld(Held):
    """Rows that change one number after the other, with a pause between two."""

    def update(self, gradients, rate, scale) -> None:
        for column in range(3):
            for table, bags, values in gradients:
                numpy.subtract.at(self.values[table][:, column], bags.rows, rate * scale * values[:, column])
            time.sleep(1e-3)
        for table, bags, _ in gradients:
            numpy.add.at(self.counts[table], bags.rows, 1)


def test_trainers_serve_each_other_and_no_row_is_seen_half_updated():
    """The numbers of a row are equal at the start, and each gradient keeps them so."""
    assignment = [[RowRange(0, 0, 3), RowRange(1, 3, 5), RowRange(2, 5, 7)], [RowRange(1, 0, 5)]]
    rounds = (20, 5, 12)

    def rank(communicator: ThreadedCommunicator):
        held = SlowHeld(assignment, communicator.rank)
        held.values[0] -= numpy.arange(3) * 0.5
        answers = communicator.duplicate()
        others = [each for each in range(3) if each != communicator.rank]
        server = TableServer(communicator, others, held, answers)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        client = TableClient(communicator, [(7, 3), (5, 2)], assignment, range(3), FLOAT64, answers)
        client.own = server.rows
        for _ in range(rounds[communicator.rank]):
            look_up = client.look_up([Request(0, Bags(ids(*range(7))), True)])
            (rows,) = look_up.wait()
            assert (rows == rows[:, :1]).all()
            client.update([(look_up, [numpy.ones((7, 3))])], 1.0)
        client.settle()
        communicator.barrier()
        values, counts = numpy.empty((7, 3)), numpy.empty((7, 1))
        client.read(0, 0, values)
        client.read(0, 1, counts)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
        return values, counts, server.figures.updates

    for values, counts, updates in run_ranks(3, rank, timeout_s=10):
        numpy.testing.assert_array_equal(values[:, 0], start(0)[:, 0] - 37)
        assert (counts == 37).all()
        assert updates in (37 - each for each in rounds)
