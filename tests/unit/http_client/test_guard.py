"""The addresses that no call connects to, in every form."""

from __future__ import annotations

import socket

import pytest

from twophase.http_client.address import parse_address
from twophase.http_client.guard import Guard
from twophase.http_client.outcome import HttpError

NEVER = [
    ("169.254.169.254", "link-local"),
    ("169.254.170.2", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%lo", "link-local"),
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("::", "unspecified"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("255.255.255.255", "broadcast"),
    ("240.0.0.1", "reserved"),
    ("100.100.100.200", "metadata"),
    ("168.63.129.16", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("::ffff:169.254.169.254", "link-local"),
    ("::ffff:0:169.254.169.254", "link-local"),
    ("::169.254.169.254", "link-local"),
    ("64:ff9b::a9fe:a9fe", "link-local"),
    ("64:ff9b:1::a9fe:a9fe", "link-local"),
    ("2002:a9fe:a9fe::", "link-local"),
    ("::ffff:0.0.0.0", "unspecified"),
]
PRIVATE = [
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "10.0.0.1",
    "172.31.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "::ffff:10.0.0.1",
]
PUBLIC = ["93.184.216.34", "172.32.0.1", "2606:4700::1", "2002:5db8:d822::1"]


@pytest.mark.parametrize(("address", "what"), NEVER)
def test_what_is_never_called_is_refused_by_its_kind(address: str, what: str) -> None:
    why_not = Guard(private=True).why_not(address, 80)
    assert why_not.startswith(f"{address} is ")
    assert what in why_not


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_only_when_the_setting_says_so(address: str) -> None:
    assert Guard(private=True).why_not(address, 80) == ""
    assert "private_destinations is false" in Guard(private=False).why_not(address, 80)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert Guard(private=False).why_not(address, 80) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_an_own_port_is_refused_in_every_form_and_another_is_not(address: str) -> None:
    guard = Guard()
    guard.listens("127.0.0.1", 36789)
    assert "port 36789 is the coordinator's own" in guard.why_not(address, 36789)
    assert guard.why_not(address, 36790) == ""
    assert guard.why_not("10.0.0.7", 36789) == ""


def test_a_server_on_every_address_of_the_machine_refuses_each_of_them_and_no_other() -> None:
    guard = Guard()
    guard.listens("0.0.0.0", 36789)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.2", 0))
    assert guard.why_not("127.0.0.2", 36789)
    assert guard.why_not("203.0.113.9", 36789) == ""


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f000001", "0X7F000001", "127.1", "0", "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "0x"),
        *("0x7f.1", "256.1.1.1", "1.2.3.4.5", "\uff11\uff12\uff17.0.0.1", "\uff10x7f.1", "127。0。0。1"),
    ],
)
def test_only_canonical_ipv4_literals_are_hosts(host: str) -> None:
    with pytest.raises(HttpError, match=r"^bad_url: the host (is a number|has characters)"):
        parse_address(f"http://{host}/in")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "1and1.example", "bank-7", "0x7f.example", "a.b1"])
def test_names_and_canonical_literals_are_hosts(host: str) -> None:
    assert parse_address(f"http://{host}/in").host == host
