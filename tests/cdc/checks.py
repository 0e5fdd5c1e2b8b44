"""What holds of every table with changes, whatever it has been through."""

from __future__ import annotations

from bed.read import Question, TableView, ask_java, pyiceberg_table

EQUALITY = 2


def check_deletes(*views: TableView) -> None:
    """No equality deletes, now or ever; each data file has one delete file at most."""
    for view in views:
        for snapshot in view.snapshots():
            for key, value in snapshot["summary"].items():
                assert "equality" not in key or value == "0", f"{view.table}: {key}={value}"
        listed = pyiceberg_table(view).inspect.delete_files().to_pylist()
        assert all(file["content"] != EQUALITY for file in listed), f"{view.table}: {listed}"
    answers = ask_java([Question(view.location(), "files") for view in views])
    for view, files in zip(views, answers, strict=True):
        most = max((int(file["deletes"]) for file in files), default=0)
        assert most <= 1, f"{view.table}: {most} delete files for one data file"
