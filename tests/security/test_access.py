"""Attacks on tokens and on the sockets that they go to: by other users of the machine, and by whoever serves first."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.agent_client import ask_node
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.channels import Access, AccessError, AccessFiles
from pharoah_protocol.v1 import GetEpochRequest
from pharoah_provider import cli
from pharoah_provider.agent import cli as agent_cli
from pharoah_provider.agent.local_socket import load_key, ticket_socket
from pharoah_serving.errors import ProviderError
from pharoah_serving.tokens import TokenFileError, Tokens, new_token
from pharoah_system.local_sockets import EVERYBODY, CheckedSocket, ServedSocket, socket_path
from pharoah_system.trusted_paths import UntrustedPathError, check_trusted_folder, list_trusted_users
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback
from tests.harness.other_user import NOBODY, attempt, become_nobody, bound, needs_root, squatter
from tests.harness.tokens import write_list, write_token

OPS = f"operator ops {'o' * 40}"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter, as a site's folder usually is."""
    with tempfile.TemporaryDirectory(prefix="access-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def mask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def connected(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))


# ---- what another user can read and reach ----


@needs_root
def test_another_user_reads_no_token_whatever_the_mask(public: Path) -> None:
    listed, token = public / "tokens", public / "ops.token"
    with mask(0):
        new_token(listed, "operator", "ops", token)
    for path in (listed, token):
        assert attempt(path.stat) == "done", "the folder can be entered, so the mode of the file decides"
        assert attempt(path.read_bytes) == attempt(lambda path=path: path.open("ab")) == "PermissionError"


@needs_root
@pytest.mark.parametrize(("group", "result"), [("", "PermissionError"), (str(NOBODY), "done")])
def test_another_user_cannot_connect_unless_his_group_may(
    tmp_path: Path, public: Path, group: str, result: str
) -> None:
    async def work(site: Loopback) -> None:
        path = socket_path(site.endpoint)
        assert attempt(path.stat) == "done"
        assert attempt(lambda: connected(path)) == result
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work, listen=f"unix:{public}/p.sock", socket_group=group)


@needs_root
def test_every_user_can_ask_the_agent_and_none_can_take_its_place(public: Path) -> None:
    path = public / "agent" / "agent.sock"

    async def work() -> None:
        async with ticket_socket(path, "n1", "boot", Ed25519PrivateKey.generate(), {}, NodeStateAnswer):
            assert attempt(lambda: connected(path)) == "done"
            assert attempt(path.unlink) == attempt(lambda: path.rename(public / "x")) == "PermissionError"
        assert list(path.parent.iterdir()) == [], "nothing is left behind"

    with mask(0):
        asyncio.run(work())


# ---- a squatter on the socket or on the port ----


def private(folder: Path) -> Path:
    """A folder of ours that is closed to others."""
    folder.mkdir(mode=0o700)
    return folder


def open_to_all(public: Path) -> Path:
    folder = public / "shared"
    folder.mkdir()
    folder.chmod(0o1777)  # like /tmp
    return folder


def of_nobody(public: Path) -> Path:
    folder = public / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


def as_nobody(path: Path) -> socket.socket:
    become_nobody()
    return bound(path)


def with_socket_of_nobody(path: Path) -> socket.socket:
    one = bound(path)
    os.chown(path, NOBODY, NOBODY)
    return one


def linked_by_nobody(public: Path) -> Path:
    """A symbolic link of another user, in a folder like /tmp, to a folder of ours."""
    place = open_to_all(public) / "link"
    place.symlink_to(private(public / "ours"))
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
    return place


SQUATTERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], socket.socket]]] = {
    "in a folder like /tmp": (open_to_all, as_nobody),
    "in a folder of his own": (of_nobody, as_nobody),
    "with a socket that stayed when the folder was closed": (lambda it: private(it / "ours"), with_socket_of_nobody),
    "with rights that he has given up": (lambda it: private(it / "ours"), bound),
    "behind a symbolic link of his own": (linked_by_nobody, bound),
}


