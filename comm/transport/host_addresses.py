"""The addresses of this host by which the other ranks of a job may reach it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

LOOPBACK = "127.0.0.1"

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_NAME_BYTES = 15


def interface_address(name: str) -> str | None:
    """Return the IPv4 address of an interface, such as `eth0`; None: there is no such interface, or it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, _GET_ADDRESS, struct.pack("256s", name.encode()[:_NAME_BYTES]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def chosen_address() -> str | None:
    """Return the address of the first interface that GLOO_SOCKET_IFNAME names; None: it names none that has one."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    return interface_address(name) if name else None


def addresses_of_gloo() -> list[str]:
    """Return where gloo listens, the likeliest first.

    That is on the interface that GLOO_SOCKET_IFNAME names, or else at the address of the host's name, or else on the
    loopback interface.
    """
    chosen = chosen_address()
    try:
        of_name = [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    except OSError:
        of_name = []  # the name is not known
    return list(dict.fromkeys([*([chosen] if chosen else []), *of_name, LOOPBACK]))


def addresses_for_other_hosts() -> list[str]:
    """Return all addresses, or names, by which another host may reach this one."""
    found = [interface_address(name) for _, name in socket.if_nameindex()]
    outside = [address for address in found if address is not None and not address.startswith("127.")]
    return list(dict.fromkeys([*outside, socket.gethostname()]))
