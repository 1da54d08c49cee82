"""The address of a network interface of this host."""

from __future__ import annotations

import fcntl
import socket
import struct

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
