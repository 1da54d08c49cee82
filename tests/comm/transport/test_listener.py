"""Greetings: ranks are found among strangers, who are turned away, and where a rank listens."""

import contextlib
import errno
import os
import socket
import threading

import pytest

from mgcaffe.comm.transport import host_addresses, listener
from mgcaffe.comm.transport.host_addresses import LOOPBACK, addresses_for_other_hosts, addresses_of_gloo
from mgcaffe.comm.transport.listener import Address, Listener, await_answer, greet
from mgcaffe.errors import CommError
from tests.support.strangers import HALF, HTTP, HUGE, SILENT, WRONG

PATIENCE_S = 20.0


@pytest.fixture
def own():
    with contextlib.closing(Listener([LOOPBACK])) as made:
        yield made


@pytest.fixture
def connect(own):
    """Return a function that connects and says something."""
    with contextlib.ExitStack() as open_ones:

        def say(saying):
            made = open_ones.enter_context(socket.create_connection((LOOPBACK, own.address.port), PATIENCE_S))
            made.sendall(saying)
            return made

        yield say


def poll_until(own, is_done):
    """Poll until something is so; return who was found."""
    found = []
    while not is_done(found):
        found += own.poll(PATIENCE_S)
    return found


def close(found):
    for _, connected in found:
        connected.close()


def is_turned_away(connected):
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:  # some of what it said was not read
        return True


def test_ranks_are_found_among_silent_strangers_and_what_they_send_next_is_left_to_whoever_takes_them(own, connect):
    silent = [connect(SILENT), connect(HALF), connect(SILENT)]
    ranks = [greet(own.address, rank, PATIENCE_S) for rank in (5, 2)]
    ranks[0].sendall(b"next")
    found = poll_until(own, lambda found: len(found) == 2)
    assert sorted(rank for rank, _ in found) == [2, 5]
    for each in ranks:
        await_answer(each, own.address, PATIENCE_S)
    theirs = dict(found)[5]
    theirs.setblocking(True)
    assert theirs.recv(10) == b"next"
    theirs.sendall(b"also")
    assert ranks[0].recv(10) == b"also"
    for each in silent:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(1)  # still there
    close([*found, *enumerate(ranks)])


@pytest.mark.parametrize("saying", [WRONG, HUGE, HTTP])
def test_who_says_something_else_is_turned_away_and_learns_nothing(own, connect, saying):
    stranger = connect(saying)
    left = threading.Thread(target=lambda: gone.append(is_turned_away(stranger)))
    gone = []
    left.start()
    assert poll_until(own, lambda _: own.poll(0.01) or not left.is_alive()) == []
    assert gone == [True]


def test_who_leaves_or_says_nothing_for_long_is_forgotten(own, connect, monkeypatch):
    connect(HALF).close()
    silent = connect(SILENT)
    poll_until(own, lambda _: len(own._strangers) == 1)
    monkeypatch.setattr(listener, "HELLO_S", -1.0)
    assert own.poll(0.0) == [] and not own._strangers
    assert is_turned_away(silent)


def test_the_oldest_make_way_when_there_are_too_many(own, connect, monkeypatch):
    monkeypatch.setattr(listener, "MOST_STRANGERS", 2)
    strangers = []
    for _ in range(4):
        strangers.append(connect(SILENT))
        own.poll(PATIENCE_S)
    rank = greet(own.address, 1, PATIENCE_S)
    found = poll_until(own, bool)
    assert [number for number, _ in found] == [1]
    assert all(map(is_turned_away, strangers[:2])) and len(own._strangers) <= 2
    close([*found, (1, rank)])


def test_a_process_without_free_descriptors_lets_strangers_go(own, connect, monkeypatch):
    connect(SILENT)
    poll_until(own, lambda _: own._strangers)

    class Full:
        def accept(self):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with contextlib.closing(own._server):
        own._server = Full()
        own._accept()
    own._server = socket.socket()
    assert not own._strangers


@pytest.mark.parametrize("said", [b"\r\n" * 8, b"short"])
def test_who_connects_to_a_stranger_finds_out(said):
    with socket.create_server((LOOPBACK, 0)) as server:
        address = Address((LOOPBACK,), server.getsockname()[1], bytes(16))
        connected = greet(address, 1, PATIENCE_S)
        theirs, _ = server.accept()
        with connected, theirs:
            assert len(theirs.recv(100)) == 20
            theirs.sendall(said)
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError, match="no rank of this job" if len(said) == 16 else "was closed"):
                await_answer(connected, address, PATIENCE_S)


@pytest.mark.parametrize("name", ["lo", "lo,eth7", "no_such_interface", ""])
def test_ranks_listen_where_gloo_does(monkeypatch, name):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)
    own = Listener(addresses_of_gloo())
    assert not name.startswith("lo") or own.address.hosts == (LOOPBACK,)
    greet(own.address, 0, PATIENCE_S).close()
    own.close()


def test_a_host_whose_name_is_not_known_listens_for_itself_and_an_address_of_another_host_is_passed_over(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(host_addresses.socket, "getaddrinfo", unknown)
    assert addresses_of_gloo() == [LOOPBACK]
    monkeypatch.undo()
    with contextlib.closing(Listener(["192.0.2.1", LOOPBACK])) as made:
        assert made.address.hosts == (LOOPBACK,)
    with pytest.raises(CommError, match="finds no address at which the others could reach it"):
        Listener(["192.0.2.1"])


def test_who_listens_everywhere_is_reached_by_every_address_but_the_loopback_interface():
    addresses = addresses_for_other_hosts()
    assert LOOPBACK not in addresses and socket.gethostname() in addresses
    with contextlib.closing(Listener([""], addresses)) as made:
        assert made.address.hosts == tuple(addresses)
        greet(made.address, 3, PATIENCE_S, LOOPBACK).close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_listens_no_longer_and_its_parent_does(own):
    process = os.fork()
    if not process:
        os._exit(0 if own._server.fileno() == -1 else 1)
    assert os.waitpid(process, 0)[1] == 0
    rank = greet(own.address, 1, PATIENCE_S)
    found = poll_until(own, bool)
    assert [number for number, _ in found] == [1]
    close([*found, (1, rank)])
