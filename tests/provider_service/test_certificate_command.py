"""`pharoah-provider certificate`: names that are long or strange, and folders that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from pharoah_provider import cli
from pharoah_provider.certificates import ISSUED, MAX_COMMON_NAME_LENGTH


def certificate(folder: Path, *arguments: str) -> int:
    return cli.main(["certificate", *arguments, "--folder", str(folder)])


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def common_name(subject: x509.Name) -> str | bytes:
    return subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


def test_a_long_name_is_whole_as_the_spiffe_name_and_cut_as_the_common_name(tmp_path: Path) -> None:
    name, domain = f"agent/{'n' * 100}", f"{'d' * 80}.example"
    assert certificate(tmp_path, name, "--domain", domain) == 0
    found, authority = read(tmp_path / f"agent-{'n' * 100}.pem"), read(tmp_path / "ca.pem")
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"spiffe://{domain}/{name}"]
    assert common_name(found.subject) == f"agent {'n' * 100}"[:MAX_COMMON_NAME_LENGTH]
    assert found.issuer == authority.subject
    found.verify_directly_issued_by(authority)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["agent/nöde"], "agent/nöde: expected provider"),
        (["agent/ALL"], "ALL is no name of a node"),
        (["agent/n٣"], "agent/n٣: expected provider"),
        (["agent/n1", "--domain", "büro.example"], "--domain büro.example: expected"),
        (["provider", "--host", "büro.example"], "host büro.example: expected"),
        (["provider", "--host", ""], "host : expected"),
        ([f"agent/{'n' * 300}"], "File name too long"),
    ],
)
def test_what_a_certificate_cannot_hold_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert certificate(tmp_path, *arguments) == 1
    assert message in capsys.readouterr().err


def test_a_name_of_an_international_host_and_a_wildcard_are_taken(tmp_path: Path) -> None:
    hosts = ["xn--bro-hoa.example", "*.corp.example", "192.0.2.1", "2001:db8::1"]
    assert certificate(tmp_path, "provider", *(part for host in hosts for part in ("--host", host))) == 0
    names = read(tmp_path / "provider.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {*names.get_values_for_type(x509.DNSName)} >= {*hosts[:2]}
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == hosts[2:]


def test_a_file_that_cannot_be_written_and_a_damaged_list_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certificate(tmp_path, "agent/n1") == 0
    (tmp_path / "agent-n2.pem").mkdir()
    assert certificate(tmp_path, "agent/n2") == 1
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err
    with (tmp_path / ISSUED).open("a") as lines:
        lines.write("{}\n")
    assert certificate(tmp_path, "agent/n1", "--deny") == 1
    assert f"{tmp_path / ISSUED}: row 3 is no issued certificate" in capsys.readouterr().err
