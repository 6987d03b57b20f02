"""The table of docs/as-run.md is that of the tests that hold it; ``utils/as_run_table.py`` writes it."""

import pytest

import as_run_table


def test_page_has_the_table_of_the_tests_that_exist():
    page = as_run_table.TABLE.read_text(encoding="utf-8")

    assert page == as_run_table.with_table(page, as_run_table.table([*as_run_table.held()]))


def test_every_row_has_tests_and_something_to_say():
    found = [*as_run_table.held()]

    assert {row for row, said in found if said} == {row for row, _ in found} == as_run_table.ROWS.keys()


def test_row_that_is_none_is_refused(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text("@pytest.mark.as_run('fpeft', works='')\ndef test_it(): pass\n")
    monkeypatch.setattr(as_run_table, "ROOT", tmp_path)

    with pytest.raises(SystemExit, match=r"test_it\.py: as_run\('fpeft', works\) is no row and columns of ROWS"):
        list(as_run_table.held())
