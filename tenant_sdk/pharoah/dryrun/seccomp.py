"""Filters for system calls (seccomp, Linux 3.17), assembled here: a tenant's machine need not have libseccomp.

A filter is a small program (classic BPF) that the kernel runs at each system call. It sees numbers only: a call that
depends on memory, such as the address of a `connect`, is allowed or refused as a whole.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from pharoah.dryrun.kernel_calls import refuse_new_privileges, system_call
from pharoah.dryrun.system_calls import FIRST_UNKNOWN, Architecture, SystemCall

_WORD = 0xFFFF_FFFF
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Instructions on 32-bit words (linux/bpf_common.h): load from the call's data, `and`, jumps, return."""
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET_BYTES = 0, 4, 16
"""Places in `struct seccomp_data` (linux/seccomp.h)."""
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000
"""What a filter returns (linux/seccomp.h). An error number is added to the second one; without one, the call returns 0
and is not made."""
_SET_FILTER, _NO_MITIGATION = 1, 4
"""Operation and flag of seccomp(2). The flag keeps kernels before 5.16 from slowing all code of the process down."""
_MAX_INSTRUCTIONS = 4096
"""Limit of the kernel (linux/bpf_common.h)."""


@dataclass(frozen=True)
class Condition:
    """A condition on half of an argument: the kernel reads an `int` or a set of flags from the low 32 bits."""

    argument: int
    value: int
    mask: int = _WORD
    """Bits of the argument that are compared."""
    equal: bool = True
    """Whether the bits must be equal to the value, or must differ from it."""
    high: bool = False
    """Whether the upper half of the argument is meant."""


Clause = tuple[Condition, ...]
"""Conditions that must hold together."""


@dataclass(frozen=True)
class Rule:
    """When a call is made; at any other time it fails with the error."""

    call: SystemCall
    allowed_when: tuple[Clause, ...] = ()
    """One of the clauses must hold. Without clauses the call is never allowed."""
    error: int = errno.EPERM
    """0: the call is not made, and to its caller it has succeeded."""
    answered_when: tuple[Clause, ...] = ()
    """Where one of these clauses holds, the call is not made, and to its caller it has succeeded. They come first."""


def restrict(rules: Iterable[Rule]) -> None:
    """Apply the rules to this thread and all that it will start, for good. All other known calls stay allowed.

    Raises OSError where the kernel has no filters.
    """
    program = assemble(rules, Architecture.from_this_process())
    instructions = ctypes.create_string_buffer(program, len(program))
    head = _Program(len(program) // 8, ctypes.addressof(instructions))
    refuse_new_privileges()
    number, pointer = SystemCall.SECCOMP.number_here(), ctypes.addressof(head)
    try:
        system_call(number, _SET_FILTER, _NO_MITIGATION, pointer)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 4.17 does not know the flag
            raise
        system_call(number, _SET_FILTER, 0, pointer)


class _Program(ctypes.Structure):
    """`struct sock_fprog` (linux/filter.h)."""

    _fields_ = (("instructions", ctypes.c_ushort), ("address", ctypes.c_void_p))


def assemble(rules: Iterable[Rule], architecture: Architecture) -> bytes:
    """The filter program. Calls of another ABI, and calls that are newer than our table, do not exist (ENOSYS)."""
    missing = _instruction(_RETURN, _REFUSE | errno.ENOSYS)
    program = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, architecture.audit_number, 1, 0),
        missing,
        _instruction(_LOAD, _NUMBER_OFFSET),
        _instruction(_JUMP_AT_LEAST, FIRST_UNKNOWN, 0, 1),
        missing,
    ]
    for rule in rules:
        if (number := rule.call.number(architecture)) is not None:
            block = _block(rule)
            program += [_instruction(_JUMP_EQUAL, number, 0, len(block)), *block]
    program.append(_instruction(_RETURN, _ALLOW))
    assert len(program) <= _MAX_INSTRUCTIONS
    return b"".join(program)


def _block(rule: Rule) -> list[bytes]:
    """What is run for a call of this rule. It always ends the program."""
    block: list[bytes] = []
    for clause in rule.answered_when:
        block += _test(clause, _REFUSE)
    for clause in rule.allowed_when:
        block += _test(clause, _ALLOW)
    return [*block, _instruction(_RETURN, _REFUSE | rule.error)]


def _test(clause: Clause, result: int) -> list[bytes]:
    """End with a result when all conditions hold, else go on behind these instructions."""
    backwards = [_instruction(_RETURN, result)]
    for condition in reversed(clause):
        rest = len(backwards)
        held, failed = (0, rest) if condition.equal else (rest, 0)
        backwards.append(_instruction(_JUMP_EQUAL, condition.value & _WORD, held, failed))
        if condition.mask != _WORD:
            backwards.append(_instruction(_AND, condition.mask))
        offset_bytes = _ARGUMENTS_OFFSET_BYTES + 8 * condition.argument + 4 * condition.high  # both are little-endian
        backwards.append(_instruction(_LOAD, offset_bytes))
    return backwards[::-1]


def _instruction(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    """`struct sock_filter` (linux/filter.h). Raises struct.error when a jump is longer than 255 instructions."""
    return struct.pack("=HBBI", code, when_true, when_false, value)
