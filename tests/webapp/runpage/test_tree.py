"""Configurations as trees."""

from webapp.runpage.tree import Node, tree_of


def test_a_document_becomes_nodes_in_its_order() -> None:
    document = {"b": {"x": None, "on": True}, "a": [1, 0.5], "methods": [{"slug": "sps"}], "none": []}
    assert tree_of(document) == (
        Node("b", children=(Node("x"), Node("on", values=("on",)))),
        Node("a", values=("1", "0.5")),
        Node("methods", children=(Node("1", children=(Node("slug", values=("sps",)),)),)),
        Node("none"),
    )
