"""Values of options, checked while the command line is read."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from pharoah_system.http_address import HttpAddress, HttpAddressError


class TableDays(NamedTuple):
    """For how many days the rows of a table are kept."""

    table: str
    days: float


MAX_COUNT = 2**32 - 1
"""Numbers in messages have 32 bits or more."""


def count(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(MAX_COUNT)) or int(text) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MAX_COUNT}")
    return int(text)


def amount(text: str) -> float:
    try:
        if 0 <= (value := float(text)) < float("inf"):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")


def table_days(text: str) -> TableDays:
    """`TABLE=DAYS`."""
    table, equals, days = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not TABLE=DAYS")
    return TableDays(table=table, days=amount(days))


def http_address(text: str) -> str:
    if not text:  # argparse reads defaults that are text as well
        return text
    try:
        HttpAddress.from_url(text)
    except HttpAddressError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; expected an address such as http://127.0.0.1:9093/api/v2/alerts"
        ) from None
    return text
