"""Frozen data: facts, evidence of the job, findings, fleet, report.  Standard library and msgspec only.

Every public name of these modules is imported from here.
"""
# ruff: noqa: F403

from allready.model.call_site import *
from allready.model.course import *
from allready.model.events import *
from allready.model.facts import *
from allready.model.finding import *
from allready.model.fleet import *
from allready.model.job import *
from allready.model.live import *
from allready.model.numbers import *
from allready.model.process import *
from allready.model.report import *
from allready.model.run_evidence import *
from allready.model.run_summary import *
from allready.model.runtime import *
from allready.model.runtime_log import *
from allready.model.settings import *