def callers(endpoint: str, token: Path, key: Path) -> dict[str, Callable[[], object]]:
    """How tenant, operator and agent are started; each raises or returns an exit code."""
    options = ["--endpoint", endpoint, "--token-file", str(token)]
    settings = Settings(endpoint=endpoint, token_file=str(token), provider_key_file=str(key))
    return {
        "tenant": lambda: ProviderConnection(settings).metadata,
        "operator": lambda: cli.main(["nodes", *options]),
        "agent": lambda: agent_cli.main(["run", "--node", "n01", "--key", str(token.parent / "k"), *options]),
    }


def outcome(start: Callable[[], object]) -> object:
    try:
        return start()
    except UnknownReason:
        return 1


@needs_root
@pytest.mark.parametrize("how", SQUATTERS)
def test_a_squatter_on_the_socket_gets_no_token(
    tmp_path: Path, public: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place, bind = SQUATTERS[how]
    path = place(public) / "p.sock"
    token, key = write_token(tmp_path / "token", OPS), tmp_path / "key"
    key.write_text("00" * 32)
    with squatter(lambda: bind(path)) as received:
        for who, start in callers(f"unix:{path}", token, key).items():
            assert outcome(start) == 1, who
    assert not received
    said = capsys.readouterr().err
    assert ("nobody" in said or "written by others" in said) and "o" * 40 not in said


def test_a_squatter_on_the_port_gets_no_token(tmp_path: Path) -> None:
    token, key = write_token(tmp_path / "token", OPS), tmp_path / "key"
    key.write_text("00" * 32)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for start in callers(f"127.0.0.1:{server.getsockname()[1]}", token, key).values():
            assert outcome(start) == 1
        with pytest.raises(BlockingIOError):
            server.accept()


@needs_root
def test_a_folder_that_was_cleaned_up_and_made_by_another_user_gets_no_token(tmp_path: Path, public: Path) -> None:
    """A long-lived agent keeps its channel; programs that clean /tmp remove folders that nobody uses."""
    place = private(open_to_all(public) / "pharoah")
    token = write_token(tmp_path / "token", OPS)
    access = Access.from_files(f"unix:{place}/p.sock", AccessFiles(token=token))
    assert access.metadata, "while nobody serves yet, only trusted users can begin to"
    shutil.rmtree(place)
    with pytest.raises(AccessError, match="written by others"):
        _ = access.metadata

    def made_again(path: Path) -> socket.socket:
        become_nobody()
        path.parent.mkdir()
        return bound(path)

    with squatter(lambda: made_again(place / "p.sock")) as received, pytest.raises(AccessError, match="nobody"):
        _ = access.metadata
    assert not received


@needs_root
def test_a_tenant_asks_no_agent_of_another_user_unless_it_is_named(public: Path) -> None:
    path = of_nobody(public) / "agent.sock"
    with squatter(lambda: as_nobody(path)) as received:
        with pytest.raises(UnknownReason, match="PHAROAH_SERVICE_USERS"):
            asyncio.run(ask_node(str(path), 1.0))
        assert agent_cli.main(["check", "--socket", str(path), "--format", "nagios"]) == 3
    assert not received
    other = path.with_name("b.sock")
    silent = pytest.raises(UnknownReason, match="no agent answers")
    with squatter(lambda: as_nobody(other)) as received, silent:
        asyncio.run(ask_node(str(other), 0.2, "nobody"))
    assert received, "a service user is asked; this one answers nothing"


# ---- what a server refuses ----


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_nothing_is_served_in_a_folder_that_others_can_write(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UntrustedPathError, match="chmod go-w"):
        ServedSocket(folder / "p.sock")
    (folder / "inside").mkdir(mode=0o700)
    if mode & 0o1000:
        assert check_trusted_folder(folder / "inside", list_trusted_users()) == (folder / "inside").resolve()
    else:
        with pytest.raises(UntrustedPathError, match="chmod go-w"):
            ServedSocket(folder / "inside" / "p.sock")


def test_a_server_removes_nothing_but_the_socket_of_a_dead_server(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    path.write_text("mine")
    with pytest.raises(ValueError, match="is not a socket"):
        ServedSocket(path)
    path.unlink()
    path.symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match="is not a socket"):
        ServedSocket(path)
    assert (tmp_path / "mine").read_text() == "mine"
    path.unlink()
    bound(path).close()  # of a server that was killed
    serving = ServedSocket(path, EVERYBODY)
    with pytest.raises(ValueError, match="another process serves"):
        ServedSocket(path)
    serving.close()


def test_a_symbolic_link_is_followed_and_then_forgotten(tmp_path: Path) -> None:
    """A change of the link sends no token anywhere else."""
    private(tmp_path / "real")
    (tmp_path / "link").symlink_to("real/../real")
    assert CheckedSocket(tmp_path / "link" / "p.sock").path == (tmp_path / "real" / "p.sock").resolve()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UntrustedPathError, match="symbolic links"):
        CheckedSocket(tmp_path / "loop" / "p.sock")


