"""The scoreboard: every row of the fault suite as data, played in a lab under `allready run`, and what came of it.

`rows_*` are the scenarios, `play` carries one out, `watch` sees what report.json says and when, `marks` judges that
against the truth, `board` puts it together.
"""
