"""Outputs appear whole or not at all, and never over an input."""

from __future__ import annotations

import io
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from imdh_cli import atomic
from imdh_cli.atomic import AtomicFile, check_target, exchange, output_errors, standard_output, write_bytes
from imdh_cli.errors import OutputError, UsageError
from tests.needs import missing


@pytest.fixture(params=["unnamed", "named"])
def temporaries(request, monkeypatch) -> str:
    """Both kinds of temporary: without a name, and (as on some network file systems) with one."""
    if request.param == "named":
        monkeypatch.setattr(atomic, "_unnamed_file", lambda folder, mode: None)
    return request.param


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process may not grow beyond 64 kB: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- whole


def test_the_file_appears_on_commit_and_not_before(tmp_path, temporaries):
    with AtomicFile(tmp_path / "out.bin") as out:
        out.file.write(b"content")
        out.file.flush()
        assert not (tmp_path / "out.bin").exists()
    assert (tmp_path / "out.bin").read_bytes() == b"content"
    assert names(tmp_path) == ["out.bin"]


def test_force_replaces_the_old_file_only_on_commit(tmp_path, temporaries):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with AtomicFile(path, force=True) as out:
        out.file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["out.bin"]


def test_a_reader_of_the_old_file_keeps_reading_it(tmp_path):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old content")
    with open(path, "rb") as reader:
        write_bytes(path, b"new", force=True)
        assert reader.read() == b"old content"


