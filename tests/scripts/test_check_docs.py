"""scripts/check_docs.py and scripts/banned_phrases.py find what they promise to find."""

from __future__ import annotations

from pathlib import Path, PurePath

import banned_phrases
import check_docs
import pytest


def phrases(*lines, path="docs/page.md"):
    return [(hit.line, hit.text) for hit in banned_phrases.banned_phrases("\n".join(lines), PurePath(path))]


def test_a_banned_phrase_is_found_with_its_line_in_any_case():
    assert phrases("fine", "Whoever calls, is told the id.") == [(2, "Whoever"), (2, "is told")]


@pytest.mark.parametrize(
    "line",
    [
        "the id is looked up in the registry",
        "1 to 64 small letters, digits and `-`",
        "the error is on the line 3 of the file",
        "there is no room for more files",
        "the interface has a surface",
        "the name is written by the worker",
        "Cog's documents, to the letter",
        "the name starts with a letter or a digit",
    ],
)
def test_legitimate_uses_are_not_found(line):
    assert phrases(line) == []


def test_only_whole_words_are_found():
    assert phrases("a desktop, a parcellation, embodying") == []


def test_a_phrase_is_found_across_the_lines_of_a_comment():
    assert phrases("fine", "    /// the client is", "    /// told the id") == [(2, "is told")]
    assert phrases("# it was written", "# down") == [(1, "written down")]


def test_a_phrase_can_be_allowed_in_one_file(monkeypatch):
    monkeypatch.setattr(banned_phrases, "ALLOWED", {"crates/a.rs": frozenset({"nobody"})})
    assert phrases("nobody", path="crates/a.rs") == []
    assert phrases("nobody", path="crates/b.rs") == [(1, "nobody")]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path


def page(repository: Path, text: str) -> Path:
    file = repository / "docs" / "page.md"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_problem_names_file_line_phrase_and_replacement(repository):
    (problem,) = check_docs.language_problems(page(repository, "fine\nthe desk\n"))
    assert problem == 'docs/page.md:2: banned phrase "desk": write `job service` instead'


def test_links_to_missing_files_and_headings_are_problems(repository):
    text = "# Health\n[a](#health) [b](#welfare) [c](other.md) [d](https://example.com)\n"
    assert list(check_docs.page_problems(page(repository, text))) == [
        "docs/page.md:2: `#welfare`: there is no such heading",
        "docs/page.md:2: `other.md` does not exist",
    ]


def test_paths_in_code_blocks_are_not_checked(repository):
    text = "`docs/none.md`\n\n```\n`docs/none.md`\n```\n"
    assert list(check_docs.page_problems(page(repository, text))) == [
        "docs/page.md:1: `docs/none.md` does not exist"
    ]
