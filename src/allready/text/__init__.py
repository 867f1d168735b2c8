"""People-facing text by language; see `allready.text.catalog`."""
