"""scripts/check_names.py finds types that share a name."""

from __future__ import annotations

import check_names
import pytest


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(check_names, "ROOT", tmp_path)
    return tmp_path


def rust(workspace, path, text):
    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def names(*files):
    types = [found for file in files for found in check_names.declared_types(file) if found.public]
    return {
        name: [f"{place.path.name}:{place.line}" for place in places]
        for name, places in check_names.repeated_names(types).items()
    }


def test_two_public_types_with_one_name_are_found_with_their_places(workspace):
    a = rust(workspace, "crates/a/src/a.rs", "pub struct Job;\n")
    b = rust(workspace, "crates/b/src/b.rs", "\npub(crate) trait Job {}\n")
    assert names(a, b) == {"Job": ["a.rs:1", "b.rs:2"]}


def test_private_types_role_names_and_wire_types_may_share_a_name(workspace):
    a = rust(workspace, "crates/a/src/a.rs", "struct Job;\npub struct Config;\npub enum Reply {}\n")
    b = rust(workspace, "crates/b/src/b.rs", "pub struct Job;\npub struct Config;\n")
    wire = rust(workspace, "crates/b/src/wire.rs", "pub struct Reply;\n")
    assert names(a, b, wire) == {}


def test_types_of_tests_do_not_count(workspace):
    inline = (
        "pub struct Job;\n#[cfg(test)]\nmod tests {\n    pub struct Job;\n}\n#[cfg(test)]\npub struct Job;\n"
    )
    a = rust(workspace, "crates/a/src/a.rs", inline)
    b = rust(workspace, "crates/a/src/a/tests.rs", "pub struct Job;\n")
    assert names(a, b) == {}


def test_a_type_behind_a_module_for_tests_counts(workspace):
    text = "#[cfg(test)]\nmod tests {\n    struct Other;\n}\npub struct Job;\n"
    a = rust(workspace, "crates/a/src/a.rs", text)
    b = rust(workspace, "crates/b/src/b.rs", "pub struct Job;\n")
    assert names(a, b) == {"Job": ["a.rs:5", "b.rs:1"]}


def test_associated_types_do_not_count(workspace):
    a = rust(workspace, "crates/a/src/a.rs", "impl Iterator for A {\n    type Item = u8;\n}\n")
    b = rust(workspace, "crates/b/src/b.rs", "pub trait B {\n    type Item;\n}\n")
    types = [found.name for file in (a, b) for found in check_names.declared_types(file)]
    assert types == ["B"]
