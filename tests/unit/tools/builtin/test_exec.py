"""Programs in a sandbox, which try to get out of it."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lango.errors import SandboxError, ToolError
from lango.tools.builtin import exec as exec_module
from lango.tools.builtin import sandbox as sandbox_module
from lango.tools.builtin.exec import Commands, ExecOptions, exec_tools
from lango.tools.builtin.sandbox import NO_SUCH_PROGRAM
from tests.unit.tools.builtin.sandboxes import needs_bwrap

CANARY = "canary-8d1f"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file, beside a file that the sandbox must hide."""
    (tmp_path / "outside.txt").write_text(CANARY)
    root = tmp_path / "root"
    root.mkdir()
    (root / "inside.txt").write_text("hello")
    (root / "link").symlink_to(tmp_path / "outside.txt")
    return root


def commands(root: Path, **options: Any) -> Commands:
    given: dict[str, Any] = {"allow": ["sh", "cat", "ls", "git log"], "timeout": 30.0, **options}
    return Commands(ExecOptions(root=root, **given))


async def shell(root: Path, script: str, **options: Any) -> dict[str, Any]:
    return await commands(root, **options).run(["sh", "-c", script])


@needs_bwrap
async def test_a_program_runs_in_its_root(root: Path) -> None:
    result = await shell(root, "pwd; cat inside.txt; echo no >&2; echo made > new.txt; exit 3")
    assert result == {"exit_code": 3, "stdout": "/workspace\nhello", "stderr": "no\n"}
    assert (root / "new.txt").read_text() == "made\n"


# --- what it must not see ------------------------------------------------------------------------


@needs_bwrap
@pytest.mark.parametrize(
    "path",
    [
        *("/etc/shadow", "/etc/passwd", "/etc/hostname", "/etc/resolv.conf", "/root/.bashrc"),
        *("/home", "/work", "/var/lib", "/opt", "/srv", "/mnt", "/run", "/sys", "/boot"),
        *("/proc/1/root/etc/shadow", "/proc/self/cwd/../outside.txt", "../outside.txt", "link"),
        *("/proc/kcore", "/dev/sda", "/dev/vda", "/dev/mem", "/proc/1/mem"),
    ],
)
async def test_the_machines_files_cannot_be_read(root: Path, path: str) -> None:
    result = await shell(root, f"cat {path} || ls -A {path}/")
    assert result["exit_code"] != 0
    assert result["stdout"] == ""


@needs_bwrap
async def test_the_folders_around_the_root_cannot_be_read(root: Path) -> None:
    for path in (root.parent, root.parent / "outside.txt", Path(__file__).parents[3]):
        result = await commands(root).run(["ls", str(path)])
        assert result["exit_code"] != 0
    found = await shell(root, f"grep -rs {CANARY} / --exclude-dir=proc --exclude-dir=usr || true")
    assert found["stdout"] == ""


@needs_bwrap
@pytest.mark.parametrize(
    "path",
    [
        *("/usr/bin/x-lango", "/bin/x-lango", "/lib/x-lango", "/etc/x-lango", "/x-lango"),
        *("/etc/ld.so.cache", "/dev/x-lango", "/proc/sys/kernel/core_pattern"),
        *("/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/proc/1/oom_score_adj"),
    ],
)
async def test_the_system_cannot_be_written(root: Path, path: str) -> None:
    """Opened to append, and nothing appended: should it succeed, no harm is done."""
    result = await shell(root, f": >> {path}")
    assert result["exit_code"] != 0
    assert "x-lango" not in path or path not in machine()


def machine() -> list[str]:
    """What lies where the test tried to put something."""
    folders = ("/", "/bin", "/dev", "/etc", "/lib", "/usr/bin")
    return [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]