# ---- files of tokens and keys ----


def unsafe_files(folder: Path, content: str) -> dict[str, Path]:
    """Files that must not be used, by what is wrong with them."""
    files = {f"{mode:o}": folder / f"{mode:o}" for mode in (0o644, 0o640, 0o620, 0o602, 0o604, 0o666)}
    for mode, path in files.items():
        path.write_text(content)
        path.chmod(int(mode, 8))
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "folder").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "644")
    if os.geteuid() == 0:
        (folder / "theirs").write_text(content)
        (folder / "theirs").chmod(0o600)
        os.chown(folder / "theirs", NOBODY, NOBODY)
    return {path.name: path for path in folder.iterdir()}


def test_a_token_file_that_others_can_use_is_refused_by_clients_and_servers(tmp_path: Path) -> None:
    own, lists, keys = (private(tmp_path / name) for name in ("own", "lists", "keys"))
    for name, path in unsafe_files(own, OPS.split()[2]).items():
        with pytest.raises(AccessError, match=name):
            Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=path))
    write_list(tmp_path / "list", [OPS])
    for name, path in unsafe_files(lists, (tmp_path / "list").read_text()).items():
        with pytest.raises(TokenFileError, match=name):
            Tokens(path)
    for name, path in unsafe_files(keys, "k" * 32).items():
        with pytest.raises((ProviderError, OSError), match=name):
            load_key(path)


def test_a_list_that_is_removed_or_opened_to_others_revokes_everybody_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(site: Loopback) -> None:
        listed = tmp_path / "tokens"
        for spoil in (Path.unlink, lambda path: path.chmod(0o644), lambda path: (path.unlink(), path.mkdir())):
            content = listed.read_bytes()
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body
            spoil(listed)
            for _ in range(2):
                code, _ = await refused(site.call("Exchange", "GetEpoch", GetEpochRequest()))
                assert code is grpc.StatusCode.UNAUTHENTICATED
            listed.rmdir() if listed.is_dir() else listed.unlink(missing_ok=True)
            listed.touch(0o600)
            listed.write_bytes(content)
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)
    assert caplog.text.count("nobody may call") == 3


# ---- the commands ----


def test_the_recipe_of_the_readme_leaves_a_site_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys, database = tmp_path / "keys", tmp_path / "p.duckdb"
    assert cli.main(["init", "--keys", str(keys), "--db", str(database)]) == 0
    with mask(0o022):
        for role, name in (("tenant", "acme"), ("agent", "n01"), ("operator", "ops")):
            assert cli.main(["token", role, name]) == 0
            assert f"{name}.token" in capsys.readouterr().out

    async def work(site: Loopback) -> None:
        options = ["--endpoint", site.endpoint, "--token-file", "ops.token"]
        assert await asyncio.to_thread(cli.main, ["nodes", *options]) == 0
        assert cli.main(["token", "--revoke", "ops"]) == 0
        assert await asyncio.to_thread(cli.main, ["nodes", *options]) == 1

    on_loopback(tmp_path, work, tokens=tmp_path / "pharoah-tokens")


@pytest.mark.parametrize("arguments", [["tenant"], ["king", "acme"], ["tenant", "acme", "--revoke", "acme"], []])
def test_a_token_without_a_role_or_a_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["token", *arguments]) == 1
    assert "expected ROLE NAME" in capsys.readouterr().err and not list(tmp_path.iterdir())
