"""The fault suite: every row as data, played in a lab under `allready run`, and a scoreboard of what came of it.

`rows_*` are the scenarios, `play` carries one out, `watch` reads what report.json says and when, `result` judges that
against the truth, `board` puts it together, `command` is the command line.
"""