@needs_bwrap
async def test_nothing_is_writable_but_the_root_and_what_ends_with_the_program(root: Path) -> None:
    result = await shell(root, "find / -writable ! -type l -prune 2> /dev/null")
    found = set(result["stdout"].split())
    devices = {f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")}
    assert found - devices == {"/workspace", "/tmp", "/dev/shm", "/dev/pts"}


@needs_bwrap
async def test_a_link_made_inside_leads_nowhere(root: Path) -> None:
    target = root.parent / "outside.txt"
    result = await shell(root, f"ln -s {target} mine; cat mine; ln {target} hard; mv {target} .")
    assert result["exit_code"] != 0
    assert result["stdout"] == ""
    assert target.read_text() == CANARY


@needs_bwrap
async def test_secrets_of_this_process_are_not_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGO_TEST_SECRET", CANARY)
    script = "env; cat /proc/*/environ; cat /proc/*/task/*/environ; set; export"
    result = await shell(root, script, env={"MINE": "given"})
    assert CANARY not in result["stdout"] + result["stderr"]
    assert "MINE=given" in result["stdout"]


@needs_bwrap
async def test_open_files_of_this_process_are_not_inherited(root: Path) -> None:
    with (root.parent / "outside.txt").open() as file:
        os.set_inheritable(file.fileno(), True)
        result = await shell(root, "ls /proc/self/fd; cat <&%d" % file.fileno())  # noqa: UP031
    assert result["stdout"].split() == ["0", "1", "2", "3"]  # the last is of ls itself


# --- whom it must not reach ----------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """A real server on loopback: its port, and who connected."""
    connections: list[str] = []
    connected = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, peer = server.accept()
            except OSError:
                return
            connections.append(str(peer))
            connected.set()
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    port: int = server.getsockname()[1]
    socket.create_connection(("127.0.0.1", port)).close()
    assert connected.wait(10)
    yield port, connections
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@needs_bwrap
async def test_the_network_cannot_be_reached(root: Path, listener: tuple[int, list[str]]) -> None:
    port, connections = listener
    script = f"""
        exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached
        exec 3<>/dev/tcp/1.1.1.1/53 && echo reached
        exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3 && echo reached
        cat /proc/net/tcp /proc/net/dev
    """
    result = await commands(root, allow=["bash"]).run(["bash", "-c", script])
    assert "reached" not in result["stdout"]
    assert f":{port:04X} " not in result["stdout"]
    assert len(connections) == 1  # the test's own


@needs_bwrap
async def test_abstract_sockets_of_this_machine_cannot_be_reached(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0lango-test-socket")
        result = await shell(root, "cat /proc/net/unix")
    assert "lango-test-socket" not in result["stdout"]


@needs_bwrap
async def test_other_processes_are_neither_seen_nor_killed(root: Path) -> None:
    victim = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        result = await shell(root, f"ls -d /proc/[0-9]*; kill -9 {victim.pid}; exit 0")
        seen = [int(line.rpartition("/")[2]) for line in result["stdout"].split()]
        assert all(pid < 20 for pid in seen)  # its own few, counted from 1
        assert victim.returncode is None
        os.kill(victim.pid, 0)
    finally:
        victim.kill()
        await victim.wait()


@needs_bwrap
async def test_no_capabilities_and_no_way_to_get_them(root: Path) -> None:
    script = "grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status; unshare -U id; mount"
    result = await shell(root, f"{script} -t tmpfs x /tmp && echo mounted")
    status = dict(line.split(":\t") for line in result["stdout"].splitlines() if ":\t" in line)
    assert status == dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), "0" * 16) | {"NoNewPrivs": "1"}
    assert "uid=" not in result["stdout"]
    assert "mounted" not in result["stdout"]


# --- what it must not use up ---------------------------------------------------------------------


@needs_bwrap
async def test_time_is_bounded_and_everything_goes_with_it(root: Path) -> None:
    started = time.monotonic()
    script = f"echo begun; (setsid sleep 61.{os.getpid()} &) ; sleep 61.{os.getpid()}"
    result = await shell(root, script, timeout=4.0)
    assert time.monotonic() - started < 30
    assert result == {"timed_out": True, "seconds": 4.0, "stdout": "begun\n", "stderr": ""}
    assert await _gone(f"61.{os.getpid()}")


@needs_bwrap
async def test_what_is_left_in_the_background_goes_with_the_program(root: Path) -> None:
    mark = f"62.{os.getpid()}"
    await shell(root, f"setsid sleep {mark} > /dev/null 2>&1 & exit 0")
    assert await _gone(mark)


@needs_bwrap
async def test_a_cancelled_call_leaves_nothing(root: Path) -> None:
    mark = f"63.{os.getpid()}"
    task = asyncio.create_task(shell(root, f"touch begun; sleep {mark}"))
    while not (root / "begun").exists():  # another process makes it
        assert not task.done(), task
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _gone(mark)


async def _gone(mark: str) -> bool:
    """Whether no process with this mark in its arguments is left, after a moment."""
    for _ in range(200):
        if not any(mark.encode() in _cmdline(pid) for pid in os.listdir("/proc")):
            return True
        await asyncio.sleep(0.02)
    return False


