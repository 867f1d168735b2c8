"""The one judge: from evidence to findings, one verdict and one report."""
