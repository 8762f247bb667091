"""What is typed -> files, in order: folders, patterns, streams, keys, and names that are not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imdh_cli.errors import DataError, UsageError
from imdh_cli.sources.discover import hive_keys, locate, natural_key


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n")


def found(*locations: str | Path, format: str | None = None) -> list[str]:
    return [os.path.basename(f.name) for f in locate([str(x) for x in locations], format).files]


def test_part_2_comes_before_part_10(tmp_path: Path) -> None:
    make(tmp_path, *(f"part-{i}.csv" for i in range(1, 13)))
    assert found(tmp_path) == [f"part-{i}.csv" for i in range(1, 13)]


def test_natural_order_compares_folders_before_file_names(tmp_path: Path) -> None:
    make(tmp_path, "b2/a.csv", "b10/a.csv", "b2/c10.csv", "b2/c9.csv")
    files = [os.path.relpath(f.name, tmp_path) for f in locate([str(tmp_path)]).files]
    assert files == ["b2/a.csv", "b2/c9.csv", "b2/c10.csv", "b10/a.csv"]


def test_natural_order_is_total_for_mixed_names() -> None:
    names = ["1", "a", "01", "a1", "1a", "", "a-1", "2", "10", "a10b2", "a10b10"]
    other = names[::-1]
    assert sorted(names, key=natural_key) == sorted(other, key=natural_key)
    assert sorted(["a10b10", "a10b2"], key=natural_key) == ["a10b2", "a10b10"]


def test_names_with_underscore_or_dot_are_skipped_without_a_word(tmp_path: Path) -> None:
    make(tmp_path, "a.csv", "_SUCCESS", ".hidden.csv", "_temporary/b.csv", ".a.csv.crc")
    located = locate([str(tmp_path)])
    assert [f.name for f in located.files] == [str(tmp_path / "a.csv")]
    assert located.notes == []


def test_a_stranger_in_the_folder_is_named_and_not_read(tmp_path: Path) -> None:
    make(tmp_path, "part-1.csv", "notes.txt")
    located = locate([str(tmp_path)])
    assert [os.path.basename(f.name) for f in located.files] == ["part-1.csv"]
    assert len(located.notes) == 1
    assert "notes.txt" in located.notes[0]


def test_a_compressed_table_is_no_stranger(tmp_path: Path) -> None:
    make(tmp_path, "a.csv.gz", "b.tsv.zst", "c.CSV.BZ2")
    assert len(found(tmp_path)) == 3


def test_a_parquet_file_without_a_suffix_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    make(tmp_path, "b.csv")
    (tmp_path / "part-00000").write_bytes(b"PAR1\x15\x04....PAR1")
    assert found(tmp_path) == ["b.csv", "part-00000"]


def test_files_without_a_suffix_count_when_the_format_is_given(tmp_path: Path) -> None:
    make(tmp_path, "part-00000", "part-00001.gz", "readme.md")
    assert found(tmp_path, format="csv") == ["part-00000", "part-00001.gz"]
    with pytest.raises(DataError, match="no tables here"):
        locate([str(tmp_path)])


def test_a_folder_without_tables_says_what_it_holds(tmp_path: Path) -> None:
    make(tmp_path, "a.txt")
    with pytest.raises(DataError, match=r"no tables here.*a\.txt") as caught:
        locate([str(tmp_path)])
    assert "pattern" in str(caught.value.hint)


def test_a_quoted_pattern_is_expanded_in_natural_order(tmp_path: Path) -> None:
    make(tmp_path, "p10.csv", "p9.csv", "other.csv")
    assert found(tmp_path / "p*.csv") == ["p9.csv", "p10.csv"]


def test_a_pattern_with_a_suffix_of_its_own_takes_what_it_names(tmp_path: Path) -> None:
    make(tmp_path, "a.data", "b.data")
    assert found(tmp_path / "*.data") == ["a.data", "b.data"]


def test_a_star_takes_the_tables_and_names_the_strangers(tmp_path: Path) -> None:
    make(tmp_path, "a.csv", "notes.txt", "_SUCCESS")
    located = locate([str(tmp_path / "*")])
    assert [os.path.basename(f.name) for f in located.files] == ["a.csv"]
    assert "notes.txt" in located.notes[0]


def test_a_pattern_reaches_into_folders(tmp_path: Path) -> None:
    make(tmp_path, "y=2/a.csv", "y=10/a.csv")
    located = locate([str(tmp_path / "**" / "*.csv")])
    assert [f.keys for f in located.files] == [(("y", "2"),), (("y", "10"),)]


def test_a_pattern_of_folders_reads_the_folders(tmp_path: Path) -> None:
    make(tmp_path, "y=1/a.csv", "y=2/m=1/a.csv", "z/a.csv")
    located = locate([str(tmp_path / "y=*")])
    assert [f.keys for f in located.files] == [(("y", "1"),), (("y", "2"), ("m", "1"))]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    make(tmp_path, "a[1].csv", "a1.csv")
    assert found(tmp_path / "a[1].csv") == ["a[1].csv"]


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file matches"):
        locate([str(tmp_path / "*.csv")])


def test_arguments_keep_their_order(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a.csv", "d/2.csv", "d/1.csv")
    names = found(tmp_path / "b.csv", tmp_path / "d", tmp_path / "a.csv")
    assert names == ["b.csv", "1.csv", "2.csv", "a.csv"]


def test_a_file_named_twice_is_read_twice_with_a_note(tmp_path: Path) -> None:
    make(tmp_path, "a.csv")
    located = locate([str(tmp_path / "a.csv"), str(tmp_path / "a.csv")])
    assert len(located.files) == 2
    assert "twice" in located.notes[0]


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    make(tmp_path, "prices.csv", "sizes.csv")
    with pytest.raises(DataError, match="no such file") as caught:
        locate([str(tmp_path / "price.csv")])
    assert "prices.csv" in str(caught.value.hint)


def test_only_what_may_be_data_is_suggested(tmp_path: Path) -> None:
    for name in ("prices.npz", "prices.py", "prices.csv.gz", "prices.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(DataError) as caught:
        locate([str(tmp_path / "prices.csv")])
    assert str(caught.value.hint) == f"did you mean {tmp_path}/prices.csv.gz?"
    with pytest.raises(DataError) as caught:
        locate([str(tmp_path / "price.txt")])
    assert str(caught.value.hint).startswith(f"did you mean {tmp_path}/prices.txt")


def test_a_link_to_nowhere_says_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("gone.csv")
    with pytest.raises(DataError, match=r"a\.csv: a link to gone\.csv, which is not there"):
        locate([str(tmp_path / "a.csv")])


def test_a_delta_table_is_read_as_its_files_with_a_note(tmp_path: Path) -> None:
    make(tmp_path, "a.csv", "_delta_log/0.json")
    located = locate([str(tmp_path)])
    assert len(located.files) == 1
    assert "Delta" in located.notes[0]


def test_a_missing_folder_is_told_from_a_missing_file(tmp_path: Path) -> None:
    make(tmp_path, "data/a.csv")
    with pytest.raises(DataError, match="no such folder") as caught:
        locate([str(tmp_path / "dara" / "a.csv")])
    assert "data" in str(caught.value.hint)


def test_stdin_is_a_stream_and_can_be_named_once() -> None:
    assert locate(["-"]).files[0].stream
    with pytest.raises(UsageError, match="twice"):
        locate(["-", "-"])


def test_a_pipe_is_a_stream(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert locate([str(tmp_path / "pipe")]).files[0].stream
    assert locate([os.devnull]).files[0].stream


def test_process_substitution_is_a_stream() -> None:
    reading, writing = os.pipe()
    try:
        assert locate([f"/dev/fd/{reading}"]).files[0].stream
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    make(tmp_path, "a b#1.csv")
    for uri in ((tmp_path / "a b#1.csv").as_uri(), f"file://{tmp_path}/a b#1.csv"):
        assert locate([uri]).files[0].path == str(tmp_path / "a b#1.csv")


def test_a_file_uri_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="this machine"):
        locate(["file://elsewhere/a.csv"])


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="ftp://"):
        locate(["ftp://host/a.csv"])


@pytest.mark.parametrize("uri", ["s3://b/k.parquet", "gs://b/k", "hdfs://n/k", "https://h/k.csv"])
def test_remote_schemes_are_left_to_their_reader(uri: str) -> None:
    assert locate([uri]).files[0].uri == uri


def test_an_empty_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="empty name"):
        locate([""])


def test_key_value_folders_become_keys(tmp_path: Path) -> None:
    make(tmp_path, "year=2024/place=a%20b/x.csv", "year=__HIVE_DEFAULT_PARTITION__/x.csv")
    keys = [f.keys for f in locate([str(tmp_path)]).files]
    assert keys == [(("year", "2024"), ("place", "a b")), (("year", None),)]


def test_keys_are_the_same_however_a_file_was_named(tmp_path: Path) -> None:
    make(tmp_path, "y=1/a.csv")
    ways = [tmp_path, tmp_path / "y=1", tmp_path / "*" / "*.csv", tmp_path / "y=1" / "a.csv"]
    assert [locate([str(way)]).files[0].keys for way in ways] == [(("y", "1"),)] * 4


def test_an_equals_sign_without_a_key_is_a_name() -> None:
    assert hive_keys(["=x", "a=", "b"]) == (("a", ""),)


def test_a_link_back_into_the_folder_ends(tmp_path: Path) -> None:
    make(tmp_path, "d/a.csv")
    (tmp_path / "d" / "back").symlink_to(tmp_path)
    assert found(tmp_path) == ["a.csv"]


def test_a_linked_folder_is_read(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.csv")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path / "data") == ["a.csv"]