def _cmdline(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


@needs_bwrap
async def test_output_is_cut_and_the_rest_read_past(root: Path) -> None:
    result = await shell(root, "head -c 300000 /dev/zero | tr '\\0' x; echo end >&2", max_output=10)
    assert result == {"exit_code": 0, "stdout": "x" * 10, "stderr": "end\n", "truncated": True}


@needs_bwrap
async def test_an_endless_output_ends_with_the_time(root: Path) -> None:
    result = await shell(root, "while true; do echo y; done", timeout=1.0, max_output=4)
    assert (result["timed_out"], result["stdout"]) == (True, "y\ny\n")


@needs_bwrap
async def test_files_and_memory_are_bounded(root: Path) -> None:
    result = await shell(root, "head -c 9000000 /dev/zero > big; wc -c < big", file_mb=1)
    assert int(result["stdout"]) <= 1024 * 1024
    result = await shell(root, "head -c 9000000 /dev/zero > /tmp/a; wc -c < /tmp/a", file_mb=1)
    assert int(result["stdout"]) <= 1024 * 1024
    result = await shell(root, "head -c 200M /dev/zero | tail", memory_mb=64)
    assert "memory exhausted" in result["stderr"].lower() or result["exit_code"] != 0


@needs_bwrap
async def test_the_limits_are_set_before_the_program_begins(root: Path) -> None:
    result = await shell(
        root, "ulimit -v; ulimit -f; ulimit -p; ulimit -n; ulimit -c", processes=17, memory_mb=128
    )
    blocks = 64 * 1024 * 1024 // 512
    assert result["stdout"].split() == [str(128 * 1024), str(blocks), "17", "256", "0"]


# --- what may be run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        *(["rm", "-rf", "."], ["git", "push"], ["git"], ["/bin/ls"], ["./ls"], ["LS"], ["ls "]),
        *(["sh -c id"], [""], ["", "ls"], ["env", "ls"], ["git", "--exec-path=x", "log"]),
    ],
)
async def test_what_is_not_on_the_list_is_not_run(
    root: Path, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(exec_module, "sandboxed", started.append)
    monkeypatch.setattr(exec_module, "running", started.append)
    monkeypatch.setattr(exec_module.shutil, "which", str)
    for unsandboxed in (True, False):
        with pytest.raises(ToolError, match=r"is not allowed\. Allowed are: sh; cat; ls; git log"):
            await commands(root, unsandboxed=unsandboxed).run(argv)
    assert started == []


async def test_arguments_that_no_program_takes(root: Path) -> None:
    for word in ("a\x00b", "x" * 200_000, "\ud800"):
        with pytest.raises(ToolError, match=r"too long, or hold a NUL|are no text"):
            await commands(root, unsandboxed=True).run(["ls", word])


@needs_bwrap
async def test_a_program_that_is_not_there(root: Path) -> None:
    (root / "broken").write_text("no program")
    for name in ("lango-no-such-program", "./broken"):
        with pytest.raises(ToolError, match="is not there, or cannot be run") as caught:
            await commands(root, allow=[name]).run([name])
        assert name in str(caught.value)


@needs_bwrap
async def test_a_program_cannot_pretend_that_the_sandbox_failed(root: Path) -> None:
    result = await shell(root, f"echo '{NO_SUCH_PROGRAM}x: nothing' >&2; exit 1")
    assert result["exit_code"] == 1


# --- where there is no sandbox -------------------------------------------------------------------


def test_without_bubblewrap_it_refuses(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(SandboxError, match=r"install it .* or set `unsandboxed: true`"):
        exec_tools(ExecOptions(root=root, allow=("ls",)))


@needs_bwrap
async def test_a_sandbox_that_cannot_be_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = commands(root)
    for wrong in (("--no-such-option",), ("--ro-bind", "/lango-nowhere", "/x")):
        monkeypatch.setattr(sandbox_module, "_BARRIERS", wrong)
        with pytest.raises(SandboxError, match=r"cannot make a sandbox here \(bwrap: "):
            await made.run(["ls"])


async def test_told_to_do_without_it_runs_bare(root: Path) -> None:
    made = commands(root, unsandboxed=True)
    result = await made.run(["sh", "-c", "cat ../outside.txt; ulimit -c; env"])
    assert result["exit_code"] == 0
    assert result["stdout"].startswith(CANARY)
    assert "PYTEST_CURRENT_TEST" not in result["stdout"]  # its environment is still its own
    with pytest.raises(ToolError, match="is not there"):
        await commands(root, allow=["lango-no-such"], unsandboxed=True).run(["lango-no-such"])


async def test_bare_programs_are_killed_as_a_group(root: Path) -> None:
    mark = f"64.{os.getpid()}"
    made = commands(root, unsandboxed=True, timeout=0.5)
    result = await made.run(["sh", "-c", f"sleep {mark} & sleep {mark}"])
    assert result["timed_out"]
    assert await _gone(mark)


def test_it_always_asks_first(root: Path) -> None:
    for unsandboxed in (True, False):
        if not unsandboxed and exec_module.shutil.which("bwrap") is None:
            continue
        options = ExecOptions(root=root, allow=("ls", "git log"), unsandboxed=unsandboxed)
        (tool,) = exec_tools(options)
        assert tool.require_confirmation
        assert "ls; git log" in tool.description
        assert tool.timeout is not None
        assert tool.timeout > options.timeout