def test_a_new_file_has_the_mode_the_umask_gives(tmp_path, temporaries):
    old = os.umask(0o027)
    try:
        write_bytes(tmp_path / "out.bin", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out.bin").stat().st_mode) == 0o640


def test_a_replaced_file_keeps_its_mode(tmp_path, temporaries):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    path.chmod(0o604)
    write_bytes(path, b"new", force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_file_can_be_for_its_owner_only(tmp_path, temporaries):
    path = tmp_path / "state"
    write_bytes(path, b"x", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_for_its_owner_only_stays_so_when_it_replaces_an_open_one(tmp_path, temporaries):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_bytes(path, b"x", mode=0o600, force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path, temporaries):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/out.bin").write_bytes(b"old")
    (tmp_path / "link.bin").symlink_to("real/out.bin")
    write_bytes(tmp_path / "link.bin", b"new", force=True)
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "real/out.bin").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["out.bin"]


def test_a_link_to_a_file_that_is_not_there_yet_makes_it(tmp_path, temporaries):
    (tmp_path / "link.bin").symlink_to("later.bin")
    write_bytes(tmp_path / "link.bin", b"new")
    assert (tmp_path / "later.bin").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["with space", "größe 🌊", "n" * 255, "-o", os.fsdecode(b"\xff\xfe")])
def test_any_file_name_works(tmp_path, temporaries, name):
    write_bytes(tmp_path / name, b"x")
    assert names(tmp_path) == [name]


def test_a_relative_name_means_the_folder_at_the_start(tmp_path, temporaries, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with AtomicFile("out.bin") as out:
        out.file.write(b"x")
        monkeypatch.chdir(tmp_path)
    assert names(tmp_path / "a") == ["out.bin"]


# -- or not at all


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
def test_any_exception_leaves_the_old_file_and_no_temporary(tmp_path, temporaries, error):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")

    def fail():
        with AtomicFile(path, force=True) as out:
            out.file.write(b"half" * 100_000)
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.bin"]


def test_abort_may_come_at_any_time_and_twice(tmp_path, temporaries):
    out = AtomicFile(tmp_path / "out.bin")
    out.abort()
    out.abort()
    out.commit()
    assert names(tmp_path) == []


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path, temporaries, small_files):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with pytest.raises(OutputError, match="file too large") as caught:
        write_bytes(path, bytes(1 << 20), force=True)
    assert caught.value.status == 1
    assert caught.value.hint
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.bin"]


def test_a_disk_that_fills_up_at_the_last_moment_leaves_the_old_file(tmp_path, temporaries, small_files):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    out = AtomicFile(path, force=True)
    out.file.write(bytes((1 << 16) + 1))  # held in the buffer until the commit
    with pytest.raises(OutputError):
        out.commit()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.bin"]


def test_a_file_that_appears_meanwhile_is_kept_and_so_is_the_new_one(tmp_path, temporaries):
    path = tmp_path / "out.bin"
    out = AtomicFile(path)
    out.file.write(b"hours of work")
    path.write_bytes(b"somebody else's")
    with pytest.raises(OutputError, match="appeared while") as caught:
        out.commit()
    assert path.read_bytes() == b"somebody else's"
    kept = Path(caught.value.hint.removeprefix("the finished output is "))
    assert kept.read_bytes() == b"hours of work"


def unnamed_files(folder: Path) -> bool:
    out = AtomicFile(folder / "try")
    found = out._temporary is None
    out.abort()
    return found


ENDLESS = """
import signal, sys
from imdh_cli.atomic import AtomicFile
def stop(*_):
    raise SystemExit(130)
signal.signal(signal.SIGTERM, stop)
with AtomicFile(sys.argv[1], force=True) as out:
    out.file.write(b"half" * 1_000_000)
    print("writing", flush=True)
    while True:
        out.file.write(b"half" * 1000)
        if out.file.tell() > 1 << 28:
            out.file.seek(0)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_leaves_the_old_file_and_no_temporary(tmp_path, number):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    leaves_nothing = number != signal.SIGKILL or unnamed_files(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as run:
        assert run.stdout.readline() == b"writing\n"
        run.send_signal(number)
        run.wait(10)
    assert path.read_bytes() == b"old"
    left = [name for name in names(tmp_path) if name != "out.bin"]
    # Nobody can tidy after SIGKILL: where a file cannot be without a name, a hidden one stays.
    assert not left if leaves_nothing else all(name.startswith(".") for name in left)


TINY_DISK = """
mount -t tmpfs -o size=256k none "$1" || exit 77
printf old > "$1/out.bin"
"$2" -c 'import sys
from imdh_cli.atomic import write_bytes
try:
    write_bytes(sys.argv[1], bytes(1 << 20), force=True)
except Exception as error:
    print(error.status, error)' "$1/out.bin"
cat "$1/out.bin"; ls -A "$1" | wc -l
"""


def test_a_truly_full_disk_leaves_the_old_file(tmp_path):
    """A small disk takes a mount, which other systems and many containers do not allow; the tests by a limit
    of the file's size need none."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", TINY_DISK, "sh"]
    try:
        done = subprocess.run([*command, tmp_path, sys.executable], capture_output=True, text=True)
    except FileNotFoundError:
        missing("mount", "no unshare to mount a small disk with")  # as on macOS
    # 1 is unshare's own, where the kernel denies it (the script ends with wc and so with 0); 77 is of mount.
    if done.returncode in (1, 77) and "out.bin" not in done.stdout:
        missing("mount", "mounting is not allowed here")
    said, left = done.stdout.splitlines()
    assert said.startswith("1 cannot write")
    assert said.endswith("no space left on device")
    assert left.split() == ["old1"]


# -- what is refused


def test_an_existing_file_is_refused_without_force(tmp_path):
    (tmp_path / "out.bin").write_bytes(b"old")
    with pytest.raises(UsageError, match=r"out\.bin exists") as caught:
        AtomicFile(tmp_path / "out.bin")
    assert "--force" in caught.value.hint


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_an_output_that_is_an_input_is_refused_whatever_its_name(tmp_path, monkeypatch, force, link):
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_bytes(b"x\n1\n")
    output = "./data.csv"
    if link is not None:
        link("data.csv", "other.csv")
        output = str(tmp_path / "other.csv")
    with pytest.raises(UsageError, match="is also an input"):
        AtomicFile(output, force=force, inputs=["s3://bucket/x.csv", "-", "data.csv"])
    assert Path("data.csv").read_bytes() == b"x\n1\n"


@pytest.mark.parametrize("location", ["data", "data/*.csv", "**/x.csv", "file://{}/data/%78.csv", "."])
def test_a_file_that_a_folder_or_pattern_reads_is_an_input(tmp_path, monkeypatch, location):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/x.csv").write_bytes(b"x\n1\n")
    with pytest.raises(UsageError, match="is also an input"):
        check_target("data/x.csv", force=True, inputs=[location.format(tmp_path)])
    check_target("data/new.csv", force=True, inputs=[location.format(tmp_path)])


@pytest.mark.parametrize("name", ["_labels.csv", ".labels.csv", "model.npz", "page.html"])
def test_a_file_that_readers_of_its_folder_pass_over_is_no_input(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    check_target(tmp_path / name, force=True, inputs=[tmp_path])


def test_inputs_that_are_other_files_do_not_matter(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"")
    inputs = [tmp_path / "data.csv", tmp_path / "none.csv", "https://example.org/x.csv", "nul\0"]
    check_target(tmp_path / "out.bin", inputs=inputs)


def test_a_folder_is_refused_with_a_hint(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        AtomicFile(tmp_path, force=True)


def test_an_empty_name_is_refused():
    with pytest.raises(UsageError, match="empty name"):
        AtomicFile("")


def test_a_missing_folder_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(OutputError, match="no such folder") as caught:
        AtomicFile(tmp_path / "a/b/out.bin")
    assert caught.value.hint == f"mkdir -p {tmp_path}/a/b"


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="too long"):
        check_target(tmp_path / ("n" * 256))


def test_a_file_used_as_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError):
        check_target(tmp_path / "file" / "out.bin")


def test_a_read_only_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(OutputError, match="permission denied"):
        check_target(tmp_path / "out.bin")


def test_a_disk_is_not_written_to(monkeypatch, tmp_path):
    real = os.stat

    def as_a_disk(path, **options):
        found = real(path, **options)
        if str(path).endswith("sda"):
            return os.stat_result((stat.S_IFBLK | 0o600, *found[1:]))
        return found

    (tmp_path / "sda").write_bytes(b"")
    monkeypatch.setattr(os, "stat", as_a_disk)
    with pytest.raises(UsageError, match="is a disk"):
        check_target(tmp_path / "sda", force=True)


# -- pipes and devices


def test_a_full_device_is_an_output_error_with_status_1():
    with pytest.raises(OutputError, match="cannot write /dev/full: no space left on device") as caught:
        write_bytes("/dev/full", b"x")
    assert caught.value.status == 1


def test_a_fifo_is_written_straight_and_stays_a_fifo(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"content" * 50_000)
    reader.join()
    assert got == [b"content" * 50_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_name_appends_where_the_shell_pointed_it(tmp_path, name):
    path = tmp_path / "log"
    path.write_bytes(b"kept\n")
    code = "import sys; from imdh_cli.atomic import write_bytes; write_bytes(sys.argv[1], b'new\\n')"
    with open(path, "ab") as log:
        subprocess.run([sys.executable, "-c", code, name], stdout=log, check=True)
    assert path.read_bytes() == b"kept\nnew\n"


def test_a_closed_pipe_is_no_output_error():
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError):
        write_bytes(f"/dev/fd/{write}", b"x")
    os.close(write)


def test_standard_output_into_an_input_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"x\n1\n")
    code = "import sys; from imdh_cli.atomic import standard_output; standard_output([sys.argv[1]])"
    with open(path, "ab") as log:
        done = subprocess.run([sys.executable, "-c", code, path], stdout=log, stderr=subprocess.PIPE)
    assert b"standard output goes into the input" in done.stderr


def test_standard_output_without_a_real_file_is_taken_as_it_is(monkeypatch):
    fake = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", fake)
    assert standard_output(["data.csv"]) is fake.buffer


def test_an_error_without_a_number_is_still_one_line():
    with pytest.raises(OutputError, match="cannot write x: something else"), output_errors("x"):
        raise OSError("Something else")


def test_two_names_are_exchanged_in_one_step_or_not_at_all(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    (tmp_path / "b").write_text("2")
    if exchange(tmp_path / "a", tmp_path / "b"):
        assert (tmp_path / "a").read_text() == "2"
        assert (tmp_path / "b" / "x").read_text() == "1"
    else:  # a file system that cannot
        assert (tmp_path / "a" / "x").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "nowhere")
