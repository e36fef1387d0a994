"""Views and their watchers."""

from appliance.courier.view import View, Watcher


def test_watcher_gets_the_last_change_of_each_row_after_its_version():
    view, woken = View("v", rows_max=10, bytes_max=100), []
    view.put("a", 1)
    watcher = Watcher(lambda: woken.append(1), lambda key: key != "hidden")
    assert view.watch(watcher) == 1
    for key, row in (("a", 2), ("b", 1), ("b", 2), ("hidden", 1), ("c", 1)):
        view.put(key, row)
    view.remove("c")
    assert watcher.pop(10) == [("a", 2, "update", 2), ("b", 4, "add", 2)]
    view.remove("a")
    assert watcher.pop(10) == [("a", 8, "remove", 2)]
    assert woken


def test_view_evicts_rows_unchanged_for_longest():
    view = View("v", rows_max=3, bytes_max=10)
    watcher = Watcher(lambda: None, lambda _: True)
    for key in ("a", "b", "c"):
        assert view.put(key, b"123") == []
    view.watch(watcher)
    assert view.put("a", b"321") == []  # now it is the row that changed last
    assert view.put("d", b"1") == ["b"]
    assert view.put("e", b"1234567") == ["c", "a"]
    assert (list(view.rows), view.bytes) == (["d", "e"], 8)
    assert [(key, change) for key, _, change, _ in watcher.pop(10)] == [
        ("d", "add"), ("b", "remove"), ("e", "add"), ("c", "remove"), ("a", "remove")
    ]  # fmt: skip
    assert view.put("f", b"more than fits at all") == ["d", "e"]
    view.remove("f")
    assert view.bytes == 0
