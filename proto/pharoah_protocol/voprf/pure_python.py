"""ristretto255 in plain Python (RFC 9496). Not constant time: never for a key that lives longer than one query.

A backend of `pharoah_protocol.voprf.group`. Points are in extended coordinates (X : Y : Z : T) on the curve
-x^2 + y^2 = 1 + d x^2 y^2 over the integers modulo 2^255 - 19 (Hisil, Wong, Carter, Dawson 2008).
"""

from __future__ import annotations

from collections.abc import Sequence

ORDER = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)
_TWO_D = 2 * D % P
_ONE_MINUS_D_SQ = (1 - D * D) % P
_D_MINUS_ONE_SQ = (D - 1) ** 2 % P

Point = tuple[int, int, int, int]
_ZERO: Point = (0, 1, 1, 0)
_WINDOW = 5


def multiply(scalar: bytes, element: bytes) -> bytes | None:
    """scalar * element; None for an element that is not canonical, and for the identity."""
    point = _decode(element)
    return None if point is None else _nonzero(_times(int.from_bytes(scalar, "little"), point))


def multiply_base(scalar: bytes) -> bytes | None:
    """scalar * generator; None for zero."""
    return _nonzero(_times(int.from_bytes(scalar, "little"), _BASE))


def compute_weighted_sum(scalars: Sequence[bytes], elements: Sequence[bytes]) -> bytes | None:
    """The sum of scalar * element, by buckets (Pippenger 1976): about twenty times fewer additions than by products."""
    points = [_decode(element) if any(element) else None for element in elements]
    numbers = [int.from_bytes(scalar, "little") for scalar in scalars]
    total = _ZERO
    for shift in range(-(-ORDER.bit_length() // _WINDOW) * _WINDOW - _WINDOW, -1, -_WINDOW):
        for _ in range(_WINDOW):
            total = _double(total)
        buckets: list[Point | None] = [None] * (1 << _WINDOW)
        for number, point in zip(numbers, points, strict=True):
            if point is None:
                return None
            digit = number >> shift & ((1 << _WINDOW) - 1)
            held = buckets[digit]
            buckets[digit] = point if held is None else _add(held, point)
        running = _ZERO
        for held in reversed(buckets[1:]):
            running = running if held is None else _add(running, held)
            total = _add(total, running)
    return _nonzero(total)


def from_hash(digest: bytes) -> bytes:
    """The one-way map of 64 uniform bytes to an element (section 4.3.4)."""
    low, high = (int.from_bytes(half, "little") & (1 << 255) - 1 for half in (digest[:32], digest[32:]))
    return _encode(_add(_map(low % P), _map(high % P)))


def is_element(element: bytes) -> bool:
    """Whether these 32 bytes are a canonical element other than the identity."""
    return any(element) and _decode(element) is not None


def _decode(data: bytes) -> Point | None:
    """Section 4.3.1."""
    s = int.from_bytes(data, "little")
    if s >= P or s & 1:
        return None
    ss = s * s % P
    u1, u2 = (1 - ss) % P, (1 + ss) % P
    u2_sqr = u2 * u2 % P
    v = (-(D * u1 * u1) - u2_sqr) % P
    square, root = _inverse_root(v * u2_sqr % P)
    den_x = root * u2 % P
    x = _absolute(2 * s * den_x % P)
    y = u1 * root * den_x * v % P
    t = x * y % P
    return (x, y, 1, t) if square and not t & 1 and y else None


def _encode(point: Point) -> bytes:
    """Section 4.3.2."""
    x0, y0, z0, t0 = point
    u1, u2 = (z0 + y0) * (z0 - y0) % P, x0 * y0 % P
    _, root = _inverse_root(u1 * u2 * u2 % P)
    den1, den2 = root * u1 % P, root * u2 % P
    z_inverse = den1 * den2 * t0 % P
    x, y, den = x0, y0, den2
    if t0 * z_inverse % P & 1:
        x, y, den = y0 * SQRT_M1 % P, x0 * SQRT_M1 % P, den1 * _INV_ROOT_A_MINUS_D % P
    if x * z_inverse % P & 1:
        y = -y % P
    return _absolute(den * (z0 - y) % P).to_bytes(32, "little")


def _map(t: int) -> Point:
    """Section 4.3.4, MAP."""
    r = SQRT_M1 * t * t % P
    u = (r + 1) * _ONE_MINUS_D_SQ % P
    v = (-1 - r * D) * (r + D) % P
    square, s = _root_of_ratio(u, v)
    c = -1
    if not square:
        s, c = -_absolute(s * t % P) % P, r
    n = (c * (r - 1) * _D_MINUS_ONE_SQ - v) % P
    w0, w1, w2, w3 = 2 * s * v % P, n * _ROOT_AD_MINUS_ONE % P, (1 - s * s) % P, (1 + s * s) % P
    return (w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P)


def _root_of_ratio(u: int, v: int) -> tuple[bool, int]:
    """Section 4.2, SQRT_RATIO_M1: whether u/v is a square, and the non-negative root of u/v or of SQRT_M1 * u/v."""
    v3 = v * v * v % P
    r = u * v3 * pow(u * v3 * v3 * v, (P - 5) // 8, P) % P
    check, minus_u = v * r * r % P, -u % P
    if check in (minus_u, minus_u * SQRT_M1 % P):
        r = r * SQRT_M1 % P
    return check in (u % P, minus_u), _absolute(r)


def _inverse_root(v: int) -> tuple[bool, int]:
    return _root_of_ratio(1, v)


def _absolute(x: int) -> int:
    return P - x if x & 1 else x


def _add(a: Point, b: Point) -> Point:
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    left, right = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2)
    c, d = t1 * _TWO_D % P * t2, 2 * z1 * z2
    e, f, g, h = (right - left) % P, (d - c) % P, (d + c) % P, (right + left) % P
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _double(a: Point) -> Point:
    x, y, z, _ = a
    xx, yy = x * x % P, y * y % P
    e, g, h = ((x + y) ** 2 - xx - yy) % P, (yy - xx) % P, -(xx + yy)
    f = (g - 2 * z * z) % P
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _times(scalar: int, point: Point) -> Point:
    table = [_ZERO, point]
    while len(table) < 16:
        table.append(_add(table[-1], point))
    total = _ZERO
    for shift in range(252, -1, -4):
        if total is not _ZERO:
            total = _double(_double(_double(_double(total))))
        if digit := scalar >> shift & 15:
            total = _add(total, table[digit])
    return total


def _nonzero(point: Point) -> bytes | None:
    encoded = _encode(point)
    return encoded if any(encoded) else None


_ROOT_AD_MINUS_ONE = _root_of_ratio((-D - 1) % P, 1)[1]
if not _ROOT_AD_MINUS_ONE & 1:  # the constant of RFC 9496 is the negative (odd) root
    _ROOT_AD_MINUS_ONE = P - _ROOT_AD_MINUS_ONE
_INV_ROOT_A_MINUS_D = _inverse_root((-1 - D) % P)[1]
_BASE_BYTES = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")
_base = _decode(_BASE_BYTES)
assert _base is not None
_BASE: Point = _base
